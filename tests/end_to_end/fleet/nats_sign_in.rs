//! Signing in at NATS with TLS, NKeys and credentials files (F1), with real servers.

use crate::nats_server::Cluster;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command that needs NATS.
fn dead_letters(address: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Output {
    let mut command = crate::support::agent_host();
    for variable in ["AGENT_HOST_NATS", "AGENT_HOST_NATS_CREDENTIALS", "NATS_PASSWORD", "SSL_CERT_FILE"] {
        command.env_remove(variable);
    }
    command.args(["dead-letter", "list", "--nats", address]).args(arguments).envs(variables.iter().copied());
    command.output().expect("the program runs")
}

/// Returns what `doctor` says.
fn doctor(address: &str, credentials: &str) -> String {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = crate::support::agent_host();
    command.args(["doctor", "--nats", address, "--nats-credentials", credentials, "--data"]).arg(data.path());
    String::from_utf8(command.output().expect("the program runs").stdout).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_accepted(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn assert_refused(output: &Output, reason: &str) {
    let printed = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains(reason), "{printed}");
}

/// Encodes claims as NATS does, with the signature of their issuer.
fn jwt(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: &Value) -> String {
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name, "nats": nats,
    });
    let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = issuer.sign(signed.as_bytes()).expect("signed");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn credentials(jwt: &str, user: &KeyPair) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n\
         ------END USER NKEY SEED------\n",
        user.seed().expect("a seed")
    )
}

