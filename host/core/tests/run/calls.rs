//! Tests of the calls of one reply: priorities, refusals, scheduling and order (L6–L9).

use crate::session::{Session, call, dispatched, kinds, of_priority, outcome, plain, repeatable, sequential};
use agent_core::change::{Body, CallChange, CallState, Change, Denial};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Part, Role};
use agent_core::run::{Action, Disposition, Input, InputError, LoopConfig, ResolvedCall};
use agent_core::tool::{ToolError, Violation};
use agent_core::view::result_text;

fn ids(action: Action) -> Vec<String> {
    match action {
        Action::Dispatch(dispatches) => dispatches.into_iter().map(|dispatch| dispatch.call.0).collect(),
        other => panic!("{other:?}"),
    }
}

fn stored_result(session: &Session, id: &str) -> String {
    let result = session.ledger.call(&CallId(id.into())).record.result.clone().expect("the call has finished");
    result_text(&result.content)
}

fn violation() -> ToolError {
    let violation = Violation { pointer: "/path".into(), rule: Some("required".into()), message: "is missing".into() };
    ToolError::InvalidArguments { violations: vec![violation] }
}

#[test]
fn l6_only_calls_of_the_highest_priority_run_and_the_others_are_deferred() {
    // Each pair contains the priorities of all calls, and the positions of the calls that run. The first call has
    // position 1.
    for (priorities, running) in
        [(vec![0, 0], vec![1, 2]), (vec![0, 5, 5, -1], vec![2, 3]), (vec![-3, -2], vec![2]), (vec![7], vec![1])]
    {
        let mut session = Session::calling(LoopConfig::default());
        let calls: Vec<_> = priorities.iter().map(|priority| of_priority("tool", *priority)).collect();
        let change = session.reply("", calls);
        let expected: Vec<_> = running.iter().map(|position| format!("call_1_1_{position}")).collect();
        assert_eq!(ids(session.run.action()), expected);
        let deferred = kinds(&change).iter().filter(|kind| *kind == "tool_deferred").count();
        assert_eq!(deferred, priorities.len() - running.len());
        session.run_batch();
        for position in (1..=priorities.len()).filter(|position| !running.contains(position)) {
            let result = stored_result(&session, &format!("call_1_1_{position}"));
            assert!(result.starts_with("deferred: a higher-priority call ran first"), "{result}");
        }
    }
}

#[test]
fn l7_a_call_of_a_missing_tool_gets_a_result_and_an_event() {
    let mut session = Session::calling(LoopConfig::default());
    let missing = Disposition::NotFound { message: "there is no tool `nope`".into() };
    let change = session.reply("", vec![ResolvedCall { source: None, ..call("nope", missing) }]);
    assert_eq!(kinds(&change)[..2], ["stream_complete", "tool_not_found"]);
    assert!(stored_result(&session, "call_1_1_1").contains("there is no tool `nope`"));
    assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2), "the turn continues");
}

#[test]
fn l8_a_call_with_invalid_arguments_never_runs_and_its_error_contains_pointer_and_rule() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.reply("", vec![call("a", Disposition::Refused(violation())), plain("b")]);
    assert_eq!(kinds(&change), ["stream_complete", "tool_call", "tool_result_error"]);
    let EventKind::ToolCall { call, arguments, attempt: 0, .. } = &change.events[1].kind else { panic!("{change:?}") };
    assert_eq!((call.0.as_str(), arguments.is_null()), ("call_1_1_1", false), "the event contains the arguments (L30)");
    let result: serde_json::Value = serde_json::from_str(&stored_result(&session, "call_1_1_1")).unwrap();
    assert_eq!(result["error"], "invalid_arguments");
    assert_eq!(
        (&result["violations"][0]["pointer"], &result["violations"][0]["rule"]),
        (&"/path".into(), &"required".into())
    );
    assert_eq!(ids(session.run.action()), ["call_1_1_2"]);
}

fn denial() -> Denial {
    Denial { plugin: "host".into(), thing: "`read_file`".into(), grant: "add a line".into() }
}

/// P6, O3: if the configuration denies a call, the session emits an event for the denial and then an event for the
/// call's error.
#[test]
fn p6_a_call_that_the_configuration_denies_gets_an_error_and_a_denial() {
    let mut session = Session::calling(LoopConfig::default());
    let withheld = Disposition::Withheld { message: "there is no tree".into(), denial: denial() };
    let change = session.reply("", vec![call("read_file", withheld), plain("b")]);
    assert_eq!(kinds(&change), ["stream_complete", "tool_call", "denied", "tool_result_error"]);
    assert!(stored_result(&session, "call_1_1_1").contains("there is no tree"));
    let id = Some(CallId("call_1_1_1".into()));
    assert_eq!(change.events[2].kind, EventKind::Denied { call: id, denial: denial() });
    assert_eq!(ids(session.run.action()), ["call_1_1_2"]);
}

/// P6: if the host denies a request that a plugin made outside of any call, the denial is reported in any phase of an
/// open turn. The turn does not change in any other way.
#[test]
fn p6_denials_outside_of_calls_are_reported() {
    let mut session = Session::calling(LoopConfig::default());
    let before = session.run.action();
    let change = session.must(Input::Denied { denials: vec![(None, denial()), (None, denial())] });
    assert_eq!(kinds(&change), ["denied", "denied"]);
    assert_eq!(session.run.action(), before);
    session.must(Input::Cancel);
    assert_eq!(session.apply(Input::Denied { denials: vec![(None, denial())] }), Err(InputError::NoTurn));
}

