//! Rows 16, 18 and 23: a hostile registry cannot cause damage or learn secrets.

use crate::registry::{Faults, TestRegistry};
use crate::signatures::{attach_signature_by, fetch_and_verify, key, trust};
use crate::{TestClient, component, facts};
use agent_registry::sign;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

async fn with_plugin() -> (TestRegistry, String) {
    let registry = TestRegistry::start();
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    TestClient::new().push(&reference, &component(1000)).await.expect("the push succeeds");
    (registry, reference)
}

fn login(registry: &TestRegistry, set_faults: fn(&mut Faults)) -> TestClient {
    registry.set(|faults| {
        faults.login = Some(("ann".to_owned(), "very secret".to_owned()));
        set_faults(faults);
    });
    let auth = format!(r#"{{"auths": {{"{}": {{"username": "ann", "password": "very secret"}}}}}}"#, registry.host());
    TestClient::with(Some(&auth))
}

/// Row 16: a secret that a server returns in an error message is not displayed.
#[tokio::test]
async fn secrets_in_error_responses_are_not_shown() {
    let (registry, reference) = with_plugin().await;
    for (tokens, secret) in [(false, "YW5uOnZlcnkgc2VjcmV0"), (true, "a-token")] {
        let client = login(&registry, |_| {});
        registry.set(|faults| faults.tokens = tokens);
        client.fetch(&reference).await.expect("fetched with the login");
        registry.set(|faults| faults.refuse = vec![(400, "")]);
        let error = client.fetch(&reference).await.expect_err("it is refused").to_string();
        assert!(error.contains("not now") && !error.contains(secret), "{error}");
    }
}

/// A registry can choose the address to which the host sends an upload or a login. If this address does not use TLS,
/// nothing is sent to it, unless the address is on this machine.
#[tokio::test]
async fn uploads_and_logins_are_sent_to_allowed_addresses_only() {
    let (registry, reference) = with_plugin().await;
    registry.set(|faults| faults.upload_to = Some("file:///tmp".to_owned()));
    let other = reference.replace("1.0.0", "other");
    let error = TestClient::new().push(&other, &component(1001)).await.expect_err("it is refused").to_string();
    assert!(error.contains("does not use TLS"), "{error}");
    registry.set(|faults| faults.upload_to = Some("http://registry.example".to_owned()));
    let error = TestClient::new().push(&other, &component(1001)).await.expect_err("it is refused").to_string();
    assert!(error.contains("does not use TLS"), "{error}");
    let client = login(&registry, |faults| faults.tokens = true);
    registry.set(|faults| faults.realm = Some("http://auth.example/token".to_owned()));
    let error = client.fetch(&reference).await.expect_err("it is refused").to_string();
    assert!(error.contains("does not use TLS") && !error.contains("secret"), "{error}");
}

/// Returns a registry that lists invalid tags. The last two tags look like versions that are newer than the existing
/// version.
async fn with_strange_tags() -> (TestRegistry, String) {
    let (registry, reference) = with_plugin().await;
    let strange = ["\u{1b}[2J", "../../../token", "a b", "plugin-/../x", "9.9.9+\u{202e}", "9.9.9+evil", "9.9.9-a+b"];
    registry.set(|faults| faults.strange_tags = strange.iter().map(|tag| (*tag).to_owned()).collect());
    (registry, reference)
}

/// Invalid tags are ignored and are not shown in messages.
#[tokio::test]
async fn invalid_tags_are_not_shown() {
    let (_registry, reference) = with_strange_tags().await;
    let error = TestClient::new()
        .fetch(&reference.replace("1.0.0", "2.0.0"))
        .await
        .expect_err("the tag does not exist")
        .to_string();
    assert!(error.contains("are: 1.0.0") && !error.contains(['\u{1b}', '\u{202e}']), "{error}");
}

/// An invalid tag is never chosen as the newest version and is therefore never inserted into a URL.
#[tokio::test]
async fn invalid_tag_is_not_the_newest_version() {
    let (registry, reference) = with_strange_tags().await;
    registry.requests();
    TestClient::new().fetch(reference.trim_end_matches(":1.0.0")).await.expect("the newest valid tag is fetched");
    let requests = registry.requests().concat();
    assert!(requests.contains("/manifests/1.0.0") && !requests.contains("9.9.9"), "{requests}");
}

/// Row 23: a signature that contains the id of the trusted key, but was made with another key, is not accepted. The
/// host still finds a valid signature next to the signature with the wrong key.
#[tokio::test]
async fn signature_with_a_copied_key_id_is_refused() {
    let (registry, client) = (TestRegistry::start(), TestClient::new());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    let pushed = client.push(&reference, &bytes).await.expect("the push succeeds");
    let (team, stranger) = (key(), key());
    let forged = sign(&stranger, &bytes, &pushed.claims(&facts())).expect("signing succeeds");
    let public = STANDARD.decode(team.public.as_str()).expect("the base64 text is valid");
    let line = forged.lines().nth(1).expect("there is a signature");
    let mut altered = STANDARD.decode(line).expect("the base64 text is valid");
    altered[2..10].copy_from_slice(&public[2..10]);
    let forged = forged.replace(line, &STANDARD.encode(altered));
    client.registry.attach_signature(&pushed, &forged).await.expect("anybody who may push can attach signatures");
    let trust = trust(&registry, &team);
    let error = fetch_and_verify(&client, &trust, &reference).await.expect_err("it is refused");
    assert!(error.contains("does not match the component"), "{error}");
    attach_signature_by(&client, &pushed, &bytes, &team).await;
    fetch_and_verify(&client, &trust, &reference).await.expect("the valid signature is found");
}
