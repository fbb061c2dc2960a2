//! Rows 7, 14 and 15, the limits of requests, and requests over TLS: What a plugin can do on the network.

use crate::guests::component;
use crate::scene::{Scene, run_exclusively, with_grants};
use crate::server::{Server, read_head};
use crate::support::{SharedCompiledCode, TestHost, agent_host, components};
use agent_plugins::{CallLimits, Grants, HostLimits, LoadError, NameResolver, Sandbox, SandboxOptions};
use agent_runtime::AgentConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
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

/// Gives the agent a different name for each repeat, because a plugin may make only 60 requests a minute for an agent.
fn with_agent_name(mut config: AgentConfig, repeat: usize) -> AgentConfig {
    config.name = format!("attacker-{repeat}");
    config
}

/// Row 7: An endless response ends at 10 MiB and an endless request body at 1 MiB, each with an error.
#[test]
fn row_7_cuts_endless_bodies() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (endless, reading_only) = (Server::endless(), Server::reading_only());
        let attack = async |repeat| {
            let url = json!({"url": endless.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&endless), repeat), "intruder.get", url).await;
            assert!(!is_error && text.contains(&format!("exceeds limit: {} bytes", 10 << 20)), "{text}");
            let url = json!({"url": reading_only.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&reading_only), repeat), "intruder.upload", url).await;
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

/// Row 7: A response with more than 32 KiB of headers is refused, and a request with more than 32 KiB of headers is
/// not sent.
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
        let attack = async |repeat| {
            let before = ok.connections();
            let arguments = json!({"url": ok.url("/"), "bytes": 64_000});
            let call = ("intruder", "intruder.headers", arguments);
            scene.check_stopped(with_agent_name(config_for_server(&ok), repeat), call, "32 KiB of headers").await;
            assert_eq!(ok.connections(), before, "nothing was sent");
            let arguments = json!({"url": ok.url("/"), "bytes": 16_000});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&ok), repeat), "intruder.headers", arguments).await;
            assert!(!is_error && text.contains("200"), "headers below the limit are sent: {text}");
            let arguments = json!({"url": large.url("/")});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&large), repeat), "intruder.get", arguments).await;
            assert!(!is_error && !text.contains("200 with"), "{text}");
        };
        scene.repeat("row 7, headers", attack).await;
    });
}

/// Limits: A call may make at most 32 requests, and a plugin may make at most 60 requests a minute for one agent.
/// Requests whose responses the plugin does not read count towards both limits.
#[test]
fn limits_the_number_of_requests() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let server = Server::ok();
        let attack = async |repeat| {
            let config = || with_agent_name(config_for_server(&server), repeat);
            let before = server.connections();
            let get = |times: u32| json!({"url": server.url("/"), "times": times});
            let (is_error, text) = scene.call(config(), "intruder.get", get(40)).await;
            let answers: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let succeeded = answers.iter().filter(|answer| answer.starts_with("200")).count();
            assert!(!is_error && succeeded == 32 && answers[32].contains("limit: 32 requests in a call"), "{text}");
            let (is_error, text) = scene.call(config(), "intruder.get", get(30)).await;
            let answers: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let succeeded = answers.iter().filter(|answer| answer.starts_with("200")).count();
            assert!(!is_error && succeeded == 28 && answers[28].contains("60 requests per minute"), "{text}");
            assert_eq!(server.connections() - before, 60);
        };
        scene.repeat("limits, numbers of requests", attack).await;
        let silent = Server::silent();
        let attack = async |repeat| {
            let arguments = json!({"url": silent.url("/"), "times": 32});
            let (is_error, text) =
                scene.call(with_agent_name(config_for_server(&silent), repeat), "intruder.abandon", arguments).await;
            assert!(!is_error && text == "32", "{text}");
        };
        scene.repeat("limits, abandoned requests", attack).await;
    });
}

/// Row 14: Sockets and name lookups are denied. A component with an unknown import is refused when it is loaded, and
/// the error names the import.
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

/// Resolves the host names of this test. Each name always resolves to the same addresses, with one exception:
/// the name `turning.example` alternates between a public address and a loopback address.
#[derive(Debug)]
struct FixedNames {
    lookups: AtomicUsize,
}

