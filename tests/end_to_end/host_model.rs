//! Plugins with a grant can send questions to the agent's model, within a token budget for each turn. The tokens of
//! these questions count towards the turn (P5, L5).

use crate::support::{TestHost, call_reply, events, records, results, run_turn, script, text_reply};
use agent_core::event::EventKind;
use agent_core::tool::CallCost;
use agent_plugins::Grants;
use agent_runtime::{AgentConfig, OpenSession, PluginAllowance, Session, TurnResult};
use serde_json::{Value, json};
use std::time::Duration;

fn agent(model_tokens: Option<u64>) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    let grants = Grants { model_tokens, ..Grants::default() };
    config.plugins.insert("summarize".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    config.bounds.parallel_calls = 1;
    config
}

/// Returns a script that contains replies for the agent's turns and answers to the questions of plugins.
fn script_with_answers(replies: &[Value], answers: &[Value]) -> Value {
    let mut script = script(replies);
    script["answers"] = json!(answers);
    script
}

fn answer_with_tokens(text: &str, tokens: u32) -> Value {
    json!({"text": text, "usage": {"prompt_tokens": tokens, "completion_tokens": 2}})
}

fn summarize_call(text: &str) -> (&'static str, Value) {
    ("summarize.text", json!({"text": text, "words": 10}))
}

async fn costs(test_host: &TestHost, session: &Session) -> Vec<CallCost> {
    let cost = |kind| match kind {
        EventKind::ToolResult { cost, .. } | EventKind::ToolResultError { cost, .. } => Some(cost),
        _ => None,
    };
    events(test_host, session).await.into_iter().filter_map(|event| cost(event.kind)).collect()
}

/// P5, L5, D1: The model receives only the plugin's question. The question's tokens are counted in the turn and in the
/// event of the plugin's call.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_plugin_asks_the_agents_model() {
    let test_host = TestHost::new(&["summarize"]).await;
    let expect = json!({"messages": 1, "last_contains": "a long story", "system_contains": "At most 10 words",
        "tools": [], "lacks": "The secret prompt"});
    let mut answer = answer_with_tokens("A ship.", 40);
    answer["expect"] = expect;
    let replies = [call_reply(&[summarize_call("a long story")]), text_reply("Done.")];
    let mut session = test_host.session(agent(Some(1_000)), script_with_answers(&replies, &[answer])).await;
    let TurnResult::Finished(output) = run_turn(&mut session, "The secret prompt.").await else {
        panic!("the turn did not finish")
    };
    assert_eq!(results(&test_host, &session).await, [("summarize.text".to_owned(), false, "A ship.".to_owned())]);
    assert_eq!((output.usage.prompt_tokens, output.usage.completion_tokens), (240, 22));
    assert_eq!(output.execution_units, 262);
    let cost = costs(&test_host, &session).await.remove(0);
    assert_eq!((cost.model.asks, cost.model.usage.total()), (1, 42));
    assert!(cost.bytes_out > "a long story".len() as u64, "{cost:?}");
    let stored = records(&test_host, &session, 1).await;
    let questions: Vec<_> = stored.iter().filter(|stored| stored.record.kind == "host_model").collect();
    assert_eq!((questions.len(), &questions[0].record.body["plugin"]), (1, &json!("summarize")));
    assert_eq!(questions[0].record.body["answer"]["reply"]["text"], "A ship.");
    assert_eq!(session.state().asks, 1);
}

/// P5, P6: Nothing is granted by default. The denial names the configuration line to add, and no model is asked.
#[tokio::test(flavor = "multi_thread")]
async fn p6_without_a_grant_no_model_is_asked() {
    let test_host = TestHost::new(&["summarize"]).await;
    let replies = [call_reply(&[summarize_call("a long story")]), text_reply("Done.")];
    let mut session =
        test_host.session(agent(None), script_with_answers(&replies, &[answer_with_tokens("No.", 1)])).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let (_, is_error, text) = results(&test_host, &session).await.remove(0);
    assert!(is_error && text.contains("[plugins.summarize.grants]") && text.contains("model_tokens = 50000"), "{text}");
    assert_eq!(session.state().asks, 0);
}

