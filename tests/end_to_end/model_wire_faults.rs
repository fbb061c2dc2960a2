//! Turns with a model server on loopback that checks every request and produces every fault of row 31.

use crate::chat_server::{Answer, ChatServer};
use crate::support::{TestHost, event_types, results, run_turn};
use agent_core::message::{Part, TurnInput};
use agent_core::run::TurnError;
use agent_models::{ProviderConfig, Providers, RetryPolicy, Timeouts};
use agent_plugins::NewMediaItem;
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use base64::Engine;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const STORY: &str = "A story of many words that is only worth something as a whole.";

fn models(server: &ChatServer, attempts: u32) -> Models {
    let milliseconds = Duration::from_millis;
    let config = ProviderConfig {
        name: "openai".to_owned(),
        base_url: server.base_url.clone(),
        key: None,
        key_advice: "set a key".to_owned(),
        headers: Vec::new(),
        protocol: Default::default(),
        timeouts: Timeouts { connect: milliseconds(2_000), stall: milliseconds(500), total: milliseconds(4_000) },
        models: Default::default(),
    };
    let providers = Providers::new(vec![config]);
    let mut models = Models::from(providers.model("openai/served", Path::new(".")).expect("a model"));
    models.retry = RetryPolicy { attempts, initial_wait: milliseconds(5), ..RetryPolicy::default() };
    models
}

async fn open(test_host: &TestHost, config: AgentConfig, models: Models) -> Session {
    let agent = Agent::new(config, models, test_host.generation().await).unwrap();
    Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

/// Row 31, M3: Without retries, each fault ends the turn with a typed error and never with a truncated reply. If the
/// host may retry and the fault is temporary, the turn finishes.
#[tokio::test(flavor = "multi_thread")]
async fn row_31_every_fault_is_an_error_or_a_retry() {
    let html = "<!doctype html><html><body>Sign in to the proxy</body></html>".to_owned();
    let error = json!({"message": "The server had an error", "type": "server_error", "code": null});
    let in_body = json!({"error": {"message": "overloaded", "type": "overloaded_error"}}).to_string();
    // Each entry consists of a fault, a part of its error message, and whether the host may retry the request.
    let faults = [
        (Answer::Cut(STORY, 30), "ended early", true),
        (Answer::Stall(STORY, 30), "", true),
        (Answer::NoResponse, "", true),
        (Answer::ErrorInStream(STORY, error), "The server had an error", true),
        (Answer::Whole(200, "application/json", in_body), "overloaded", true),
        (Answer::Whole(503, "application/json", r#"{"error":{"message":"busy"}}"#.into()), "busy", true),
        (Answer::Huge(10 * 1024 * 1024), "", false),
        (Answer::Endless, "not complete", false),
        (Answer::Whole(200, "text/html", html), "a proxy or a login page", false),
    ];
    let test_host = TestHost::new(&[]).await;
    for (fault, message_part, is_retryable) in faults {
        let fault_text = format!("{fault:?}").chars().take(60).collect::<String>();
        let server = ChatServer::start([fault.clone(), Answer::Text(STORY)]).await;
        let mut session = open(&test_host, AgentConfig::new("test"), models(&server, 1)).await;
        match run_turn(&mut session, "Tell.").await {
            TurnResult::Failed(TurnError::ModelFailed { message, .. }) => {
                assert!(message.contains(message_part), "{fault_text}: {message}")
            }
            other => panic!("{fault_text}: {other:?}"),
        }
        session.close().await.unwrap();
        let server = ChatServer::start([fault, Answer::Text(STORY)]).await;
        let mut session = open(&test_host, AgentConfig::new("test"), models(&server, 2)).await;
        let result = run_turn(&mut session, "Tell.").await;
        match (result, is_retryable) {
            (TurnResult::Finished(output), true) => {
                assert_eq!(output.data, json!(STORY), "{fault_text}");
                assert!(event_types(&test_host, &session).await.contains(&"retry".to_owned()), "{fault_text}");
            }
            (TurnResult::Failed(TurnError::ModelFailed { .. }), false) => {}
            (other, _) => panic!("{fault_text}: {other:?}"),
        }
        assert_eq!(server.requests().len(), if is_retryable { 2 } else { 1 }, "{fault_text}");
        session.close().await.unwrap();
    }
}

/// L3, L9, L14, L22: In several turns and despite faults, every request contains the result of each of its tool calls,
/// and begins with the messages of the previous request.
#[tokio::test(flavor = "multi_thread")]
async fn l22_every_request_begins_like_the_previous_one() {
    let test_host = TestHost::new(&["probe"]).await;
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
    let mut session = open(&test_host, config, models(&server, 3)).await;
    for (prompt, answer) in [("Echo.", "First answer."), ("Again.", "Second answer.")] {
        let result = run_turn(&mut session, prompt).await;
        assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!(answer)), "{result:?}");
    }
    let names: Vec<String> = results(&test_host, &session).await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["probe.echo", "probe.echo", "probe.echo", "no_such_tool", "probe.echo", "probe.echo"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 7);
    assert_eq!(requests[1], requests[2], "a failed attempt changes nothing");
    let offered = requests[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]);
    assert!(offered.into_iter().any(|name| name == "probe_echo"), "{}", requests[0]["tools"]);
}

/// P4, D1: An image is sent in one request only. Later requests contain a text in place of the image, and repeat all
/// other messages unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn p4_sends_an_image_over_the_wire_once() {
    let test_host = TestHost::new(&["mask-openai", "probe"]).await;
    let server = ChatServer::start([
        Answer::Calls("", vec![("probe_echo", json!({"text": "one"}))]),
        Answer::Text("A grey picture."),
        Answer::Text("As I said."),
    ])
    .await;
    let mut config = AgentConfig::new("test");
    config.media_policies.insert("openai".to_owned(), "mask-openai".to_owned());
    let mut session = open(&test_host, config, models(&server, 1)).await;
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::GrayImage::new(1600, 1200).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    let bytes = bytes.into_inner();
    let media_item =
        NewMediaItem { bytes: bytes.clone(), mime_type: "image/png".to_owned(), name: Some("grey.png".to_owned()) };
    let media = session.attach(media_item).await.unwrap();
    let parts = vec![Part::Text("What is this?".to_owned()), Part::Media(media.clone())];
    let result = session.run(Some(TurnInput::Message(parts)), CancellationToken::new()).await.unwrap();
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("A grey picture.")), "{result:?}");
    let result = run_turn(&mut session, "Sure?").await;
    assert!(matches!(&result, TurnResult::Finished(output) if output.data == json!("As I said.")), "{result:?}");
    let requests: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    let sent = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let has_image: Vec<bool> = requests.iter().map(|request| request.contains(&sent)).collect();
    assert_eq!(has_image, [true, false, false]);
    assert!(
        requests.iter().all(|request| request.contains(media.digest.as_str())),
        "the model can still ask a tool for the image"
    );
    // The third request begins with exactly the messages of the second request.
    let messages = |request: &Value| request["messages"].as_array().unwrap().clone();
    let (second, third) = (messages(&server.requests()[1]), messages(&server.requests()[2]));
    assert_eq!(second[..], third[..second.len()]);
}
