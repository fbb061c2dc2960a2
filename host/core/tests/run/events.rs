//! Tests of the order and the sequence numbers of a turn's events (L30).

use crate::session::{Session, WIDE, call, kind, of_priority, plain};
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::plugin::OutputData;
use agent_core::run::{AtLimit, Decision, Disposition, Input, LoopConfig, TurnContext};

fn all_kinds(session: &Session) -> Vec<String> {
    session.ledger.events.iter().map(|event| kind(&event.kind)).collect()
}

#[test]
fn l30_events_of_a_whole_turn_are_in_order() {
    let mut session = Session::calling(LoopConfig { max_interactions: 3, ..Default::default() });
    let missing = Disposition::NotFound { message: "there is no tool `nope`".into() };
    session.reply("let me see", vec![of_priority("a", 1), of_priority("b", 0), call("nope", missing)]);
    session.dispatch();
    session.crash();
    session.resolve("call_1_1_1", Decision::Retry);
    session.run_batch();
    session.reply("wrong", Vec::new());
    session.reject("not that");
    session.reply("", vec![plain("c")]);
    session.run_batch();
    session.reply("right", Vec::new());
    session.accept(OutputData::Text("right".into()));
    let lines = session.ledger.events.iter().map(|event| serde_json::to_string(event).unwrap());
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

/// D4: the event about recalled memories precedes the first step. A turn without recalled memories has no such event.
#[test]
fn d4_recalled_memories_are_reported_before_the_first_step() {
    for recalled in [Vec::new(), vec!["agent/1/final".to_owned()]] {
        let mut session = Session::new();
        session.start(TurnInput::Text("How many?".into()), LoopConfig::default());
        let change = session.context(TurnContext { budget: WIDE, recalled: recalled.clone(), ..Default::default() });
        let reported = change
            .events
            .iter()
            .position(|event| matches!(&event.kind, EventKind::MemoriesRecalled { memories } if *memories == recalled));
        let begins = change.events.iter().position(|event| matches!(event.kind, EventKind::LoopIteration { .. }));
        assert_eq!(reported.is_some(), !recalled.is_empty(), "{:?}", change.events);
        assert!(reported < begins, "{:?}", change.events);
    }
}

#[test]
fn l30_tool_call_precedes_its_result_and_each_turn_ends_with_one_loop_end() {
    let mut session =
        Session::calling(LoopConfig { max_interactions: 1, at_limit: AtLimit::Error, ..Default::default() });
    session.reply("", vec![plain("a"), plain("b")]);
    session.run_batch();
    session.begin(LoopConfig::default());
    session.must(Input::Cancel);
    let kinds = all_kinds(&session);
    let step = ["loop_iteration", "context_budget", "context_built"];
    let calls = ["stream_complete", "tool_call", "tool_call", "tool_result", "tool_result"];
    let first = [&["loop_start"], &step[..], &calls, &["error", "context_budget", "loop_end"]].concat();
    let second = [&["loop_start"], &step[..], &["stream_clear", "context_budget", "loop_end"]].concat();
    assert_eq!(kinds, [first, second].concat());
    for event in &session.ledger.events {
        let count_in_turn = |matches: fn(&EventKind) -> bool| {
            session.ledger.events.iter().filter(|other| other.turn == event.turn && matches(&other.kind)).count()
        };
        assert_eq!(count_in_turn(|kind| matches!(kind, EventKind::LoopStart { .. })), 1);
        assert_eq!(count_in_turn(|kind| matches!(kind, EventKind::LoopEnd { .. })), 1);
    }
}
