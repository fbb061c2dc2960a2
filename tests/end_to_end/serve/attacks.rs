//! Attacks on the server: foreign pages, exhausted connections and streams, and hostile bodies (rows 24, 25 and 26).

use super::client::Client;
use super::{TestServer, clerk};
use crate::support::{TestHost, text_reply};
use agent_serve::{AllowedOrigins, Right, ServerOptions};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Row 24: a web page of another site, a rebound name and a form are refused, although the request has a token.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_requests_of_foreign_pages_are_refused() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let token = client.request("GET", "/").lines().last().unwrap().to_owned();
    let exchange = async |host: &str, more: &str| {
        let request = format!("GET /api/agents HTTP/1.1\r\nhost: {host}\r\n{token}\r\n{more}connection: close\r\n\r\n");
        client.exchange(request.into_bytes()).await
    };
    let port = server.address().port();
    assert_eq!(
        exchange(&format!("localhost:{port}"), &format!("origin: http://localhost:{port}\r\n")).await.status,
        200
    );
    for host in ["evil.example", "localhost.evil.example", "169.254.169.254"] {
        assert_eq!(exchange(host, "").await.json(403)["code"], "wrong_host", "{host}");
    }
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let answer = exchange(&format!("localhost:{port}"), &format!("origin: {origin}\r\n")).await;
        assert_eq!(answer.json(403)["code"], "wrong_origin", "{origin}");
        assert!(!answer.head.to_ascii_lowercase().contains("access-control-allow"), "{}", answer.head);
    }
    // A form can be sent without a question to the server, but its body is not JSON.
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let body = json!({"agent": "clerk", "prompt": "Hi."}).to_string();
        let answer = client.send("POST", "/api/sessions", content_type, &[], body).await;
        assert_eq!(answer.json(415)["code"], "not_json", "{content_type}");
    }
    server.stop().await;
}

/// I3, row 24: a page of a configured origin may use the server from a browser. Other pages get no such answer.
#[tokio::test(flavor = "multi_thread")]
async fn i3_row_24_only_configured_pages_may_use_the_server() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let page = "https://console.example";
    let origins = AllowedOrigins { hosts: Vec::new(), origins: vec![page.to_owned()] };
    let with_page = |options: ServerOptions| ServerOptions { origins: origins.clone(), ..options };
    let server = TestServer::start_with(&test_host, &[&agent], with_page).await;
    let client = server.client(&[Right::Read]);
    let ask = async |method: &str, origin: &str| {
        let request = client.request(method, "/api/agents");
        client.exchange(format!("{request}origin: {origin}\r\nconnection: close\r\n\r\n").into_bytes()).await
    };
    let allows = |head: &str| head.contains(&format!("access-control-allow-origin: {page}"));
    let asked = ask("OPTIONS", page).await;
    assert!(asked.status == 204 && allows(&asked.head) && asked.head.contains("authorization"), "{}", asked.head);
    let read = ask("GET", page).await;
    assert!(read.status == 200 && allows(&read.head), "{}", read.head);
    for method in ["OPTIONS", "GET"] {
        let foreign = ask(method, "https://evil.example").await;
        assert!(foreign.status == 403 && !foreign.head.contains("access-control"), "{}", foreign.head);
    }
    server.stop().await;
}

/// Row 25: slow headers, half-open connections and hoarded streams do not stop other clients.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_hoarded_connections_and_streams_are_limited() {
    let test_host = TestHost::new(&[]).await;
    let limits = |options: ServerOptions| ServerOptions {
        connections: 8,
        streams_per_token: 2,
        streams: 3,
        header_timeout: Duration::from_millis(500),
        ..options
    };
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let server = TestServer::start_with(&test_host, &[&agent], limits).await;
    let address = server.address();
    // Each attacker sends a part of its headers and then nothing.
    let mut attackers = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: local").await.unwrap();
        attackers.push(stream);
    }
    let started = Instant::now();
    assert_eq!(Client::new(address, None).get("/health").await.status, 200, "the attackers are disconnected");
    assert!(started.elapsed() < Duration::from_secs(30));
    for mut attacker in attackers {
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(10), attacker.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "the server closes a connection whose headers do not arrive");
    }

    let (client, other) = (server.client_with_all_rights(), server.client_with_all_rights());
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi."})).await.json(201);
    let events = created["events"].as_str().unwrap();
    let hoarded = [client.stream(events, "0").await, client.stream(events, "0").await];
    assert_eq!(client.get(events).await.json(429)["code"], "too_many_streams");
    let last = other.stream(events, "0").await;
    assert_eq!(other.get(events).await.json(429)["code"], "too_many_streams", "the total is limited, too");
    drop((hoarded, last));
    let freed = async {
        while client
            .send("GET", events, "application/json", &[("range".into(), "x".into())], String::new())
            .await
            .status
            == 429
        {}
    };
    // A closed stream no longer counts. The request that succeeds stays open, so only its beginning is awaited.
    let freed = tokio::time::timeout(Duration::from_secs(5), freed).await;
    assert!(freed.is_err(), "an opened stream does not end by itself");
    server.stop().await;
}