#[async_trait::async_trait]
impl NameResolver for FixedNames {
    async fn resolve(&self, name: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let lookup = self.lookups.fetch_add(1, Ordering::SeqCst);
        let public: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let loopback = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(match name {
            "here.example" => vec![loopback],
            "both.example" => vec![public, loopback],
            "metadata.example" => vec![SocketAddr::from(([169, 254, 169, 254], port))],
            "mapped.example" => vec![format!("[::ffff:127.0.0.1]:{port}").parse().unwrap()],
            "nat64.example" => vec![format!("[64:ff9b::7f00:1]:{port}").parse().unwrap()],
            "turning.example" if lookup.is_multiple_of(2) => vec![public],
            "turning.example" => vec![loopback],
            _ => Vec::new(),
        })
    }
}

/// Row 15: The host never connects to an internal address, whether the URL contains it in an unusual form, a name
/// resolves to it, or a redirect leads to it.
#[test]
fn row_15_never_connects_to_internal_addresses() {
    run_exclusively(async {
        let mut test_host = TestHost::new(&["probe", "intruder"]).await;
        let options = SandboxOptions {
            compiler: None,
            cache_directory: Some(SharedCompiledCode::shared().to_owned()),
            installed_code: None,
            scratch_directory: None,
            store_directory: Some(test_host.directory.path().join("store")),
            limits: HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() },
            resolver: Some(Arc::new(FixedNames { lookups: AtomicUsize::new(0) })),
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
        let attack = async |repeat| {
            for (number, host) in hosts.iter().enumerate() {
                let config = with_agent_name(config_for(&["http://*:*", "https://*:*"]), 1_000 * repeat + number);
                let arguments = json!({"url": format!("http://{host}:{port}/")});
                let (_, text) = scene.call(config, "intruder.get", arguments).await;
                assert!(!text.contains("200 with"), "{host}: {text}");
            }
            assert_eq!(inside.connections(), 0, "the server has no connection");
        };
        scene.repeat("row 15, addresses", attack).await;
        let target = inside.url("/secret");
        let redirect = format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        let redirecting = Server::answering(redirect.into_bytes());
        let attack = async |repeat| {
            let config = with_agent_name(config_for_server(&redirecting), repeat);
            let (_, text) = scene.call(config, "intruder.get", json!({"url": redirecting.url("/")})).await;
            assert!(
                text.contains("302 with 0 bytes"),
                "the guest sees the redirect, and the host does not follow it: {text}"
            );
            assert_eq!(inside.connections(), 0, "the server has no connection");
        };
        scene.repeat("row 15, redirects", attack).await;
    });
}

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/tls").join(name)
}

/// Starts a server that uses TLS with a certificate of the test's own authority, and answers `secure`.
fn tls_server() -> Server {
    let certificate = CertificateDer::from_pem_file(tls("server.pem")).expect("the certificate can be read");
    let key = PrivateKeyDer::from_pem_file(tls("server.key")).expect("the key can be read");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let configuration = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
    let configuration = Arc::new(configuration.expect("the key belongs to the certificate"));
    Server::new(move |stream| {
        let connection = rustls::ServerConnection::new(configuration.clone()).expect("a TLS connection");
        let mut stream = rustls::StreamOwned::new(connection, stream);
        if read_head(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure");
            let _ = stream.flush();
        }
    })
}

/// Runs `web.fetch` with the real binary, which trusts only the certificate authorities in the file `authorities`.
fn fetch(authorities: &Path, url: &str) -> Output {
    let data = tempfile::tempdir().unwrap();
    let pattern = format!("web:http=private GET https://*:{}", url.rsplit(':').next().unwrap().trim_end_matches('/'));
    let mut command = agent_host();
    command.args(["plugin", "call"]).arg(components().join("web.wasm")).args(["--grant", &pattern]);
    command.args(["web.fetch", &json!({"url": url}).to_string()]).arg("--data").arg(data.path());
    command.env("SSL_CERT_FILE", authorities).env("SSL_CERT_DIR", "/nonexistent").env_remove("HTTPS_PROXY");
    command.stdin(Stdio::null()).output().unwrap()
}

/// P6: Over TLS, a server's certificate must be signed by a trusted authority and contain the server's name or address.
/// The variable `SSL_CERT_FILE` adds a trusted authority.
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
        // The server's certificate is not accepted as an authority, and the certificate does not contain 127.0.0.2.
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
