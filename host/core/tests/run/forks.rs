//! Tests of copying a session to another session: the whole session under a new name, or only the messages up to a
//! cut (D5).

use crate::session::{Session, plain, reply, restored};
use agent_core::change::{Body, Change};
use agent_core::message::{CallId, MessageId, Part, StoredMessage, ToolResult};
use agent_core::run::{Action, CutPoints, Input, LoopConfig, Mask, ResolvedReply, Run, TurnEnd};
use proptest::prelude::*;

/// Returns the messages that these changes append, in the form in which a store would return them.
fn stored(changes: &[Change]) -> Vec<StoredMessage> {
    let messages = changes.iter().flat_map(|change| change.messages.iter().cloned());
    let stored = messages.map(|message| {
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
    stored.collect()
}

fn cut_points(messages: &[StoredMessage]) -> CutPoints {
    let mut cut_points = CutPoints::default();
    messages.iter().for_each(|message| cut_points.add(message));
    cut_points
}

/// Returns a session with three turns, and its messages:
///
/// - Turn 1: message 1 is the input, 2 contains two calls, 3 and 4 are their results, and 5 is the answer.
/// - Turn 2: message 6 is the input, and 7 is the answer.
/// - Turn 3: message 8 is the input, and 9 contains a call that is running.
fn three_turns() -> (Session, Vec<StoredMessage>) {
    let mut session = Session::new();
    let mut changes = vec![session.begin(LoopConfig::default())];
    let mask = |message| Mask { message, part: 0, item: None, text: "[a picture]".to_owned() };
    let with_calls = ResolvedReply { masks: vec![mask(1)], ..reply("", vec![plain("a"), plain("b")]) };
    changes.push(session.must(Input::Reply(with_calls)));
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
    for (at, cut) in [(1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8)] {
        assert_eq!(cut_points(&messages).after(at), Ok(cut), "after message {at}");
    }
    assert_eq!(cut_points(&messages).last(), Some(8));
    assert_eq!((cut_points(&messages[..1]).last(), cut_points(&[]).last()), (Some(1), None));
}

#[test]
fn d5_the_error_for_an_impossible_cut_contains_the_nearest_cut_points() {
    let (_, mut messages) = three_turns();
    let open = cut_points(&messages).after(9).unwrap_err();
    assert_eq!((open.before, open.after), (Some(8), None));
    assert_eq!(
        open.to_string(),
        "message 9 belongs to tool calls that have no results yet; the nearest message after which the session can be \
         cut is 8"
    );
    messages.retain(|message| message.turn != 2);
    let hidden = cut_points(&messages).after(6).unwrap_err();
    assert_eq!((hidden.before, hidden.after), (Some(5), Some(8)));
    assert!(hidden.to_string().ends_with("the session can be cut are 5 and 8"), "{hidden}");
    let nothing = cut_points(&messages[1..2]).after(2).unwrap_err();
    assert!(nothing.to_string().ends_with("the session has no message after which it can be cut"), "{nothing}");
}

#[test]
fn d5_a_fork_has_the_view_up_to_the_message_and_no_open_turn() {
    let (session, _) = three_turns();
    let before = session.run.clone();
    let fork = restored(&session.run.fork("fork", 5));
    assert_eq!(session.run, before, "the original session is unchanged");
    assert_eq!((fork.session.as_str(), fork.agent.as_str(), fork.action()), ("fork", "agent", Action::Idle));
    assert_eq!((fork.turns, fork.next_message, fork.sequence), (1, 6, 0));
    let seen = |run: &Run| run.view.iter().map(|entry| run.seen_count(entry)).collect::<Vec<_>>();
    assert_eq!(seen(&fork), seen(&session.run)[..5], "seen counts never decrease (L3)");
    assert_eq!(fork.masks.iter().map(|mask| mask.message).collect::<Vec<_>>(), [1]);
    let mut empty = Run::new("empty", "agent");
    empty.model_calls = before.model_calls;
    assert_eq!(session.run.fork("empty", 0), empty);
}

/// D5: if a session with an undone turn is forked, the fork numbers its messages from 1, and its masks refer to the
/// new numbers.
#[test]
fn d5_visible_messages_of_a_fork_are_numbered_from_1() {
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
    let numbers: Vec<(MessageId, u32)> = fork.view.iter().map(|entry| (entry.id, entry.turn)).collect();
    assert_eq!(numbers, [(1, 1), (2, 1), (3, 3), (4, 3)]);
    assert_eq!(fork.masks, [Mask { message: 3, ..mask }]);
    assert_eq!((fork.turns, fork.next_message), (3, 5), "later turns have unused numbers");
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
    /// D5: a cut never separates calls from their results, and a cut is never before the requested message.
    #[test]
    fn d5_calls_and_results_stay_together(batches in prop::collection::vec((0_usize..3, any::<bool>()), 1..6), at in 1_u64..20) {
        let mut session = Session::new();
        let mut changes = Vec::new();
        for (calls, has_calls) in batches {
            changes.push(session.begin(LoopConfig::default()));
            if has_calls && calls > 0 {
                changes.push(session.reply("", vec![plain("a"); calls]));
                changes.push(session.run_batch());
            }
            changes.push(session.answer("done"));
        }
        let messages = stored(&changes);
        let Ok(cut) = cut_points(&messages).after(at) else {
            prop_assert!(at > messages.len() as u64);
            return Ok(());
        };
        prop_assert!(cut >= at);
        let kept = &messages[..cut as usize];
        let parts = || kept.iter().flat_map(|message| &message.parts);
        let calls = parts().filter(|part| matches!(part, Part::ToolCall(_))).count();
        let results = parts().filter(|part| matches!(part, Part::ToolResult(_))).count();
        prop_assert_eq!(calls, results);
        let fork = restored(&session.run.fork("fork", cut));
        prop_assert_eq!(fork.view.len(), kept.len());
    }
}
