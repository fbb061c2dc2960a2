//! Turns against a model server on loopback that checks every request and misbehaves in every way of row 31.

use crate::chat_server::{Answer, ChatServer};
use crate::support::{House, event_types, results, turn};
use agent_core::run::TurnError;
use agent_models::{ProviderConfig, Providers, RetryPolicy, Timeouts};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const STORY: &str = "A story of many words that is only worth something as a whole.";

fn models(server: &ChatServer, attempts: u32) -> Models {
    let milliseconds = Duration::from_millis;
    let config = ProviderConfig {
        name: "openai".to_owned(),
        base_url: server.base_url.clone(),
        key: None,
        key_advice: "set a key".to_owned(),
        headers: Vec::new(),
        timeouts: Timeouts { connect: milliseconds(2_000), stall: milliseconds(500), total: milliseconds(4_000) },
        models: Default::default(),
    };
    let providers = Providers::new(vec![config]);
    let mut models = Models::from(providers.model("openai/served", Path::new(".")).expect("a model"));
    models.retry = RetryPolicy { attempts, first_wait: milliseconds(5), ..RetryPolicy::default() };
    models
}

async fn open(house: &House, config: AgentConfig, models: Models) -> Session {
    let agent = Agent::new(config, models, house.generation().await).unwrap();
    Session::open(&house.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

/// Row 31, M3: each fault is a typed error where nothing is tried again, and never a truncated reply.
#[tokio::test(flavor = "multi_thread")]
async fn row_31_every_fault_is_an_error_or_another_try() {
    let html = "<!doctype html><html><body>Sign in to the proxy</body></html>".to_owned();
    let error = json!({"message": "The server had an error", "type": "server_error", "code": null});
    let in_body = json!({"error": {"message": "overloaded", "type": "overloaded_error"}}).to_string();
    // The fault, what its message says, and whether it is worth another try.
    let faults = [
        (Answer::Cut(STORY, 30), "broke off", true),
        (Answer::Stall(STORY, 30), "", true),
        (Answer::Silence, "", true),
        (Answer::ErrorInStream(STORY, error), "The server had an error", true),
        (Answer::Whole(200, "application/json", in_body), "overloaded", true),
        (Answer::Whole(503, "application/json", r#"{"error":{"message":"busy"}}"#.into()), "busy", true),
        (Answer::Huge(10 * 1024 * 1024), "", false),
        (Answer::Endless, "not complete", false),
        (Answer::Whole(200, "text/html", html), "a proxy or a login page", false),
    ];
    let house = House::new(&[]).await;
    for (fault, says, again) in faults {
        let shown = format!("{fault:?}").chars().take(60).collect::<String>();
        let server = ChatServer::start([fault.clone(), Answer::Text(STORY)]).await;
        let mut session = open(&house, AgentConfig::new("test"), models(&server, 1)).await;
        match turn(&mut session, "Tell.").await {
            TurnResult::Failed(TurnError::ModelFailed { message }) => {
                assert!(message.contains(says), "{shown}: {message}")
            }
            other => panic!("{shown}: {other:?}"),
        }
        session.close().await.unwrap();
        let server = ChatServer::start([fault, Answer::Text(STORY)]).await;
        let mut session = open(&house, AgentConfig::new("test"), models(&server, 2)).await;
        let result = turn(&mut session, "Tell.").await;
        match (result, again) {
            (TurnResult::Finished(output), true) => {
                assert_eq!(output.data, json!(STORY), "{shown}");
                assert!(event_types(&house, &session).await.contains(&"retry".to_owned()), "{shown}");
            }
            (TurnResult::Failed(TurnError::ModelFailed { .. }), false) => {}
            (other, _) => panic!("{shown}: {other:?}"),
        }
        assert_eq!(server.requests().len(), if again { 2 } else { 1 }, "{shown}");
        session.close().await.unwrap();
    }
}

/// L3, L9, L14, L22: over turns and faults every request has whole pairs and begins as the one before.
#[tokio::test(flavor = "multi_thread")]
async fn l22_every_request_begins_as_the_one_before() {
    let house = House::new(&["probe"]).await;
    let echo = |text: &str| ("probe_echo", json!({"text": text}));
    let server = ChatServer::start([
        Answer::Calls("Two at once. ", vec![echo("one"), echo("two")]),
        Answer::Cut(STORY, 20),
        Answer::Calls("", vec![echo("three"), ("no_such_tool", json!({})), ("probe_echo", json!({"txt": 1}))]),
        Answer::Text("First answer."),
        Answer::Whole(429, "application/json", r#"{"error":{"message":"slow down"}}"#.into()),
        Answer::Calls("", vec![echo("four")]),
        Answer::Text("Second answer."),
    ])
    .await;
    let mut config = AgentConfig::new("test");
    config.prompt.instructions = Some("Be exact.".to_owned());
    config.prompt.tool_rules = Some("Echo when asked.".to_owned());
    let mut session = open(&house, config, models(&server, 3)).await;
    for (prompt, answer) in [("Echo.", "First answer."), ("Again.", "Second answer.")] {
        let result = turn(&mut session, prompt).await;
        assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!(answer)), "{result:?}");
    }
    let names: Vec<String> = results(&house, &session).await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["probe.echo", "probe.echo", "probe.echo", "no_such_tool", "probe.echo", "probe.echo"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 7);
    assert_eq!(requests[1], requests[2], "a try that failed changes nothing");
    let offered = requests[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]);
    assert!(offered.into_iter().any(|name| name == "probe_echo"), "{}", requests[0]["tools"]);
}
