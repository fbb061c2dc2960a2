//! Tests of loop-breaking calls (L18), and of replies without a tool call that do not end the turn (L19, L23).

use crate::session::{Session, call, kinds, of_priority, plain, refused, reply, result, text_of};
use agent_core::change::{Body, CallState, Change};
use agent_core::event::{EndReason, EventKind, NudgeCause, WaitCause};
use agent_core::loop_break::{Finish, LoopBreak, name};
use agent_core::message::{CallId, Message, Part, Role, ToolCall};
use agent_core::model::StopReason;
use agent_core::plugin::{Lifecycle, OutputData};
use agent_core::run::{
    Action, Answerer, AtLimit, Awaited, DispatchedCall, Disposition, Input, LoopConfig, ResolvedCall, ResolvedReply,
    TurnError, Validation,
};
use agent_core::tool::{ToolError, Violation};
use serde_json::{Value, json};

fn by_tool() -> LoopConfig {
    LoopConfig { finish: Finish::Tool, ..Default::default() }
}

fn completing(result: Value) -> ResolvedCall {
    breaking(name::TASK_COMPLETION, LoopBreak::Complete, json!({ "result": result }))
}

fn asking(question: &str) -> ResolvedCall {
    breaking(name::ASK_QUESTION, LoopBreak::Ask, json!({ "question": question }))
}

fn conversing(message: &str) -> ResolvedCall {
    breaking(name::CONVERSE, LoopBreak::Converse, json!({ "message": message }))
}

fn breaking(name: &str, breaks: LoopBreak, arguments: Value) -> ResolvedCall {
    ResolvedCall { arguments, ..call(name, Disposition::Breaks(breaks)) }
}

/// Dispatches the only call that can run, with the arguments of its record.
fn dispatch(session: &mut Session, awaits: Option<Awaited>) -> Change {
    let Action::Dispatch(dispatches) = session.run.action() else { panic!("{:?}", session.run.action()) };
    let [dispatch] = &dispatches[..] else { panic!("expected one call: {dispatches:?}") };
    let arguments = session.ledger.call(&dispatch.call).record.arguments.clone();
    session.must(Input::Dispatched { calls: vec![DispatchedCall { call: dispatch.call.clone(), arguments, awaits }] })
}

fn answer_to(question: &str) -> Awaited {
    Awaited { cause: WaitCause::Answer { question: question.into(), expires_at: Some(9) }, event: None }
}

fn validation(session: &Session) -> Validation {
    match session.run.action() {
        Action::Validate(validation) => validation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn l18_task_completion_passes_l12_and_ends_the_turn_with_the_result() {
    let mut session = Session::calling(by_tool());
    session.reply("I am done.", vec![completing(json!("42 files"))]);
    let change = dispatch(&mut session, None);
    assert_eq!(kinds(&change), ["tool_call"]);
    let expected =
        Validation { text: "42 files".into(), result: Some(json!("42 files")), attempt: 1, corrections_left: 2 };
    assert_eq!(validation(&session), expected);
    assert!(!session.run.is_running(&CallId("call_1_1_1".into())), "the host does not run the call");
    let change = session.accept(OutputData::Text("42 files".into()));
    assert_eq!(kinds(&change), ["tool_result", "context_budget", "loop_end"]);
    assert_eq!((session.output().finish, session.output().data), (EndReason::Completed, json!("42 files")));
    assert!(!session.output().limit_reached);
    let roles: Vec<Role> = session.ledger.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant], "calls stay with their results");
    assert_eq!(session.ledger.messages[3].body, Body::Parts(vec![Part::Text("42 files".into())]));
}

