//! O2: what operators watch of a store.

use super::{SessionWriter, TestStore, commit_of};
use crate::{COMMIT_DURATION_BOUNDS, Commit, OutboxFilter, SessionCount, SessionState, Status, Undelivered};
use agent_core::approval::LastingGrant;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::message::Digest;
use std::time::Duration;

pub(super) async fn sessions_are_counted_by_agent_and_state(test: TestStore) {
    let store = &test.store;
    for (subject, state) in
        [("one", SessionState::Running), ("two", SessionState::Running), ("three", SessionState::Failed)]
    {
        let mut writer = SessionWriter::new(store, subject).await;
        let status = Status { state, turn: 1, ..Status::default() };
        writer.commit(Commit { status, ..commit_of(Change::default()) }).await.expect("the commit is accepted");
    }
    let agent = store.sessions(crate::SessionFilter::default(), 1).await.expect("a list")[0].agent.clone();
    let count = |state, sessions| SessionCount { agent: agent.clone(), state, sessions };
    let counts = store.session_counts().await.expect("the sessions are counted");
    assert_eq!(counts, [count(SessionState::Failed, 1), count(SessionState::Running, 2)]);
}

pub(super) async fn undelivered_items_are_counted(test: TestStore) {
    let store = &test.store;
    assert_eq!(store.undelivered().await.expect("a count"), Undelivered::default());
    let mut writer = SessionWriter::new(store, "s").await;
    let grant = |id: &str| OutboxItem {
        id: id.to_owned(),
        effect: OutboxEffect::Allow(LastingGrant {
            agent: "a".to_owned(),
            tool: "files.write".to_owned(),
            digest: Digest::from_sha256([1; 32]),
            arguments: None,
            scope: None,
        }),
    };
    let outbox = vec![grant("first"), grant("second")];
    writer.commit(commit_of(Change { outbox, ..Change::default() })).await.expect("the commit is accepted");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let undelivered = store.undelivered().await.expect("a count");
    assert_eq!(undelivered.items, 2);
    assert!(undelivered.oldest >= Duration::from_millis(20), "{undelivered:?}");
    for item in store.outbox(None, OutboxFilter::Pending, 0, 10).await.expect("a list") {
        store.mark_delivered(item.number).await.expect("the item is marked");
    }
    assert_eq!(store.undelivered().await.expect("a count"), Undelivered::default());
}

pub(super) async fn writes_are_counted(test: TestStore) {
    let store = &test.store;
    let before = store.write_statistics();
    let mut writer = SessionWriter::new(store, "s").await;
    for _ in 0..3 {
        writer.commit(commit_of(Change::default())).await.expect("the commit is accepted");
    }
    let after = store.write_statistics();
    assert_eq!(after.commits - before.commits, 3);
    assert!(after.transactions >= before.transactions + 3, "{after:?}");
    assert_eq!(after.durations.len(), COMMIT_DURATION_BOUNDS.len());
    assert!(after.durations.is_sorted() && after.total > before.total, "{after:?}");
    assert!(*after.durations.last().expect("a bound") <= after.transactions, "{after:?}");
}
