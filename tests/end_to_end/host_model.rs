//! The host's model for plugins: granted, within a budget of the turn, counted in the turn (P5, L5).

use crate::support::{House, calling, events, records, results, saying, script, turn};
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

/// A script with answers to plugins.
fn with_answers(replies: &[Value], answers: &[Value]) -> Value {
    let mut script = script(replies);
    script["answers"] = json!(answers);
    script
}

fn answering(text: &str, tokens: u32) -> Value {
    json!({"text": text, "usage": {"prompt_tokens": tokens, "completion_tokens": 2}})
}

fn summing_up(text: &str) -> (&'static str, Value) {
    ("summarize.text", json!({"text": text, "words": 10}))
}

async fn costs(house: &House, session: &Session) -> Vec<CallCost> {
    let cost = |kind| match kind {
        EventKind::ToolResult { cost, .. } | EventKind::ToolResultError { cost, .. } => Some(cost),
        _ => None,
    };
    events(house, session).await.into_iter().filter_map(|event| cost(event.kind)).collect()
}

/// P5, L5, D1: the model sees the plugin's question alone; its tokens are the turn's, and stand on the call's event.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_plugin_asks_the_agents_model() {
    let house = House::new(&["summarize"]).await;
    let expect = json!({"messages": 1, "last_contains": "a long story", "system_contains": "At most 10 words",
        "tools": [], "lacks": "The secret prompt"});
    let mut answer = answering("A ship.", 40);
    answer["expect"] = expect;
    let replies = [calling(&[summing_up("a long story")]), saying("Done.")];
    let mut session = house.session(agent(Some(1_000)), with_answers(&replies, &[answer])).await;
    let TurnResult::Finished(output) = turn(&mut session, "The secret prompt.").await else { panic!("it ends") };
    assert_eq!(results(&house, &session).await, [("summarize.text".to_owned(), false, "A ship.".to_owned())]);
    assert_eq!((output.usage.prompt_tokens, output.usage.completion_tokens), (240, 22));
    assert_eq!(output.execution_units, 262);
    let cost = costs(&house, &session).await.remove(0);
    assert_eq!((cost.model.asks, cost.model.usage.total()), (1, 42));
    assert!(cost.bytes_out > "a long story".len() as u64, "{cost:?}");
    let stored = records(&house, &session, 1).await;
    let asked: Vec<_> = stored.iter().filter(|stored| stored.record.kind == "host_model").collect();
    assert_eq!((asked.len(), &asked[0].record.body["plugin"]), (1, &json!("summarize")));
    assert_eq!(asked[0].record.body["answer"]["reply"]["text"], "A ship.");
    assert_eq!(session.state().asks, 1);
}

/// P5, P6: nothing by default; the denial names the line to add, and no model is asked.
#[tokio::test(flavor = "multi_thread")]
async fn p6_without_a_grant_nobody_is_asked() {
    let house = House::new(&["summarize"]).await;
    let replies = [calling(&[summing_up("a long story")]), saying("Done.")];
    let mut session = house.session(agent(None), with_answers(&replies, &[answering("No.", 1)])).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let (_, is_error, text) = results(&house, &session).await.remove(0);
    assert!(is_error && text.contains("[plugins.summarize.grants]") && text.contains("model_tokens = 50000"), "{text}");
    assert_eq!(session.state().asks, 0);
}

/// P5: the budget is that of the turn, over all calls, and goes on from what is stored; the next turn has its own.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_spent_budget_is_a_typed_error() {
    let house = House::new(&["summarize"]).await;
    let twice = calling(&[summing_up("one"), summing_up("two")]);
    let replies = [twice, saying("Done."), calling(&[summing_up("three")]), saying("Done again.")];
    let answers = [answering("First.", 400), answering("Second.", 3)];
    let script = with_answers(&replies, &answers);
    let mut session = house.session(agent(Some(420)), script.clone()).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let told = results(&house, &session).await;
    assert!(!told[0].1 && told[0].2 == "First.", "{told:?}");
    assert!(told[1].1 && told[1].2.contains("18 tokens are left"), "{told:?}");
    let asked = &session.state().turn.as_ref().unwrap().asked["summarize"];
    assert_eq!((asked.asks, asked.usage.total()), (1, 402));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    // A process that goes on takes the next answer.
    let again = house.agent(agent(Some(420)), script).await;
    let mut session = Session::open(&house.host(), again, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(turn(&mut session, "Again.").await, TurnResult::Finished(_)));
    assert_eq!(results(&house, &session).await[2].2, "Second.");
    assert_eq!(session.state().asks, 2);
}

/// P5, M3: a busy model is asked again; one that does not answer is the plugin's error, and the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn m3_a_question_is_tried_again_and_its_failure_is_the_calls() {
    let house = House::new(&["summarize"]).await;
    let mut busy = answering("At last.", 5);
    busy["error"] = json!({"status": 503, "message": "busy at http://secret.example", "times": 1, "retry_after_ms": 1});
    let replies = [calling(&[summing_up("one"), summing_up("two")]), saying("Done.")];
    let mut session = house.session(agent(Some(10_000)), with_answers(&replies, &[busy])).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let told = results(&house, &session).await;
    assert_eq!((told[0].1, told[0].2.as_str()), (false, "At last."));
    assert!(told[1].1 && told[1].2.contains("does not answer this"), "{told:?}");
    assert!(!told[1].2.contains("script"), "what the host's models are is not the plugin's: {told:?}");
}

/// P8, L29: waiting for the model is within the call's wall time; stopping the call stops the question, which is counted.
#[tokio::test(flavor = "multi_thread")]
async fn p8_a_question_ends_with_its_call() {
    let house = House::new(&["summarize"]).await;
    let mut slow = answering("Late.", 5);
    slow["delay_ms"] = json!(300_000);
    let replies = [calling(&[summing_up("one"), summing_up("two")]), saying("Done.")];
    let mut config = agent(Some(10_000));
    let allowance = config.plugins.get_mut("summarize").unwrap();
    allowance.limits.tool_time = Duration::from_millis(300);
    let mut session = house.session(config, with_answers(&replies, &[slow, answering("Quick.", 5)])).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let told = results(&house, &session).await;
    assert!(told[0].1 && told[0].2.contains("wall time of 300ms") && told[0].2.contains("summarize@"), "{told:?}");
    assert_eq!((told[1].1, told[1].2.as_str()), (false, "Quick."), "the next question has the next answer");
    assert_eq!(session.state().turn.as_ref().unwrap().asked["summarize"].asks, 2);
    assert!(costs(&house, &session).await[0].cpu_us < 200_000, "waiting is no work");
}

/// P5, L5: a context builder asks, too; what it asked is committed before the prompt that it made of it.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_context_builder_asks() {
    let house = House::new(&["stateful-builder"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    let grants = Grants { model_tokens: Some(1_000), ..Grants::default() };
    config.plugins.insert("stateful-builder".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    let mut reply = saying("Done.");
    reply["expect"] = json!({"system_contains": "the model says: Ahoy."});
    let mut session = house.session(config, with_answers(&[reply], &[answering("Ahoy.", 8)])).await;
    let result = turn(&mut session, "ask the model").await;
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.execution_units, 120);
    let kinds: Vec<String> = records(&house, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    let place = |kind: &str| kinds.iter().position(|found| found == kind);
    assert!(place("host_model").is_some() && place("host_model") < place("context"), "{kinds:?}");
}