#[test]
fn l18_a_rejected_completion_gets_an_error_result_and_uses_the_corrections_of_l12() {
    let mut session = Session::calling(LoopConfig { max_corrections: 1, ..by_tool() });
    session.reply("", vec![completing(json!({"n": "three"}))]);
    dispatch(&mut session, None);
    assert_eq!(validation(&session).text, r#"{"n":"three"}"#);
    let change = session.reject("is not a number");
    assert_eq!(
        kinds(&change)[..3],
        ["tool_result_error", "output_rejected", "stream_clear"],
        "a rejection discards the streamed output (L30)"
    );
    let (text, is_error) = text_of(&session, "call_1_1_1");
    assert!(is_error && text.contains("/n: is not a number") && text.contains("task_completion"), "{text}");
    let Action::CallModel(plan) = session.run.action() else { panic!() };
    assert_eq!((plan.lifecycle, plan.last), (Lifecycle::OutputErrorFeedback, false));
    // If several results of `task_completion` were rejected, only the latest rejected result is sent to the model.
    session.reply("", vec![completing(json!({"n": 3}))]);
    dispatch(&mut session, None);
    assert_eq!((validation(&session).attempt, validation(&session).corrections_left), (2, 0));
    let change = session.reject("is too small");
    assert_eq!(change.hidden.iter().map(|hidden| hidden.id).collect::<Vec<_>>(), [2, 3]);
    let TurnError::OutputRejected { attempts, last_reply, .. } = session.error() else {
        panic!("{:?}", session.error())
    };
    assert_eq!((attempts, last_reply.as_str()), (2, r#"{"n":3}"#));
}

#[test]
fn l18_results_of_other_calls_stay_when_a_completion_is_rejected() {
    let mut session = Session::calling(by_tool());
    for _ in 0..2 {
        session.reply("", vec![plain("look"), completing(json!("x"))]);
        session.run_others();
        dispatch(&mut session, None);
        let change = session.reject("no");
        assert!(change.hidden.is_empty());
    }
    // Of the two rejected attempts, only the latest is sent again. All other calls are sent again (L12).
    assert_eq!(session.run.left_out, [CallId("call_1_1_2".into())]);
    let sent = |call: &str| {
        let part = |name: &str, number: &str, arguments| {
            Part::ToolCall(ToolCall { id: CallId(format!("{call}_{number}")), name: name.into(), arguments })
        };
        let parts = vec![part("look", "1", json!({})), part(name::TASK_COMPLETION, "2", json!({"result": "x"}))];
        let message = Message { role: Role::Assistant, parts, seen_count: 1 };
        session.run.without_rejected_results(message)
    };
    let (first, second) = (sent("call_1_1"), sent("call_1_2"));
    let arguments = |message: &Message| match &message.parts[..] {
        [Part::ToolCall(look), Part::ToolCall(completion)] => (look.arguments.clone(), completion.arguments.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(arguments(&second), (json!({}), json!({"result": "x"})));
    assert_eq!(arguments(&first).0, json!({}), "the message stays for the other call");
    assert!(arguments(&first).1["result"].as_str().unwrap().contains("an earlier attempt"), "{first:?}");
}

#[test]
fn l18_converse_ends_the_turn_with_its_unchecked_message() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![conversing("Hello.")]);
    let change = dispatch(&mut session, None);
    assert_eq!(kinds(&change), ["tool_call", "tool_result", "context_budget", "loop_end"]);
    assert_eq!((session.output().finish, session.output().data), (EndReason::Converse, json!("Hello.")));
}

#[test]
fn l18_a_question_suspends_the_turn_until_its_answer() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![asking("Which year?")]);
    let change = dispatch(&mut session, Some(answer_to("Which year?")));
    assert_eq!(kinds(&change), ["tool_call", "suspended"]);
    let Action::Suspended(suspension) = session.run.action() else { panic!() };
    assert!(matches!(&suspension.waits[0].cause, WaitCause::Answer { question, .. } if question == "Which year?"));
    let change = session.must(Input::Respond {
        call: CallId("call_1_1_1".into()),
        from: Answerer::User,
        result: result("1984"),
    });
    assert_eq!(kinds(&change)[..3], ["tool_result", "resumed", "loop_iteration"]);
    let late = session.apply(Input::Respond {
        call: CallId("call_1_1_1".into()),
        from: Answerer::User,
        result: result("1985"),
    });
    assert!(late.is_err(), "a second answer changes nothing");
    assert_eq!(text_of(&session, "call_1_1_1"), ("1984".to_owned(), false));
}

#[test]
fn l18_an_unanswered_question_ends_the_turn() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![asking("Which year?")]);
    dispatch(&mut session, Some(answer_to("Which year?")));
    session.must(Input::Expire { call: CallId("call_1_1_1".into()) });
    assert_eq!((session.output().finish, session.output().data), (EndReason::QuestionExpired, json!("Which year?")));
}

