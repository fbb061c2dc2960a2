//! Tests of calls that wait for an external response, and of calls whose time limit passes (L10, L11, P2, I6).

use crate::session::{Session, dispatched, kinds, outcome, plain, restored, result, sent_to_service, waiting_for};
use agent_core::change::{Body, CallChange, CallResult, CallState, Change, OutboxEffect};
use agent_core::event::{EndReason, EventKind, Suspension, Wait, WaitCause};
use agent_core::message::{CallId, Role, TurnInput};
use agent_core::plugin::Lifecycle;
use agent_core::run::{
    Action, Answerer, ImportTerms, Input, InputError, LoopConfig, MAX_QUEUED_PROMPT_BYTES, MAX_QUEUED_PROMPTS,
    QueuedPrompt, Run, TurnEnd, TurnError,
};
use agent_core::tool::CallCost;
use agent_core::view::result_text;
use serde_json::{Value, json};

const WORK: &str = "com.example.work";

fn id(position: u32) -> CallId {
    CallId(format!("call_1_1_{position}"))
}

fn service(expires_at: Option<u64>) -> WaitCause {
    WaitCause::Service { event_type: WORK.into(), expires_at, emits: None }
}

fn suspension(calls: &[(u32, &str)]) -> Suspension {
    let wait =
        |(position, name): &(u32, &str)| Wait { call: id(*position), name: (*name).into(), cause: service(None) };
    Suspension { waits: calls.iter().map(wait).collect() }
}

fn respond(position: u32, text: &str) -> Input {
    Input::Respond { call: id(position), from: Answerer::Service, result: result(text) }
}

/// Returns a session whose first reply calls these tools. The calls at the positions in `services` are sent to a
/// service, and the other calls run.
fn working(names: &[&str], services: &[u32]) -> Session {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", names.iter().map(|name| plain(name)).collect());
    let services: Vec<CallId> = services.iter().map(|position| id(*position)).collect();
    let others: Vec<CallId> = (1..=names.len() as u32).map(id).filter(|id| !services.contains(id)).collect();
    let (Input::Dispatched { calls: mut dispatched_calls }, Input::Dispatched { calls }) =
        (sent_to_service(&services), dispatched(&others))
    else {
        unreachable!()
    };
    dispatched_calls.extend(calls);
    session.must(Input::Dispatched { calls: dispatched_calls });
    session
}

fn stored_result(session: &Session, position: u32) -> CallResult {
    session.ledger.call(&id(position)).record.result.clone().expect("the call has finished")
}

fn appended(change: &Change) -> Vec<Body> {
    change.messages.iter().map(|message| message.body.clone()).collect()
}

/// L10, D2: while a call is running, the turn is not suspended, even if all other calls wait for responses.
#[test]
fn l10_other_tools_finish_before_the_turn_waits() {
    let mut session = working(&["pay", "count", "ship", "list"], &[1, 3]);
    assert_eq!(session.run.action(), Action::AwaitOutcome, "running calls finish first");
    let change = session.outcome(&id(4).0, "files");
    assert_eq!(kinds(&change), ["tool_result"]);
    let change = session.outcome(&id(2).0, "three");
    assert_eq!(kinds(&change), ["tool_result", "suspended"], "no loop_end");
    assert_eq!(change.messages, [], "the results are appended when all calls have finished");
    let waits = suspension(&[(1, "pay"), (3, "ship")]);
    assert_eq!(session.run.action(), Action::Suspended(waits.clone()));
    assert_eq!(change.events.last().unwrap().kind, EventKind::Suspended { suspension: waits });
    assert_eq!(
        result_text(&stored_result(&session, 2).content),
        "three",
        "finished results are stored with the suspension"
    );
    assert_eq!(session.crash(), Change::default(), "a suspended turn has nothing to recover");
}

