//! Replies whose calls could not be read (L20).

use crate::session::{Session, kinds, plain, reply};
use agent_core::change::Body;
use agent_core::event::{ErrorScope, EventKind};
use agent_core::message::{Part, Role};
use agent_core::run::{Action, Input, LoopConfig, RepliedStep};
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
