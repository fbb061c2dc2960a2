//! Row 43: Requests that two servers would interpret differently are not sent. Row 44: The output about refused
//! requests is limited.

use crate::scene::{Scene, run_exclusively, with_grants};
use crate::server::{Server, head};
use crate::support::{agent_host, components};
use agent_plugins::{CallLimits, Grants};
use agent_runtime::AgentConfig;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// A server that records the heads of requests and answers `ok`.
fn recording_server() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let recorder = heads.clone();
    let server = Server::new(move |mut stream| {
        let Some(output_text) = head(&mut stream) else { return };
        recorder.lock().unwrap().push(output_text);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    });
    (server, heads)
}

fn agent(pattern: String, repeat: usize) -> AgentConfig {
    let grants = Grants { http: vec![pattern.parse().expect("the pattern is valid")], ..Grants::default() };
    let limits = CallLimits { requests: 200, requests_per_minute: 2_000, ..CallLimits::default() };
    let mut config = with_grants("intruder", grants, limits);
    config.name = format!("attacker-{repeat}");
    config
}

async fn call_results(scene: &Scene, config: AgentConfig, arguments: Value) -> Vec<String> {
    let (is_error, text) = scene.call(config, "intruder.ask", arguments).await;
    assert!(!is_error, "{text}");
    let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    output_text["told"]
        .as_array()
        .expect("`told` is a list")
        .iter()
        .map(|result| result.as_str().expect("each result is a string").to_owned())
        .collect()
}

/// Row 43: A grant for `/pub/` covers only paths that every server considers to be below `/pub/`.
#[test]
fn row_43_refuses_ambiguous_paths() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = recording_server();
        let paths = [
            "/pub/..;/admin",
            "/pub/%2e%2e;/admin",
            "/pub/%2e%2e/admin",
            "/pub/.%252e/admin",
            "/pub/..%252fadmin",
            "/pub/..%2fadmin",
            "/pub/..%5cadmin",
            "/pub/..\\admin",
            "/pub/%00/admin",
            "/pub/x%00",
            "/pub/%c0%ae%c0%ae/admin",
            "/pub/..%c0%afadmin",
            "/pub/;/../../admin",
            "/pub;a=b/x",
            "/pub/.../admin",
            "/pub/..%20/admin",
            "/pub/..%09/admin",
            "/pub/%EF%BC%8E%EF%BC%8E/admin",
            "//pub/x",
            "/PUB/x",
            "/pub/%u002e%u002e/admin",
        ];
        let attack = async |repeat| {
            let before = heads.lock().unwrap().len();
            let urls: Vec<_> = paths.iter().map(|path| server.url(path)).collect();
            let config = agent(format!("GET http://{}/pub/", server.address), repeat);
            let results = call_results(&scene, config, json!({"urls": urls})).await;
            for (path, result) in paths.iter().zip(&results) {
                assert!(!result.starts_with("200"), "{path}: {result}");
            }
            assert_eq!(heads.lock().unwrap().len(), before, "nothing was sent");
            // Requests with unambiguous paths are sent. If the grant covers the whole server, even requests with
            // ambiguous paths are sent.
            let allowed = ["/pub/a.b/c%20d", "/pub/caf%C3%A9?x=..;/", "/pub//x"];
            let urls: Vec<_> = allowed.iter().map(|path| server.url(path)).collect();
            let config = agent(format!("GET http://{}/pub/", server.address), repeat);
            let results = call_results(&scene, config, json!({"urls": urls})).await;
            assert!(results.iter().all(|result| result.starts_with("200")), "{results:?}");
            let config = agent(format!("http://{}", server.address), repeat);
            let results = call_results(&scene, config, json!({"urls": [server.url("/a;b=c/d%2fe")]})).await;
            assert!(results[0].starts_with("200"), "{results:?}");
        };
        scene.repeat("row 43, paths", attack).await;
    });
}

