//! The input that context builders, models and validators receive, and the output that they may return (L2, L12).

use crate::support::{TestHost, call_reply, records, run_turn, script, text_reply, visible_messages};
use agent_core::run::TurnError;
use agent_runtime::{AgentConfig, Delegate, SummaryWriter, TurnResult};
use agent_store::{Memories, Memory, MemoryKind, SessionFilter, SessionIndex, SessionLog, StoredRecord};
use serde_json::{Value, json};

/// Returns the input that the fixture `stateful-builder` received in a turn.
fn builder_input(records: &[StoredRecord]) -> Value {
    let context = records.iter().find(|stored| stored.record.kind == "context").expect("the context is recorded");
    let sections = context.record.body["builder"]["answer"]["system"].as_array().expect("sections").clone();
    let builder_input = sections.iter().find(|section| section["name"] == json!("told")).expect("the section `told`");
    serde_json::from_str(builder_input["text"].as_str().unwrap()).expect("JSON")
}

fn config_with_builder(name: &str) -> AgentConfig {
    AgentConfig { context_builder: Some("stateful-builder".to_owned()), ..AgentConfig::new(name) }
}

/// L2, L22, L27, D4: A context builder receives the lifecycle, the tools with their cost, the view, the number of
/// evicted messages and their summary, the recalled memories of the user, and the context budget.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_builder_receives_its_documented_input() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    let memory = Memory {
        user: "ada".to_owned(),
        kind: MemoryKind::Final,
        agent: "test".to_owned(),
        session: "earlier".to_owned(),
        turn: 1,
        text: "The otter is called Ottilie.".to_owned(),
        project: None,
        written: None,
    };
    Memories::add(&*test_host.store, "earlier/1/final", memory).await.unwrap();
    let config =
        AgentConfig { user: Some("ada".to_owned()), summary: SummaryWriter::Extract, ..config_with_builder("test") };
    let long = |word: &str| format!("{word} {}", "and so on ".repeat(1_000));
    let script = json!({"window": 8_000, "replies": [text_reply("Noted."), text_reply("Seen."), text_reply("Known.")]});
    let mut session = test_host.session(config, script).await;
    run_turn(&mut session, &long("walrus")).await;
    let first = builder_input(&records(&test_host, &session, 1).await);
    assert_eq!((&first["lifecycle"], &first["delegated_by"]), (&json!("init"), &json!(null)));
    assert_eq!((&first["history"], &first["hidden"], &first["summary"]), (&json!([]), &json!(0), &json!(null)));
    let tools: Vec<&str> = first["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
    assert_eq!(tools, ["memory_search", "read_result"]);
    let budget: Vec<u64> = first["budget"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect();
    let [available, reserved, tools] = budget[..] else { panic!("{budget:?}") };
    assert!(reserved > 0 && tools > 0 && available == 8_000 - reserved - tools, "{budget:?}");

    run_turn(&mut session, &long("otter")).await;
    let second = builder_input(&records(&test_host, &session, 2).await);
    assert_eq!(second["history"].as_array().unwrap().len(), 2, "the view is passed without the input");
    assert_eq!(second["recollections"], json!(["The otter is called Ottilie."]));
    run_turn(&mut session, "And now?").await;
    let third = builder_input(&records(&test_host, &session, 3).await);
    assert_eq!((third["history"].as_array().unwrap().len(), &third["hidden"]), (2, &json!(2)), "{third}");
    assert!(third["summary"].as_str().unwrap().contains("Asked: walrus and"), "{third}");
}

/// L2, L16: In addition to its usual input, the context builder of a child agent receives the session that delegated to
/// the child agent.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_builder_receives_the_id_of_the_delegating_session() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    let reader = test_host.agent(config_with_builder("reader"), script(&[text_reply("Read.")])).await;
    let mut lead = AgentConfig::new("lead");
    let delegate = Delegate { agent: reader.into(), description: "Reads.".to_owned(), input_schema: None };
    lead.delegates.insert("reader".to_owned(), delegate);
    let replies = [call_reply(&[("reader", json!({"task": "Read it."}))]), text_reply("Done.")];
    let mut session = test_host.session(lead, script(&replies)).await;
    run_turn(&mut session, "Go.").await;
    let filter = SessionFilter { agent: Some("reader".to_owned()), ..SessionFilter::default() };
    let child = test_host.store.sessions(filter, 9).await.unwrap().remove(0).subject;
    let records = test_host.store.records(&child, agent_store::RecordRange::Turn(1)).await.unwrap();
    assert_eq!(builder_input(&records)["delegated_by"], json!(session.subject()));
}