#[test]
fn l18_other_calls_finish_first_and_only_the_first_loop_breaking_call_is_accepted() {
    let mut session = Session::calling(by_tool());
    let calls = vec![completing(json!("first")), plain("look"), conversing("second"), plain("write")];
    session.reply("", calls);
    let (text, is_error) = text_of(&session, "call_1_1_3");
    assert!(is_error && text.contains("`task_completion` was called first"), "{text}");
    let dispatched = session.dispatch();
    assert_eq!(dispatched.iter().map(|call| call.0.as_str()).collect::<Vec<_>>(), ["call_1_1_2", "call_1_1_4"]);
    session.outcome("call_1_1_4", "ok");
    assert_eq!(session.run.action(), Action::AwaitOutcome, "the completion is still waiting");
    session.outcome("call_1_1_2", "ok");
    dispatch(&mut session, None);
    assert_eq!(validation(&session).text, "first");
    session.accept(OutputData::Text("first".into()));
    assert_eq!(session.output().finish, EndReason::Completed);
}

/// L18: before a turn with an accepted `task_completion` call ends, it waits for the response of a service. When the
/// response arrives, the turn emits `resumed`.
#[test]
fn l18_a_completion_waits_for_a_service_too() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![completing(json!("done")), plain("order")]);
    let change = session.must(crate::session::sent_to_service(&[CallId("call_1_1_2".into())]));
    assert_eq!(kinds(&change), ["tool_call", "suspended"]);
    let change = session.must(Input::Respond {
        call: CallId("call_1_1_2".into()),
        from: Answerer::Service,
        result: result("sent"),
    });
    assert_eq!(kinds(&change), ["tool_result", "resumed"]);
    dispatch(&mut session, None);
    session.accept(OutputData::Text("done".into()));
    assert_eq!(session.output().finish, EndReason::Completed);
}

#[test]
fn l18_l6_a_completion_is_deferred_with_other_deferred_calls() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![of_priority("late", 0), completing(json!("x")), of_priority("soon", 1)]);
    for call in ["call_1_1_1", "call_1_1_2"] {
        assert!(text_of(&session, call).0.starts_with("deferred"), "{call}");
    }
    session.run_batch();
    assert!(matches!(session.run.action(), Action::CallModel(_)));
}

#[test]
fn l18_d3_a_completion_survives_a_crash_while_it_is_checked() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![completing(json!("x"))]);
    dispatch(&mut session, None);
    let before = session.run.action();
    session.crash();
    assert_eq!(session.run.action(), before);
    assert_eq!(session.ledger.in_state(CallState::OutcomeUnknown), []);
}

#[test]
fn l18_l29_cancelling_while_a_result_is_checked_keeps_calls_paired() {
    let mut session = Session::calling(by_tool());
    session.reply("", vec![completing(json!("x"))]);
    dispatch(&mut session, None);
    session.must(Input::Cancel);
    assert_eq!(text_of(&session, "call_1_1_1").0, "cancelled before it ran");
    session.begin(by_tool());
}

#[test]
fn l18_l8_invalid_arguments_get_feedback_and_the_loop_continues() {
    let mut session = Session::calling(by_tool());
    let violation = Violation { pointer: String::new(), rule: Some("required".into()), message: "no result".into() };
    let refused = Disposition::Refused(ToolError::InvalidArguments { violations: vec![violation] });
    session.reply("", vec![call(name::TASK_COMPLETION, refused)]);
    assert!(matches!(session.run.action(), Action::CallModel(_)));
    assert!(text_of(&session, "call_1_1_1").1);
}

#[test]
fn l19_a_reply_without_a_tool_call_gets_a_reminder_and_five_in_a_row_end_the_turn() {
    let mut session = Session::calling(by_tool());
    for count in 1..=4 {
        let change = session.reply("Let me think.", Vec::new());
        assert_eq!(kinds(&change)[..3], ["stream_complete", "no_tool_call", "loop_iteration"]);
        let EventKind::NoToolCall { count: reported, reminder } = &change.events[1].kind else { panic!() };
        assert_eq!(*reported, count);
        let bodies: Vec<_> = change.messages.iter().map(|message| (message.role, message.body.clone())).collect();
        let text = |text: &str| Body::Parts(vec![Part::Text(text.into())]);
        assert_eq!(bodies, [(Role::Assistant, text("Let me think.")), (Role::User, text(reminder))]);
    }
    let change = session.reply("Let me think.", Vec::new());
    assert_eq!(change.messages.len(), 1, "the reply is stored, and there are no more reminders");
    assert_eq!(session.error(), TurnError::NoToolCall { replies: 5 });
    assert!(session.error().to_string().contains("finish = \"text\""), "the error contains advice");
}

