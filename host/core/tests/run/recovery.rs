//! Tests of recovery after a crash (D3) and of the stored state (L1).

use crate::session::{Session, dispatched, kinds, outcome, plain, repeatable, restored, sequential};
use agent_core::change::{CallChange, CallState};
use agent_core::event::{Suspension, Wait, WaitCause};
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::OutputData;
use agent_core::run::{Action, Decision, Dispatch, Input, InputError, LoopConfig, RestoreError, Run};
use agent_core::view::result_text;
use serde_json::{Value, json};

fn id(position: u32) -> CallId {
    CallId(format!("call_1_1_{position}"))
}

fn suspended(calls: &[u32]) -> Action {
    let wait =
        |position: &u32| Wait { call: id(*position), name: position.to_string(), cause: WaitCause::OutcomeUnknown };
    Action::Suspended(Suspension { waits: calls.iter().map(wait).collect() })
}

#[test]
fn d3_repeatable_calls_run_again_and_the_others_wait_for_a_decision() {
    let mut session = Session::calling(LoopConfig { parallel_calls: 3, ..Default::default() });
    session.reply("", vec![plain("1"), repeatable("2"), plain("3"), sequential("4")]);
    session.dispatch();
    session.outcome("call_1_1_3", "before the crash");
    let change = session.crash();
    let moved = |position, state| CallChange::Moved { id: id(position), state, attempt: 1 };
    assert_eq!(change.calls, [moved(1, CallState::OutcomeUnknown), moved(2, CallState::Waiting)]);
    assert_eq!(kinds(&change), ["outcome_unknown"], "the turn is not suspended while a call can run");
    assert_eq!(
        session.run.action(),
        Action::Dispatch(vec![Dispatch { call: id(2), attempt: 2, authorization: None, request: None }])
    );
    session.dispatch();
    session.outcome("call_1_1_2", "second attempt");
    assert_eq!(
        session.run.action(),
        Action::Dispatch(vec![Dispatch { call: id(4), attempt: 1, authorization: None, request: None }])
    );
    session.dispatch();
    let change = session.outcome("call_1_1_4", "ok");
    assert_eq!(kinds(&change), ["tool_result", "suspended"], "no loop_end");
    assert_eq!(session.run.action(), suspended(&[1]));
    assert_eq!(session.crash().events, [], "the suspension is announced once");
    let result = session.ledger.call(&id(3)).record.result.clone().unwrap();
    assert_eq!(result_text(&result.content), "before the crash", "finished results are kept");
}

#[test]
fn d3_each_decision_continues_the_turn() {
    for (decision, text, is_error) in [
        (Decision::Retry, "ok", false),
        (Decision::Failed("it did not".into()), "it did not", true),
        (Decision::Result("it did".into()), "it did", false),
    ] {
        let mut session = Session::calling(LoopConfig::default());
        session.reply("", vec![plain("1")]);
        session.dispatch();
        assert_eq!(kinds(&session.crash()), ["outcome_unknown", "suspended"]);
        let change = session.resolve("call_1_1_1", decision.clone());
        assert_eq!(kinds(&change).iter().filter(|kind| *kind == "resumed").count(), 1, "{:?}", kinds(&change));
        if decision == Decision::Retry {
            assert_eq!(
                session.run.action(),
                Action::Dispatch(vec![Dispatch { call: id(1), attempt: 2, authorization: None, request: None }])
            );
            session.run_batch();
        }
        assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2));
        let result = session.ledger.call(&id(1)).record.result.clone().unwrap();
        assert_eq!((result_text(&result.content).as_str(), result.is_error), (text, is_error));
        let again = session.apply(Input::Resolve { call: id(1), decision });
        assert_eq!(again, Err(InputError::UnknownCall(id(1))), "a second decision has no effect");
    }
}

#[test]
fn d3_each_suspension_between_decisions_is_announced() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("1"), plain("2"), plain("3")]);
    session.dispatch();
    session.crash();
    assert_eq!(session.run.action(), suspended(&[1, 2, 3]));
    assert_eq!(session.apply(dispatched(&[id(1)])), Err(InputError::Settled(id(1), UNKNOWN)));
    assert_eq!(session.apply(outcome("call_1_1_1", "late")), Err(InputError::Settled(id(1), UNKNOWN)));
    let change = session.resolve("call_1_1_2", Decision::Result("it did".into()));
    assert_eq!(kinds(&change), ["tool_result", "suspended"], "the turn still waits for the other calls");
    let change = session.resolve("call_1_1_1", Decision::Retry);
    assert_eq!(kinds(&change), ["resumed"]);
    session.dispatch();
    assert_eq!(session.run.action(), Action::AwaitOutcome);
    assert_eq!(
        kinds(&session.crash()),
        ["outcome_unknown", "suspended"],
        "the call must not be repeated again without asking"
    );
    assert_eq!(session.run.action(), suspended(&[1, 3]));
    session.resolve("call_1_1_3", Decision::Failed("no".into()));
    let change = session.resolve("call_1_1_1", Decision::Failed("no".into()));
    assert_eq!(change.messages.len(), 3);
}

const UNKNOWN: &str = "waiting for a decision, because its outcome is unknown";

