//! The network: rows 7, 14 and 15, the limits of requests, and requests over TLS.

use crate::guests::component;
use crate::scene::{Scene, run_exclusively, with_grants};
use crate::server::{Server, read_head};
use crate::support::{TestHost, components, scratch};
use agent_plugins::{CallLimits, Grants, HostLimits, LoadError, NameResolver, Sandbox, SandboxOptions};
use agent_runtime::AgentConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn config_for(patterns: &[&str]) -> AgentConfig {
    let http = patterns.iter().map(|text| text.parse().expect(text)).collect();
    with_grants("intruder", Grants { http, ..Grants::default() }, CallLimits::default())
}

fn config_for_server(server: &Server) -> AgentConfig {
    with_grants("intruder", server.grants(), CallLimits::default())
}

/// Each repeat makes this many requests. A plugin of an agent has 60 a minute, so each repeat uses another agent.
fn with_agent_name(mut config: AgentConfig, time: usize) -> AgentConfig {
    config.name = format!("attacker-{time}");
    config
}

/// Row 7: An endless response ends at 10 MiB, an endless request at 1 MiB, with errors that name the limit.
#[test]
fn row_7_cuts_endless_bodies() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (endless, swallow) = (Server::endless(), Server::swallow());
        let attack = async |time| {
            let url = json!({"url": endless.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&endless), time), "intruder.get", url).await;
            assert!(!is_error && text.contains(&format!("exceeds limit: {} bytes", 10 << 20)), "{text}");
            let url = json!({"url": swallow.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&swallow), time), "intruder.upload", url).await;
            let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let sent = output_text["sent"].as_u64().unwrap_or_default();
            assert!(!is_error && sent <= 2 << 20, "{text}");
            assert!(
                output_text["answer"].as_str().is_some_and(|answer| answer.contains("HttpRequestBodySize")),
                "{text}"
            );
        };
        scene.repeat("row 7, bodies", attack).await;
    });
}

/// Row 7: Headers of more than 32 KiB are refused: in a request before anything is sent, and in a response.
#[test]
fn row_7_refuses_giant_headers() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".to_vec();
        for number in 0..60 {
            answer.extend(format!("x-{number}: {}\r\n", "y".repeat(1_000)).bytes());
        }
        answer.extend(b"\r\n");
        let (ok, large) = (Server::ok(), Server::answering(answer));
        let attack = async |time| {
            let before = ok.connections();
            let arguments = json!({"url": ok.url("/"), "bytes": 64_000});
            let call = ("intruder", "intruder.headers", arguments);
            scene.check_stopped(with_agent_name(config_for_server(&ok), time), call, "32 KiB of headers").await;
            assert_eq!(ok.connections(), before, "nothing was sent");
            let arguments = json!({"url": ok.url("/"), "bytes": 16_000});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&ok), time), "intruder.headers", arguments).await;
            assert!(!is_error && text.contains("200"), "what fits is sent: {text}");
            let arguments = json!({"url": large.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&large), time), "intruder.get", arguments).await;
            assert!(!is_error && !text.contains("200 with"), "{text}");
        };
        scene.repeat("row 7, headers", attack).await;
    });
}

/// Limits: 32 requests per call, which also count if nothing waits for their responses; 60 per minute for an agent's
/// plugin.
#[test]
fn limits_the_number_of_requests() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let server = Server::ok();
        let attack = async |time| {
            let config = || with_agent_name(config_for_server(&server), time);
            let before = server.connections();
            let get = |times: u32| json!({"url": server.url("/"), "times": times});
            let (is_error, text) = scene.call(config(), "intruder.get", get(40)).await;
            let answers: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let fine = answers.iter().filter(|answer| answer.starts_with("200")).count();
            assert!(!is_error && fine == 32 && answers[32].contains("limit: 32 requests in a call"), "{text}");
            let (is_error, text) = scene.call(config(), "intruder.get", get(30)).await;
            let answers: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let fine = answers.iter().filter(|answer| answer.starts_with("200")).count();
            assert!(!is_error && fine == 28 && answers[28].contains("60 requests per minute"), "{text}");
            assert_eq!(server.connections() - before, 60);
        };
        scene.repeat("limits, numbers of requests", attack).await;
        let silent = Server::silent();
        let attack = async |time| {
            let arguments = json!({"url": silent.url("/"), "times": 32});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&silent), time), "intruder.abandon", arguments).await;
            assert!(!is_error && text == "32", "{text}");
        };
        scene.repeat("limits, abandoned requests", attack).await;
    });
}

/// Row 14: Sockets and name lookups are denied; unknown imports are refused at load, with their names.
#[test]
fn row_14_denies_sockets_and_unknown_imports() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let server = Server::ok();
        let attack = async |_| {
            let config = config_for(&["GET http://*:*"]);
            let arguments = json!({"port": server.address.port()});
            let (is_error, text) = scene.call(config, "intruder.sockets", arguments).await;
            let denied = json!({"tcp_bound": false, "tcp_connected": false, "udp_bound": false, "name_resolved": false,
                "std_connected": false});
            assert_eq!((is_error, serde_json::from_str(&text).ok()), (false, Some(denied)), "{text}");
            assert_eq!(server.connections(), 0);
            for import in
                ["acme:thing/api@1.0.0", "wasi:sockets/tcp@0.3.0", "wasi:nn/tensor@0.2.0", "agent-host:host/x"]
            {
                let bytes = component(&format!(r#"(import "{import}" (instance (export "f" (func))))"#));
                let refused = scene.test_host.sandbox.load_bytes("importing", bytes).await;
                let Err(refused @ LoadError::Interface(_)) = refused else { panic!("{import}: {refused:?}") };
                assert!(refused.to_string().contains(import), "{refused}");
            }
        };
        scene.repeat("row 14", attack).await;
    });
}