/// Row 43: A grant for GET does not allow any other method. A header of a request cannot specify another path, host,
/// client address or connection option.
#[test]
fn row_43_refuses_ambiguous_requests() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = recording_server();
        let url = || json!([server.url("/pub/x")]);
        let attack = async |repeat| {
            let before = heads.lock().unwrap().len();
            let refused = [
                json!({"urls": url(), "headers": [["X-HTTP-Method-Override", "DELETE"]]}),
                json!({"urls": url(), "headers": [["X-HTTP-Method", "DELETE"]]}),
                json!({"urls": url(), "headers": [["x_http_method_override", "DELETE"]]}),
                json!({"urls": url(), "headers": [["X-Method-Override", "DELETE"]]}),
                json!({"urls": [server.url("/pub/x?_method=DELETE")]}),
                json!({"urls": url(), "headers": [["X.HTTP~Method!Override", "DELETE"]]}),
                json!({"urls": [server.url("/pub/x?.method=DELETE")]}),
                json!({"urls": url(), "headers": [["X-Original-URL", "/admin"]]}),
                json!({"urls": url(), "headers": [["X~Original~URL", "/admin"]]}),
                json!({"urls": url(), "headers": [["X-Rewrite-URL", "/admin"]]}),
                json!({"urls": url(), "headers": [["X-Forwarded-Host", "b.example"]]}),
                json!({"urls": url(), "headers": [["Forwarded", "host=b.example"]]}),
                json!({"urls": url(), "headers": [["X-Real-IP", "127.0.0.1"]]}),
                json!({"urls": url(), "headers": [["Host", "b.example"]]}),
                json!({"urls": url(), "headers": [["Connection", "close, x-key"]]}),
                json!({"urls": url(), "headers": [["Transfer-Encoding", "chunked"]]}),
                json!({"urls": url(), "headers": [["Content-Length", "5"]], "body": "12345"}),
                json!({"urls": url(), "method": "TRACE"}),
                json!({"urls": url(), "method": "get"}),
                json!({"urls": url(), "method": "DELETE"}),
            ];
            for arguments in refused {
                let config = agent(format!("GET http://{}/pub/", server.address), repeat);
                let results = call_results(&scene, config, arguments.clone()).await;
                assert!(!results[0].starts_with("200"), "{arguments}: {results:?}");
            }
            assert_eq!(heads.lock().unwrap().len(), before, "nothing was sent");
            // The body of a GET request is not sent.
            let config = agent(format!("GET http://{}/pub/", server.address), repeat);
            let results = call_results(&scene, config, json!({"urls": url(), "body": "DELETE /admin HTTP/1.1"})).await;
            let sent = heads.lock().unwrap().last().cloned().unwrap_or_default();
            assert!(results[0].starts_with("200") || results[0].contains("Denied"), "{results:?}");
            assert!(!sent.to_lowercase().contains("content-length: 2") && !sent.contains("chunked"), "{sent}");
            // The body of a POST request cannot override the request's method.
            let post = || agent(format!("POST http://{}/pub/", server.address), repeat);
            let form = ("application/x-www-form-urlencoded", "a=b&_method=DELETE");
            let parts = (
                "multipart/form-data; boundary=x",
                "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nPUT\r\n--x--",
            );
            let object = ("application/json", r#"{"a": 1, "_method": "DELETE"}"#);
            for (kind, body) in [form, parts, object] {
                let arguments =
                    json!({"urls": url(), "method": "POST", "headers": [["Content-Type", kind]], "body": body});
                let results = call_results(&scene, post(), arguments).await;
                assert!(!results[0].starts_with("200"), "{body}: {results:?}");
            }
            // A header of each of these requests contains a second path, which the grant does not cover.
            for (method, header) in [("COPY", "accept"), ("MOVE", "Destination"), ("PUT", "X.Copy_From")] {
                let config = agent(format!("http://{}/pub/", server.address), repeat);
                let arguments = json!({"urls": url(), "method": method, "headers": [[header, "/admin"]]});
                let results = call_results(&scene, config, arguments.clone()).await;
                assert!(!results[0].starts_with("200"), "{arguments}: {results:?}");
            }
            let allowed = json!({"urls": url(), "method": "POST", "body": "payment_method=card&text=_method"});
            let results = call_results(&scene, post(), allowed).await;
            assert!(results[0].starts_with("200"), "{results:?}");
            // If every method is granted, a header of the request may override the method.
            let config = agent(format!("http://{}", server.address), repeat);
            let arguments = json!({"urls": url(), "method": "POST", "headers": [["X-HTTP-Method-Override", "GET"]]});
            let results = call_results(&scene, config, arguments).await;
            assert!(results[0].starts_with("200"), "{results:?}");
        };
        scene.repeat("row 43, headers", attack).await;
    });
}

/// Row 44: For 20,000 refused requests, the host prints only a few lines, one of which contains the number of further
/// warnings.
#[test]
fn row_44_counts_refused_requests_without_listing_them() {
    run_exclusively(async {
        let data = tempfile::tempdir().unwrap();
        for url in ["http://127.0.0.1:9/", "http://127.0.0.1:9/a b", "http://not a host/"] {
            let mut command = agent_host();
            command.args(["plugin", "call"]).arg(components().join("intruder.wasm"));
            command.args(["--grant", "intruder:http=GET http://127.0.0.1:1"]);
            command.args(["intruder.ask", &json!({"urls": [url], "times": 20_000}).to_string()]);
            let output = command.arg("--data").arg(data.path()).stdin(Stdio::null()).output().unwrap();
            let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output_text.lines().count() < 60,
                "{} lines: {}",
                output_text.lines().count(),
                &output_text[..output_text.len().min(4_000)]
            );
            if url.ends_with("9/") {
                assert!(output_text.contains("further warnings about this call were not logged"), "{output_text}");
            }
        }
    });
}