#[test]
fn l19_empty_replies_are_counted_until_a_tool_call_resets_the_count() {
    let mut session = Session::calling(LoopConfig { max_interactions: 40, ..by_tool() });
    for _ in 0..3 {
        for text in ["a", "", "c", " "] {
            session.reply(text, Vec::new());
        }
        session.reply("", vec![plain("look")]);
        session.run_batch();
    }
    let empty =
        |body: &Body| matches!(body, Body::Parts(parts) if parts.iter().any(|part| *part == Part::Text(String::new())));
    assert!(!session.ledger.messages.iter().any(|message| empty(&message.body)), "no empty message is stored");
    assert!(session.run.is_open());
}

#[test]
fn l19_a_cut_reply_without_a_call_gets_a_reminder_too() {
    let mut session = Session::calling(by_tool());
    let change = session.must(Input::Reply(ResolvedReply { stop: StopReason::Length, ..reply("half", Vec::new()) }));
    assert!(kinds(&change).contains(&"no_tool_call".to_owned()));
    assert_eq!(session.run.turn.as_ref().unwrap().corrections, 0);
}

#[test]
fn l19_five_identical_errors_in_a_row_end_the_turn_even_if_the_calls_differ() {
    let mut session = Session::calling(by_tool());
    for position in 1..=5 {
        assert!(session.run.is_open(), "{position}");
        session.reply("", vec![refused(&format!("tool_{}", position % 3), "the disk is full")]);
    }
    let TurnError::SameError { replies, tool, message } = session.error() else { panic!("{:?}", session.error()) };
    assert_eq!((replies, tool.as_str()), (5, "tool_2"));
    assert!(message.contains("the disk is full") && !message.contains('{'), "the message is a sentence: {message}");
}

/// L19, L28: the third failure of a call disables its tool. Later calls to the disabled tool count as the error that
/// disabled it.
#[test]
fn l19_l28_the_fifth_identical_failing_call_ends_the_turn() {
    let mut session = Session::calling(by_tool());
    for _ in 0..5 {
        assert!(session.run.is_open());
        session.reply("", vec![refused("write", "the disk is full")]);
    }
    assert!(matches!(session.error(), TurnError::SameError { replies: 5, .. }));
}

#[test]
fn l19_a_success_another_error_or_a_reply_without_a_call_resets_the_count() {
    let between: [&dyn Fn(&mut Session); 3] = [
        &|session| {
            session.reply("", vec![plain("look")]);
            session.run_batch();
        },
        &|session| drop(session.reply("", vec![refused("other", "no such file")])),
        &|session| drop(session.reply("hm", Vec::new())),
    ];
    for between in between {
        let mut session = Session::calling(LoopConfig { max_interactions: 40, ..by_tool() });
        for round in 0..2 {
            for position in 0..4 {
                session.reply("", vec![refused(&format!("tool_{round}_{position}"), "the disk is full")]);
            }
            between(&mut session);
        }
        assert!(session.run.is_open());
    }
}

/// L19: if several calls of one reply fail with the same error, the error counts once, because the model sees the
/// results only after the reply.
#[test]
fn l19_errors_count_once_per_reply() {
    let mut session = Session::calling(by_tool());
    let calls = || (0..8).map(|position| refused(&format!("tool_{position}"), "not granted")).collect::<Vec<_>>();
    session.reply("", calls());
    assert!(session.run.is_open());
}

#[test]
fn l19_repeated_errors_do_not_end_a_turn_that_ends_with_text() {
    let mut session = Session::calling(LoopConfig { max_interactions: 40, ..Default::default() });
    for position in 0..8 {
        session.reply("", vec![refused(&format!("tool_{position}"), "the disk is full")]);
    }
    session.answer("done");
    assert_eq!(session.output().finish, EndReason::Answered);
}