/// L10: three responses arrive in every possible order, both while another tool is running and after it has finished.
#[test]
fn l10_the_order_of_answers_does_not_affect_the_order_of_results() {
    for order in [[1, 3, 4], [1, 4, 3], [3, 1, 4], [3, 4, 1], [4, 1, 3], [4, 3, 1]] {
        for early in [false, true] {
            let mut session = working(&["pay", "count", "ship", "pay"], &[1, 3, 4]);
            if !early {
                session.outcome(&id(2).0, "three");
            }
            let mut waits = vec![(1, "pay"), (3, "ship"), (4, "pay")];
            let mut change = Change::default();
            for (nth, position) in order.into_iter().enumerate() {
                // Before each response, another host restores the state.
                session.run = restored(&session.run);
                change = session.must(respond(position, &format!("answer {position}")));
                waits.retain(|(wait, _)| *wait != position);
                if nth == 0 && early {
                    assert_eq!(kinds(&change), ["tool_result"], "the turn is not suspended while a tool runs");
                    change = session.outcome(&id(2).0, "three");
                    assert_eq!(kinds(&change), ["tool_result", "suspended"]);
                    assert_eq!(session.run.action(), Action::Suspended(suspension(&waits)));
                } else if nth < 2 {
                    assert_eq!(
                        kinds(&change),
                        ["tool_result", "suspended"],
                        "the turn stays suspended and announces that"
                    );
                    assert_eq!(change.messages, []);
                    assert_eq!(session.run.action(), Action::Suspended(suspension(&waits)));
                }
            }
            assert_eq!(kinds(&change)[..3], ["tool_result", "resumed", "loop_iteration"], "{order:?}");
            assert_eq!(appended(&change), [1, 2, 3, 4].map(|position| Body::ResultOf(id(position))), "{order:?}");
            assert!(change.messages.iter().all(|message| message.role == Role::Tool));
            assert_eq!(session.seen_counts()[2..], [0, 0, 0, 0], "the seen counts of results begin at 0 (L10)");
            let Action::CallModel(plan) = session.run.action() else { panic!("{:?}", session.run.action()) };
            assert_eq!(
                (plan.step, plan.lifecycle),
                (2, Lifecycle::ToolResult),
                "`init` is not called again on resume (L2)"
            );
            assert_eq!(result_text(&stored_result(&session, 4).content), "answer 4");
        }
    }
}

/// L10, row 29: each call accepts one response, and only from a service to which it was sent.
#[test]
fn l10_duplicate_late_and_unknown_answers_change_nothing() {
    let mut session = working(&["pay", "ship"], &[1, 2]);
    session.must(respond(1, "first"));
    assert_eq!(session.apply(respond(1, "second")), Err(InputError::Settled(id(1), "finished")));
    assert_eq!(session.apply(respond(9, "unknown")), Err(InputError::UnknownCall(id(9))));
    session.must(respond(2, "ok"));
    assert_eq!(session.apply(respond(2, "late")), Err(InputError::UnknownCall(id(2))));
    session.answer("done");
    assert_eq!(session.apply(respond(2, "too late")), Err(InputError::NoTurn));
    assert_eq!(result_text(&stored_result(&session, 1).content), "first");
    let local = working(&["count"], &[]).apply(respond(1, "not yours"));
    assert_eq!(local, Err(InputError::Settled(id(1), "running")), "a service does not answer for a tool that runs");
    let foreign = working(&["pay"], &[1]).apply(outcome(&id(1).0, "not yours"));
    assert_eq!(foreign, Err(InputError::Settled(id(1), "waiting for an answer")));
}

/// D2, I6: the commit that dispatches a service's call also contains the outbox item with the request and the call id.
#[test]
fn i6_the_request_is_sent_once_with_the_intent() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("pay")]);
    let change = session.must(sent_to_service(&[id(1)]));
    assert_eq!(kinds(&change), ["tool_call", "suspended"]);
    assert_eq!(change.calls, [CallChange::Moved { id: id(1), state: CallState::Outstanding, attempt: 1 }]);
    let [item] = change.outbox.as_slice() else { panic!("{:?}", change.outbox) };
    let OutboxEffect::Event(event) = &item.effect else { panic!("{item:?}") };
    assert_eq!((item.id.as_str(), event.id.as_str()), ("call_1_1_1", "call_1_1_1"));
    session.crash();
    assert_eq!(session.must(respond(1, "ok")).outbox, []);
    assert_eq!(session.ledger.outbox, ["call_1_1_1"]);
}

