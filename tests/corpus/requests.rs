//! Row 43: requests that two servers would read differently are not sent. Row 44: requests that are refused are bounded, too.

use crate::scene::{Scene, alone, granted};
use crate::server::{Server, head};
use crate::support::components;
use agent_plugins::{CallLimits, Grants};
use agent_runtime::AgentConfig;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A server that keeps the heads of requests and answers `ok`.
fn listening() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let server = Server::new(move |mut stream| {
        let Some(said) = head(&mut stream) else { return };
        seen.lock().unwrap().push(said);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    });
    (server, heads)
}

fn agent(pattern: String, time: usize) -> AgentConfig {
    let grants = Grants { http: vec![pattern.parse().expect("a pattern")], ..Grants::default() };
    let limits = CallLimits { requests: 200, requests_per_minute: 2_000, ..CallLimits::default() };
    let mut config = granted("intruder", grants, limits);
    config.name = format!("attacker-{time}");
    config
}

async fn told(scene: &Scene, config: AgentConfig, arguments: Value) -> Vec<String> {
    let (is_error, text) = scene.call(config, "intruder.ask", arguments).await;
    assert!(!is_error, "{text}");
    let said: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    said["told"].as_array().expect("a list").iter().map(|told| told.as_str().expect("text").to_owned()).collect()
}

/// Row 43: a grant for `/pub/` is for what every server finds there.
#[test]
fn row_43_paths_that_servers_read_differently() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = listening();
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
        let attack = async |time| {
            let before = heads.lock().unwrap().len();
            let urls: Vec<_> = paths.iter().map(|path| server.url(path)).collect();
            let config = agent(format!("GET http://{}/pub/", server.address), time);
            let told_of = told(&scene, config, json!({"urls": urls})).await;
            for (path, told) in paths.iter().zip(&told_of) {
                assert!(!told.starts_with("200"), "{path}: {told}");
            }
            assert_eq!(heads.lock().unwrap().len(), before, "nothing was sent");
            // What every server reads alike is sent; where the whole host is granted, so is the rest.
            let honest = ["/pub/a.b/c%20d", "/pub/caf%C3%A9?x=..;/", "/pub//x"];
            let urls: Vec<_> = honest.iter().map(|path| server.url(path)).collect();
            let config = agent(format!("GET http://{}/pub/", server.address), time);
            let told_of = told(&scene, config, json!({"urls": urls})).await;
            assert!(told_of.iter().all(|told| told.starts_with("200")), "{told_of:?}");
            let config = agent(format!("http://{}", server.address), time);
            let told_of = told(&scene, config, json!({"urls": [server.url("/a;b=c/d%2fe")]})).await;
            assert!(told_of[0].starts_with("200"), "{told_of:?}");
        };
        scene.repeat("row 43, paths", attack).await;
    });
}

/// Row 43: a grant for GET is for nothing else, and no header names another path, host, client or connection.
#[test]
fn row_43_requests_that_say_two_things() {
    alone(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = listening();
        let url = || json!([server.url("/pub/x")]);
        let attack = async |time| {
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
                let config = agent(format!("GET http://{}/pub/", server.address), time);
                let told_of = told(&scene, config, arguments.clone()).await;
                assert!(!told_of[0].starts_with("200"), "{arguments}: {told_of:?}");
            }
            assert_eq!(heads.lock().unwrap().len(), before, "nothing was sent");
            // A body that is written behind a GET goes nowhere.
            let config = agent(format!("GET http://{}/pub/", server.address), time);
            let told_of = told(&scene, config, json!({"urls": url(), "body": "DELETE /admin HTTP/1.1"})).await;
            let sent = heads.lock().unwrap().last().cloned().unwrap_or_default();
            assert!(told_of[0].starts_with("200") || told_of[0].contains("Denied"), "{told_of:?}");
            assert!(!sent.to_lowercase().contains("content-length: 2") && !sent.contains("chunked"), "{sent}");
            // Neither does the body of a POST name another method.
            let post = || agent(format!("POST http://{}/pub/", server.address), time);
            let form = ("application/x-www-form-urlencoded", "a=b&_method=DELETE");
            let parts = (
                "multipart/form-data; boundary=x",
                "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nPUT\r\n--x--",
            );
            let object = ("application/json", r#"{"a": 1, "_method": "DELETE"}"#);
            for (kind, body) in [form, parts, object] {
                let arguments =
                    json!({"urls": url(), "method": "POST", "headers": [["Content-Type", kind]], "body": body});
                let told_of = told(&scene, post(), arguments).await;
                assert!(!told_of[0].starts_with("200"), "{body}: {told_of:?}");
            }
            // A second path is none of the grant's.
            for (method, header) in [("COPY", "accept"), ("MOVE", "Destination"), ("PUT", "X.Copy_From")] {
                let config = agent(format!("http://{}/pub/", server.address), time);
                let arguments = json!({"urls": url(), "method": method, "headers": [[header, "/admin"]]});
                let told_of = told(&scene, config, arguments.clone()).await;
                assert!(!told_of[0].starts_with("200"), "{arguments}: {told_of:?}");
            }
            let honest = json!({"urls": url(), "method": "POST", "body": "payment_method=card&text=_method"});
            let told_of = told(&scene, post(), honest).await;
            assert!(told_of[0].starts_with("200"), "{told_of:?}");
            // Where every method is granted, a header may name one.
            let config = agent(format!("http://{}", server.address), time);
            let arguments = json!({"urls": url(), "method": "POST", "headers": [["X-HTTP-Method-Override", "GET"]]});
            let told_of = told(&scene, config, arguments).await;
            assert!(told_of[0].starts_with("200"), "{told_of:?}");
        };
        scene.repeat("row 43, headers", attack).await;
    });
}

/// Row 44: 20,000 requests that are refused make a few lines, and say how many there were.
#[test]
fn row_44_refused_requests_are_counted_and_not_listed() {
    alone(async {
        let data = tempfile::tempdir().unwrap();
        for url in ["http://127.0.0.1:9/", "http://127.0.0.1:9/a b", "http://not a host/"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
            command.args(["plugin", "call"]).arg(components().join("intruder.wasm"));
            command.args(["--grant", "intruder:http=GET http://127.0.0.1:1"]);
            command.args(["intruder.ask", &json!({"urls": [url], "times": 20_000}).to_string()]);
            let output = command.arg("--data").arg(data.path()).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.lines().count() < 60, "{} lines: {}", said.lines().count(), &said[..said.len().min(4_000)]);
            if url.ends_with("9/") {
                assert!(said.contains("more warnings about this call"), "{said}");
            }
        }
    });
}
