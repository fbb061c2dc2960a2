//! Replies with more calls than one can have (L9).

use crate::session::{Session, kinds, plain, text_of};
use agent_core::message::{Part, Replay};
use agent_core::run::{Action, Input, LoopConfig, MAX_CALLS, RepliedStep, ResolvedCall};
use serde_json::json;

fn many(count: usize) -> Vec<ResolvedCall> {
    (0..count).map(|_| plain("a")).collect()
}

/// L3 to L5, L9: it is a reply like any other, with pairs that stay whole, and the model is told.
#[test]
fn l9_of_too_many_calls_none_runs_and_the_turn_goes_on() {
    let mut session = Session::calling(LoopConfig::default());
    let replay = Some(Replay { provider: "p".into(), data: json!({"tool_calls": []}) });
    let reply = RepliedStep { replay, ..crate::session::reply("All.", many(MAX_CALLS + 7)) };
    let change = session.must(Input::Reply(reply));
    assert!(kinds(&change).contains(&"loop_iteration".to_owned()), "it goes on at once");
    let turn = session.run.turn.as_ref().unwrap();
    assert_eq!((turn.interactions, turn.execution_units), (1, 110));
    assert_eq!(session.seen()[..2], [1, 1]);
    assert_eq!(session.ledger.calls.len(), MAX_CALLS, "what is stored is bounded");
    assert!(session.ledger.calls.iter().all(|call| call.dispatches == 0));
    let (text, is_error) = text_of(&session, "call_1_1_128");
    assert!(is_error && text.contains("too many calls in one reply: 135, at most 128"), "{text}");
    let agent_core::change::Body::Parts(parts) = &change.messages[0].body else { panic!() };
    assert!(!parts.iter().any(|part| matches!(part, Part::Replay(_))), "it belongs to a message with all calls");
    session.reply("", many(MAX_CALLS).into_iter().map(|call| ResolvedCall { name: "b".into(), ..call }).collect());
    assert!(matches!(session.run.action(), Action::Dispatch(_)));
}
