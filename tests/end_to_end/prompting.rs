//! What goes to builders, models and validators, and what may come back (L2, L12).

use crate::support::{House, calling, records, saying, script, turn, view};
use agent_core::run::TurnError;
use agent_runtime::{AgentConfig, Delegate, SummaryWriter, TurnResult};
use agent_store::{Memories, Memory, MemoryKind, SessionFilter, SessionLog, StoredRecord};
use serde_json::{Value, json};

/// What the fixture's builder was told in a turn.
fn told(records: &[StoredRecord]) -> Value {
    let context = records.iter().find(|stored| stored.record.kind == "context").expect("the context is recorded");
    let sections = context.record.body["builder"]["answer"]["system"].as_array().expect("sections").clone();
    let told = sections.iter().find(|section| section["name"] == json!("told")).expect("the section `told`");
    serde_json::from_str(told["text"].as_str().unwrap()).expect("JSON")
}

fn builder(name: &str) -> AgentConfig {
    AgentConfig { context_builder: Some("stateful-builder".to_owned()), ..AgentConfig::new(name) }
}

/// L2, L22, L27, D4: a builder gets the lifecycle, the tools with their cost, the view, how many messages have left it and
/// their summary, what is recalled of the user, and what the window has room for.
#[tokio::test(flavor = "multi_thread")]
async fn l2_what_a_builder_receives() {
    let house = House::new(&["stateful-builder"]).await;
    let memory = Memory {
        user: "ada".to_owned(),
        kind: MemoryKind::Final,
        agent: "test".to_owned(),
        session: "earlier".to_owned(),
        turn: 1,
        text: "The otter is called Ottilie.".to_owned(),
        written: None,
    };
    Memories::add(&*house.store, "earlier/1/final", memory).await.unwrap();
    let config = AgentConfig { user: Some("ada".to_owned()), summary: SummaryWriter::Extract, ..builder("test") };
    let long = |word: &str| format!("{word} {}", "and so on ".repeat(1_000));
    let script = json!({"window": 8_000, "replies": [saying("Noted."), saying("Seen."), saying("Known.")]});
    let mut session = house.session(config, script).await;
    turn(&mut session, &long("walrus")).await;
    let first = told(&records(&house, &session, 1).await);
    assert_eq!((&first["lifecycle"], &first["delegated_by"]), (&json!("init"), &json!(null)));
    assert_eq!((&first["history"], &first["hidden"], &first["summary"]), (&json!([]), &json!(0), &json!(null)));
    let tools: Vec<&str> = first["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
    assert_eq!(tools, ["memory_search", "read_result"]);
    let budget: Vec<u64> = first["budget"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect();
    let [available, reserved, tools] = budget[..] else { panic!("{budget:?}") };
    assert!(reserved > 0 && tools > 0 && available == 8_000 - reserved - tools, "{budget:?}");

    turn(&mut session, &long("otter")).await;
    let second = told(&records(&house, &session, 2).await);
    assert_eq!(second["history"].as_array().unwrap().len(), 2, "the view before the input comes into it");
    assert_eq!(second["recollections"], json!(["The otter is called Ottilie."]));
    turn(&mut session, "And now?").await;
    let third = told(&records(&house, &session, 3).await);
    assert_eq!((third["history"].as_array().unwrap().len(), &third["hidden"]), (2, &json!(2)), "{third}");
    assert!(third["summary"].as_str().unwrap().contains("Asked: walrus and"), "{third}");
}

/// L2, L16: and whose work it does.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_builder_is_told_who_delegated() {
    let house = House::new(&["stateful-builder"]).await;
    let reader = house.agent(builder("reader"), script(&[saying("Read.")])).await;
    let mut lead = AgentConfig::new("lead");
    let delegate = Delegate { agent: reader.into(), description: "Reads.".to_owned(), input_schema: None };
    lead.delegates.insert("reader".to_owned(), delegate);
    let replies = [calling(&[("reader", json!({"task": "Read it."}))]), saying("Done.")];
    let mut session = house.session(lead, script(&replies)).await;
    turn(&mut session, "Go.").await;
    let filter = SessionFilter { agent: Some("reader".to_owned()), ..SessionFilter::default() };
    let child = house.store.sessions(filter, 9).await.unwrap().remove(0).subject;
    let records = house.store.records(&child, agent_store::RecordRange::Turn(1)).await.unwrap();
    assert_eq!(told(&records)["delegated_by"], json!(session.subject()));
}

/// L2: each model call and each step is told why its prompt was built; the record keeps it (D1).
#[tokio::test(flavor = "multi_thread")]
async fn l2_each_model_call_gets_the_lifecycle() {
    let house = House::new(&["stateful-builder", "probe"]).await;
    let mut config = builder("test");
    config.output_schema = Some(json!({"type": "object"}));
    let expected = ["init", "tool_result", "output_error_feedback"];
    let echo = calling(&[("probe.echo", json!({"text": "x"}))]);
    let replies = [echo, saying("no JSON"), saying("{}")].into_iter().zip(expected);
    let replies: Vec<Value> = replies
        .map(|(mut reply, lifecycle)| {
            reply["expect"] = json!({"lifecycle": lifecycle});
            reply
        })
        .collect();
    let mut session = house.session(config, script(&replies)).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let records = records(&house, &session, 1).await;
    let of = |kind: &'static str| records.iter().filter(move |stored| stored.record.kind == kind);
    let prompts: Vec<_> = of("prompt").map(|stored| stored.record.body["lifecycle"].clone()).collect();
    assert_eq!(prompts, expected.map(Value::from));
    for (step, lifecycle) in of("step_context").zip(expected) {
        let answer = step.record.body["answer"].to_string();
        assert!(answer.contains(&format!("for {lifecycle}")), "{answer}");
    }
}

/// L2: a builder's state has at most 64 KiB; one byte more ends the turn with an error that names the limit and the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_builders_state_is_bounded() {
    let house = House::new(&["stateful-builder"]).await;
    let mut session = house.session(builder("test"), script(&[saying("Kept.")])).await;
    assert!(matches!(turn(&mut session, "state 65536").await, TurnResult::Finished(_)));
    assert_eq!(session.state().turn.as_ref().unwrap().state.as_ref().map(Vec::len), Some(65_536));
    let result = turn(&mut session, "state 65537").await;
    let TurnResult::Failed(TurnError::PluginFailed { plugin, message }) = &result else { panic!("{result:?}") };
    assert!(plugin.starts_with("stateful-builder@") && message.contains("64 KiB"), "{plugin}: {message}");
}