/// L2: Each time the host builds a prompt, for a model call or a step, the context builder receives the lifecycle,
/// which is the reason for the prompt. The host records the lifecycle (D1).
#[tokio::test(flavor = "multi_thread")]
async fn l2_each_prompt_is_built_with_its_lifecycle() {
    let test_host = TestHost::new(&["stateful-builder", "probe"]).await;
    let mut config = config_with_builder("test");
    config.output_schema = Some(json!({"type": "object"}));
    let expected = ["init", "tool_result", "output_error_feedback"];
    let echo = call_reply(&[("probe.echo", json!({"text": "x"}))]);
    let replies = [echo, text_reply("no JSON"), text_reply("{}")].into_iter().zip(expected);
    let replies: Vec<Value> = replies
        .map(|(mut reply, lifecycle)| {
            reply["expect"] = json!({"lifecycle": lifecycle});
            reply
        })
        .collect();
    let mut session = test_host.session(config, script(&replies)).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let records = records(&test_host, &session, 1).await;
    let records_of = |kind: &'static str| records.iter().filter(move |stored| stored.record.kind == kind);
    let prompts: Vec<_> = records_of("prompt").map(|stored| stored.record.body["lifecycle"].clone()).collect();
    assert_eq!(prompts, expected.map(Value::from));
    for (step, lifecycle) in records_of("step_context").zip(expected) {
        let answer = step.record.body["answer"].to_string();
        assert!(answer.contains(&format!("for {lifecycle}")), "{answer}");
    }
}

/// L2: The state of a context builder may be at most 64 KiB. A larger state ends the turn with an error that names the
/// limit and the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn l2_limits_the_state_of_a_builder() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    let mut session = test_host.session(config_with_builder("test"), script(&[text_reply("Kept.")])).await;
    assert!(matches!(run_turn(&mut session, "state 65536").await, TurnResult::Finished(_)));
    assert_eq!(session.state().turn.as_ref().unwrap().state.as_ref().map(Vec::len), Some(65_536));
    let result = run_turn(&mut session, "state 65537").await;
    let TurnResult::Failed(TurnError::PluginFailed { plugin, message }) = &result else { panic!("{result:?}") };
    assert!(plugin.starts_with("stateful-builder@") && message.contains("64 KiB"), "{plugin}: {message}");
}

/// L13: If the agent has an output schema, JSON from a validator is returned as data. If the agent has no output
/// schema, JSON from a validator is returned as text. The stored message does not depend on the output schema.
#[tokio::test(flavor = "multi_thread")]
async fn l13_without_a_schema_the_output_is_a_string() {
    let text = "{\"repaired\":true}";
    for (schema, data) in [(None, json!(text)), (Some(json!({"type": "object"})), json!({"repaired": true}))] {
        let test_host = TestHost::new(&["bad-validator"]).await;
        let mut config = AgentConfig::new("test");
        (config.validators, config.output_schema) = (vec!["bad-validator".to_owned()], schema);
        let mut session = test_host.session(config, script(&[text_reply("repair")])).await;
        let result = run_turn(&mut session, "Go.").await;
        let TurnResult::Finished(output) = &result else { panic!("{result:?}") };
        assert_eq!(output.data, data);
        let last = visible_messages(&test_host, &session).await.pop().expect("the answer is stored");
        assert_eq!((last.plain_text().as_str(), last.seen_count), (text, 1));
    }
}

/// L12: Validators run in the configured order. The second validator receives the output of the first validator.
#[tokio::test(flavor = "multi_thread")]
async fn l12_the_second_validator_gets_the_output_of_the_first() {
    let validator_names = ["bad-validator", "strict-json"];
    let test_host = TestHost::new(&validator_names).await;
    let mut config = AgentConfig::new("test");
    config.bounds.max_corrections = 0;
    config.validators = validator_names.map(str::to_owned).to_vec();
    let mut session = test_host.session(config.clone(), script(&[text_reply("repair")])).await;
    let result = run_turn(&mut session, "Go.").await;
    let TurnResult::Finished(output) = &result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("{\"repaired\":true}"), "L13: without a schema, the output is a string");
    let records = records(&test_host, &session, 1).await;
    let verdicts = records.iter().filter(|stored| stored.record.kind == "verdict");
    let validators: Vec<&str> =
        verdicts.map(|stored| stored.record.body["plugin"].as_str().unwrap().split('@').next().unwrap()).collect();
    assert_eq!(validators, validator_names);
    config.validators.reverse();
    let mut session = test_host.session(config, script(&[text_reply("repair")])).await;
    let result = run_turn(&mut session, "Go.").await;
    let TurnResult::Failed(TurnError::OutputRejected { by, .. }) = &result else { panic!("{result:?}") };
    assert!(by.starts_with("strict-json@"), "{by}");
}
