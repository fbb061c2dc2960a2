//! The trace context of requests to the server (I6, O1).

use super::{TestServer, encoded, until_idle};
use crate::support::{TestHost, script, text_reply};
use agent_runtime::AgentConfig;
use agent_serve::Right;
use agent_store::{RecordRange, SessionLog};
use serde_json::{Value, json};

/// I6, O1: A request with a valid `traceparent` begins a turn of that trace, over the API and over OpenAI's API. A request
/// with an invalid one begins a trace.
#[tokio::test(flavor = "multi_thread")]
async fn i6_a_request_with_a_trace_context_begins_a_turn_of_that_trace() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let test_host = TestHost::new(&[]).await;
    let agent = test_host.agent(AgentConfig::new("one"), script(&[text_reply("Hello."), text_reply("Again.")])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let post = async |path: &str, parent: &str, body: Value| {
        let headers = [("traceparent".to_owned(), parent.to_owned()), ("tracestate".to_owned(), "a=b".to_owned())];
        client.send("POST", path, "application/json", &headers, body.to_string()).await
    };
    let prompt = json!({"agent": "one", "prompt": "Hi."});
    let created = post("/api/sessions", &parent, prompt.clone()).await.json(201);
    let session = created["session"].as_str().expect("a session").to_owned();
    until_idle(&client, &session).await;
    let path = format!("/api/sessions/{}/prompts", encoded(&session));
    assert_eq!(post(&path, &parent, json!({"prompt": "Again."})).await.status, 202);
    until_idle(&client, &session).await;
    let chat = json!({"model": "one", "messages": [{"role": "user", "content": "Hi."}]});
    let answer = post("/v1/chat/completions", &parent, chat).await;
    let header = answer.head.lines().find_map(|line| line.strip_prefix("x-agent-session: "));
    let (chat_session, status) = (header.unwrap_or_default().trim().to_owned(), answer.status);
    assert_eq!(status, 200, "{}", answer.body);
    let invalid = post("/api/sessions", "00-zz", prompt).await.json(201);
    let invalid = invalid["session"].as_str().expect("a session").to_owned();
    until_idle(&client, &invalid).await;
    let trace_of = async |session: &str, turn: u32| {
        let records = test_host.store.records(session, RecordRange::Turn(turn)).await.expect("records");
        let record = records.into_iter().find(|stored| stored.record.kind == "trace");
        record.expect("a trace is recorded").record.body
    };
    for (session, turn) in [(session.as_str(), 1), (session.as_str(), 2), (chat_session.as_str(), 1)] {
        let trace = trace_of(session, turn).await;
        assert_eq!((&trace["parent"], &trace["tracestate"]), (&json!(parent), &json!("a=b")), "{session} {turn}");
        assert!(trace["traceparent"].as_str().is_some_and(|own| own.contains(TRACE) && own != parent), "{trace}");
    }
    let trace = trace_of(&invalid, 1).await;
    assert!(trace.get("parent").is_none() && trace["traceparent"].as_str().is_some_and(|own| !own.contains("zz")));
    server.stop().await;
}
