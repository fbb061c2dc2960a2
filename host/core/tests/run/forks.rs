//! A session copied to another one: renamed, or cut after a message (D5).

use crate::session::{Session, plain, reply, restored};
use agent_core::change::{Body, Change};
use agent_core::message::{CallId, MessageId, Part, StoredMessage, ToolResult};
use agent_core::run::{Action, CutPoints, Input, LoopConfig, Mask, ResolvedReply, Run, TurnEnd};
use proptest::prelude::*;

/// The messages as a store returns them.
fn stored(changes: &[Change]) -> Vec<StoredMessage> {
    let messages = changes.iter().flat_map(|change| change.messages.iter().cloned());
    let whole = messages.map(|message| {
        let parts = match message.body {
            Body::Parts(parts) => parts,
            Body::ResultOf(call_id) => {
                let (name, content) = ("a".to_owned(), Vec::new());
                vec![Part::ToolResult(ToolResult { call_id, name, content, is_error: false })]
            }
        };
        let (id, turn, role, tokens) = (message.id, message.turn, message.role, message.tokens);
        StoredMessage { id, turn, role, parts, tokens }
    });
    whole.collect()
}

fn places(messages: &[StoredMessage]) -> CutPoints {
    let mut places = CutPoints::default();
    messages.iter().for_each(|message| places.add(message));
    places
}

/// 1 input, 2 two calls, 3 and 4 their results, 5 answer; 6 input, 7 answer; 8 input, 9 a running call.
fn three_turns() -> (Session, Vec<StoredMessage>) {
    let mut session = Session::new();
    let mut changes = vec![session.begin(LoopConfig::default())];
    let mask = |message| Mask { message, part: 0, item: None, text: "[a picture]".to_owned() };
    let asked = ResolvedReply { masks: vec![mask(1)], ..reply("", vec![plain("a"), plain("b")]) };
    changes.push(session.must(Input::Reply(asked)));
    changes.push(session.run_batch());
    changes.push(session.answer("first"));
    changes.push(session.begin(LoopConfig::default()));
    let answered = ResolvedReply { masks: vec![mask(6)], ..reply("second", Vec::new()) };
    changes.push(session.must(Input::Reply(answered)));
    changes.push(session.accept(agent_core::plugin::OutputData::Text("second".into())));
    changes.push(session.begin(LoopConfig::default()));
    changes.push(session.reply("", vec![plain("c")]));
    session.dispatch();
    let messages = stored(&changes);
    (session, messages)
}

#[test]
fn d5_a_cut_moves_after_the_results_of_the_calls() {
    let (_, messages) = three_turns();
    for (at, place) in [(1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8)] {
        assert_eq!(places(&messages).after(at), Ok(place), "behind {at}");
    }
    assert_eq!(places(&messages).last(), Some(8));
    assert_eq!((places(&messages[..1]).last(), places(&[]).last()), (Some(1), None));
}

#[test]
fn d5_an_impossible_cut_names_the_nearest_cut_points() {
    let (_, mut messages) = three_turns();
    let open = places(&messages).after(9).unwrap_err();
    assert_eq!((open.before, open.after), (Some(8), None));
    assert_eq!(
        open.to_string(),
        "message 9 belongs to tool calls that have no results yet; the nearest message after which it can be cut is 8"
    );
    messages.retain(|message| message.turn != 2);
    let hidden = places(&messages).after(6).unwrap_err();
    assert_eq!((hidden.before, hidden.after), (Some(5), Some(8)));
    assert!(hidden.to_string().ends_with("it can be cut are 5 and 8"), "{hidden}");
    let nothing = places(&messages[1..2]).after(2).unwrap_err();
    assert!(nothing.to_string().ends_with("there is no message after which it can be cut"), "{nothing}");
}

