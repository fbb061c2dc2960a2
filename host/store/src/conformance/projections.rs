//! D6: search indexes and session lists match the log and can be rebuilt from it.

use super::{
    SessionWriter, TestStore, call, call_message, commit_of, finished_change, message, result_message, text_parts,
};
use crate::{
    Commit, Memory, MemoryFilter, MemoryKind, Projection, ProjectionComparison, RebuiltProjection, SessionFilter,
    SessionState, Status, Store,
};
use agent_core::change::{CallChange, Change};
use serde_json::Value;
use std::sync::Arc;

/// Reads the status from a snapshot that these tests have written. Returns `None` for all other snapshots.
fn status(snapshot: &[u8]) -> Option<Status> {
    let json: Value = serde_json::from_slice(snapshot).ok()?;
    let turn = json["turn"].as_u64().and_then(|turn| u32::try_from(turn).ok())?;
    Some(Status { state: SessionState::parse(json["state"].as_str()?)?, turn, title: None, ..Status::default() })
}

fn memory(session: &str, words: &str) -> Memory {
    Memory {
        user: "ann".to_owned(),
        kind: MemoryKind::Final,
        session: session.to_owned(),
        agent: "tester".to_owned(),
        turn: 1,
        text: words.to_owned(),
        project: None,
        written: None,
    }
}

/// Creates three sessions, each with a call that has a result, and deletes one of the sessions. Adds two memories and
/// removes one of them.
async fn create_test_data(store: &Arc<dyn Store>) {
    for session in ["one", "two", "gone"] {
        let mut writer = SessionWriter::new(store, session).await;
        writer.append_texts(&["Grüße aus Köln", "", "a walrus and a walrus"]).await;
        let record = call("c1", 1);
        let calls = vec![CallChange::Requested(record.clone()), finished_change("c1", "the second walrus")];
        let messages = vec![call_message(4, &record), result_message(5, "c1"), message(6, text_parts("the end"))];
        writer.commit(commit_of(Change { messages, calls, ..Change::default() })).await.expect("the commit succeeds");
        writer.release().await;
    }
    store.add("m1", memory("one", "she likes owls")).await.expect("the memory is stored");
    store.add("m2", memory("two", "she likes bats")).await.expect("the memory is stored");
    assert_eq!(store.forget("ann", "m2").await, Ok(true));
    assert_eq!(store.search_messages("walrus", 9).await.expect("the search succeeds").len(), 6);
    store.delete("gone").await.expect("the session is deleted");
}

/// Returns the results of two searches and a session list as one string, which a test compares with a later string.
async fn search_results(store: &Arc<dyn Store>) -> String {
    let messages = store.search_messages("walrus", 9).await.expect("the search succeeds");
    let memories = store.search(&MemoryFilter::of_user("ann"), "owls", 9).await.expect("the search succeeds");
    let sessions = store.sessions(SessionFilter::default(), 9).await.expect("the list is read");
    assert_eq!((messages.len(), memories.len(), sessions.len()), (4, 1, 2));
    format!("{messages:?} {memories:?} {sessions:?}")
}

fn no_differences(projection: Projection, compared: u64) -> ProjectionComparison {
    ProjectionComparison { projection, compared, pending: 0, different: 0, examples: Vec::new() }
}

pub(super) async fn projections_match_the_log(test: TestStore) {
    let store = &test.store;
    create_test_data(store).await;
    let expected = [
        no_differences(Projection::MessageWords, 12),
        no_differences(Projection::MemoryWords, 1),
        no_differences(Projection::Sessions, 2),
        no_differences(Projection::Usage, 0),
    ];
    assert_eq!(store.check_projections(status).await.expect("the check succeeds"), expected);
    let before = search_results(store).await;
    let rebuilt = store.rebuild_projections(status).await.expect("the rebuild succeeds");
    let expected_rebuild = expected
        .iter()
        .map(|checked| RebuiltProjection { projection: checked.projection, made_from: checked.compared });
    assert_eq!(rebuilt, expected_rebuild.collect::<Vec<_>>());
    assert_eq!(store.check_projections(status).await.expect("the check succeeds"), expected);
    assert_eq!(search_results(store).await, before);
    // After a rebuild, new messages are added to the index.
    let mut writer = SessionWriter::new(store, "one").await;
    writer.append_texts(&["one more walrus"]).await;
    writer.release().await;
    assert_eq!(store.search_messages("walrus", 9).await.expect("the search succeeds").len(), 5);
    store.delete("one").await.expect("the session is deleted");
    assert_eq!(store.search_messages("walrus", 9).await.expect("the search succeeds").len(), 2);
    let compared = store.check_projections(status).await.expect("the check succeeds");
    assert!(compared.iter().all(|checked| checked.different == 0), "{compared:?}");
}

pub(super) async fn pending_messages_do_not_count_as_differences(test: TestStore) {
    let mut writer = SessionWriter::new(&test.store, "one").await;
    writer.append_texts(&["no search has updated the index yet"]).await;
    let compared = test.store.check_projections(status).await.expect("the check succeeds");
    assert!(compared.iter().all(|checked| checked.different == 0), "{compared:?}");
    assert_eq!(compared[0].compared + compared[0].pending, 1, "{compared:?}");
    test.store.rebuild_projections(status).await.expect("the rebuild succeeds while a session is open");
    writer.append_texts(&["and more"]).await;
    assert_eq!(test.store.search_messages("more", 9).await.expect("the search succeeds").len(), 1);
}

pub(super) async fn rebuild_takes_the_status_from_the_snapshot(test: TestStore) {
    let store = &test.store;
    let snapshot = |text: &str, state| Commit {
        snapshot: text.as_bytes().to_vec(),
        status: Status { state, turn: 1, title: Some("the title".to_owned()), ..Status::default() },
        ..Commit::default()
    };
    for (session, text) in [("wrong", r#"{"state": "idle", "turn": 3}"#), ("unread", "{\"run\": 1}")] {
        let mut writer = SessionWriter::new(store, session).await;
        writer.commit(snapshot(text, SessionState::Running)).await.expect("the commit succeeds");
        writer.release().await;
    }
    let compared = store.check_projections(status).await.expect("the check succeeds");
    let sessions =
        compared.iter().find(|checked| checked.projection == Projection::Sessions).expect("sessions are checked");
    assert_eq!((sessions.compared, sessions.different), (2, 1));
    assert!(sessions.examples[0].contains("session wrong: stored running, 1 turns"), "{sessions:?}");
    store.rebuild_projections(status).await.expect("the rebuild succeeds");
    let listed = store.sessions(SessionFilter::default(), 9).await.expect("the list is read");
    let mut listed: Vec<_> =
        listed.iter().map(|summary| (summary.subject.as_str(), summary.state.as_str(), summary.turns)).collect();
    listed.sort_unstable();
    assert_eq!(listed, [("unread", "running", 1), ("wrong", "idle", 3)]);
}