/// P2: if a tool runs and requests a service, the call waits for the service's response. The event with the result
/// contains the cost of running the tool.
#[test]
fn p2_a_call_with_a_pending_outcome_waits_like_a_service_call() {
    let mut session = working(&["draft", "count"], &[]);
    let cost = CallCost { cpu_us: 40, ..CallCost::default() };
    let awaits = waiting_for(&id(1), service(None));
    let change = session.must(Input::Pending { call: id(1), awaits, cost });
    assert_eq!((kinds(&change), change.outbox.len()), (Vec::<String>::new(), 1), "the other tool still runs");
    session.outcome(&id(2).0, "three");
    assert_eq!(session.run.action(), Action::Suspended(suspension(&[(1, "draft")])));
    let change = session.must(respond(1, "approved"));
    let EventKind::ToolResult { cost: result, .. } = &change.events[0].kind else { panic!("{:?}", change.events) };
    assert_eq!((*result, stored_result(&session, 1).cost), (cost, cost));
}

/// L11: the state contains the number of outstanding calls of each tool. The host checks these numbers before it calls
/// a model.
#[test]
fn l11_mismatched_counts_end_the_turn_without_a_model_call() {
    let tampered = |crafted: Value, last: u32| {
        let mut session = working(&["pay", "pay", "ship"], &[1, 2, 3]);
        session.must(respond(1, "ok"));
        let mut state: Value = serde_json::from_slice(&session.run.snapshot()).unwrap();
        let outstanding = state.pointer_mut("/turn/phase/working/outstanding").expect("the counts are stored");
        assert_eq!(*outstanding, json!({"pay": 2, "ship": 1}));
        *outstanding = crafted;
        let mut run = Run::restore(Some(state.to_string().as_bytes())).unwrap();
        run.apply(respond(5 - last, "ok")).unwrap();
        let change = run.apply(respond(last, "ok")).unwrap();
        (run, change)
    };
    for (crafted, last) in
        [(json!({"pay": 3, "ship": 1}), 2), (json!({"pay": 1, "ship": 2}), 3), (json!({"pay": 2}), 3), (json!({}), 2)]
    {
        let (run, change) = tampered(crafted.clone(), last);
        let end = run.turn.as_ref().and_then(|turn| turn.end());
        let Some(TurnEnd::Failed(error @ TurnError::OutstandingMismatch { answered, .. })) = end else {
            panic!("{crafted}: {end:?}")
        };
        assert_eq!((error.code(), answered["pay"], answered["ship"]), ("outstanding_mismatch", 2, 1));
        assert_eq!(run.action(), Action::Ended, "no model call");
        let results = [1, 2, 3].map(|position| Body::ResultOf(id(position)));
        assert_eq!(appended(&change), results, "calls stay with their results");
        let events = kinds(&change);
        assert!(events.ends_with(&["error".into(), "context_budget".into(), "loop_end".into()]), "{events:?}");
    }
    let (run, _) = tampered(json!({"pay": 2, "ship": 1}), 2);
    assert!(matches!(run.action(), Action::CallModel(_)), "with the correct counts, the turn continues");
}

/// L10: if a service does not respond before the deadline, the call gets an error result and the turn continues.
#[test]
fn l10_a_service_that_does_not_answer_in_time_is_unavailable() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("pay"), plain("ship")]);
    let Input::Dispatched { mut calls } = sent_to_service(&[id(1), id(2)]) else { unreachable!() };
    calls[0].awaits = Some(waiting_for(&id(1), service(Some(5_000))));
    session.must(Input::Dispatched { calls });
    let Action::Suspended(waits) = session.run.action() else { panic!() };
    let expiring: Vec<_> = waits.waits.iter().map(|wait| wait.cause.expires_at()).collect();
    assert_eq!(expiring, [Some(5_000), None]);
    let change = session.must(Input::Expire { call: id(1) });
    assert_eq!(kinds(&change), ["tool_result_error", "suspended"]);
    let error: Value = serde_json::from_str(&result_text(&stored_result(&session, 1).content)).unwrap();
    assert_eq!((&error["error"], stored_result(&session, 1).is_error), (&json!("unavailable"), true));
    assert_eq!(session.apply(respond(1, "late")), Err(InputError::Settled(id(1), "finished")));
    session.must(respond(2, "ok"));
    assert!(matches!(session.run.action(), Action::CallModel(_)), "an expired call counts as answered (L11)");
}