/// P5: A plugin's token budget covers all calls of a turn and is restored from the stored state. The next turn has a
/// new budget.
#[tokio::test(flavor = "multi_thread")]
async fn p5_an_exhausted_budget_is_a_typed_error() {
    let test_host = TestHost::new(&["summarize"]).await;
    let twice = call_reply(&[summarize_call("one"), summarize_call("two")]);
    let replies = [twice, text_reply("Done."), call_reply(&[summarize_call("three")]), text_reply("Done again.")];
    let answers = [answer_with_tokens("First.", 400), answer_with_tokens("Second.", 3)];
    let script = script_with_answers(&replies, &answers);
    let mut session = test_host.session(agent(Some(420)), script.clone()).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let outcomes = results(&test_host, &session).await;
    assert!(!outcomes[0].1 && outcomes[0].2 == "First.", "{outcomes:?}");
    assert!(outcomes[1].1 && outcomes[1].2.contains("18 tokens are left"), "{outcomes:?}");
    let usage = &session.state().turn.as_ref().unwrap().plugin_model_use["summarize"];
    assert_eq!((usage.asks, usage.usage.total()), (1, 402));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    // If another process continues the session, the scripted model continues with its next unused answer.
    let reopened_agent = test_host.agent(agent(Some(420)), script).await;
    let mut session = Session::open(&test_host.host(), reopened_agent, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(run_turn(&mut session, "Again.").await, TurnResult::Finished(_)));
    assert_eq!(results(&test_host, &session).await[2].2, "Second.");
    assert_eq!(session.state().asks, 2);
}

/// P5, M3: A question to a busy model is retried. If the model does not answer, the plugin gets an error, and the turn
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn m3_retries_a_question_and_reports_its_failure_to_the_call() {
    let test_host = TestHost::new(&["summarize"]).await;
    let mut busy = answer_with_tokens("At last.", 5);
    busy["error"] = json!({"status": 503, "message": "busy at http://secret.example", "times": 1, "retry_after_ms": 1});
    let replies = [call_reply(&[summarize_call("one"), summarize_call("two")]), text_reply("Done.")];
    let mut session = test_host.session(agent(Some(10_000)), script_with_answers(&replies, &[busy])).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let outcomes = results(&test_host, &session).await;
    assert_eq!((outcomes[0].1, outcomes[0].2.as_str()), (false, "At last."));
    assert!(outcomes[1].1 && outcomes[1].2.contains("did not answer the question"), "{outcomes:?}");
    assert!(!outcomes[1].2.contains("script"), "the error does not reveal the host's model: {outcomes:?}");
}

/// P8, L29: The time for which a call waits for the model counts towards the call's wall time. If the call is stopped,
/// the host also stops the call's question to the model. The host still counts the tokens of a stopped question.
#[tokio::test(flavor = "multi_thread")]
async fn p8_a_question_ends_with_its_call() {
    let test_host = TestHost::new(&["summarize"]).await;
    let mut slow = answer_with_tokens("Late.", 5);
    slow["delay_ms"] = json!(300_000);
    let replies = [call_reply(&[summarize_call("one"), summarize_call("two")]), text_reply("Done.")];
    let mut config = agent(Some(10_000));
    let allowance = config.plugins.get_mut("summarize").unwrap();
    allowance.limits.tool_time = Duration::from_millis(300);
    let mut session =
        test_host.session(config, script_with_answers(&replies, &[slow, answer_with_tokens("Quick.", 5)])).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let outcomes = results(&test_host, &session).await;
    assert!(
        outcomes[0].1 && outcomes[0].2.contains("wall time of 300ms") && outcomes[0].2.contains("summarize@"),
        "{outcomes:?}"
    );
    assert_eq!(
        (outcomes[1].1, outcomes[1].2.as_str()),
        (false, "Quick."),
        "the next question gets the next scripted answer"
    );
    assert_eq!(session.state().turn.as_ref().unwrap().plugin_model_use["summarize"].asks, 2);
    assert!(costs(&test_host, &session).await[0].cpu_us < 200_000, "waiting uses no processor time");
}

/// P5, L5: A context builder can ask the model. The builder's question is committed before the prompt that uses
/// the answer.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_context_builder_asks_the_model() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    let grants = Grants { model_tokens: Some(1_000), ..Grants::default() };
    config.plugins.insert("stateful-builder".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    let mut reply = text_reply("Done.");
    reply["expect"] = json!({"system_contains": "the model says: Ahoy."});
    let mut session = test_host.session(config, script_with_answers(&[reply], &[answer_with_tokens("Ahoy.", 8)])).await;
    let result = run_turn(&mut session, "ask the model").await;
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.execution_units, 120);
    let kinds: Vec<String> =
        records(&test_host, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    let position = |kind: &str| kinds.iter().position(|found| found == kind);
    assert!(position("host_model").is_some() && position("host_model") < position("context"), "{kinds:?}");
}
