//! Commits that wait at the same time share a transaction, and each commit succeeds or fails independently (D1, D2).

use agent_core::change::{Body, Change, NewMessage};
use agent_core::message::{Part, Role};
use agent_store::{
    Commit, Integrity, Lease, MessageRange, OpenMode, Options, SessionIndex, SessionLog, SessionMeta, SqliteStore,
    StoreError, Synchronous,
};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;

const SESSIONS: usize = 40;

/// The thread that runs the commits of a group is the leader. With `Full`, the writer thread is the leader. With `Off`,
/// the thread of a caller can be the leader.
const SYNCHRONOUS_MODES: [Synchronous; 2] = [Synchronous::Full, Synchronous::Off];

fn commit(text: &str) -> Commit {
    commit_with_message(1, text)
}

fn message_commit(id: u64) -> Commit {
    commit_with_message(id, "words")
}

fn commit_with_message(id: u64, text: &str) -> Commit {
    let body = Body::Parts(vec![Part::Text(text.to_owned())]);
    let messages = vec![NewMessage { id, turn: 1, role: Role::User, body, tokens: 1 }];
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

/// D2: while the file is locked, all commits wait. After the file is unlocked, at most two transactions store the
/// commits, and only the invalid commits fail. The test uses one thread, so that all commits are queued before the
/// lock is released.
#[tokio::test(flavor = "current_thread")]
async fn waiting_commits_share_a_transaction() {
    for synchronous in SYNCHRONOUS_MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = Arc::new(SqliteStore::open(&path, Options { synchronous, ..Options::default() }).unwrap());
        let leases = leases(&store).await;
        let before = store.stats();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();

        let mut waiting = Vec::new();
        for (number, lease) in leases.into_iter().enumerate() {
            let store = store.clone();
            // Every fourth commit expects a revision that the session does not have.
            let expected = u64::from(number % 4 == 3);
            waiting.push(tokio::spawn(async move { store.commit(&lease, expected, commit("words")).await }));
        }
        for _ in 0..SESSIONS {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.stats(), before, "no commit is acknowledged before its transaction is committed");
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
}

/// Limit 28: while another process holds the lock, a commit waits without blocking the executor, even with one thread.
#[tokio::test(flavor = "current_thread")]
async fn locked_file_does_not_block_the_executor() {
    for synchronous in SYNCHRONOUS_MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = Arc::new(SqliteStore::open(&path, Options { synchronous, ..Options::default() }).unwrap());
        let lease = leases(&store).await.swap_remove(0);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let committing = tokio::spawn(async move { store.commit(&lease, 0, commit("words")).await });
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!committing.is_finished());
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(committing.await.unwrap(), Ok(1), "{synchronous:?}");
    }
}

/// Limits 10 and 32: a commit whose future is dropped is stored completely or not at all, and other sessions are not
/// affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn abandoned_commits_are_complete_or_absent() {
    for synchronous in SYNCHRONOUS_MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = Arc::new(SqliteStore::open(&path, Options { synchronous, ..Options::default() }).unwrap());
        let mut sessions = tokio::task::JoinSet::new();
        for lease in leases(&store).await {
            sessions.spawn(abandon_every_other_commit(store.clone(), lease));
        }
        while let Some(session) = sessions.join_next().await {
            let (session, revision) = session.unwrap();
            let all_messages = MessageRange::After { id: 0, limit: 1_000 };
            assert_eq!(store.messages(&session, all_messages).await.unwrap().len() as u64, revision, "{session}");
        }
        assert_eq!(store.integrity_check().await, Ok(()));
    }
}

/// Commits one message per revision, and drops the future of every second commit after a few polls. Returns the session
/// and its last revision.
async fn abandon_every_other_commit(store: Arc<SqliteStore>, lease: Lease) -> (String, u64) {
    let mut revision = 0;
    for round in 0..60 {
        let message = message_commit(revision + 1);
        let committed = tokio::select! {
            biased;
            committed = store.commit(&lease, revision, message) => committed,
            () = yield_times(round % 8), if round % 2 == 0 => continue,
        };
        match committed {
            Ok(next) => revision = next,
            // The previous commit was stored although its future was dropped.
            Err(StoreError::Conflict { found, .. }) if found == revision + 1 => revision = found,
            Err(error) => panic!("{error}"),
        }
    }
    let last = store.commit(&lease, revision, message_commit(revision + 1)).await;
    match last {
        Ok(next) => (lease.session, next),
        Err(StoreError::Conflict { found, .. }) => (lease.session, found),
        Err(error) => panic!("{error}"),
    }
}

async fn yield_times(number: usize) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}

/// D6: the writer thread updates the search index after commits, even if the index was up to date before.
#[tokio::test]
async fn idle_writer_updates_the_index() {
    let store = SqliteStore::open_in_memory().unwrap();
    let lease = store.open("s", OpenMode::CreateNew, SessionMeta::default()).await.unwrap().lease;
    for number in 1..=2 {
        store.commit(&lease, number - 1, message_commit(number)).await.unwrap();
        let indexed = async {
            while store.stats().index_transactions < number {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), indexed).await.expect("the thread updates the index");
        assert_eq!(store.search_messages("words", 10).await.unwrap().len() as u64, number);
        // After this time, the writer thread has found that there are no more messages to index.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
}

/// D2: when a store is dropped, the commits that are still queued are stored first.
#[tokio::test]
async fn dropping_a_store_stores_its_queued_commits() {
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
