//! Tests of validation, corrections and the output (L12, L13).

use crate::session::{Session, kinds, plain};
use agent_core::change::Body;
use agent_core::event::EndReason;
use agent_core::message::{Part, Role};
use agent_core::model::StopReason;
use agent_core::plugin::OutputData;
use agent_core::run::{Action, Input, LoopConfig, ResolvedReply, TurnError, Validation};
use serde_json::json;

fn validation(session: &Session) -> Validation {
    match session.run.action() {
        Action::Validate(validation) => validation,
        other => panic!("{other:?}"),
    }
}

fn visible(session: &Session) -> Vec<u64> {
    session.run.view.iter().map(|entry| entry.id).collect()
}

/// Row 31: a reply that was cut off is never used as the answer. The model gets feedback instead and
/// is called again.
#[test]
fn l12_a_cut_reply_is_not_the_answer() {
    for stop in [StopReason::Length, StopReason::ContentFilter] {
        let mut session = Session::calling(LoopConfig { max_corrections: 1, ..Default::default() });
        let cut = || ResolvedReply { stop, ..crate::session::reply("part of it", Vec::new()) };
        let change = session.must(Input::Reply(cut()));
        assert!(kinds(&change).contains(&"output_rejected".to_owned()), "{:?}", kinds(&change));
        assert!(matches!(session.run.action(), Action::CallModel(_)));
        session.must(Input::Reply(cut()));
        let TurnError::OutputRejected { last_reply, .. } = session.error() else { panic!("{:?}", session.error()) };
        assert_eq!(last_reply, "part of it");
    }
}

/// Row 31: if a reply was truncated, none of its calls runs, because the arguments may wrongly look complete.
#[test]
fn row_31_calls_of_a_cut_reply_do_not_run() {
    for stop in [StopReason::Length, StopReason::ContentFilter] {
        let mut session = Session::calling(LoopConfig::default());
        let calls = vec![crate::session::plain("a"), crate::session::sequential("b")];
        let change = session.must(Input::Reply(ResolvedReply { stop, ..crate::session::reply("so far", calls) }));
        assert_eq!(
            kinds(&change).iter().filter(|kind| *kind == "tool_result_error").count(),
            2,
            "{:?}",
            kinds(&change)
        );
        assert!(matches!(session.run.action(), Action::CallModel(_)), "the model gets the errors and may call again");
    }
}

#[test]
fn l12_a_rejected_output_gets_feedback_and_only_the_latest_attempt_is_sent_again() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("first", Vec::new());
    assert_eq!(
        validation(&session),
        Validation { text: "first".into(), result: None, attempt: 1, corrections_left: 2 }
    );
    let change = session.reject("is not a number");
    assert_eq!(kinds(&change)[..2], ["output_rejected", "stream_clear"]);
    let [reply, feedback] = &change.messages[..] else { panic!() };
    assert_eq!((reply.role, &reply.body), (Role::Assistant, &Body::Parts(vec![Part::Text("first".into())])));
    let Body::Parts(parts) = &feedback.body else { panic!() };
    let [Part::Text(text)] = &parts[..] else { panic!() };
    assert!(text.contains("output schema") && text.contains("at /n: is not a number"), "{text}");
    assert_eq!((visible(&session), session.seen_counts()), (vec![1, 2, 3], vec![1, 1, 0]));

    session.reply("second", vec![plain("look")]);
    session.run_batch();
    session.reply("second", Vec::new());
    assert_eq!(
        validation(&session),
        Validation { text: "second".into(), result: None, attempt: 2, corrections_left: 1 }
    );
    let change = session.reject("is negative");
    let hidden: Vec<_> = change.hidden.iter().map(|hidden| (hidden.id, hidden.seen_count)).collect();
    assert_eq!(hidden, [(2, 3), (3, 2)]);
    assert_eq!(visible(&session), [1, 4, 5, 6, 7]);
    assert_eq!(session.ledger.messages.len(), 7, "all messages are stored");

    session.reply("third", Vec::new());
    assert_eq!(validation(&session).corrections_left, 0);
    session.accept(OutputData::Text("third".into()));
    assert_eq!(session.output().interactions, 4, "each correction is an interaction");
    assert_eq!(visible(&session), [1, 4, 5, 6, 7, 8]);
}

#[test]
fn l12_the_turn_ends_with_the_last_reply_when_no_corrections_are_left() {
    for max_corrections in 0..4 {
        let mut session = Session::calling(LoopConfig { max_corrections, ..Default::default() });
        for attempt in 1..=max_corrections + 1 {
            session.reply(&format!("attempt {attempt}"), Vec::new());
            assert_eq!(validation(&session).corrections_left, max_corrections + 1 - attempt);
            session.reject("no");
        }
        let TurnError::OutputRejected { by, attempts, problems, last_reply } = session.error() else { panic!() };
        assert_eq!((by.as_str(), attempts, problems.len()), ("output schema", max_corrections + 1, 1));
        assert_eq!(last_reply, format!("attempt {attempts}"));
        let last = session.ledger.messages.iter().rev().find(|message| message.role == Role::Assistant).unwrap();
        assert_eq!(last.body, Body::Parts(vec![Part::Text(last_reply)]), "the last attempt is stored too");
    }
}

#[test]
fn l13_the_output_contains_the_accepted_data_and_the_history_contains_its_text() {
    for (data, value, text) in [
        (OutputData::Text("plain".into()), json!("plain"), "plain"),
        (OutputData::Json(json!({"b": 1, "a": 2})), json!({"b": 1, "a": 2}), r#"{"b":1,"a":2}"#),
    ] {
        let mut session = Session::calling(LoopConfig::default());
        session.reply("", vec![plain("a")]);
        session.run_batch();
        session.reply("as the model wrote it", Vec::new());
        let change = session.accept(data);
        assert_eq!(change.messages[0].body, Body::Parts(vec![Part::Text(text.into())]));
        assert_eq!((change.messages.len(), change.messages[0].role), (1, Role::Assistant));
        assert_eq!(session.seen_counts().last(), Some(&1));
        let mut output = serde_json::to_value(session.output()).unwrap();
        assert_eq!(output["data"].take(), value);
        let expected = json!({
            "data": null, "finish": "answered", "limit_reached": false, "execution_units": 220,
            "usage": {"prompt_tokens": 200, "completion_tokens": 20}, "interactions": 2, "model": "scripted/one",
            "session": "subject", "turn": 1,
        });
        assert_eq!(output, expected);
        assert_eq!(session.output().finish, EndReason::Answered);
    }
}