/// The test's host names: each resolves to the addresses that it spells, the last one to another address each time.
#[derive(Debug)]
struct SpelledNames {
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl NameResolver for SpelledNames {
    async fn resolve(&self, name: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let lookup = self.asked.fetch_add(1, Ordering::SeqCst);
        let public: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(match name {
            "here.example" => vec![here],
            "both.example" => vec![public, here],
            "metadata.example" => vec![SocketAddr::from(([169, 254, 169, 254], port))],
            "mapped.example" => vec![format!("[::ffff:127.0.0.1]:{port}").parse().unwrap()],
            "nat64.example" => vec![format!("[64:ff9b::7f00:1]:{port}").parse().unwrap()],
            "turning.example" if lookup.is_multiple_of(2) => vec![public],
            "turning.example" => vec![here],
            _ => Vec::new(),
        })
    }
}

/// Row 15: Internal addresses in every spelling, names that resolve to them, and redirects to them: nothing ever
/// connects.
#[test]
fn row_15_never_connects_to_internal_addresses() {
    run_exclusively(async {
        let mut test_host = TestHost::new(&["probe", "intruder"]).await;
        let options = SandboxOptions {
            compiler: None,
            cache_directory: Some(scratch().join("cache")),
            store_directory: Some(test_host.directory.path().join("store")),
            limits: HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() },
            resolver: Some(Arc::new(SpelledNames { asked: AtomicUsize::new(0) })),
            verifier: None,
        };
        test_host.sandbox = Sandbox::new(options).expect("the sandbox starts");
        let scene = Scene::in_test_host(test_host).await;
        let inside = Server::ok();
        let port = inside.address.port();
        let hosts = [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::127.0.0.1]",
            "localhost",
            "localhost.",
            "LOCALHOST",
            "169.254.169.254",
            "here.example",
            "both.example",
            "metadata.example",
            "mapped.example",
            "nat64.example",
            "turning.example",
            "user@127.0.0.1",
            "127.0.0.1:80@127.0.0.1",
            "public.example#@127.0.0.1",
        ];
        let attack = async |time| {
            for (number, host) in hosts.iter().enumerate() {
                let config = with_agent_name(config_for(&["http://*:*", "https://*:*"]), 1_000 * time + number);
                let arguments = json!({"url": format!("http://{host}:{port}/")});
                let (_, text) = scene.call(config, "intruder.get", arguments).await;
                assert!(!text.contains("200 with"), "{host}: {text}");
            }
            assert_eq!(inside.connections(), 0, "nothing connected");
        };
        scene.repeat("row 15, addresses", attack).await;
        let target = inside.url("/secret");
        let redirect = format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let redirecting = Server::answering(redirect.into_bytes());
        let attack = async |time| {
            let config = with_agent_name(config_for_server(&redirecting), time);
            let (_, text) = scene.call(config, "intruder.get", json!({"url": redirecting.url("/")})).await;
            assert!(text.contains("302 with 0 bytes"), "the guest sees the redirect, and the host does not go: {text}");
            assert_eq!(inside.connections(), 0, "nothing connected");
        };
        scene.repeat("row 15, redirects", attack).await;
    });
}

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/tls").join(name)
}

/// A server that uses TLS with a certificate of the test's own authority, and echoes each request.
fn tls_server() -> Server {
    let certificate = CertificateDer::from_pem_file(tls("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(tls("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let configuration = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
    let configuration = Arc::new(configuration.expect("a pair"));
    Server::new(move |stream| {
        let connection = rustls::ServerConnection::new(configuration.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, stream);
        if read_head(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure");
            let _ = stream.flush();
        }
    })
}

/// `web.fetch` with the real binary, which trusts only these authorities.
fn fetch(authorities: &Path, url: &str) -> Output {
    let data = tempfile::tempdir().unwrap();
    let pattern = format!("web:http=private GET https://*:{}", url.rsplit(':').next().unwrap().trim_end_matches('/'));
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.args(["plugin", "call"]).arg(components().join("web.wasm")).args(["--grant", &pattern]);
    command.args(["web.fetch", &json!({"url": url}).to_string()]).arg("--data").arg(data.path());
    command.env("SSL_CERT_FILE", authorities).env("SSL_CERT_DIR", "/nonexistent").env_remove("HTTPS_PROXY");
    command.stdin(Stdio::null()).output().unwrap()
}

/// P6: Over TLS, a server is identified by its certificate, which must be from a trusted authority and contain the name
/// or address; `SSL_CERT_FILE` adds another authority.
#[test]
fn p6_verifies_tls_certificates() {
    run_exclusively(async {
        let server = tls_server();
        let port = server.address.port();
        let trusted = fetch(&tls("authority.pem"), &format!("https://localhost:{port}/"));
        let output_text = |output: &Output| {
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        };
        assert!(trusted.status.success() && output_text(&trusted).contains("secure"), "{}", output_text(&trusted));
        let by_address = fetch(&tls("authority.pem"), &format!("https://127.0.0.1:{port}/"));
        assert!(by_address.status.success(), "{}", output_text(&by_address));
        // A server certificate is not an authority, and 127.0.0.2 is not in it.
        for (authorities, host) in [("server.pem", "localhost"), ("authority.pem", "127.0.0.2")] {
            let refused = fetch(&tls(authorities), &format!("https://{host}:{port}/"));
            assert!(
                !refused.status.success() && !output_text(&refused).contains("secure"),
                "{host}: {}",
                output_text(&refused)
            );
            assert!(output_text(&refused).contains("certificate") || host != "localhost", "{}", output_text(&refused));
        }
    });
}
