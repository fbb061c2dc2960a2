//! Models that fail: retries, the chain of fallback models, the fallback text, and the pause after a failure. One test
//! undoes a turn. The replies are scripted. The loop, the store and the plugins are real.

use crate::support::{TestHost, call_reply, event_types, events, results, run_turn, script, text_reply, view_summary};
use agent_core::event::EventKind;
use agent_core::run::{FALLBACK_TEXT, TurnError};
use agent_models::{Provider, RetryPolicy};
use agent_runtime::{Agent, AgentConfig, AgentError, Models, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Creates a scripted model that has this name and returns these replies.
fn scripted(test_host: &TestHost, name: &str, replies: &[Value]) -> Arc<dyn Provider> {
    let file = test_host.directory.path().join(format!("{name}.json"));
    std::fs::write(&file, script(replies).to_string()).unwrap();
    agent_models::provider(&format!("scripted:{name}.json"), test_host.directory.path()).unwrap()
}

fn chain(models: Vec<Arc<dyn Provider>>) -> Models {
    let mut models = models.into_iter();
    let mut chain = Models::new(models.next().expect("a model"), models);
    chain.retry = RetryPolicy { attempts: 2, initial_wait: Duration::from_millis(5), ..RetryPolicy::default() };
    chain
}

async fn open(test_host: &TestHost, models: Models) -> Session {
    let agent = Agent::new(AgentConfig::new("test"), models, test_host.generation().await).unwrap();
    Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

fn failing(status: u16, times: Option<u32>) -> Value {
    json!({"text": "half a rep", "chunks": 3, "error": {"status": status, "message": "overloaded", "times": times, "retry_after_ms": 5}})
}

fn finished_output(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("{other:?}"),
    }
}

/// M3, L3, L30: The host reports a failed model call and repeats it. The messages are sent twice, but their seen count
/// is 1.
#[tokio::test(flavor = "multi_thread")]
async fn m3_retries_a_busy_model() {
    let test_host = TestHost::new(&[]).await;
    let busy =
        json!({"text": "Here.", "error": {"status": 429, "message": "slow down", "times": 1, "retry_after_ms": 20}});
    let mut session = open(&test_host, chain(vec![scripted(&test_host, "one", &[busy])])).await;
    let output = finished_output(run_turn(&mut session, "Hello?").await);
    assert_eq!((output.data, output.interactions), (json!("Here."), 1));
    assert_eq!(view_summary(&test_host, &session).await, ["user 1", "assistant 1"]);
    let expected =
        ["loop_start", "loop_iteration", "context_built", "stream_clear", "retry", "stream_complete", "loop_end"];
    assert_eq!(event_types(&test_host, &session).await, expected);
    let retry = events(&test_host, &session).await.into_iter().find_map(|event| match event.kind {
        EventKind::Retry { attempt, wait_ms, reason, model } => Some((attempt, wait_ms, reason, model)),
        _ => None,
    });
    let (attempt, wait, reason, model) = retry.unwrap();
    assert_eq!((attempt, wait, model.as_str()), (2, 20, "scripted/one.json"));
    assert!(reason.contains("429") && reason.contains("slow down"), "{reason}");
}

/// M3: If a model fails after a tool call, the next model of the chain receives the results of the first model's tool
/// calls. No tool call runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn m3_the_next_model_continues_the_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let first =
        scripted(&test_host, "one", &[call_reply(&[("probe.echo", json!({"text": "kept"}))]), failing(503, None)]);
    // For model call N of the session, a model uses reply N of its script. Because the first model answers the first
    // call, the first reply of the second model's script is never used.
    let answer = json!({"text": "From the second.", "expect": {"roles": ["user", "assistant", "tool"], "last_contains": "kept"}});
    let second = scripted(&test_host, "two", &[text_reply("unused"), answer]);
    let mut session = open(&test_host, chain(vec![first, second])).await;
    let output = finished_output(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.model.as_str(), output.data), ("scripted/two.json", json!("From the second.")));
    assert_eq!(output.interactions, 2);
    assert_eq!(results(&test_host, &session).await.len(), 1);
    let types = event_types(&test_host, &session).await;
    let tail: Vec<&str> = types.iter().map(String::as_str).skip_while(|kind| *kind != "tool_result").collect();
    let expected = [
        "tool_result",
        "loop_iteration",
        "context_built",
        "stream_clear",
        "retry",
        "stream_clear",
        "model_fallback",
        "stream_complete",
        "loop_end",
    ];
    assert_eq!(tail, expected);
}