/// L4, L19: with `at_limit = "error"`, replies without a call end the turn at the limit, and no last call is made.
#[test]
fn l4_l19_no_last_call_is_made_if_at_limit_is_error() {
    let bound = LoopConfig { max_interactions: 2, at_limit: AtLimit::Error, ..by_tool() };
    let mut session = Session::calling(bound.clone());
    session.reply("hm", Vec::new());
    let change = session.reply("hm", Vec::new());
    assert!(kinds(&change).contains(&"no_tool_call".to_owned()));
    assert!(matches!(session.error(), TurnError::InteractionsExhausted { interactions: 2, .. }));
    // If the result of `task_completion` is rejected at the limit, the turn ends with an error. If the result is
    // accepted, the turn ends with this result as its output.
    for accepted in [true, false] {
        let mut session = Session::calling(bound.clone());
        session.reply("hm", Vec::new());
        session.reply("", vec![completing(json!("42"))]);
        dispatch(&mut session, None);
        assert_eq!(validation(&session).corrections_left, 0);
        if accepted {
            session.accept(OutputData::Text("42".into()));
            assert!(!session.output().limit_reached);
        } else {
            session.reject("no");
            assert_eq!(session.error().code(), "interactions_exhausted");
        }
    }
}

#[test]
fn l4_a_text_from_the_last_call_ends_the_turn_even_if_only_tools_may_end_it() {
    let mut session = Session::calling(LoopConfig { max_interactions: 1, persistence: true, ..by_tool() });
    session.reply("hm", Vec::new());
    session.reply("4 remaining. I don't have access.", Vec::new());
    session.accept(OutputData::Text("4 remaining".into()));
    assert_eq!((session.output().finish, session.output().limit_reached), (EndReason::Limit, true));
}

fn nudges(change: &Change) -> Vec<(NudgeCause, u32)> {
    let nudges = change.events.iter().filter_map(|event| match event.kind {
        EventKind::Nudge { cause, attempt, .. } => Some((cause, attempt)),
        _ => None,
    });
    nudges.collect()
}

fn persistent() -> LoopConfig {
    LoopConfig { persistence: true, max_interactions: 40, ..Default::default() }
}

#[test]
fn l23_an_incomplete_reply_is_stored_but_cleared_from_the_stream_and_the_model_is_nudged() {
    let mut session = Session::calling(persistent());
    let text = "I've renamed 3 files. There are 4 remaining...";
    let change = session.reply(text, Vec::new());
    assert_eq!(kinds(&change)[..4], ["stream_complete", "stream_clear", "nudge", "loop_iteration"]);
    assert_eq!(nudges(&change), [(NudgeCause::Incomplete, 1)]);
    let EventKind::Nudge { text: nudge, .. } = &change.events[2].kind else { panic!() };
    let bodies: Vec<_> = change.messages.iter().map(|message| (message.role, message.body.clone())).collect();
    let stored = |text: &str| Body::Parts(vec![Part::Text(text.into())]);
    assert_eq!(bodies, [(Role::Assistant, stored(text)), (Role::User, stored(nudge))]);
    session.reply("", vec![plain("rename")]);
    session.run_batch();
    session.answer("All screenshots have been renamed.");
    assert_eq!(session.output().finish, EndReason::Answered);
}

#[test]
fn l23_without_the_option_every_reply_is_the_answer() {
    for text in ["4 remaining", "I don't have access.", ""] {
        let mut session = Session::calling(LoopConfig::default());
        session.answer(text);
        assert_eq!(session.output().data, json!(text));
    }
}

#[test]
fn l23_three_deflections_of_a_turn_cause_nudges_and_the_fourth_is_accepted() {
    let mut session = Session::calling(persistent());
    for attempt in 1..=3 {
        let change = session.reply("I don't have access to your files.", Vec::new());
        assert_eq!(nudges(&change), [(NudgeCause::Deflection, attempt)]);
        session.reply("", vec![plain("look")]);
        session.run_batch();
    }
    session.answer("I don't have access to your files.");
    assert_eq!(session.output().finish, EndReason::Answered);
}

