//! Tests of replies whose calls cannot be parsed (L20).

use crate::session::{Session, call, kinds, plain, refused, reply};
use agent_core::change::Body;
use agent_core::event::{ErrorScope, EventKind, NudgeCause};
use agent_core::loop_break::{Finish, LoopBreak};
use agent_core::message::{Part, Role};
use agent_core::run::{Action, Disposition, Input, LoopConfig, ResolvedReply};
use agent_core::text_dialect::UnreadableCall;

fn unreadable() -> UnreadableCall {
    UnreadableCall::MissingField { field: "tool_name".into(), written: "{}".into() }
}

fn unreadable_reply(text: &str, calls: Vec<agent_core::run::ResolvedCall>) -> Input {
    let written = format!("{text}<tool>{{}}</tool>");
    Input::Reply(ResolvedReply { unreadable: vec![unreadable()], written, ..reply(text, calls) })
}

fn texts(session: &Session) -> Vec<String> {
    let text = |body: &Body| match body {
        Body::Parts(parts) => match &parts[0] {
            Part::Text(text) => text.clone(),
            other => format!("{other:?}"),
        },
        Body::ResultOf(call) => call.to_string(),
    };
    session.ledger.messages.iter().map(|message| format!("{} {}", message.role.as_str(), text(&message.body))).collect()
}

/// L20: if all calls of a reply are unreadable, an `error` event is emitted for each call, followed by one
/// `no_tool_call` event. The turn continues, and the model gets feedback.
#[test]
fn l20_an_unreadable_call_gets_feedback() {
    let mut session = Session::calling(LoopConfig::default());
    for count in 1..=2 {
        let change = session.must(unreadable_reply("I count.", Vec::new()));
        let expected = [
            "stream_complete",
            "stream_clear",
            "error",
            "no_tool_call",
            "loop_iteration",
            "context_budget",
            "context_built",
        ];
        assert_eq!(kinds(&change), expected);
        assert!(change.events.iter().any(|event| matches!(&event.kind,
            EventKind::Error { code, scope: ErrorScope::Reply, .. } if code == "missing_field")));
        assert!(
            change
                .events
                .iter()
                .any(|event| matches!(event.kind, EventKind::NoToolCall { count: n, .. } if n == count))
        );
    }
    let texts = texts(&session);
    assert_eq!(texts[1], "assistant I count.<tool>{}</tool>");
    assert!(texts[2].starts_with("user A tool call of your reply could not be read") && texts[2].contains("tool_name"));
    assert_eq!(session.seen_counts(), [2, 2, 1, 1, 0]);
    // A readable call resets the number of consecutive replies without a readable call.
    session.reply("", vec![plain("a")]);
    session.run_batch();
    let change = session.must(unreadable_reply("I count.", Vec::new()));
    assert!(change.events.iter().any(|event| matches!(event.kind, EventKind::NoToolCall { count: 1, .. })));
}

/// L4, L20: if the turn has reached its limit, the answer is the text of the reply without the unreadable calls.
#[test]
fn l20_at_the_limit_an_unreadable_call_gets_no_feedback() {
    let mut session = Session::calling(LoopConfig { max_interactions: 1, ..Default::default() });
    session.must(unreadable_reply("First.", Vec::new()));
    session.must(unreadable_reply("It is 42.", Vec::new()));
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.text == "It is 42."));
}

/// L20: readable calls run. The feedback about the unreadable calls follows the results of the readable calls.
#[test]
fn l20_readable_calls_run_next_to_unreadable_ones() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(unreadable_reply("Both.", vec![plain("a")]));
    assert_eq!(kinds(&change)[..2], ["stream_complete", "error"]);
    assert!(!kinds(&change).contains(&"no_tool_call".to_owned()));
    session.run_batch();
    let texts = texts(&session);
    assert_eq!(texts[2], "tool call_1_1_1");
    assert!(texts[3].starts_with("user A tool call of your reply could not be read"), "{texts:?}");
    assert_eq!(session.ledger.messages[3].role, Role::User);
    assert!(matches!(session.run.action(), Action::CallModel(_)));
}

/// L30: the `scope` of an error event distinguishes errors of a reply from errors of a turn. An error event of the
/// first version, which had no scope, is still parsed.
#[test]
fn l30_error_events_have_a_scope() {
    let old: EventKind = serde_json::from_str(r#"{"type":"error","code":"c","message":"m"}"#).unwrap();
    assert!(matches!(&old, EventKind::Error { scope: ErrorScope::Turn, .. }));
    assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"type":"error","code":"c","message":"m"}"#);
    let of_reply = EventKind::Error { code: "c".into(), message: "m".into(), scope: ErrorScope::Reply };
    assert!(serde_json::to_string(&of_reply).unwrap().ends_with(r#""scope":"reply"}"#));
}

/// L19: like a reply without calls, a reply with only unreadable calls ends a sequence of errors.
#[test]
fn l19_an_unreadable_call_ends_a_sequence_of_errors() {
    let config = LoopConfig { finish: Finish::Tool, max_interactions: 40, ..Default::default() };
    let mut session = Session::calling(config);
    for round in 0..2 {
        for position in 0..4 {
            session.reply("", vec![refused(&format!("tool_{round}_{position}"), "the disk is full")]);
        }
        session.must(unreadable_reply("Again.", Vec::new()));
    }
    assert!(session.run.is_open(), "{:?}", session.run.turn);
}

/// L23: a reply with an unreadable call does not count as an empty reply.
#[test]
fn l23_an_unreadable_call_interrupts_consecutive_empty_replies() {
    let mut session = Session::calling(LoopConfig { persistence: true, ..Default::default() });
    for _ in 0..2 {
        session.reply("", Vec::new());
    }
    session.must(unreadable_reply("", Vec::new()));
    let change = session.reply("", Vec::new());
    let cause = change.events.iter().find_map(|event| match event.kind {
        EventKind::Nudge { cause, attempt, .. } => Some((cause, attempt)),
        _ => None,
    });
    assert_eq!(cause, Some((NudgeCause::Empty, 1)));
}

/// L12, L20: if a result is rejected and the same reply contains unreadable calls, the model gets feedback about these
/// calls. The messages with the rejected result stay in the view.
#[test]
fn l20_unreadable_calls_next_to_a_rejected_result_get_feedback() {
    let mut session = Session::calling(LoopConfig { finish: Finish::Tool, ..Default::default() });
    let complete = call("task_completion", Disposition::Breaks(LoopBreak::Complete));
    session.must(unreadable_reply("", vec![complete]));
    session.dispatch();
    session.reject("no");
    let result = texts(&session);
    assert_eq!(result[2], "tool call_1_1_1");
    assert!(result[3].starts_with("user A tool call of your reply could not be read"), "{result:?}");
    let complete = call("task_completion", Disposition::Breaks(LoopBreak::Complete));
    session.reply("", vec![complete]);
    session.dispatch();
    assert!(session.reject("no").hidden.is_empty());
}

/// L20: unreadable calls are reported even if no further model call follows.
#[test]
fn l20_an_unreadable_call_in_the_last_reply_is_reported() {
    let mut session = Session::calling(LoopConfig { max_interactions: 0, ..Default::default() });
    let change = session.must(unreadable_reply("It is 42.", Vec::new()));
    assert_eq!(kinds(&change), ["context_budget", "stream_complete", "error"]);
}