#[test]
fn l30_a_crash_only_discards_an_interrupted_stream() {
    let mut session = Session::new();
    session.start(TurnInput::Text("input".into()), LoopConfig::default());
    assert_eq!(session.crash(), Default::default());
    assert_eq!(session.run.action(), Action::BuildContext);
    session.must(Input::Cancel);
    session.begin(LoopConfig::default());
    assert_eq!(kinds(&session.crash()), ["stream_clear"]);
    session.reply("answer", Vec::new());
    assert_eq!(session.crash(), Default::default(), "a committed reply is complete");
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.text == "answer"));
}

#[test]
fn l1_resuming_without_a_state_returns_the_error_no_context() {
    let error = Run::restore(None).unwrap_err();
    assert!(matches!(error, RestoreError::NoContext));
    assert!(error.to_string().starts_with("no_context"), "{error}");
}

#[test]
fn l1_a_newer_or_damaged_state_is_refused() {
    let session = Session::calling(LoopConfig::default());
    let mut state: Value = serde_json::from_slice(&session.run.snapshot()).unwrap();
    let version = state["version"].as_u64().unwrap();
    state["version"] = json!(version + 1);
    // A state of a newer version may have unknown fields. The error must name the version and must not report a
    // damaged state.
    state["turn"] = json!("another shape");
    let error = Run::restore(Some(&serde_json::to_vec(&state).unwrap())).unwrap_err();
    assert!(matches!(error, RestoreError::Newer { found } if u64::from(found) == version + 1), "{error}");
    for damaged in ["", "{}", "[]", "null", "\u{0}", "{\"version\":1}", "{\"version\":\"1\"}"] {
        let error = Run::restore(Some(damaged.as_bytes())).unwrap_err();
        assert!(matches!(error, RestoreError::Damaged(_)), "{damaged}");
    }
    let mut cut = session.run.snapshot();
    cut.pop();
    assert!(matches!(Run::restore(Some(&cut)), Err(RestoreError::Damaged(_))));
}

#[test]
fn l1_a_builder_state_that_is_not_hexadecimal_is_refused() {
    let mut session = Session::new();
    session.start(TurnInput::Text("input".into()), LoopConfig::default());
    session.context(agent_core::run::TurnContext { state: Some(vec![1, 254]), ..Default::default() });
    let state = String::from_utf8(session.run.snapshot()).unwrap();
    assert!(state.contains("\"01fe\""), "{state}");
    for wrong in ["\"01f\"", "\"01fg\"", "\"é0\"", "\"+1+2\""] {
        let damaged = state.replace("\"01fe\"", wrong);
        assert!(matches!(Run::restore(Some(damaged.as_bytes())), Err(RestoreError::Damaged(_))), "{wrong}");
    }
}

/// Returns nested arrays with `depth` levels.
fn deep(depth: usize) -> Value {
    serde_json::from_str(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)))
        .expect("serde_json parses up to 127 levels")
}

// Row 26: if serde_json can parse a value, it can also parse a snapshot, a message or an event that contains the value.
#[test]
fn row_26_deeply_nested_json_never_makes_a_state_unreadable() {
    for depth in [1, 63, 64, 65, 100, 127] {
        let mut session = Session::new();
        session.start(TurnInput::Json(deep(depth)), LoopConfig::default());
        session.context(agent_core::run::TurnContext { budget: crate::session::WIDE, ..Default::default() });
        session.reply("", vec![plain("a")]);
        session.dispatch();
        let mut result = crate::session::result("");
        result.content = vec![agent_core::message::Content::Json(deep(depth))];
        result.structured = Some(deep(depth));
        let change = session.run.apply(Input::Outcome { call: id(1), result }).unwrap();
        let bytes = serde_json::to_vec(&change).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap_or_else(|error| panic!("{depth}: {error}"));

        let mut run = restored(&session.run);
        let mut deep_call = plain("a");
        deep_call.arguments = deep(depth);
        let reply = crate::session::reply("", vec![deep_call, plain("b")]);
        let change = run.apply(Input::Reply(reply)).unwrap();
        let bytes = serde_json::to_vec(&change).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap_or_else(|error| panic!("{depth}: {error}"));
        restored(&run);

        let mut run = restored(&session.run);
        run.apply(Input::Reply(crate::session::reply("deep", Vec::new()))).unwrap();
        let data = OutputData::Json(deep(depth));
        run.apply(Input::Verdict(agent_core::run::OutputVerdict::Accepted(data))).unwrap();
        restored(&run);
        assert_eq!(run.action() == Action::Ended, depth <= 64, "an output that is nested too deeply must be corrected");
    }
}

/// Rows 27 and 28: a stored state that no transition produces is refused. Otherwise, a later step could overflow a
/// counter, for example.
#[test]
fn l1_a_state_that_contradicts_itself_is_refused() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    let valid: serde_json::Value = serde_json::from_slice(&session.run.snapshot()).unwrap();
    assert!(Run::restore(Some(valid.to_string().as_bytes())).is_ok());
    for (pointer, value) in [
        ("/sequence", json!(u64::MAX)),
        ("/turns", json!(u32::MAX)),
        ("/turn/interactions", json!(u32::MAX)),
        ("/next_message", json!(1)),
        ("/view/0/since", json!(99)),
        ("/turn/phase/working/calls", json!([])),
        ("/turn/phase/working/calls/0/attempt", json!(u32::MAX)),
    ] {
        let mut crafted = valid.clone();
        *crafted.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}: {valid}")) = value;
        let error = Run::restore(Some(crafted.to_string().as_bytes())).expect_err(pointer);
        assert!(error.to_string().contains("cannot be used"), "{pointer}: {error}");
    }
}
