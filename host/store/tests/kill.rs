//! If a process is killed at any moment, no acknowledged commit is lost, and another process can open the session
//! without waiting (D3, limits 27 and 32). The test starts its own executable as a child process, and kills this
//! child process.

use agent_core::approval::LastingGrant;
use agent_core::change::{Body, Change, NewMessage, OutboxEffect, OutboxItem};
use agent_core::event::{Event, EventKind};
use agent_core::message::{Digest, Part, Role};
use agent_store::{
    Commit, Integrity, MessageRange, OpenMode, Options, Outbox, OutboxFilter, SessionIndex, SessionLog, SessionMeta,
    SqliteStore, StoreError,
};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DATABASE_VARIABLE: &str = "AGENT_STORE_TEST_DATABASE";
const ROUNDS: usize = 25;

/// Runs in the process that is killed. Commits until the process is killed, and prints each acknowledged revision.
async fn commit_until_killed(path: String) {
    let store = SqliteStore::open(path, Options::default()).unwrap();
    let opened = store.open("s", OpenMode::Either, SessionMeta::default()).await.unwrap();
    let mut revision = opened.revision;
    let mut output = std::io::stdout();
    loop {
        revision = store.commit(&opened.lease, revision, commit(revision + 1)).await.unwrap();
        writeln!(output, "\nrevision {revision}").unwrap();
        output.flush().unwrap();
    }
}

/// Returns a commit whose message, event, outbox item and snapshot all contain the new revision.
fn commit(revision: u64) -> Commit {
    let body = Body::Parts(vec![Part::Text(format!("message {revision}"))]);
    let messages = vec![NewMessage { id: revision, turn: 1, role: Role::User, body, tokens: 1 }];
    let kind = EventKind::StreamComplete {
        text: format!("{revision}"),
        model: "none".to_owned(),
        usage: Default::default(),
        saved_tokens: 0,
    };
    let events = vec![Event { session: "s".to_owned(), turn: 1, sequence: revision, provisional: None, kind }];
    let (agent, tool, digest) = ("a".to_owned(), "t".to_owned(), Digest::from_sha256([1; 32]));
    let effect = OutboxEffect::Allow(LastingGrant { agent, tool, digest, arguments: None, scope: None });
    let outbox = vec![OutboxItem { id: revision.to_string(), effect }];
    let change = Change { messages, events, outbox, ..Change::default() };
    Commit { snapshot: revision.to_string().into_bytes(), change, ..Commit::default() }
}

/// A child process that is killed when this value is dropped, even if the test fails.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Ignore errors, because the process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(database: &Path) -> KilledOnDrop {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["commits_survive_a_kill_and_the_lease_is_released", "--exact", "--nocapture"])
        .env(DATABASE_VARIABLE, database)
        .stdout(Stdio::piped())
        .spawn();
    KilledOnDrop(child.unwrap())
}

fn revision_in(line: &str) -> Option<u64> {
    line.strip_prefix("revision ")?.parse().ok()
}

#[tokio::test]
async fn commits_survive_a_kill_and_the_lease_is_released() {
    if let Ok(path) = std::env::var(DATABASE_VARIABLE) {
        return commit_until_killed(path).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    let mut last_revision = 0;
    for round in 0..ROUNDS {
        let mut child = start(&database);
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let acknowledged = (0..round * 7 % 23 + 1).filter_map(|_| lines.find_map(|line| revision_in(&line))).last();
        if round == 0 {
            check_session_is_busy(&database, &child.0).await;
        }
        drop(child);
        // Read the remaining revisions that the process printed before it was killed.
        last_revision = lines.filter_map(|line| revision_in(&line)).last().or(acknowledged).unwrap();
        check_database(&database, last_revision).await;
    }
    assert!(last_revision > ROUNDS as u64, "{last_revision}");
}

async fn check_session_is_busy(database: &Path, child: &Child) {
    let store = SqliteStore::open(database, Options::default()).unwrap();
    let Err(StoreError::Busy { session, holder }) = store.open("s", OpenMode::Existing, SessionMeta::default()).await
    else {
        panic!("the session is open in another process");
    };
    assert_eq!((session.as_str(), holder.process_id()), ("s", Some(child.id())));
    assert!(!holder.is_this_process());
}

async fn check_database(database: &Path, acknowledged: u64) {
    let store = SqliteStore::open(database, Options::default()).unwrap();
    assert_eq!(store.integrity_check().await, Ok(()));
    let opened =
        store.open("s", OpenMode::Existing, SessionMeta::default()).await.expect("a dead process holds no lease");
    let revision = opened.revision;
    assert!(revision == acknowledged || revision == acknowledged + 1, "acknowledged {acknowledged}, found {revision}");
    assert_eq!(opened.snapshot, Some(revision.to_string().into_bytes()));
    assert_eq!((opened.last_message, opened.last_event), (revision, revision));
    let messages = store.messages("s", MessageRange::After { id: 0, limit: 10_000 }).await.unwrap();
    let events = store.events("s", 0, 10_000).await.unwrap();
    let outbox = store.outbox(Some("s"), OutboxFilter::Pending, 0, 10_000).await.unwrap();
    assert_eq!([messages.len(), events.len(), outbox.len()], [revision as usize; 3]);
    store.release(opened.lease).await.unwrap();
}

const LOCKED_DATABASE_VARIABLE: &str = "AGENT_STORE_TEST_LOCKED";

/// Row 28: the error contains the id and the name of the process that has the write lock, and reports that the process
/// is stopped.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn row_28_error_names_the_stopped_process_that_holds_the_lock() {
    if let Ok(path) = std::env::var(LOCKED_DATABASE_VARIABLE) {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        writeln!(std::io::stdout(), "\nheld").unwrap();
        loop {
            std::thread::park();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    let wait = std::time::Duration::from_millis(20);
    let options = Options { lock_wait: wait, max_wait: wait, ..Options::default() };
    let store = SqliteStore::open(&database, options).unwrap();
    let opened = store.open("s", OpenMode::Either, SessionMeta::default()).await.unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["row_28_error_names_the_stopped_process_that_holds_the_lock", "--exact", "--nocapture"])
        .env(LOCKED_DATABASE_VARIABLE, &database)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = KilledOnDrop(child.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "held"));
    let process = child.0.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &process]).status().unwrap().success());
    let stopped = || std::fs::read_to_string(format!("/proc/{process}/status")).unwrap().contains("(stopped)");
    while !stopped() {
        std::thread::sleep(wait);
    }
    let refused = store.commit(&opened.lease, opened.revision, commit(1)).await.unwrap_err().to_string();
    let expected = format!("is locked by another process ({process}, `");
    assert!(refused.contains(&expected) && refused.contains(", which is stopped): try again"), "{refused}");
    // Reading does not need the write lock.
    assert_eq!(store.sessions(Default::default(), 9).await.unwrap().len(), 1);
    drop(child);
    store.commit(&opened.lease, opened.revision, commit(1)).await.expect("a dead process holds no lock");
}
