//! What waits together is committed together, and each part of it stands or falls alone (D1, D2).

use agent_core::change::{Body, Change, NewMessage};
use agent_core::message::{Part, Role};
use agent_memory::{Commit, Lease, OpenMode, Options, SessionLog, SessionMeta, SqliteStore, StoreError};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;

const SESSIONS: usize = 40;

fn commit(text: &str) -> Commit {
    let body = Body::Parts(vec![Part::Text(text.to_owned())]);
    let messages = vec![NewMessage { id: 1, turn: 1, role: Role::User, body, tokens: 1 }];
    Commit { change: Change { messages, ..Change::default() }, ..Commit::default() }
}

async fn leases(store: &SqliteStore) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..SESSIONS {
        let opened = store.open(&format!("s{number}"), OpenMode::CreateNew, SessionMeta::default()).await;
        leases.push(opened.unwrap().lease);
    }
    leases
}

/// D2: while the file is locked, all commits queue; then two transactions take them, and the wrong ones among them
/// fail alone. On one thread, so that all are queued before the lock goes.
#[tokio::test(flavor = "current_thread")]
async fn commits_that_wait_share_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let store = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
    let leases = leases(&store).await;
    let before = store.stats();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let mut waiting = Vec::new();
    for (number, lease) in leases.into_iter().enumerate() {
        let store = store.clone();
        // Every fourth is made for a revision that the session does not have.
        let expected = u64::from(number % 4 == 3);
        waiting.push(tokio::spawn(async move { store.commit(&lease, expected, commit("words")).await }));
    }
    for _ in 0..SESSIONS {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.stats(), before, "nothing is acknowledged before it is committed");
    other.execute_batch("ROLLBACK").unwrap();
    for (number, commit) in waiting.into_iter().enumerate() {
        let session = format!("s{number}");
        match (number % 4, commit.await.unwrap()) {
            (3, Err(error)) => assert_eq!(error, StoreError::Conflict { session, expected: 1, found: 0 }),
            (_, committed) => assert_eq!(committed, Ok(1), "{session}"),
        }
    }
    let stats = store.stats();
    assert_eq!(stats.commits - before.commits, SESSIONS as u64 * 3 / 4);
    assert!(stats.transactions - before.transactions <= 2, "{stats:?} after {before:?}");
    assert_eq!(store.search_messages("words", 100).await.unwrap().len(), SESSIONS * 3 / 4);
    assert_eq!(store.integrity_check().await, Ok(()));
}

/// D6: the search index is a projection that follows the commits by itself.
#[tokio::test]
async fn the_index_follows_when_nobody_waits() {
    let store = SqliteStore::open_in_memory().unwrap();
    let lease = store.open("s", OpenMode::CreateNew, SessionMeta::default()).await.unwrap().lease;
    store.commit(&lease, 0, commit("words")).await.unwrap();
    while store.stats().index_transactions == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(store.search_messages("words", 10).await.unwrap().len(), 1);
}

/// D2: what was queued when the store was dropped is written.
#[tokio::test]
async fn dropping_the_store_writes_what_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let store = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
    let lease = leases(&store).await.swap_remove(0);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let committing = store.clone();
    let task = tokio::spawn(async move { committing.commit(&lease, 0, commit("words")).await });
    tokio::task::yield_now().await;
    let closing = std::thread::spawn(move || drop(store));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(task.await.unwrap(), Ok(1));
    closing.join().unwrap();
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let opened = store.open("s0", OpenMode::Existing, SessionMeta::default()).await.unwrap();
    assert_eq!((opened.revision, opened.last_message), (1, 1));
}
