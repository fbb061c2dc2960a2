//! A service response resumes a suspended turn, step by step, from the stored state alone. The module `drawn` tests the
//! complete sequence, from the first input until the interaction limit is reached.

mod drawn;

use crate::support::{
    TestHost, base_call_id, call_reply, event_types, records, results, run_turn, script, text_reply, view_summary,
};
use agent_core::cloud_event::CloudEvent;
use agent_core::plugin::Lifecycle;
use agent_core::run::Action;
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{AgentConfig, OpenSession, ResponseOutcome, ServiceConfig, Session, TurnResult};
use agent_store::{Outbox, OutboxFilter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn response(call: &str, data: Value) -> CloudEvent {
    let event =
        json!({"specversion": "1.0", "id": "r", "source": "/service", "type": "done", "parentid": call, "data": data});
    CloudEvent::parse(event.to_string().as_bytes()).expect("an event")
}

/// L1, L2, L3, L5, L10: A turn that waits for services and is resumed goes through all of its steps in order.
#[tokio::test(flavor = "multi_thread")]
async fn l10_a_response_resumes_a_turn_step_by_step() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    std::fs::write(test_host.tree().join("a.txt"), "a").unwrap();
    let mut config = AgentConfig::new("seed-a");
    config.context_builder = Some("stateful-builder".to_owned());
    config.host_trees = vec![TreeGrant { host: test_host.tree(), guest: "docs".to_owned(), access: Access::Read }];
    for name in ["weather.forecast", "stock.price"] {
        let accepts = json!({"type": "object", "required": ["of"], "properties": {"of": {"type": "string"}}});
        config.services.insert(name.to_owned(), ServiceConfig { accepts, ..ServiceConfig::new(name.parse().unwrap()) });
    }
    let calls = call_reply(&[
        ("weather_forecast", json!({"of": "Bern"})),
        ("list_directory", json!({"path": "docs"})),
        ("weather_forecast", json!({})),
        ("nowhere", json!({})),
        ("stock.price", json!({"of": "X"})),
    ]);
    let agent = test_host.agent(config, script(&[calls, text_reply("Sunny.")])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();

    // The turn starts with the context builder's `init` call and with the turn's input message. After the first model
    // call, every sent message has been seen once. The call of an unknown tool, and the call whose arguments violate
    // the tool's schema, get error results immediately. The local tool runs, the service requests are queued, and the
    // turn is suspended.
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Plan my day.").await else { panic!() };
    let waits: Vec<_> = suspension.waits.iter().map(|wait| (base_call_id(&wait.call.0), wait.name.clone())).collect();
    assert_eq!(
        waits,
        [("call_1_1_1", "weather.forecast"), ("call_1_1_5", "stock.price")].map(|(id, name)| (id.into(), name.into()))
    );
    assert_eq!(view_summary(&test_host, &session).await, ["user 1", "assistant 1"]);
    let state = session.state().clone();
    let turn_before = state.turn.as_ref().unwrap();
    assert_eq!(
        (turn_before.interactions, turn_before.execution_units, turn_before.sections.is_empty()),
        (1, 110, false)
    );
    let outbox = test_host.store.outbox(Some(session.subject()), OutboxFilter::All, 0, 9).await.unwrap();
    assert_eq!(outbox.len(), 2, "one event for each service call");
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    // When the session is opened again, its state is loaded with the seen counts, and the response is matched to its
    // call by `parentid`.
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::Existing(subject)).await.unwrap();
    assert_eq!(*session.state(), state, "the reopened session has the stored state");
    let outcome = session.respond(response("call_1_1_5", json!({"price": 7}))).await.unwrap();
    assert!(matches!(outcome, ResponseOutcome::Taken { waits, .. } if waits.len() == 1));
    // One of the two answers is still missing, so the turn stays suspended.
    let result = session.run(None, CancellationToken::new()).await.unwrap();
    assert!(matches!(result, TurnResult::Suspended(left) if left.waits.len() == 1));
    assert_eq!(
        view_summary(&test_host, &session).await,
        ["user 1", "assistant 1"],
        "the history contains no result yet"
    );

    // All answers have arrived, so the results are appended to the history with seen count 0, and the next step has the
    // lifecycle `tool_result`.
    session.respond(response("call_1_1_1", json!({"sky": "blue"}))).await.unwrap();
    assert_eq!(view_summary(&test_host, &session).await[2..], ["tool 0", "tool 0", "tool 0", "tool 0", "tool 0"]);
    let Action::CallModel(plan) = session.state().action() else { panic!() };
    assert_eq!((plan.step, plan.lifecycle), (2, Lifecycle::ToolResult));
    let TurnResult::Finished(output) = session.run(None, CancellationToken::new()).await.unwrap() else { panic!() };
    assert_eq!((output.data, output.interactions, output.execution_units), (json!("Sunny."), 2, 220));
    assert_eq!(view_summary(&test_host, &session).await[6..], ["tool 1", "assistant 1"]);

    // `init` ran only once, and the prompt sections that it returned were restored from the stored state.
    assert_eq!(session.state().turn.as_ref().unwrap().sections, turn_before.sections);
    let kinds: Vec<_> = records(&test_host, &session, 1).await.into_iter().map(|stored| stored.record.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "context").count(), 1, "{kinds:?}");
    let results = results(&test_host, &session).await;
    let errors: Vec<_> = results.iter().map(|(name, is_error, _)| (name.as_str(), *is_error)).collect();
    let expected = [
        ("weather.forecast", false),
        ("list_directory", false),
        ("weather.forecast", true),
        ("nowhere", true),
        ("stock.price", false),
    ];
    assert_eq!(errors, expected);
    assert!(results[2].2.contains("required"), "L8: {}", results[2].2);
    let types = event_types(&test_host, &session).await;
    assert_eq!(types.iter().filter(|kind| *kind == "loop_end").count(), 1, "{types:?}");
}
