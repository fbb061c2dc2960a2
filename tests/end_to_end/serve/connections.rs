//! Clients with many connections do not stop others (row 25).

use super::client::Client;
use super::{TestServer, clerk};
use crate::support::{TestHost, text_reply};
use agent_serve::{Right, ServerOptions};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns whether the server has closed the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_millis(20), stream.read_to_end(&mut answer)).await.is_ok()
}

/// Row 25: more idle connections than the server accepts delay nobody. Connections that send nothing, a part of the headers, or a
/// part of a body without a token are closed first, and a stream with a token stays open.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_idle_connections_delay_nobody() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[json!({"chunks": vec!["a"; 200], "delay_ms": 100}), text_reply("One.")]).await;
    // The limits of time are longer than the test.
    let limits = |options: ServerOptions| ServerOptions {
        connections: 32,
        header_timeout: Duration::from_secs(600),
        write_timeout: Duration::from_secs(600),
        ..options
    };
    let server = TestServer::start_with(&test_host, &[&agent], limits).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let created = client.post("/api/sessions", json!({"agent": "clerk", "prompt": "Hi."})).await.json(201);
    let mut stream = client.stream(created["events"].as_str().expect("a path"), "0").await;
    let starts: [&[u8]; 3] = [
        b"",
        b"GET /health HTTP/1.1\r\nhost: local",
        b"POST /webhooks/clerk/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n{",
    ];
    for start in starts {
        let mut idle = Vec::new();
        for _ in 0..100 {
            let mut connection = TcpStream::connect(server.address()).await.expect("a connection");
            connection.write_all(start).await.expect("sent");
            idle.push(connection);
        }
        // The attacker's connections are stale now.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        for _ in 0..10 {
            let started = Instant::now();
            assert_eq!(client.get("/api/agents").await.status, 200);
            assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        }
        let mut closed = 0;
        for connection in &mut idle {
            closed += usize::from(is_closed(connection).await);
        }
        assert!(closed >= 100 - 32, "connections that do nothing are closed for others: {closed}");
    }
    let next = tokio::time::timeout(Duration::from_secs(30), stream.next()).await.expect("an event");
    assert!(next.is_some(), "the stream of a client with a token stays open");
    // A client that keeps its connection is answered again.
    let mut kept = TcpStream::connect(server.address()).await.expect("a connection");
    let request = format!("{}\r\n", client.request("GET", "/api/agents"));
    for _ in 0..3 {
        kept.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut rest = [0; 64 << 10];
        let _ = kept.read(&mut rest).await;
    }
    assert_eq!(Client::new(server.address(), None).get("/health").await.status, 200);
    server.stop().await;
}

/// Row 25: many more clients than the server accepts connections send a request in the same moment, and all are answered.
#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_burst_of_clients_is_answered() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One.")]).await;
    let limits = |options: ServerOptions| ServerOptions { connections: 16, ..options };
    let server = TestServer::start_with(&test_host, &[&agent], limits).await;
    let client = server.client(&[Right::Read]);
    let answers = futures::future::join_all((0..200).map(|_| client.get("/api/agents"))).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    server.stop().await;
}
