//! Tests of the seen counts after every step (L3).

use crate::session::{Session, WIDE, plain, reply};
use agent_core::message::TurnInput;
use agent_core::plugin::{History, OutputData};
use agent_core::run::{Input, LoopConfig, Mask, TurnContext};
use serde_json::json;

#[test]
fn l3_each_call_increments_the_seen_count_of_sent_messages_once() {
    let mut session = Session::calling(LoopConfig::default());
    assert_eq!(session.seen_counts(), [0]);
    session.reply("let me see", vec![plain("a"), plain("b")]);
    assert_eq!(session.seen_counts(), [1, 1], "the input was sent, and the model wrote its own message");
    session.dispatch();
    session.outcome("call_1_1_1", "one");
    assert_eq!(session.seen_counts(), [1, 1], "a result is not a message before the batch is complete");
    session.outcome("call_1_1_2", "two");
    assert_eq!(session.seen_counts(), [1, 1, 0, 0], "results start unseen");
    session.reply("", vec![plain("c")]);
    assert_eq!(session.seen_counts(), [2, 2, 1, 1, 1]);
    session.run_batch();
    session.reply("wrong", Vec::new());
    assert_eq!(session.seen_counts(), [3, 3, 2, 2, 2, 1]);
    session.reject("not that");
    assert_eq!(session.seen_counts(), [3, 3, 2, 2, 2, 1, 1, 0], "a failed attempt starts at 1, feedback at 0");
    session.reply("right", Vec::new());
    session.accept(OutputData::Json(json!({"n": 1})));
    assert_eq!(session.seen_counts(), [4, 4, 3, 3, 3, 2, 2, 1, 1], "the final message starts at 1");
    session.begin(LoopConfig::default());
    session.answer("next turn");
    assert_eq!(session.seen_counts(), [5, 5, 4, 4, 4, 3, 3, 2, 2, 1, 1]);
}

#[test]
fn l3_only_a_successful_call_counts() {
    let mut session = Session::calling(LoopConfig::default());
    session.crash();
    session.crash();
    assert_eq!(session.seen_counts(), [0], "an interrupted call has not been counted");
    session.reply("", vec![plain("a")]);
    session.dispatch();
    session.crash();
    session.must(Input::Cancel);
    assert_eq!(session.seen_counts(), [1, 1, 0]);
}

#[test]
fn l3_messages_that_the_builder_leaves_out_are_not_counted() {
    let mut session = Session::calling(LoopConfig::default());
    session.answer("first");
    assert_eq!(session.seen_counts(), [1, 1]);
    session.start(TurnInput::Text("alone".into()), LoopConfig::default());
    session.context(TurnContext { history: History::LeaveOut, budget: WIDE, ..Default::default() });
    session.reply("", vec![plain("a")]);
    session.run_batch();
    session.answer("second");
    assert_eq!(session.seen_counts(), [1, 1, 2, 2, 1, 1]);
    session.begin(LoopConfig::default());
    session.answer("third");
    assert_eq!(session.seen_counts(), [2, 2, 3, 3, 2, 2, 1, 1]);
}

#[test]
fn p4_masks_stay_and_are_not_duplicated() {
    let mut session = Session::calling(LoopConfig::default());
    let mask = |text: &str| Mask { message: 1, part: 0, item: None, text: text.into() };
    for _ in 0..3 {
        let masks = vec![mask("[seen before]")];
        session.must(Input::Reply(agent_core::run::ResolvedReply { masks, ..reply("", vec![plain("a")]) }));
        session.run_batch();
    }
    assert_eq!(session.run.masks, [mask("[seen before]")]);
}