#[test]
fn l6_a_refused_call_of_high_priority_does_not_defer_other_calls() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![call("a", Disposition::Refused(violation())), of_priority("b", -5)]);
    assert_eq!(ids(session.run.action()), ["call_1_1_2"]);
}

#[test]
fn l9_calls_run_up_to_the_limit_and_a_sequential_call_runs_alone() {
    let mut session = Session::calling(LoopConfig { parallel_calls: 2, ..Default::default() });
    session.reply("", vec![plain("1"), plain("2"), plain("3"), sequential("4"), plain("5"), plain("6"), plain("7")]);
    let call = |position: u32| CallId(format!("call_1_1_{position}"));
    // Each pair contains the position of a call that finishes, and the positions of the calls that may then start.
    for (finished, startable) in [
        (None, vec![1, 2]),
        (Some(2), vec![3]),
        (Some(1), vec![]),
        (Some(3), vec![4]),
        (Some(4), vec![5, 6]),
        (Some(5), vec![7]),
        (Some(7), vec![]),
    ] {
        if let Some(finished) = finished {
            session.outcome(&call(finished).0, "ok");
        }
        match session.run.action() {
            Action::AwaitOutcome => assert!(startable.is_empty()),
            action => {
                let expected: Vec<_> = startable.iter().map(|position| call(*position).0).collect();
                assert_eq!(ids(action), expected);
                session.dispatch();
            }
        }
    }
    session.outcome(&call(6).0, "ok");
    assert!(matches!(session.run.action(), Action::CallModel(_)));
}

#[test]
fn l9_the_calls_of_an_action_may_be_dispatched_one_by_one() {
    let mut session = Session::calling(LoopConfig { parallel_calls: 0, ..Default::default() });
    session.reply("", vec![plain("1"), plain("2")]);
    assert_eq!(ids(session.run.action()), ["call_1_1_1"], "a limit of 0 is treated as 1");
    let second = CallId("call_1_1_2".into());
    let early = session.apply(dispatched(std::slice::from_ref(&second)));
    assert_eq!(early, Err(InputError::Settled(second, "waiting to run")));
    let first = CallId("call_1_1_1".into());
    let twice = session.apply(dispatched(&[first.clone(), first.clone()]));
    assert_eq!(twice, Err(InputError::Settled(first, "named twice")));
}

#[test]
fn l9_results_are_appended_in_call_order_in_one_change_in_any_order_of_arrival() {
    let orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
    for order in orders {
        let mut session = Session::calling(LoopConfig::default());
        let request = session.reply("on it", vec![plain("1"), plain("2"), plain("3")]);
        let Body::Parts(parts) = &request.messages[0].body else { panic!() };
        assert_eq!(parts[0], Part::Text("on it".into()));
        assert_eq!((parts.len(), request.messages[0].role), (4, Role::Assistant));
        session.dispatch();
        let mut change = Change::default();
        for (nth, position) in order.into_iter().enumerate() {
            change = session.outcome(&format!("call_1_1_{position}"), &format!("result {position}"));
            assert_eq!(change.calls.len(), 1, "each outcome is committed when it arrives");
            assert_eq!(change.messages.is_empty(), nth < 2);
        }
        let bodies: Vec<_> = change.messages.into_iter().map(|message| message.body).collect();
        let expected = [1, 2, 3].map(|position| Body::ResultOf(CallId(format!("call_1_1_{position}"))));
        assert_eq!(bodies, expected, "{order:?}");
        assert_eq!(stored_result(&session, "call_1_1_3"), "result 3");
    }
}

#[test]
fn l10_duplicate_and_late_outcomes_change_nothing() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("1"), plain("2")]);
    let (first, unknown) = (CallId("call_1_1_1".into()), CallId("call_9_9_9".into()));
    assert_eq!(session.apply(outcome(&first.0, "early")), Err(InputError::Settled(first.clone(), "waiting to run")));
    let calls = session.dispatch();
    assert_eq!(session.apply(dispatched(&calls)), Err(InputError::Settled(first.clone(), "running")));
    session.outcome(&first.0, "ok");
    assert_eq!(session.apply(outcome(&first.0, "again")), Err(InputError::Settled(first.clone(), "finished")));
    assert_eq!(session.apply(outcome(&unknown.0, "unknown")), Err(InputError::UnknownCall(unknown)));
    session.outcome("call_1_1_2", "ok");
    assert_eq!(session.apply(outcome(&first.0, "late")), Err(InputError::UnknownCall(first.clone())));
    session.answer("done");
    assert_eq!(session.apply(outcome(&first.0, "too late")), Err(InputError::NoTurn));
    assert_eq!(stored_result(&session, &first.0), "ok");
}

#[test]
fn l9_a_tools_error_is_sent_to_the_model() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("1")]);
    session.dispatch();
    let mut failed = crate::session::result("{\"error\":\"failed\"}");
    failed.is_error = true;
    let change = session.must(Input::Outcome { call: CallId("call_1_1_1".into()), result: failed });
    assert_eq!(kinds(&change)[0], "tool_result_error");
    assert!(matches!(session.run.action(), Action::CallModel(plan) if plan.step == 2));
}

#[test]
fn d2_intents_are_recorded_before_dispatch_with_the_same_id_in_every_attempt() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.reply("", vec![repeatable("1")]);
    let CallChange::Requested(record) = &change.calls[0] else { panic!() };
    assert_eq!((record.id.0.as_str(), record.state, record.attempt), ("call_1_1_1", CallState::Waiting, 0));
    for attempt in 1..=3 {
        let change = session.must(dispatched(std::slice::from_ref(&record.id)));
        let moved = CallChange::Moved { id: record.id.clone(), state: CallState::Started, attempt };
        assert_eq!(change.calls, [moved]);
        session.crash();
    }
}
