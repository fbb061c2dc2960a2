//! D6: what is only there to be found and listed says what the log says, and can be made anew from it.

use super::{Place, Writing, asking, call, commit_of, finished, message, result_of, text};
use crate::{Commit, Comparison, Memory, MemoryFilter, MemoryKind, Projection, Rebuilt, SessionFilter, Status, Store};
use agent_core::change::{CallChange, Change};
use serde_json::Value;
use std::sync::Arc;

/// A snapshot that says itself what lists show; others are not read.
fn status(snapshot: &[u8]) -> Option<Status> {
    let said: Value = serde_json::from_slice(snapshot).ok()?;
    let turn = said["turn"].as_u64().and_then(|turn| u32::try_from(turn).ok())?;
    Some(Status { state: said["state"].as_str()?.to_owned(), turn, title: None })
}

fn memory(session: &str, words: &str) -> Memory {
    Memory {
        user: "ann".to_owned(),
        kind: MemoryKind::Final,
        session: session.to_owned(),
        agent: "tester".to_owned(),
        turn: 1,
        text: words.to_owned(),
        written: None,
    }
}

/// Three sessions, of which one goes; two memories, of which one is forgotten; a call with its result.
async fn fill(store: &Arc<dyn Store>) {
    for session in ["one", "two", "gone"] {
        let mut writing = Writing::new(store, session).await;
        writing.say(&["Grüße aus Köln", "", "a walrus and a walrus"]).await;
        let record = call("c1", 1);
        let calls = vec![CallChange::Requested(record.clone()), finished("c1", "the second walrus")];
        let messages = vec![asking(4, &record), result_of(5, "c1"), message(6, text("the end"))];
        writing.commit(commit_of(Change { messages, calls, ..Change::default() })).await.expect("taken");
        writing.done().await;
    }
    store.add("m1", memory("one", "she likes owls")).await.expect("remembered");
    store.add("m2", memory("two", "she likes bats")).await.expect("remembered");
    assert_eq!(store.forget("ann", "m2").await, Ok(true));
    assert_eq!(store.search_messages("walrus", 9).await.expect("found").len(), 6);
    store.delete("gone").await.expect("it goes");
}

/// What can be found and listed.
async fn found(store: &Arc<dyn Store>) -> String {
    let messages = store.search_messages("walrus", 9).await.expect("found");
    let memories = store.search(&MemoryFilter::of_user("ann"), "owls", 9).await.expect("found");
    let sessions = store.sessions(SessionFilter::default(), 9).await.expect("listed");
    assert_eq!((messages.len(), memories.len(), sessions.len()), (4, 1, 2));
    format!("{messages:?} {memories:?} {sessions:?}")
}

fn equal(projection: Projection, compared: u64) -> Comparison {
    Comparison { projection, compared, pending: 0, different: 0, examples: Vec::new() }
}

pub(super) async fn they_say_what_the_log_says(place: Place) {
    let store = &place.store;
    fill(store).await;
    let expected =
        [equal(Projection::MessageWords, 12), equal(Projection::MemoryWords, 1), equal(Projection::Sessions, 2)];
    assert_eq!(store.check_projections(status).await.expect("compared"), expected);
    let before = found(store).await;
    let rebuilt = store.rebuild_projections(status).await.expect("made anew");
    let made = expected.iter().map(|of| Rebuilt { projection: of.projection, made_from: of.compared });
    assert_eq!(rebuilt, made.collect::<Vec<_>>());
    assert_eq!(store.check_projections(status).await.expect("compared"), expected);
    assert_eq!(found(store).await, before);
    // It goes on from there.
    let mut writing = Writing::new(store, "one").await;
    writing.say(&["one more walrus"]).await;
    writing.done().await;
    assert_eq!(store.search_messages("walrus", 9).await.expect("found").len(), 5);
    store.delete("one").await.expect("it goes");
    assert_eq!(store.search_messages("walrus", 9).await.expect("found").len(), 2);
    let compared = store.check_projections(status).await.expect("compared");
    assert!(compared.iter().all(|of| of.different == 0), "{compared:?}");
}

pub(super) async fn what_has_not_been_taken_in_is_no_difference(place: Place) {
    let mut writing = Writing::new(&place.store, "one").await;
    writing.say(&["nobody has searched yet"]).await;
    let compared = place.store.check_projections(status).await.expect("compared");
    assert!(compared.iter().all(|of| of.different == 0), "{compared:?}");
    assert_eq!(compared[0].compared + compared[0].pending, 1, "{compared:?}");
    place.store.rebuild_projections(status).await.expect("made anew, whoever has it open");
    writing.say(&["and more"]).await;
    assert_eq!(place.store.search_messages("more", 9).await.expect("found").len(), 1);
}

pub(super) async fn lists_follow_the_snapshot(place: Place) {
    let store = &place.store;
    let snapshot = |text: &str, state: &str| Commit {
        snapshot: text.as_bytes().to_vec(),
        status: Status { state: state.to_owned(), turn: 1, title: Some("the title".to_owned()) },
        ..Commit::default()
    };
    for (session, text) in [("wrong", r#"{"state": "idle", "turn": 3}"#), ("unread", "{\"run\": 1}")] {
        let mut writing = Writing::new(store, session).await;
        writing.commit(snapshot(text, "running")).await.expect("taken");
        writing.done().await;
    }
    let compared = store.check_projections(status).await.expect("compared");
    let sessions = compared.iter().find(|of| of.projection == Projection::Sessions).expect("compared");
    assert_eq!((sessions.compared, sessions.different), (2, 1));
    assert!(sessions.examples[0].contains("session wrong says running, 1 turns"), "{sessions:?}");
    store.rebuild_projections(status).await.expect("made anew");
    let listed = store.sessions(SessionFilter::default(), 9).await.expect("listed");
    let mut listed: Vec<_> = listed.iter().map(|of| (of.subject.as_str(), of.state.as_str(), of.turns)).collect();
    listed.sort_unstable();
    assert_eq!(listed, [("unread", "running", 1), ("wrong", "idle", 3)]);
}