/// F1: A process signs in with the seed of a user's NKey. If the server does not accept it, the message says so.
#[test]
fn f1_a_process_signs_in_at_nats_with_an_nkey() {
    let (user, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let users = format!("authorization {{ users: [ {{ nkey: {} }} ] }}\n", user.public_key());
    let Some(cluster) = Cluster::start_with_settings(&users) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, key: &KeyPair| {
        let path = folder.path().join(name);
        std::fs::write(&path, key.seed().expect("a seed")).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let (known, unknown) = (write("known", &user), write("unknown", &stranger));
    assert_accepted(&dead_letters(&cluster.address(), &["--nats-credentials", &known], &[]));
    assert_accepted(&dead_letters(&cluster.address(), &[], &[("AGENT_HOST_NATS_CREDENTIALS", Path::new(&known))]));
    let refused = dead_letters(&cluster.address(), &["--nats-credentials", &unknown], &[]);
    assert_refused(&refused, "it does not accept the credentials");
    assert_refused(&dead_letters(&cluster.address(), &[], &[]), "it does not accept the credentials");
    assert!(doctor(&cluster.address(), &known).contains("answers, with JetStream"));
    assert!(doctor(&cluster.address(), &unknown).contains("it does not accept the credentials"));
}

/// F1: A process signs in with a credentials file that an account has issued.
#[test]
fn f1_a_process_signs_in_at_nats_with_a_credentials_file() {
    let [operator, account, system] = [KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account()];
    let user = KeyPair::new_user();
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let system_limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    let claims_of_operator = json!({"type": "operator", "version": 2, "system_account": system.public_key()});
    let claims_of = |limits: &Value| json!({"type": "account", "version": 2, "limits": limits});
    let settings = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n",
        jwt(&operator, &operator, "operator", &claims_of_operator),
        system.public_key(),
        account.public_key(),
        jwt(&operator, &account, "agents", &claims_of(&limits)),
        system.public_key(),
        jwt(&operator, &system, "system", &claims_of(&system_limits)),
    );
    let Some(cluster) = Cluster::start_with_settings(&settings) else { return };
    let claims_of_user =
        json!({"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1});
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("user.creds");
    let arguments = ["--nats-credentials", file.to_str().expect("a path")];
    std::fs::write(&file, credentials(&jwt(&account, &user, "user", &claims_of_user), &user)).expect("written");
    assert_accepted(&dead_letters(&cluster.address(), &arguments, &[]));
    // The user was issued by nobody whom the operator knows.
    std::fs::write(&file, credentials(&jwt(&KeyPair::new_account(), &user, "user", &claims_of_user), &user))
        .expect("written");
    assert_refused(&dead_letters(&cluster.address(), &arguments, &[]), "it does not accept the credentials");
}

/// F1: `tls://` accepts only a certificate that this machine trusts.
#[test]
fn f1_tls_of_nats_needs_a_trusted_certificate() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, cert.pem()).expect("written");
    std::fs::write(&key, signing_key.serialize_pem()).expect("written");
    let settings = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n");
    let Some(cluster) = Cluster::start_with_settings(&settings) else { return };
    let address = cluster.address().replace("nats://", "tls://");
    assert_accepted(&dead_letters(&address, &[], &[("SSL_CERT_FILE", &certificate)]));
    assert_refused(&dead_letters(&address, &[], &[]), "no TLS connection with a certificate that this machine trusts");
}

/// F1: A server that asks clients for a certificate accepts the certificate of its authority, and the message about another one, or
/// about none, says what is wrong. A certificate is used with TLS only.
#[test]
fn f1_a_process_shows_its_certificate_to_nats() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let issued = |name: &str| {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        std::fs::write(path(&format!("{name}.pem")), cert.pem()).expect("written");
        std::fs::write(path(&format!("{name}.key")), signing_key.serialize_pem()).expect("written");
    };
    ["server", "known", "stranger"].into_iter().for_each(issued);
    let (server, key, known) = (path("server.pem"), path("server.key"), path("known.pem"));
    let settings = format!("tls {{ cert_file: {server:?}, key_file: {key:?}, ca_file: {known:?}, verify: true }}\n");
    let Some(cluster) = Cluster::start_with_settings(&settings) else { return };
    let list = |certificate: &str, key: &str| {
        let (certificate, key) = (path(certificate), path(key));
        let arguments = ["--nats-certificate", certificate.to_str().unwrap(), "--nats-key", key.to_str().unwrap()];
        dead_letters(&cluster.address(), &arguments, &[("SSL_CERT_FILE", &server)])
    };
    assert_accepted(&list("known.pem", "known.key"));
    assert_refused(&list("stranger.pem", "stranger.key"), "does not accept the certificate of this process");
    let tls = cluster.address().replace("nats://", "tls://");
    let without = dead_letters(&tls, &[], &[("SSL_CERT_FILE", &server)]);
    assert_refused(&without, "does not accept the certificate of this process");
    let from_variables = [
        ("SSL_CERT_FILE", &*server),
        ("AGENT_HOST_NATS_CERTIFICATE", &*known),
        ("AGENT_HOST_NATS_KEY", &*path("known.key")),
    ];
    assert_accepted(&dead_letters(&cluster.address(), &[], &from_variables));

    assert_refused(&list("known.pem", "stranger.key"), "cannot be used for TLS with NATS");
    assert_refused(&list("known.key", "known.key"), "contains no certificate");
    assert_refused(&list("known.pem", "known.pem"), "contains no private key");
    assert_refused(&list("missing.pem", "known.key"), "cannot be read");
    let alone = dead_letters(&cluster.address(), &["--nats-key", path("known.key").to_str().unwrap()], &[]);
    assert_refused(&alone, "needs its certificate");
}

/// F1, row 47: A file that contains no credentials is refused before anything is sent, and no part of it is printed.
#[test]
fn f1_files_without_credentials_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    std::fs::write(path("wrong"), "SUAs3cret\n").expect("written");
    assert!(Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo runs").success());
    let files = [("wrong", "no credentials"), ("pipe", "cannot be read"), ("missing", "cannot be read")];
    for (name, reason) in files {
        let refused = dead_letters("nats://127.0.0.1:1", &["--nats-credentials", &path(name)], &[]);
        assert_refused(&refused, reason);
        assert!(stderr(&refused).contains(name) && !stderr(&refused).contains("s3cret"), "{}", stderr(&refused));
    }
    std::fs::write(path("seed"), KeyPair::new_user().seed().expect("a seed")).expect("written");
    let seed = path("seed");
    let twice = dead_letters(
        "nats://ann@127.0.0.1:1",
        &["--nats-credentials", &seed],
        &[("NATS_PASSWORD", Path::new("s3cret"))],
    );
    assert_refused(&twice, "two ways to sign in");
    assert!(!stderr(&twice).contains("s3cret"));
}
