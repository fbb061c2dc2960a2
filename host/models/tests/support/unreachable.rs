//! Servers that are not there, and machines without certificates or with a proxy.

use crate::asking::{ask, config, failure, go, hasty, message, model, model_of};
use crate::server::{Server, Step, streamed};
use agent_models::error::Unreachable;
use agent_models::{ModelError, Providers};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Set in the process that has neither certificates nor a direct way out.
const BARE: &str = "AGENT_HOST_TEST_WITHOUT_CERTIFICATES";

fn why(error: &ModelError) -> Unreachable {
    let ModelError::Unreachable { why, .. } = error else { panic!("{error:?}") };
    *why
}

#[tokio::test]
async fn m5_no_server_there() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failure(&model_of(config(&format!("http://{address}/v1"))), &go()).await;
    assert!(why(&error) == Unreachable::NoServer && error.retryable());
    insta::assert_snapshot!(error.to_string().replace(&address.port().to_string(), "PORT"), @"test/some/model at http://127.0.0.1:PORT/v1/chat/completions cannot be reached: Connection refused (os error 111). Start the server, or check the port in the base URL");
}

/// A label of 70 characters is no name that anybody would look up.
#[tokio::test]
async fn m5_a_host_that_has_no_address() {
    let name = "a".repeat(70);
    let error = failure(&model_of(config(&format!("http://{name}.invalid/v1"))), &go()).await;
    assert!(why(&error) == Unreachable::UnknownHost && error.retryable(), "{error:?}");
    assert!(error.to_string().ends_with("Check the base URL for a typing error, and the network"), "{error}");
}

#[tokio::test]
async fn m5_https_to_a_server_that_speaks_none() {
    let server = Server::always(streamed("hello"));
    let error = failure(&model_of(config(&server.base_url().replace("http:", "https:"))), &go()).await;
    assert!(why(&error) == Unreachable::Tls && !error.retryable(), "{error:?}");
    insta::assert_snapshot!(message(&error, &server), @"test/some/model at https://127.0.0.1:PORT/v1/chat/completions cannot be reached: received corrupt message of type InvalidContentType. Check that the base URL begins with the right `http://` or `https://`, that this machine's clock and certificates are right, and whether a proxy stands between");
}

/// A listener whose queue is full takes no connection, and refuses none.
#[tokio::test]
async fn m5_a_server_that_does_not_take_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
        assert!(waiting.len() < 10_000);
    }
    let begun = Instant::now();
    let mut config = config(&format!("http://{address}/v1"));
    config.timeouts.connect = Duration::from_millis(300);
    let error = failure(&model_of(config), &go()).await;
    assert!(begun.elapsed() >= Duration::from_millis(290) && begun.elapsed() < Duration::from_millis(1300));
    assert!(why(&error) == Unreachable::Timeout && error.retryable(), "{error:?}");
}

/// The server comes back: the next try succeeds with the same client.
#[tokio::test]
async fn m3_a_broken_connection_is_not_kept() {
    let server = Server::start(vec![vec![Step::Close], vec![Step::AwaitClose], streamed("hello")]);
    let model = hasty(&server, (1000, 200, 5000));
    assert!(failure(&model, &go()).await.retryable());
    assert!(failure(&model, &go()).await.retryable());
    assert_eq!(ask(&model, &go()).await.0.unwrap().reply.text, "hello");
}

/// Containers often have no root certificates: plain HTTP needs none, and HTTPS says what is missing. A server on this
/// machine is asked directly, whatever proxy the system has.
#[test]
fn servers_on_this_machine_need_neither_certificates_nor_proxy() {
    if std::env::var_os(BARE).is_some() {
        return in_a_bare_machine();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "unreachable::servers_on_this_machine_need_neither_certificates_nor_proxy",
        "--nocapture",
    ]);
    command.env(BARE, "1").env("SSL_CERT_FILE", "/nonexistent/file").env("SSL_CERT_DIR", "/nonexistent/folder");
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(proxy, "http://127.0.0.1:1");
    }
    let output = command.env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn in_a_bare_machine() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::always(streamed("hello"));
    let reply = runtime.block_on(async { ask(&model(&server), &go()).await.0 });
    assert_eq!(reply.unwrap().reply.text, "hello");
    let error = Providers::new(vec![config("https://127.0.0.1:1/v1")]).model("test/m", Path::new("/")).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the provider `test` cannot be asked: no secure connections can be made: unexpected error: No CA certificates were \
         loaded from the system. Install this system's root certificates (`ca-certificates`)"
    );
}