/// L13: a validator's JSON is data where the agent has an output schema, and else its text; the message is the same.
#[tokio::test(flavor = "multi_thread")]
async fn l13_without_a_schema_the_output_is_a_string() {
    let text = "{\"repaired\":true}";
    for (schema, data) in [(None, json!(text)), (Some(json!({"type": "object"})), json!({"repaired": true}))] {
        let house = House::new(&["bad-validator"]).await;
        let mut config = AgentConfig::new("test");
        (config.validators, config.output_schema) = (vec!["bad-validator".to_owned()], schema);
        let mut session = house.session(config, script(&[saying("repair")])).await;
        let result = turn(&mut session, "Go.").await;
        let TurnResult::Finished(output) = &result else { panic!("{result:?}") };
        assert_eq!(output.data, data);
        let last = view(&house, &session).await.pop().expect("the answer is stored");
        assert_eq!((last.plain_text().as_str(), last.seen_count), (text, 1));
    }
}

/// L12: validators run in the order in which they are named; the second sees what the first has made of the answer.
#[tokio::test(flavor = "multi_thread")]
async fn l12_the_second_validator_sees_what_the_first_has_made() {
    let both = ["bad-validator", "strict-json"];
    let house = House::new(&both).await;
    let mut config = AgentConfig::new("test");
    config.bounds.max_corrections = 0;
    config.validators = both.map(str::to_owned).to_vec();
    let mut session = house.session(config.clone(), script(&[saying("repair")])).await;
    let result = turn(&mut session, "Go.").await;
    let TurnResult::Finished(output) = &result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("{\"repaired\":true}"), "L13: without a schema it is a string");
    let records = records(&house, &session, 1).await;
    let verdicts = records.iter().filter(|stored| stored.record.kind == "verdict");
    let asked: Vec<&str> =
        verdicts.map(|stored| stored.record.body["plugin"].as_str().unwrap().split('@').next().unwrap()).collect();
    assert_eq!(asked, both);
    config.validators.reverse();
    let mut session = house.session(config, script(&[saying("repair")])).await;
    let result = turn(&mut session, "Go.").await;
    let TurnResult::Failed(TurnError::OutputRejected { by, .. }) = &result else { panic!("{result:?}") };
    assert!(by.starts_with("strict-json@"), "{by}");
}