/// Row 25: a client that sends requests and never reads the answers loses its connection.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_client_that_never_reads_is_disconnected() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let limits =
        |options: ServerOptions| ServerOptions { connections: 1, write_timeout: Duration::from_millis(300), ..options };
    let server = TestServer::start_with(&test_host, &[&agent], limits).await;
    let client = server.client(&[Right::Read]);
    let mut hoarder = TcpStream::connect(server.address()).await.unwrap();
    let request = format!("{}\r\n", client.request("GET", "/openapi.json"));
    let flood = async { while hoarder.write_all(request.as_bytes()).await.is_ok() {} };
    let disconnected = tokio::time::timeout(Duration::from_secs(60), flood).await;
    assert!(disconnected.is_ok(), "the server closes the connection");
    assert_eq!(client.get("/api/agents").await.status, 200, "the only connection is free again");
    server.stop().await;
}

/// Row 26, row 25: hostile bodies get a clear error, and change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_hostile_bodies_are_refused_or_stored_as_text() {
    let test_host = TestHost::new(&[]).await;
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &[text_reply("One.")]).await]).await;
    let client = server.client_with_all_rights();
    let send = async |body: String| client.send("POST", "/api/sessions", "application/json", &[], body).await;
    let with_prompt = |prompt: &str| format!(r#"{{"agent": "clerk", "prompt": {prompt}}}"#);
    assert_eq!(send(with_prompt(&format!("\"{}\"", "a".repeat(2 << 20)))).await.json(413)["code"], "too_large");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(send(deep.clone()).await.status, 422, "the body is not an object");
    assert_eq!(send(with_prompt(&deep)).await.status, 422, "the prompt is not a text");
    assert_eq!(send(format!(r#"{{"x": {deep}}}"#)).await.status, 422, "there is no such field");
    assert_eq!(send(with_prompt(r#""\ud800""#)).await.status, 400, "a lone surrogate is not text");
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"agent": "clerk"}"#,
        r#"{"agent": "clerk", "prompt": "a", "more": 1}"#,
        r#"{"agent": "clerk", "prompt": " "}"#,
    ] {
        let status = send(body.to_owned()).await.status;
        assert!(status == 400 || status == 422, "{body}: {status}");
    }
    let chunked = format!(
        "{}content-type: application/json\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        client.request("POST", "/api/sessions")
    );
    assert_eq!(client.exchange(chunked.into_bytes()).await.status, 400, "ambiguous lengths are refused");
    let headers = format!("{}x: {}\r\n\r\n", client.request("GET", "/api/agents"), "a".repeat(64 << 10));
    let status = client.exchange(headers.into_bytes()).await.status;
    assert!(status == 431 || status == 400, "{status}");
    let strange = "'; DROP TABLE sessions; -- \" OR 1=1 \u{0} \u{202e} NEAR(a b)";
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": strange})).await.json(201);
    let mut stream = client.stream(created["events"].as_str().unwrap(), "0").await;
    while stream.next().await.expect("the stream goes on").name != "loop_end" {}
    let path = format!("/api/sessions/{}/messages", super::encoded(created["session"].as_str().unwrap()));
    assert_eq!(client.get(&path).await.json(200)["messages"][0]["parts"][0]["text"], strange);
    for path in [
        "/api/sessions/..%2F..%2Fetc%2Fpasswd",
        "/api/sessions/%00",
        "/api/sessions/a'%20OR%201=1",
        "/api/sessions?agent='%20OR%201=1",
    ] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(client.get("/api/sessions/%ff").await.status, 400);
    assert_eq!(client.get("/api/sessions").await.json(200)["sessions"].as_array().unwrap().len(), 1);
    server.stop().await;
}
