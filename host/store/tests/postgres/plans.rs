//! The plans of all statements of a commit and of loading a session (F1): tables can be partitioned by session.

use super::clients::{database_of, open_store};
use super::server::Server;
use super::{append, open};
use agent_core::change::{CallChange, CallRecord, CallResult, CallState, HiddenMessage, HideReason, NewMessage};
use agent_core::event::{Event, EventKind};
use agent_core::message::{CallId, Role};
use agent_store::{Commit, MessageRange, SessionLog, StepRecord, StoredView, ViewPiece};
use serde_json::json;

/// The tables whose keys begin with the session.
const TABLES: [&str; 10] = [
    "sessions",
    "snapshots",
    "view_pieces",
    "messages",
    "message_words",
    "hidden",
    "calls",
    "events",
    "records",
    "blob_references",
];

/// Fills the tables, so that reading a whole table would cost more than using an index.
const FILL: &str = "
INSERT INTO sessions (session, agent, created, updated, place)
    SELECT 'other/' || n, 'a', 0, 0, nextval('session_places') FROM generate_series(1, 3000) n;
INSERT INTO snapshots SELECT session, '{}' FROM sessions;
INSERT INTO view_pieces SELECT session, n, 'x' FROM sessions, generate_series(1, 3) n;
INSERT INTO messages (session, id, turn, role, tokens, parts) SELECT session, n, 1, 'user', 1, '[]' FROM sessions, generate_series(1, 5) n;
INSERT INTO message_words SELECT session, n, 0, '{}', '{}' FROM sessions, generate_series(1, 5) n;
INSERT INTO hidden SELECT session, n, 1, 'evicted' FROM sessions, generate_series(1, 3) n;
INSERT INTO calls (session, id, turn, step, name, state, attempt, arguments)
    SELECT session, 'c' || n, n, 1, 't', 'waiting', 0, '{}' FROM sessions, generate_series(1, 3) n;
INSERT INTO events SELECT session, n, 1, 0, '{}' FROM sessions, generate_series(1, 5) n;
INSERT INTO records (session, turn, step, kind, time, body) SELECT session, n, 1, 'k', 0, '{}' FROM sessions, generate_series(1, 5) n;
INSERT INTO blob_references (session, digest) SELECT session, sha256(n::text::bytea) FROM sessions, generate_series(1, 3) n;
ANALYZE;
";

/// A commit that writes rows of every kind.
fn full_commit() -> Commit {
    let call = CallRecord {
        id: CallId("new".to_owned()),
        turn: 1,
        step: 1,
        name: "t".to_owned(),
        source: None,
        arguments: json!({}),
        edited: None,
        state: CallState::Waiting,
        attempt: 0,
        result: None,
    };
    let mut commit = append(1, "some words");
    let result = CallChange::Finished { id: call.id.clone(), result: CallResult::default() };
    commit.change.calls = vec![CallChange::Requested(call), result];
    let body = agent_core::change::Body::ResultOf(CallId("new".to_owned()));
    commit.change.messages.push(NewMessage { id: 2, turn: 1, role: Role::Tool, body, tokens: 1 });
    commit.change.hidden = vec![HiddenMessage { id: 1, seen_count: 1, why: HideReason::Evicted }];
    commit.change.events =
        vec![Event { session: "s".to_owned(), turn: 1, sequence: 1, provisional: None, kind: EventKind::Resumed }];
    commit.records = vec![StepRecord { turn: 1, step: 1, kind: "k".to_owned(), body: json!(1) }];
    commit.texts = vec!["a text".to_owned()];
    commit.view = StoredView::Changed(vec![
        ViewPiece { number: 1, items: b"1".to_vec() },
        ViewPiece { number: 2, items: Vec::new() },
    ]);
    commit
}

#[tokio::test(flavor = "multi_thread")]
async fn f1_statements_of_a_session_use_keys_that_begin_with_the_session() {
    let explain = [
        "session_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
        "auto_explain.log_timing=off",
    ];
    let Some(server) = Server::start(&explain) else { return };
    let address = server.new_database().await;
    let store = open_store(&address).await.unwrap();
    server.execute(database_of(&address), FILL).await;
    // The store prepares its statements again with the new statistics.
    drop(store);
    let store = open_store(&address).await.unwrap();
    let before = log(&server).len();
    let opened = open(&store, "s").await;
    store.commit(&opened.lease, 0, full_commit()).await.unwrap();
    store.release(opened.lease).await.unwrap();
    let opened = open(&store, "s").await;
    assert_eq!((opened.revision, opened.last_message), (1, 2));
    store.messages("s", MessageRange::After { id: 0, limit: 10 }).await.unwrap();
    store.events("s", 0, 10).await.unwrap();

    let log = log(&server)[before..].to_owned();
    let (mut indexes, mut written) = (Vec::new(), Vec::new());
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    for (number, line) in lines.iter().enumerate() {
        let node = line.trim_start_matches("->").trim();
        if let Some(table) = TABLES.iter().find(|table| node.starts_with(&format!("Insert on {table} "))) {
            written.push(*table);
        }
        let Some((scan, table)) = scan_of(node) else { continue };
        assert!(scan.starts_with("Index"), "{table} is read as a whole:\n{log}");
        let index = node.split(" using ").nth(1).or(node.split(" on ").nth(1)).unwrap().split(' ').next().unwrap();
        let condition = lines[number + 1..].iter().find(|line| line.starts_with("Index Cond:"));
        let condition = condition.unwrap_or_else(|| panic!("no condition: {log}"));
        assert!(condition.contains("session = "), "{index} is used without the session: {condition}\n{log}");
        assert_eq!(index, format!("{table}_pkey"), "another index than the primary key is used:\n{log}");
        indexes.push(index.to_owned());
    }
    for table in TABLES.iter().filter(|table| **table != "sessions") {
        assert!(written.contains(table), "the commit has written no row of {table}: {written:?}");
    }
    for table in ["sessions", "snapshots", "view_pieces", "messages", "calls", "events"] {
        assert!(indexes.contains(&format!("{table}_pkey")), "{table} was not read: {indexes:?}\n{log}");
    }
}

/// Returns the kind of a scan and its table, if the table is one of [`TABLES`].
fn scan_of(node: &str) -> Option<(&str, &'static str)> {
    let (scan, rest) = node.split_once(" on ")?;
    if !scan.contains("Scan") {
        return None;
    }
    let target = rest.split(' ').next()?;
    // A bitmap scan names the index here. Its heap scan names the table.
    let table = TABLES.iter().find(|table| target == **table || target == format!("{table}_pkey"))?;
    (!scan.starts_with("Bitmap Heap")).then_some((scan.trim_start_matches("Bitmap "), *table))
}

fn log(server: &Server) -> String {
    std::fs::read_to_string(server.folder.join("log")).unwrap()
}
