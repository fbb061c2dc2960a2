//! D3, I9: sessions that can continue without an answer from outside are found.

use super::{TestStore, event, meta};
use crate::{
    Commit, ContinuableSession, ContinuationReason, OpenMode, OpenedSession, SessionMeta, SessionState, Status, Store,
};
use agent_core::change::Change;
use agent_core::event::EventKind;
use std::sync::Arc;

/// Opens a session and commits this state. The lease stays with the caller.
async fn open_in_state(
    store: &Arc<dyn Store>,
    session: &str,
    (state, continues_at): (SessionState, Option<u64>),
    meta: SessionMeta,
) -> OpenedSession {
    let opened = store.open(session, OpenMode::Either, meta).await.expect("the session opens");
    let status = Status { state, turn: 1, continues_at, ..Status::default() };
    let commit = Commit { status, ..Commit::default() };
    store.commit(&opened.lease, opened.revision, commit).await.expect("the commit succeeds");
    opened
}

/// Commits this state in a session, and releases the session.
async fn in_state(store: &Arc<dyn Store>, session: &str, state: (SessionState, Option<u64>), meta: SessionMeta) {
    let opened = open_in_state(store, session, state, meta).await;
    store.release(opened.lease).await.expect("the lease is released");
}

async fn continuable(store: &Arc<dyn Store>, now: u64) -> Vec<(String, ContinuationReason)> {
    let found = store.continuable(&["a".to_owned()], now, "", 10).await.expect("the sessions are read");
    let described = |ContinuableSession { subject, agent, user: _, reason }| {
        assert_eq!(agent, "a");
        (subject, reason)
    };
    found.into_iter().map(described).collect()
}

fn due(subjects: &[&str]) -> Vec<(String, ContinuationReason)> {
    subjects.iter().map(|subject| ((*subject).to_owned(), ContinuationReason::Due)).collect()
}

pub(super) async fn sessions_continue_when_they_are_due(test: TestStore) {
    let store = &test.store;
    in_state(store, "1-interrupted", (SessionState::Running, Some(0)), meta("a")).await;
    in_state(store, "2-deadline", (SessionState::Suspended, Some(5_000)), meta("a")).await;
    in_state(store, "3-waiting", (SessionState::Suspended, None), meta("a")).await;
    in_state(store, "4-idle", (SessionState::Idle, None), meta("a")).await;
    in_state(store, "5-queue", (SessionState::Idle, Some(0)), meta("a")).await;
    in_state(store, "6-other", (SessionState::Running, Some(0)), meta("b")).await;
    assert_eq!(continuable(store, 4_999).await, due(&["1-interrupted", "5-queue"]));
    assert_eq!(continuable(store, 5_000).await, due(&["1-interrupted", "2-deadline", "5-queue"]));
    let agents = ["a".to_owned(), "b".to_owned()];
    let page = store.continuable(&agents, 5_000, "2-deadline", 1).await.expect("the sessions are read");
    assert!(page.iter().map(|session| session.subject.as_str()).eq(["5-queue"]), "{page:?}");
    assert_eq!(store.continuable(&[], 5_000, "", 10).await, Ok(Vec::new()));
    in_state(store, "2-deadline", (SessionState::Suspended, None), meta("a")).await;
    assert_eq!(continuable(store, 9_000).await, due(&["1-interrupted", "5-queue"]), "the deadline was removed");
}

/// L16: a parent continues when its child has ended, and a child is stopped when its parent was cancelled.
pub(super) async fn parents_and_children_continue_after_each_other(test: TestStore) {
    let store = &test.store;
    let child_of = |parent: &str| SessionMeta { delegated_by: Some(parent.to_owned()), ..meta("a") };
    in_state(store, "parent", (SessionState::Suspended, None), meta("a")).await;
    in_state(store, "child", (SessionState::Suspended, None), child_of("parent")).await;
    assert_eq!(continuable(store, 1).await, []);
    in_state(store, "child", (SessionState::Idle, None), child_of("parent")).await;
    assert_eq!(continuable(store, 1).await, [("parent".to_owned(), ContinuationReason::ChildEnded)]);

    in_state(store, "child", (SessionState::Suspended, None), child_of("parent")).await;
    in_state(store, "parent", (SessionState::Cancelled, None), meta("a")).await;
    assert_eq!(continuable(store, 1).await, [("child".to_owned(), ContinuationReason::ParentEnded)]);
    in_state(store, "child", (SessionState::Suspended, None), child_of("parent")).await;
    let still = continuable(store, 1).await;
    assert_eq!(
        still,
        [("child".to_owned(), ContinuationReason::ParentEnded)],
        "a later commit of the child changes nothing"
    );
    // A user has begun another turn in the child's session.
    let opened = store.open("child", OpenMode::Existing, meta("a")).await.expect("the session opens");
    let status = Status { state: SessionState::Suspended, turn: 2, ..Status::default() };
    let commit = Commit { status, ..Commit::default() };
    store.commit(&opened.lease, opened.revision, commit).await.expect("the commit succeeds");
    store.release(opened.lease).await.expect("the lease is released");
    assert_eq!(continuable(store, 1).await, []);
}

/// D3: a session is continued only by the process that has it open.
pub(super) async fn open_sessions_are_not_continued(test: TestStore) {
    let opened = open_in_state(&test.store, "s", (SessionState::Running, Some(0)), meta("a")).await;
    for store in [Some(&test.store), test.second.as_ref()].into_iter().flatten() {
        assert_eq!(continuable(store, 1).await, []);
    }
    test.store.release(opened.lease).await.expect("the lease is released");
    for store in [Some(&test.store), test.second.as_ref()].into_iter().flatten() {
        assert_eq!(continuable(store, 1).await, due(&["s"]));
    }
}

pub(super) async fn last_events_are_read_for_many_sessions(test: TestStore) {
    let store = &test.store;
    for (session, count) in [("one", 2), ("none", 0)] {
        let opened = store.open(session, OpenMode::CreateNew, meta("a")).await.expect("the session opens");
        let events = (1..=count).map(|number| event(session, number, EventKind::Resumed)).collect();
        let commit = Commit { change: Change { events, ..Change::default() }, ..Commit::default() };
        store.commit(&opened.lease, 0, commit).await.expect("the commit succeeds");
    }
    let asked = ["one", "none", "missing"].map(str::to_owned);
    let mut found = store.last_events(&asked).await.expect("the events are counted");
    found.sort();
    assert_eq!(found, [("none".to_owned(), 0), ("one".to_owned(), 2)]);
}
