//! A supervisor delivers the outbox: events for a server, retries, order, signatures and restarts (D2, D6, I6, I9).

use super::{PATIENCE, create, events, prompt, supervisor, until_end, until_suspended};
use crate::support::{TestHost, call_reply, script, text_reply};
use agent_runtime::{
    Agent, AgentConfig, AnnouncedEvents, ContentMode, Emission, HttpSink, HttpSinkConfig, ServiceConfig,
    SessionRequest, SignedMessage, SigningKey,
};
use agent_store::{Outbox, OutboxFilter, StoredOutboxItem};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TOKEN: &str = "Bearer token-of-the-receiver-81f2";

/// A request that the receiver got.
#[derive(Debug)]
struct Received {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Received {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A server that receives events. It answers with the given status lines and bodies, and then with 204.
struct Receiver {
    address: SocketAddr,
    received: mpsc::Receiver<Received>,
}

impl Receiver {
    async fn start(answers: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let answers: VecDeque<_> =
            answers.iter().map(|(status, body)| ((*status).to_owned(), (*body).to_owned())).collect();
        let answers = Arc::new(Mutex::new(answers));
        let (sender, received) = mpsc::channel(100);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers.clone(), sender.clone()));
            }
        });
        Self { address, received }
    }

    async fn next(&mut self) -> Received {
        tokio::time::timeout(PATIENCE, self.received.recv()).await.expect("a request arrives").expect("the server runs")
    }

    fn sink(&self, mode: ContentMode) -> Arc<HttpSink> {
        sink(self.address, mode)
    }
}

fn sink(address: SocketAddr, mode: ContentMode) -> Arc<HttpSink> {
    let config = HttpSinkConfig {
        url: format!("http://{address}/events").parse().expect("an address"),
        mode,
        headers: BTreeMap::from([("X-Team".to_owned(), "harbour".to_owned())]),
        secret_headers: BTreeMap::from([("Authorization".to_owned(), TOKEN.to_owned())]),
        signing_key: Some(SigningKey::parse(KEY).expect("a key")),
        timeout: Duration::from_secs(20),
    };
    Arc::new(HttpSink::new(config).expect("the sink is valid"))
}

/// Answers the requests of one connection.
async fn serve(stream: TcpStream, answers: Arc<Mutex<VecDeque<(String, String)>>>, sender: mpsc::Sender<Received>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut headers = BTreeMap::new();
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        assert_eq!(line.trim(), "POST /events HTTP/1.1");
        loop {
            line.clear();
            stream.read_line(&mut line).await.expect("a header");
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().expect("a length")];
        stream.read_exact(&mut body).await.expect("the body");
        let answer = answers.lock().expect("not poisoned").pop_front();
        let (status, text) = answer.unwrap_or(("204 No Content".to_owned(), String::new()));
        let _ = sender.send(Received { headers, body: String::from_utf8(body).expect("text") }).await;
        let length =
            if status.starts_with("204") { String::new() } else { format!("content-length: {}\r\n", text.len()) };
        let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n{text}").as_bytes()).await;
    }
}

/// Returns an agent that asks the service `pay`, and announces the end of turns.
async fn payer(test_host: &TestHost, server: Arc<HttpSink>, replies: &[Value]) -> Arc<Agent> {
    let mut config = AgentConfig::new("buyer");
    config.services.insert("pay".into(), ServiceConfig::new("com.example.pay".parse().unwrap()));
    config.outbox.server = Some(server);
    config.outbox.announced = AnnouncedEvents { completions: Emission::Emitted, approvals: Emission::Silent };
    test_host.agent(config, script(replies)).await
}

async fn pending(test_host: &TestHost) -> Vec<StoredOutboxItem> {
    test_host.store.outbox(None, OutboxFilter::Pending, 0, 100).await.expect("the outbox is read")
}

