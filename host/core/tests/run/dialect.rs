//! Replies whose calls could not be read (L20).

use crate::session::{Session, call, kinds, plain, refused, reply};
use agent_core::change::Body;
use agent_core::event::{ErrorScope, EventKind, NudgeCause};
use agent_core::loop_break::{Finish, LoopBreak};
use agent_core::message::{Part, Role};
use agent_core::run::{Action, Disposition, Input, LoopConfig, RepliedStep};
use agent_core::text_dialect::UnreadableCall;

fn unreadable() -> UnreadableCall {
    UnreadableCall::MissingField { field: "tool_name".into(), written: "{}".into() }
}

fn broken(text: &str, calls: Vec<agent_core::run::ResolvedCall>) -> Input {
    let written = format!("{text}<tool>{{}}</tool>");
    Input::Reply(RepliedStep { unreadable: vec![unreadable()], written, ..reply(text, calls) })
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

/// L20: an `error` event each, then `no_tool_call`, and it is fed back; the turn goes on.
#[test]
fn l20_an_unreadable_call_is_fed_back() {
    let mut session = Session::calling(LoopConfig::default());
    for count in 1..=2 {
        let change = session.must(broken("I count.", Vec::new()));
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
    assert_eq!(session.seen(), [2, 2, 1, 1, 0]);
    // A call that can be read begins the count anew.
    session.reply("", vec![plain("a")]);
    session.run_batch();
    let change = session.must(broken("I count.", Vec::new()));
    assert!(change.events.iter().any(|event| matches!(event.kind, EventKind::NoToolCall { count: 1, .. })));
}

/// L4, L20: at the bound the text that there is counts, without its calls.
#[test]
fn l20_at_the_bound_nothing_is_fed_back() {
    let mut session = Session::calling(LoopConfig { max_interactions: 1, ..Default::default() });
    session.must(broken("First.", Vec::new()));
    session.must(broken("It is 42.", Vec::new()));
    assert!(matches!(session.run.action(), Action::Validate(validation) if validation.text == "It is 42."));
}

/// L20: what can be read runs; the model is told of the rest behind the results.
#[test]
fn l20_the_calls_that_can_be_read_run() {
    let mut session = Session::calling(LoopConfig::default());
    let change = session.must(broken("Both.", vec![plain("a")]));
    assert_eq!(kinds(&change)[..2], ["stream_complete", "error"]);
    assert!(!kinds(&change).contains(&"no_tool_call".to_owned()));
    session.run_batch();
    let texts = texts(&session);
    assert_eq!(texts[2], "tool call_1_1_1");
    assert!(texts[3].starts_with("user A tool call of your reply could not be read"), "{texts:?}");
    assert_eq!(session.ledger.messages[3].role, Role::User);
    assert!(matches!(session.run.action(), Action::CallModel(_)));
}

/// L30: an error of the first version, which knew one kind, still reads; an error of a reply is told from the turn's.
#[test]
fn l30_errors_say_what_they_end() {
    let old: EventKind = serde_json::from_str(r#"{"type":"error","code":"c","message":"m"}"#).unwrap();
    assert!(matches!(&old, EventKind::Error { scope: ErrorScope::Turn, .. }));
    assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"type":"error","code":"c","message":"m"}"#);
    let of_reply = EventKind::Error { code: "c".into(), message: "m".into(), scope: ErrorScope::Reply };
    assert!(serde_json::to_string(&of_reply).unwrap().ends_with(r#""scope":"reply"}"#));
}

/// L19: a reply without a readable call stands between errors like any other without a call.
#[test]
fn l19_an_unreadable_call_breaks_a_row_of_errors() {
    let config = LoopConfig { finish: Finish::Tool, max_interactions: 40, ..Default::default() };
    let mut session = Session::calling(config);
    for round in 0..2 {
        for place in 0..4 {
            session.reply("", vec![refused(&format!("tool_{round}_{place}"), "the disk is full")]);
        }
        session.must(broken("Again.", Vec::new()));
    }
    assert!(session.run.is_open(), "{:?}", session.run.turn);
}

/// L23: a reply that wrote a call is none of a row of empty ones.
#[test]
fn l23_an_unreadable_call_breaks_a_row_of_empty_replies() {
    let mut session = Session::calling(LoopConfig { persistence: true, ..Default::default() });
    for _ in 0..2 {
        session.reply("", Vec::new());
    }
    session.must(broken("", Vec::new()));
    let change = session.reply("", Vec::new());
    let cause = change.events.iter().find_map(|event| match event.kind {
        EventKind::Nudge { cause, attempt, .. } => Some((cause, attempt)),
        _ => None,
    });
    assert_eq!(cause, Some((NudgeCause::Empty, 1)));
}

/// L12, L20: what could not be read beside a result is told when that is rejected; the attempt stays in sight with it.
#[test]
fn l20_what_could_not_be_read_beside_a_rejected_result_is_fed_back() {
    let mut session = Session::calling(LoopConfig { finish: Finish::Tool, ..Default::default() });
    let complete = call("task_completion", Disposition::Breaks(LoopBreak::Complete));
    session.must(broken("", vec![complete]));
    session.dispatch();
    session.reject("no");
    let told = texts(&session);
    assert_eq!(told[2], "tool call_1_1_1");
    assert!(told[3].starts_with("user A tool call of your reply could not be read"), "{told:?}");
    let complete = call("task_completion", Disposition::Breaks(LoopBreak::Complete));
    session.reply("", vec![complete]);
    session.dispatch();
    assert!(session.reject("no").hidden.is_empty());
}

/// L20: also where nobody can be fed back, what could not be read is told.
#[test]
fn l20_an_unreadable_call_in_the_last_reply_is_told() {
    let mut session = Session::calling(LoopConfig { max_interactions: 0, ..Default::default() });
    let change = session.must(broken("It is 42.", Vec::new()));
    assert_eq!(kinds(&change), ["context_budget", "stream_complete", "error"]);
}
