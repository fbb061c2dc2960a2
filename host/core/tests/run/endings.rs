//! Tests of turns that end without an output, because they are cancelled (L29) or fail (L9).

use crate::session::{Session, kinds, plain, repeatable, reply};
use agent_core::change::Body;
use agent_core::message::{CallId, Part, TurnInput};
use agent_core::run::{Action, Decision, Input, InputError, LoopConfig, TurnEnd, TurnError};
use agent_core::view::result_text;

/// Returns one entry for each phase of a turn: the name of the phase, a session in this phase, the kinds of the events
/// that are emitted before `loop_end` if the turn is ended in this phase, and the number of messages that are added at
/// the end of the turn.
fn phases() -> Vec<(&'static str, Session, &'static [&'static str], usize)> {
    let calling = || Session::calling(LoopConfig::default());
    let working = || {
        let mut session = calling();
        session.reply("", vec![plain("a"), repeatable("b")]);
        session
    };
    let mut building = Session::new();
    building.start(TurnInput::Text("How many?".into()), LoopConfig::default());
    let mut running = working();
    running.dispatch();
    let mut suspended = calling();
    suspended.reply("", vec![plain("a")]);
    suspended.dispatch();
    suspended.crash();
    let mut validating = calling();
    validating.reply("answer", Vec::new());
    vec![
        ("building", building, &[], 1),
        ("calling", calling(), &["stream_clear"], 0),
        ("waiting", working(), &["tool_result_error", "tool_result_error"], 2),
        ("running", running, &["tool_result_error", "tool_result_error"], 2),
        ("suspended", suspended, &["tool_result_error"], 1),
        ("validating", validating, &["stream_clear"], 0),
    ]
}

#[test]
fn l29_a_session_continues_after_cancellation_in_every_phase() {
    for (phase, mut session, cleared, messages) in phases() {
        let change = session.must(Input::Cancel);
        let kinds: Vec<_> = kinds(&change).into_iter().filter(|kind| kind != "context_budget").collect();
        assert_eq!(kinds, [cleared, &["loop_end"]].concat(), "{phase}");
        assert_eq!(change.messages.len(), messages, "{phase}");
        assert_eq!(session.run.turn.as_ref().and_then(|turn| turn.end()), Some(&TurnEnd::Cancelled), "{phase}");
        assert_eq!(session.run.action(), Action::Ended);
        assert_eq!(session.apply(Input::Cancel), Err(InputError::NoTurn), "{phase}");
        session.begin(LoopConfig::default());
        session.answer("and on");
        assert_eq!(session.output().turn, 2, "{phase}");
    }
}

#[test]
fn l9_a_host_failure_ends_the_turn_with_an_error_in_every_phase() {
    for (phase, mut session, cleared, messages) in phases() {
        let error = TurnError::HostFailed { message: "the disk is full".into() };
        let change = session.must(Input::Failed(error.clone()));
        let kinds: Vec<_> = kinds(&change).into_iter().filter(|kind| kind != "context_budget").collect();
        assert_eq!(kinds, [cleared, &["error", "loop_end"]].concat(), "{phase}");
        assert_eq!((change.messages.len(), session.error()), (messages, error), "{phase}");
        session.begin(LoopConfig::default());
        session.answer("and on");
    }
}

#[test]
fn d2_the_history_has_the_input_even_if_no_prompt_was_built() {
    for end in [Input::Cancel, Input::Failed(TurnError::HostFailed { message: "no".into() })] {
        let mut session = Session::new();
        session.start(TurnInput::Text("How many?".into()), LoopConfig::default());
        let change = session.must(end);
        assert_eq!(change.messages[0].body, Body::Parts(vec![Part::Text("How many?".into())]));
        assert_eq!(session.seen_counts(), [0]);
    }
}

#[test]
fn d3_the_result_of_a_cancelled_call_states_whether_it_may_have_run() {
    let text = |session: &Session, id: &str| {
        let result = session.ledger.call(&CallId(id.into())).record.result.clone().unwrap();
        assert!(result.is_error);
        result_text(&result.content)
    };
    let mut session = Session::calling(LoopConfig { parallel_calls: 3, ..Default::default() });
    let calls = vec![plain("done"), plain("running"), repeatable("recovered"), plain("waiting")];
    session.reply("", calls);
    session.dispatch();
    session.outcome("call_1_1_1", "ok");
    session.must(Input::Cancel);
    assert_eq!(text(&session, "call_1_1_2"), "cancelled; outcome unknown");
    assert_eq!(text(&session, "call_1_1_3"), "cancelled; outcome unknown");
    assert_eq!(text(&session, "call_1_1_4"), "cancelled before it ran");

    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("unknown"), repeatable("waits again"), plain("is retried")]);
    session.dispatch();
    session.crash();
    session.resolve("call_1_1_3", Decision::Retry);
    session.must(Input::Cancel);
    for id in ["call_1_1_1", "call_1_1_2", "call_1_1_3"] {
        assert_eq!(text(&session, id), "cancelled; outcome unknown", "{id} had started once");
    }
}

#[test]
fn l29_inputs_after_the_end_change_nothing() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    session.dispatch();
    session.must(Input::Cancel);
    for late in [
        crate::session::outcome("call_1_1_1", "late"),
        Input::Reply(reply("late", Vec::new())),
        Input::Failed(TurnError::HostFailed { message: "late".into() }),
        Input::Recover,
    ] {
        assert_eq!(session.apply(late), Err(InputError::NoTurn));
    }
}
