//! Tests of replies with too many calls (L9).

use crate::session::{Session, kinds, plain, text_of};
use agent_core::message::{Part, Replay};
use agent_core::run::{Action, Input, LoopConfig, MAX_CALLS, ResolvedCall, ResolvedReply};
use serde_json::json;

fn many(count: usize) -> Vec<ResolvedCall> {
    (0..count).map(|_| plain("a")).collect()
}

/// L3 to L5, L9: a reply with too many calls is counted as an interaction like any other reply, and its stored calls
/// get an error result.
#[test]
fn l9_a_reply_with_too_many_calls_is_refused_and_the_turn_continues() {
    let mut session = Session::calling(LoopConfig::default());
    let replay = Some(Replay { provider: "p".into(), data: json!({"tool_calls": []}) });
    let reply = ResolvedReply { replay, ..crate::session::reply("All.", many(MAX_CALLS + 7)) };
    let change = session.must(Input::Reply(reply));
    assert!(kinds(&change).contains(&"loop_iteration".to_owned()), "the turn continues at once");
    let turn = session.run.turn.as_ref().unwrap();
    assert_eq!((turn.interactions, turn.execution_units), (1, 110));
    assert_eq!(session.seen_counts()[..2], [1, 1]);
    assert_eq!(session.ledger.calls.len(), MAX_CALLS, "the stored state is bounded");
    assert!(session.ledger.calls.iter().all(|call| call.dispatches == 0));
    let (text, is_error) = text_of(&session, "call_1_1_128");
    assert!(is_error && text.contains("too many calls in one reply: 135, at most 128"), "{text}");
    let agent_core::change::Body::Parts(parts) = &change.messages[0].body else { panic!() };
    assert!(
        !parts.iter().any(|part| matches!(part, Part::Replay(_))),
        "the provider's data is only valid for a message with all calls"
    );
    session.reply("", many(MAX_CALLS).into_iter().map(|call| ResolvedCall { name: "b".into(), ..call }).collect());
    assert!(matches!(session.run.action(), Action::Dispatch(_)));
}