#[test]
fn d5_a_fork_has_the_view_up_to_the_message_and_no_open_turn() {
    let (session, _) = three_turns();
    let before = session.run.clone();
    let fork = restored(&session.run.fork("fork", 5));
    assert_eq!(session.run, before, "the original is untouched");
    assert_eq!((fork.session.as_str(), fork.agent.as_str(), fork.action()), ("fork", "agent", Action::Idle));
    assert_eq!((fork.turns, fork.next_message, fork.sequence), (1, 6, 0));
    let seen = |run: &Run| run.view.iter().map(|entry| run.seen_count(entry)).collect::<Vec<_>>();
    assert_eq!(seen(&fork), seen(&session.run)[..5], "seen counts never decrease (L3)");
    assert_eq!(fork.masks.iter().map(|mask| mask.message).collect::<Vec<_>>(), [1]);
    let mut empty = Run::new("empty", "agent");
    empty.model_calls = before.model_calls;
    assert_eq!(session.run.fork("empty", 0), empty);
}

/// After an undone turn, the fork renumbers messages and masks.
#[test]
fn d5_a_fork_numbers_visible_messages_from_1() {
    let mut session = Session::new();
    for text in ["first", "undone"] {
        session.begin(LoopConfig::default());
        session.answer(text);
    }
    session.must(Input::Undo);
    session.begin(LoopConfig::default());
    let mask = Mask { message: 5, part: 0, item: None, text: "[a picture]".to_owned() };
    session.must(Input::Reply(ResolvedReply { masks: vec![mask.clone()], ..reply("third", Vec::new()) }));
    session.accept(agent_core::plugin::OutputData::Text("third".into()));
    let fork = restored(&session.run.fork("fork", 6));
    let places: Vec<(MessageId, u32)> = fork.view.iter().map(|entry| (entry.id, entry.turn)).collect();
    assert_eq!(places, [(1, 1), (2, 1), (3, 3), (4, 3)]);
    assert_eq!(fork.masks, [Mask { message: 3, ..mask }]);
    assert_eq!((fork.turns, fork.next_message), (3, 5), "later turns have ids that no message names");
}

#[test]
fn d5_renaming_a_run_keeps_its_state() {
    let mut session = Session::calling(LoopConfig::default());
    session.reply("", vec![plain("a")]);
    assert!(session.run.open_calls().eq([&CallId("call_1_1_1".to_owned())]));
    let renamed = session.run.clone().renamed("another");
    assert_eq!(renamed.session, "another");
    assert_eq!(renamed.clone().renamed("subject"), session.run);
    assert_eq!(renamed.action(), session.run.action());
    session.run_batch();
    session.answer("done");
    assert_eq!(session.run.open_calls().count(), 0);
    let renamed = restored(&session.run.clone().renamed("another"));
    let end = renamed.turn.as_ref().and_then(|turn| turn.end());
    assert!(matches!(end, Some(TurnEnd::Finished(output)) if output.session == "another"), "{end:?}");
    assert_eq!(renamed.renamed("subject"), session.run);
}

proptest! {
    /// At any cut, calls and results stay together, and the cut is not before the requested message.
    #[test]
    fn d5_calls_and_results_stay_together(batches in prop::collection::vec((0_usize..3, any::<bool>()), 1..6), at in 1_u64..20) {
        let mut session = Session::new();
        let mut changes = Vec::new();
        for (calls, asked) in batches {
            changes.push(session.begin(LoopConfig::default()));
            if asked && calls > 0 {
                changes.push(session.reply("", vec![plain("a"); calls]));
                changes.push(session.run_batch());
            }
            changes.push(session.answer("done"));
        }
        let messages = stored(&changes);
        let Ok(place) = places(&messages).after(at) else {
            prop_assert!(at > messages.len() as u64);
            return Ok(());
        };
        prop_assert!(place >= at);
        let kept = &messages[..place as usize];
        let parts = || kept.iter().flat_map(|message| &message.parts);
        let asked = parts().filter(|part| matches!(part, Part::ToolCall(_))).count();
        let answered = parts().filter(|part| matches!(part, Part::ToolResult(_))).count();
        prop_assert_eq!(asked, answered);
        let fork = restored(&session.run.fork("fork", place));
        prop_assert_eq!(fork.view.len(), kept.len());
    }
}