/// L23: the host accepts an incomplete reply after three nudges, so that the turn ends.
#[test]
fn l23_the_fourth_consecutive_unfinished_reply_is_accepted() {
    let mut session = Session::calling(persistent());
    for _ in 0..2 {
        for attempt in 1..=3 {
            assert_eq!(nudges(&session.reply("4 remaining", Vec::new())), [(NudgeCause::Incomplete, attempt)]);
        }
        session.reply("", vec![plain("rename")]);
        session.run_batch();
    }
    for _ in 0..3 {
        session.reply("4 remaining", Vec::new());
    }
    session.answer("4 remaining");
}

#[test]
fn l23_the_third_empty_reply_forces_a_summary_without_tools() {
    let mut session = Session::calling(persistent());
    for attempt in 1..=2 {
        let change = session.reply("", Vec::new());
        assert_eq!(nudges(&change), [(NudgeCause::Empty, attempt)]);
        assert_eq!(kinds(&change)[..2], ["stream_complete", "nudge"], "nothing was streamed");
        assert_eq!(change.messages.len(), 1, "an empty message is not stored");
    }
    let change = session.reply(" \n", Vec::new());
    assert_eq!(nudges(&change), [(NudgeCause::ForcedSummary, 1)]);
    let Action::CallModel(plan) = session.run.action() else { panic!() };
    assert_eq!((plan.last, plan.steps_left), (true, 1), "tools are withheld");
    // Any text is accepted as the summary, and calls in the same reply are ignored.
    session.reply("I processed 5 of 7 screenshots, 2 remaining.", vec![plain("ignored")]);
    session.accept(OutputData::Text("5 of 7".into()));
    assert_eq!((session.output().finish, session.output().limit_reached), (EndReason::Answered, false));
}

#[test]
fn l23_only_consecutive_empty_replies_are_counted() {
    let mut session = Session::calling(persistent());
    for _ in 0..2 {
        session.reply("", Vec::new());
        session.reply("", Vec::new());
        session.reply("", vec![plain("look")]);
        session.run_batch();
        session.reply("", Vec::new());
        session.reply("4 remaining", Vec::new());
    }
    assert!(matches!(session.run.action(), Action::CallModel(plan) if !plan.last));
}

#[test]
fn l23_an_empty_summary_ends_the_turn_with_an_error() {
    let mut session = Session::calling(persistent());
    for _ in 0..4 {
        session.reply("", Vec::new());
    }
    assert_eq!(session.error(), TurnError::EmptyReplies { replies: 4 });
}

/// L12, L23: if a forced summary is rejected, the model may correct it like any answer, and may call tools for
/// this purpose.
#[test]
fn l23_l12_a_rejected_summary_may_be_corrected() {
    let mut session = Session::calling(persistent());
    for _ in 0..3 {
        session.reply("", Vec::new());
    }
    session.reply("5 of 7", Vec::new());
    session.reject("is not JSON");
    assert!(matches!(session.run.action(), Action::CallModel(plan) if !plan.last));
}

#[test]
fn l23_l4_the_last_model_call_at_the_limit_is_the_summary() {
    let mut session = Session::calling(LoopConfig { max_interactions: 3, ..persistent() });
    for _ in 0..3 {
        session.reply("", Vec::new());
    }
    session.reply("5 of 7", Vec::new());
    session.accept(OutputData::Text("5 of 7".into()));
    assert!(session.output().limit_reached);
    let mut session = Session::calling(LoopConfig { max_interactions: 3, at_limit: AtLimit::Error, ..persistent() });
    for _ in 0..3 {
        session.reply("", Vec::new());
    }
    assert!(matches!(session.error(), TurnError::InteractionsExhausted { .. }));
}

/// L12, L23: corrections and nudges are counted separately, and a reply that was cut counts as a rejected output.
#[test]
fn l23_l12_no_nudge_follows_cut_replies_or_corrections() {
    let mut session = Session::calling(persistent());
    let change =
        session.must(Input::Reply(ResolvedReply { stop: StopReason::Length, ..reply("4 remaining", Vec::new()) }));
    assert!(nudges(&change).is_empty());
    session.reply("I can't do that.", Vec::new());
    assert_eq!(session.run.turn.as_ref().unwrap().corrections, 1);
    session.reply("42", Vec::new());
    session.reject("no");
    session.answer("43");
}
