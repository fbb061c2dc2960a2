//! Errors of every route are problems (RFC 9457), whatever is wrong with a request (I3, row 26).

use super::client::{Answer, Client};
use super::{TestServer, clerk};
use crate::support::{TestHost, text_reply};
use serde_json::{Value, json};

/// The methods that a request can have. A client must not send a request with `CONNECT`.
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];

/// Queries that no route accepts, or that are not text.
const QUERIES: [&str; 9] = [
    "limit=x",
    "limit=-1",
    "%FF",
    "a=%FF",
    "limit=1&limit=2",
    "unknown=1",
    "&&=",
    "limit=99999999999999999999",
    "after=%00",
];
/// Bodies that no route accepts.
const BODIES: [&[u8]; 7] = [b"", b"{", b"[]", b"null", b"{\"x\": \"\xff\"}", b"{\"a\": 1, \"a\": 2}", b"\x00\xff"];
/// Types of bodies that most routes do not accept.
const CONTENT_TYPES: [&str; 4] =
    ["text/plain", "application/cloudevents+json", "application/json; charset=utf-16", "multipart/form-data"];

/// Checks that an answer is no error, or is an error that programs and people can read.
fn check(request: &str, answer: &Answer) {
    if (100..400).contains(&answer.status) {
        return;
    }
    assert!(
        (400..600).contains(&answer.status) && answer.status != 500,
        "{request}: {} {}",
        answer.status,
        answer.body
    );
    let content_type = answer.head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    let body: Value =
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{request}: {error}: {}", answer.body));
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    // The OpenAI-compatible API has the errors of that API, and MCP clients get messages of their protocol.
    if request.contains(" /v1/") {
        assert!(
            content_type == "application/json" && is_text(&body["error"]["message"]),
            "{request}: {content_type} {body}"
        );
        return;
    }
    assert_eq!(content_type, "application/problem+json", "{request}: {body}");
    assert_eq!(body["status"], json!(answer.status), "{request}: {body}");
    assert!(is_text(&body["code"]) && is_text(&body["title"]) && is_text(&body["detail"]), "{request}: {body}");
}

async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: &[u8]) {
    let head = format!(
        "{}content-type: {content_type}\r\ncontent-length: {}\r\nlast-event-id: 0\r\nif-match: \"x\"\r\nconnection: close\r\n\r\n",
        client.request(method, path),
        body.len()
    );
    let answer = client.exchange([head.as_bytes(), body].concat()).await;
    check(&format!("{method} {path} {content_type} {}", String::from_utf8_lossy(body)), &answer);
}

/// Replaces the parameters of a route.
fn filled(route: &str, value: &str) -> String {
    let parts = route.split('/').map(|part| if part.starts_with('{') { value } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Sends malformed requests to a route: in the path, in the query, in the body and in the content type.
async fn send_malformed(client: &Client, method: &str, route: &str) {
    for value in ["%FF", "%C3%28", "%00", "%2F", "..", "%E2%80%AE", &"9".repeat(400)] {
        send(client, method, &filled(route, value), "application/json", b"{}").await;
    }
    let path = filled(route, "clerk");
    for query in QUERIES {
        send(client, method, &format!("{path}?{query}"), "application/json", b"{}").await;
    }
    for body in BODIES {
        send(client, method, &path, "application/json", body).await;
    }
    for content_type in CONTENT_TYPES {
        send(client, method, &path, content_type, b"{}").await;
    }
}

/// I3, row 26: a path that is not UTF-8, a malformed query, a malformed body, a wrong content type, a wrong method, an unknown route
/// and a missing token lead to problems, for each route that the OpenAPI document lists.
#[tokio::test(flavor = "multi_thread")]
async fn i3_row_26_every_error_is_a_problem() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let (client, anonymous) = (server.client_with_all_rights(), server.anonymous());
    let document = client.get("/openapi.json").await.json(200);
    let routes = document["paths"].as_object().expect("routes");
    assert!(routes.len() > 50, "{}", routes.len());
    for (route, methods) in
        routes.iter().map(|(route, methods)| (route.as_str(), methods.as_object().expect("methods")))
    {
        let path = filled(route, "clerk");
        for method in METHODS {
            send(&client, method, &path, "application/json", b"").await;
            send(&anonymous, method, &path, "application/json", b"{}").await;
        }
        for method in methods.keys().map(|method| method.to_uppercase()) {
            send_malformed(&client, &method, route).await;
        }
    }
    for path in [
        "/nothing",
        "/api",
        "/api/",
        "/api/nothing",
        "//api/sessions",
        "/api/sessions/",
        "/webhooks/x",
        "/console/%FF",
        "/console/nothing.js",
        "/%FF",
    ] {
        for client in [&client, &anonymous] {
            for method in METHODS {
                send(client, method, path, "application/json", b"{}").await;
            }
        }
    }
    for method in METHODS {
        send(&client, method, "/agents/%FF/mcp", "application/json", b"{}").await;
        send(&client, method, "/agents/nobody/mcp?expose=%FF", "application/json", b"{}").await;
    }
    assert_eq!(client.get("/health").await.status, 200, "the server still runs");
    server.stop().await;
}
