//! Tests of unreachable servers, and of machines without certificates or with a proxy.

use crate::client::{ask, config, failure, message, model, model_of, model_with_timeouts, simple_request};
use crate::server::{Server, Step, streamed};
use agent_models::error::Unreachable;
use agent_models::{ModelError, Providers};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Environment variable that is set in the child process of a test. The child process has no root certificates, and its
/// only proxy is broken.
const WITHOUT_CERTIFICATES: &str = "AGENT_HOST_TEST_WITHOUT_CERTIFICATES";

fn cause(error: &ModelError) -> Unreachable {
    let ModelError::Unreachable { cause, .. } = error else { panic!("{error:?}") };
    *cause
}

#[tokio::test]
async fn m5_a_refused_connection_is_explained() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failure(&model_of(config(&format!("http://{address}/v1"))), &simple_request()).await;
    assert!(cause(&error) == Unreachable::NoServer && error.retryable());
    insta::assert_snapshot!(error.to_string().replace(&address.port().to_string(), "PORT"), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions cannot be reached: Connection refused (os error 111). Start the server, or check the port in the base URL");
}

/// A label of 70 characters is invalid in a host name, so the test does not send a DNS request.
#[tokio::test]
async fn m5_an_unknown_host_is_explained() {
    let name = "a".repeat(70);
    let error = failure(&model_of(config(&format!("http://{name}.invalid/v1"))), &simple_request()).await;
    assert!(cause(&error) == Unreachable::UnknownHost && error.retryable(), "{error:?}");
    assert!(error.to_string().ends_with("Check the network connection, and check the base URL for typos"), "{error}");
}

#[tokio::test]
async fn m5_https_to_a_server_without_tls_is_explained() {
    let server = Server::always(streamed("hello"));
    let error = failure(&model_of(config(&server.base_url().replace("http:", "https:"))), &simple_request()).await;
    assert!(cause(&error) == Unreachable::Tls && !error.retryable(), "{error:?}");
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at https://127.0.0.1:PORT/v1/chat/completions cannot be reached: received corrupt message of type InvalidContentType. Check whether the base URL must begin with `http://` or `https://`, and check this machine's clock and certificates, and any proxy between this machine and the server");
}

/// A listener with a full queue neither accepts nor refuses connections.
#[tokio::test]
async fn m5_a_connection_that_is_never_accepted_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut connections = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        connections.push(stream);
        assert!(connections.len() < 10_000);
    }
    let started = Instant::now();
    let mut config = config(&format!("http://{address}/v1"));
    config.timeouts.connect = Duration::from_millis(300);
    let error = failure(&model_of(config), &simple_request()).await;
    assert!(started.elapsed() >= Duration::from_millis(290) && started.elapsed() < Duration::from_secs(20));
    assert!(cause(&error) == Unreachable::Timeout && error.retryable(), "{error:?}");
}

/// After a client has lost two connections, its next request succeeds over a new connection.
#[tokio::test]
async fn m3_a_lost_connection_is_not_reused() {
    let server = Server::start(vec![vec![Step::Close], vec![Step::AwaitClose], streamed("hello")]);
    let model = model_with_timeouts(&server, (1000, 200, 5000));
    assert!(failure(&model, &simple_request()).await.retryable());
    assert!(failure(&model, &simple_request()).await.retryable());
    assert_eq!(ask(&model, &simple_request()).await.0.unwrap().reply.text, "hello");
}

/// Containers often have no root certificates. HTTP without TLS works without root certificates, and HTTPS reports that
/// they are missing. A server on this machine is reached directly, even if a proxy is configured.
#[test]
fn servers_on_this_machine_need_neither_certificates_nor_proxy() {
    if std::env::var_os(WITHOUT_CERTIFICATES).is_some() {
        return without_certificates();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "unreachable::servers_on_this_machine_need_neither_certificates_nor_proxy",
        "--nocapture",
    ]);
    command
        .env(WITHOUT_CERTIFICATES, "1")
        .env("SSL_CERT_FILE", "/nonexistent/file")
        .env("SSL_CERT_DIR", "/nonexistent/directory");
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(proxy, "http://127.0.0.1:1");
    }
    let output = command.env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn without_certificates() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::always(streamed("hello"));
    let reply = runtime.block_on(async { ask(&model(&server), &simple_request()).await.0 });
    assert_eq!(reply.unwrap().reply.text, "hello");
    let error = Providers::new(vec![config("https://127.0.0.1:1/v1")]).model("test/m", Path::new("/")).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the configuration of provider `test` is invalid: TLS cannot be set up: unexpected error: No CA certificates were \
         loaded from the system. Install the root certificates of this system (`ca-certificates`)"
    );
}
