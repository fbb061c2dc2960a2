//! Where the server accepts connections: TLS with certificates that are replaced, and Unix sockets (I3, row 25).

use super::{TestServer, clerk};
use crate::support::{TestHost, agent_host, text_reply};
use agent_serve::{Endpoint, ServerOptions, TlsFiles};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Writes a new certificate for `localhost` and its key, and returns the certificate.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(folder.join("key.pem"), signing_key.serialize_pem()).expect("written");
    std::fs::write(folder.join("certificate.pem"), cert.pem()).expect("written");
    cert.der().clone()
}

/// Asks whether the server runs, over a connection of any kind.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut answer = String::new();
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_string(&mut answer).await
    };
    match tokio::time::timeout(Duration::from_secs(30), asked).await.expect("the server answers") {
        Ok(_) => answer,
        Err(error) => format!("{error}: {answer}"),
    }
}

/// Asks over TLS, and accepts only this certificate.
async fn ask_with(server: &TestServer, trusted: &CertificateDer<'static>) -> Result<String, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("the certificate is valid");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the versions are supported");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(ask(stream).await)
}

/// I3: the server uses the certificate in the files, and a changed certificate without a restart. A damaged file changes
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn i3_tls_uses_the_certificate_in_the_files() {
    let (test_host, folder) = (TestHost::new(&[]).await, tempfile::tempdir().expect("a folder"));
    let first = write_certificate(folder.path());
    let files = TlsFiles { certificate: folder.path().join("certificate.pem"), key: folder.path().join("key.pem") };
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let with_tls = |options: ServerOptions| ServerOptions {
        endpoint: Endpoint::Tls("127.0.0.1:0".parse().expect("an address"), files.clone()),
        header_timeout: Duration::from_secs(2),
        ..options
    };
    let server = TestServer::start_with(&test_host, &[&agent], with_tls).await;
    assert!(ask_with(&server, &first).await.expect("a connection").starts_with("HTTP/1.1 200"));
    let plain = TcpStream::connect(server.address()).await.expect("a connection");
    assert!(!ask(plain).await.contains("200 OK"), "a request without TLS is not answered");
    // Row 25: a client that never agrees on TLS is disconnected.
    let mut silent = TcpStream::connect(server.address()).await.expect("a connection");
    let ended = tokio::time::timeout(Duration::from_secs(30), silent.read_u8()).await.expect("the server closes it");
    assert!(ended.is_err());
    let second = write_certificate(folder.path());
    let replaced = super::until(async || ask_with(&server, &second).await.ok()).await;
    assert!(replaced.starts_with("HTTP/1.1 200"));
    assert!(ask_with(&server, &first).await.is_err(), "the first certificate is not used any more");
    std::fs::write(folder.path().join("certificate.pem"), "damaged").expect("written");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(ask_with(&server, &second).await.is_ok(), "a damaged file changes nothing");
    server.stop().await;
}

/// I3: only the user of the server can use its socket. The socket of a server that was killed is replaced, but neither a
/// socket in use nor another file.
#[tokio::test(flavor = "multi_thread")]
async fn i3_a_unix_socket_is_private_and_replaced() {
    let (test_host, folder) = (TestHost::new(&[]).await, tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("agent-host.sock");
    // A socket without a server, as a killed server leaves it.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let on_socket = |options: ServerOptions| ServerOptions { endpoint: Endpoint::Unix(path.clone()), ..options };
    let server = TestServer::start_with(&test_host, &[&agent], on_socket).await;
    assert_eq!(std::fs::metadata(&path).expect("the socket exists").permissions().mode() & 0o777, 0o600);
    let stream = UnixStream::connect(&path).await.expect("a connection");
    assert!(ask(stream).await.starts_with("HTTP/1.1 200"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder is read").collect();
    assert_eq!(names.len(), 1, "no other file is left: {names:?}");
    let refused = try_socket(folder.path(), "agent-host.sock");
    assert!(refused.contains("another server uses it"), "{refused}");
    server.stop().await;
    assert!(!path.exists(), "the socket is removed");
    std::fs::write(&path, "data").expect("written");
    let refused = try_socket(folder.path(), "agent-host.sock");
    assert!(refused.contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).expect("the file is read"), "data");
}

/// Starts the binary with this socket, which must fail, and returns what it prints.
fn try_socket(folder: &Path, socket: &str) -> String {
    run_serve(folder, &["--socket", socket])
}

fn run_serve(folder: &Path, arguments: &[&str]) -> String {
    std::fs::create_dir_all(folder.join("plugins")).expect("created");
    let output = agent_host()
        .args(["--data", "data", "serve", "--plugins", "plugins", "--model", "offline"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// I3: an address of the network needs TLS, and unusable certificates are named.
#[test]
fn i3_an_address_of_the_network_needs_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = run_serve(folder.path(), &["--listen", "0.0.0.0:0"]);
    assert!(refused.contains("--tls-certificate"), "{refused}");
    std::fs::write(folder.path().join("empty.pem"), "").expect("written");
    let refused = run_serve(folder.path(), &["--tls-certificate", "empty.pem", "--tls-key", "none.pem"]);
    assert!(refused.contains("`empty.pem` is not a file with certificates"), "{refused}");
    write_certificate(folder.path());
    let refused = run_serve(folder.path(), &["--tls-certificate", "certificate.pem", "--tls-key", "none.pem"]);
    assert!(refused.contains("`none.pem` is not a file with a private key"), "{refused}");
}