/// Waits until the pending items are as the test expects them.
async fn until_pending(test_host: &TestHost, expected: impl Fn(&[StoredOutboxItem]) -> bool) -> Vec<StoredOutboxItem> {
    let reached = async {
        loop {
            let items = pending(test_host).await;
            if expected(&items) {
                return items;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the outbox reaches the state")
}

/// I6, I9: an event is sent to the server in structured mode with a signature, and its answer continues the turn.
#[tokio::test(flavor = "multi_thread")]
async fn i6_i9_events_are_sent_to_a_server() {
    let test_host = TestHost::new(&[]).await;
    let mut receiver = Receiver::start(&[]).await;
    let replies = [call_reply(&[("pay", json!({"amount": 3}))]), text_reply("Paid.")];
    let agent = payer(&test_host, receiver.sink(ContentMode::Structured), &replies).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "buyer", "Pay.").await;
    let request = receiver.next().await;
    assert_eq!(request.header("content-type"), "application/cloudevents+json; charset=UTF-8");
    assert_eq!((request.header("x-team"), request.header("authorization")), ("harbour", TOKEN));
    let event = request.json();
    assert_eq!((&event["type"], &event["subject"]), (&json!("com.example.pay"), &json!(session)));
    assert_eq!(event["id"], request.header("webhook-id"));
    let timestamp = request.header("webhook-timestamp").parse().expect("a time");
    let message = SignedMessage { id: request.header("webhook-id"), timestamp, body: request.body.as_bytes() };
    let key = SigningKey::parse(KEY).expect("a key");
    assert_eq!(key.verify(message, request.header("webhook-signature"), timestamp), Ok(()));
    let mut events = events(&supervisor, &session);
    let call = until_suspended(&mut events).await.remove(0);
    until_pending(&test_host, <[_]>::is_empty).await;
    let answer =
        json!({"specversion": "1.0", "id": "e1", "source": "/bank", "type": "paid", "parentid": call, "data": {}});
    let answer = agent_core::cloud_event::CloudEvent::parse(answer.to_string().as_bytes()).expect("an event");
    supervisor.send(&session, SessionRequest::Respond(Box::new(answer))).await.expect("the answer is taken");
    until_end(&mut events).await;
    assert_eq!(receiver.next().await.json()["type"], "agent-host.turn.finished");
    supervisor.shutdown().await;
}

/// I9: failed requests are repeated with the same id and in order, and the store shows why an event is not delivered. The
/// answer of the server contains the host's secret, which is never stored.
#[tokio::test(flavor = "multi_thread")]
async fn i9_row_16_failed_deliveries_are_repeated_in_order() {
    let test_host = TestHost::new(&[]).await;
    let echo = format!("you sent {TOKEN}");
    let answers = [("503 Service Unavailable", "busy"), ("500 Internal Server Error", &*echo)];
    let mut receiver = Receiver::start(&answers).await;
    let replies = [text_reply("One."), text_reply("Two.")];
    let agent = payer(&test_host, receiver.sink(ContentMode::Binary), &replies).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "buyer", "First.").await;
    until_end(&mut events(&supervisor, &session)).await;
    supervisor.send(&session, SessionRequest::Prompt(prompt("Second."))).await.expect("a turn begins");
    let first = receiver.next().await;
    assert_eq!(first.header("ce-type"), "agent-host.turn.finished");
    assert_eq!(first.header("content-type"), "application/json");
    assert!(first.body.contains("One."), "the body is the data: {}", first.body);
    let failed = until_pending(&test_host, |items| items.first().is_some_and(|item| item.failed_attempts == 2)).await;
    let problem = failed[0].problem.clone().expect("the reason");
    assert!(problem.contains("answered 500") && problem.contains("you sent"), "{problem}");
    assert!(!problem.contains("token-of-the-receiver"), "{problem}");
    let attempts = [receiver.next().await, receiver.next().await, receiver.next().await];
    let ids: Vec<_> = attempts.iter().map(|request| request.header("ce-id").to_owned()).collect();
    assert_eq!(ids[..2], [first.header("ce-id"), first.header("ce-id")], "the first event is repeated");
    assert_ne!(ids[2], ids[1], "the second event comes after the first event was accepted");
    until_pending(&test_host, <[_]>::is_empty).await;
    supervisor.shutdown().await;
}

/// I9: an event that the server rejects does not hold up the next events.
#[tokio::test(flavor = "multi_thread")]
async fn i9_a_rejected_event_does_not_hold_up_later_events() {
    let test_host = TestHost::new(&[]).await;
    let mut receiver = Receiver::start(&[("422 Unprocessable Content", "no such order")]).await;
    let replies = [text_reply("One."), text_reply("Two.")];
    let agent = payer(&test_host, receiver.sink(ContentMode::Structured), &replies).await;
    let supervisor = supervisor(&test_host, &[&agent]);
    let session = create(&supervisor, "buyer", "First.").await;
    let rejected = receiver.next().await;
    let items = until_pending(&test_host, |items| items.iter().any(|item| item.failed_attempts > 0)).await;
    assert!(items[0].problem.as_ref().is_some_and(|problem| problem.contains("no such order")), "{items:?}");
    supervisor.send(&session, SessionRequest::Prompt(prompt("Second."))).await.expect("a turn begins");
    let mut ids = vec![receiver.next().await.json()["id"].clone(), receiver.next().await.json()["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert!(ids.contains(&rejected.json()["id"]) && ids[0] != ids[1], "{ids:?}");
    until_pending(&test_host, <[_]>::is_empty).await;
    supervisor.shutdown().await;
}

/// D6, I9: events that were not delivered before the host stopped are sent after the next start.
#[tokio::test(flavor = "multi_thread")]
async fn d6_i9_undelivered_events_are_sent_after_a_restart() {
    let test_host = TestHost::new(&[]).await;
    // Nobody listens at this address any more.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let agent = payer(&test_host, sink(closed, ContentMode::Structured), &[text_reply("One.")]).await;
    let first = supervisor(&test_host, &[&agent]);
    let session = create(&first, "buyer", "First.").await;
    until_end(&mut events(&first, &session)).await;
    let items = until_pending(&test_host, |items| items.iter().any(|item| item.failed_attempts > 0)).await;
    assert!(items[0].problem.as_ref().is_some_and(|problem| problem.contains("cannot send the event")), "{items:?}");
    first.shutdown().await;
    let mut receiver = Receiver::start(&[]).await;
    let agent = payer(&test_host, receiver.sink(ContentMode::Structured), &[text_reply("Two.")]).await;
    let second = supervisor(&test_host, &[&agent]);
    assert_eq!(receiver.next().await.json()["subject"], json!(session));
    until_pending(&test_host, <[_]>::is_empty).await;
    second.shutdown().await;
}