/// L18: a question that the user does not answer in time ends the turn.
#[test]
fn l18_a_question_that_expires_ends_the_turn() {
    let mut session = working(&["ask", "pay"], &[2]);
    let question = WaitCause::Answer { question: "Which one?".into(), expires_at: Some(1) };
    let awaits = waiting_for(&id(1), question);
    session.must(Input::Pending { call: id(1), awaits, cost: CallCost::default() });
    let change = session.must(Input::Expire { call: id(1) });
    assert_eq!(kinds(&change)[0], "resumed");
    assert_eq!((session.output().finish, session.output().data), (EndReason::QuestionExpired, json!("Which one?")));
}

#[test]
fn l29_a_suspended_turn_can_be_cancelled() {
    let mut session = working(&["pay", "count"], &[1]);
    session.outcome(&id(2).0, "three");
    let change = session.must(Input::Cancel);
    assert_eq!(appended(&change), [1, 2].map(|position| Body::ResultOf(id(position))));
    assert_eq!(result_text(&stored_result(&session, 1).content), "cancelled; outcome unknown");
    assert_eq!(session.apply(respond(1, "late")), Err(InputError::NoTurn));
    session.begin(LoopConfig::default());
}

/// L30: a suspension event that the first version stored is still parsed.
#[test]
fn l30_a_suspension_in_the_first_format_is_read() {
    let old: EventKind = serde_json::from_value(json!({"type": "suspended", "calls": ["call_1_1_1"]})).unwrap();
    let wait = Wait { call: id(1), name: String::new(), cause: WaitCause::OutcomeUnknown };
    assert_eq!(old, EventKind::Suspended { suspension: Suspension { waits: vec![wait] } });
}

fn prompt(text: &str) -> QueuedPrompt {
    QueuedPrompt { input: TurnInput::Text(text.into()), trace: None, steers: false }
}

/// L1: a prompt that arrives while a turn waits is queued. The prompt stays in the state until a turn begins with it.
#[test]
fn l1_a_prompt_that_arrives_while_a_turn_waits_is_queued() {
    let mut session = working(&["pay"], &[1]);
    let events = session.must(Input::QueuePrompt { prompt: prompt("one") }).events;
    assert_eq!(events, [], "no event reports a queued prompt (L30)");
    session.must(Input::QueuePrompt { prompt: prompt("two") });
    session.crash();
    session.must(respond(1, "paid"));
    session.answer("done");
    session.run = restored(&session.run);
    assert_eq!(session.run.queued_prompts, [prompt("one"), prompt("two")]);
    session.must(Input::QueuePrompt { prompt: prompt("one") });
    session.start(TurnInput::Text("one".into()), LoopConfig::default());
    assert_eq!(session.run.queued_prompts, [prompt("two"), prompt("one")], "an equal prompt has a turn of its own");
    session.must(Input::Cancel);
    assert_eq!(session.apply(Input::QueuePrompt { prompt: prompt("three") }), Err(InputError::NoTurn));
    assert_eq!(session.run.queued_prompts, [], "a user who cancels a turn does not expect that another turn begins");
}

/// L1, P14: the queue of prompts is bounded, and neither a fork nor an imported document copies the queue.
#[test]
fn l1_queued_prompts_are_bounded_and_stay_in_their_session() {
    let mut session = working(&["pay"], &[1]);
    let long = prompt(&"a".repeat(MAX_QUEUED_PROMPT_BYTES));
    assert_eq!(session.apply(Input::QueuePrompt { prompt: long }), Err(InputError::NoRoomForPrompt));
    for number in 0..MAX_QUEUED_PROMPTS {
        session.must(Input::QueuePrompt { prompt: prompt(&number.to_string()) });
    }
    assert_eq!(session.apply(Input::QueuePrompt { prompt: prompt("more") }), Err(InputError::NoRoomForPrompt));
    assert_eq!(session.run.fork("fork", 1).queued_prompts, []);
    let (imported, dropped) = session.run.clone().imported(&ImportTerms::default());
    assert_eq!((imported.queued_prompts, dropped.prompts), (Vec::new(), MAX_QUEUED_PROMPTS));
}