/// M3: After a model has failed, the host does not use it for some time. The next turn begins with the next model of
/// the chain, and an event reports the reason.
#[tokio::test(flavor = "multi_thread")]
async fn m3_pauses_a_model_that_failed() {
    let test_host = TestHost::new(&[]).await;
    let first = scripted(
        &test_host,
        "one",
        &[failing(503, None), json!({"text": "", "error": {"message": "must not be asked"}})],
    );
    let second = scripted(&test_host, "two", &[text_reply("once"), text_reply("twice")]);
    let mut session = open(&test_host, chain(vec![first, second])).await;
    finished_output(run_turn(&mut session, "One?").await);
    assert_eq!(finished_output(run_turn(&mut session, "Two?").await).data, json!("twice"));
    let reasons: Vec<String> = events(&test_host, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ModelFallback { from, to, reason } => Some(format!("{from} {to} {reason}")),
            _ => None,
        })
        .collect();
    assert_eq!(reasons.len(), 2);
    assert!(reasons[0].contains("overloaded"), "{reasons:?}");
    assert_eq!(reasons[1], "scripted/one.json scripted/two.json it failed less than 60 s ago");
}

/// M3: If every model fails, the configured fallback text is the output of the turn. If the agent has an output schema,
/// creating the agent fails unless the fallback text is JSON that matches the schema.
#[tokio::test(flavor = "multi_thread")]
async fn m3_the_fixed_text_is_used_if_every_model_fails() {
    let test_host = TestHost::new(&[]).await;
    let first = scripted(&test_host, "one", &[failing(500, None)]);
    let text = |text: &str| {
        let mut models = chain(vec![first.clone()]);
        models.fallback_text = Some(text.to_owned());
        models
    };
    let mut session = open(&test_host, text("Nobody is here.")).await;
    let output = finished_output(run_turn(&mut session, "Hello?").await);
    assert_eq!((output.data, output.model.as_str()), (json!("Nobody is here."), FALLBACK_TEXT));
    let mut config = AgentConfig::new("test");
    config.output_schema = Some(json!({"type": "object", "required": ["answer"]}));
    for wrong in ["Nobody is here.", "{}"] {
        let error = Agent::new(config.clone(), text(wrong), test_host.generation().await).err().unwrap();
        assert!(matches!(error, AgentError::FallbackText(_)), "{error}");
    }
    assert!(Agent::new(config, text(r#"{"answer": null}"#), test_host.generation().await).is_ok());
}

/// M5: If the agent has no fallback, the turn fails with a typed error that contains the model provider's message.
#[tokio::test(flavor = "multi_thread")]
async fn m5_without_a_fallback_the_providers_error_ends_the_turn() {
    let test_host = TestHost::new(&[]).await;
    let refused = json!({"text": "", "error": {"status": 401, "message": "bad key", "request_id": "r-7"}});
    let mut session = open(&test_host, chain(vec![scripted(&test_host, "one", &[refused])])).await;
    let TurnResult::Failed(TurnError::ModelFailed { message, .. }) = run_turn(&mut session, "Hello?").await else {
        panic!()
    };
    for part in ["401", "bad key", "r-7", "key"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!event_types(&test_host, &session).await.contains(&"retry".to_owned()), "a wrong key is not retried");
}

/// L29: If a turn waits before a retry of a model call, a cancellation ends the turn immediately.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_a_wait_before_a_retry() {
    let test_host = TestHost::new(&[]).await;
    let busy = json!({"text": "", "error": {"status": 429, "message": "slow down", "retry_after_ms": 29_000}});
    let mut session = open(&test_host, chain(vec![scripted(&test_host, "one", &[busy])])).await;
    let mut watching = session.subscribe();
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    let watcher = tokio::spawn(async move {
        while let Ok(event) = watching.recv().await {
            if matches!(event.kind, EventKind::Retry { .. }) {
                cancelling.cancel();
            }
        }
    });
    let input = agent_core::message::TurnInput::Text("Hello?".to_owned());
    let running = session.run(Some(input), cancel);
    let result =
        tokio::time::timeout(Duration::from_secs(60), running).await.expect("the cancelled turn ends at once").unwrap();
    assert_eq!(result, TurnResult::Cancelled);
    session.close().await.unwrap();
    watcher.await.unwrap();
}

/// D5: The host does not send the messages of an undone turn to the model, but keeps them in the store.
#[tokio::test(flavor = "multi_thread")]
async fn d5_an_undone_turn_is_removed_from_the_view() {
    let test_host = TestHost::new(&[]).await;
    let third = json!({"text": "three", "expect": {"roles": ["user", "assistant", "user"], "lacks": "Second?"}});
    let model = scripted(&test_host, "one", &[text_reply("one"), text_reply("two"), third]);
    let mut session = open(&test_host, chain(vec![model])).await;
    run_turn(&mut session, "First?").await;
    run_turn(&mut session, "Second?").await;
    session.undo().await.unwrap();
    let result = run_turn(&mut session, "Third?").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    use agent_store::{MessageRange, SessionLog};
    let stored = test_host.store.messages(session.subject(), MessageRange::Ids(vec![3, 4])).await.unwrap();
    assert_eq!(stored[0].parts, [agent_core::message::Part::Text("Second?".into())]);
    assert_eq!(stored.len(), 2);
}
