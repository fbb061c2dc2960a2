//! D1: a file of any earlier version is migrated to the current version with all of its data.

use super::{APPLICATION_ID, INITIAL_SCHEMA};
use crate::{
    Approvals, Audit, CallFilter, Commit, Integrity, Lease, MemoryFilter, MemoryKind, MessageRange, OpenMode, Options,
    Outbox, OutboxFilter, PluginVersions, RecordRange, SessionFilter, SessionIndex, SessionLog, SessionMeta,
    SqliteStore, VersionFilter,
};
use crate::{Bucket, ENTRY_BYTES, KeyValue, Memories, StoreError, digest_of};
use agent_core::change::{CallChange, CallState, Change, HiddenMessage, HideReason};
use agent_core::message::{CallId, Part, Role};
use rusqlite::Connection;
use serde_json::json;
use std::path::Path;

/// Writes a database file with the first version of the schema. The file contains a session with an open call, a text
/// and a memory.
fn write_first_version(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.execute_batch(INITIAL_SCHEMA).unwrap();
    connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    let text = "a prompt";
    let digest: String = digest_of(text.as_bytes()).hex().to_owned();
    connection
        .execute_batch(&format!(
            r#"
INSERT INTO sessions VALUES (7, 'agent/1', 'agent', 'ann', 1000000, 2000000, 3, 2, NULL, 3, 1, 1, 'running', 'How?');
INSERT INTO snapshots VALUES (7, CAST('{{"version":1}}' AS BLOB));
INSERT INTO calls VALUES (1, 7, 'call_1_1_1', 1, 1, 'files.read', 'finished', 1, '"built_in"', '{{"path":"a"}}',
    '{{"content":[{{"text":"the walrus"}}],"is_error":false}}');
INSERT INTO calls VALUES (2, 7, 'call_1_2_1', 1, 2, 'files.write', 'started', 1, NULL, '[1]', NULL);
INSERT INTO messages VALUES (1, 7, 1, 1, 'user', 5, NULL, '[{{"text":"How?"}}]');
INSERT INTO messages VALUES (2, 7, 2, 1, 'assistant', 5, NULL, '[{{"text":"So."}}]');
INSERT INTO messages VALUES (3, 7, 3, 1, 'tool', 9, 'call_1_1_1', NULL);
INSERT INTO hidden VALUES (7, 2, 4);
INSERT INTO events VALUES (7, 1, 1, 1500000, '{{"type":"resumed"}}');
INSERT INTO records VALUES (1, 7, 1, 1, 'prompt', 1500000, '{{"system":["x"]}}');
INSERT INTO blobs VALUES (1, x'{digest}', 8, CAST('{text}' AS BLOB));
INSERT INTO blob_references VALUES (7, 1, NULL, NULL, NULL, NULL);
INSERT INTO memories VALUES (1, 'agent/1/1/final', 'ann', 'final', 'agent/1', 'a walrus', 1500000);
INSERT INTO memory_words (rowid, text) VALUES (1, 'a walrus');
INSERT INTO key_values VALUES (1, 'agent', 'notes', '', 'k', zeroblob(900));
"#
        ))
        .unwrap();
}

async fn check_migrated_data(store: &SqliteStore) -> Lease {
    assert_eq!(store.integrity_check().await, Ok(()));
    let listed = store.sessions(SessionFilter::default(), 10).await.unwrap().remove(0);
    assert_eq!((listed.subject.as_str(), listed.delegated_by, listed.revision), ("agent/1", None, 3));
    let due = store.continuable(&["agent".to_owned()], 0, "", 9).await.unwrap();
    assert_eq!(due.len(), 0, "the running turn is not pinned to an agent");
    let opened = store.open("agent/1", OpenMode::Existing, SessionMeta::default()).await.unwrap();
    let meta = SessionMeta { agent: "agent".to_owned(), user: Some("ann".to_owned()), delegated_by: None };
    assert_eq!((opened.meta, opened.revision, opened.last_message), (meta, 3, 3));
    assert_eq!(opened.snapshot.as_deref(), Some(br#"{"version":1}"#.as_slice()));
    let messages = store.messages("agent/1", MessageRange::After { id: 0, limit: 9 }).await.unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
    assert!(matches!(&messages[2].parts[0], Part::ToolResult(result) if result.name == "files.read"), "{messages:?}");
    let calls = store.calls("agent/1", CallFilter::Turn(1)).await.unwrap();
    let states: Vec<_> = calls.iter().map(|call| (call.state, call.edited.clone())).collect();
    assert_eq!(states, [(CallState::Finished, None), (CallState::Started, None)]);
    assert_eq!(
        store.hidden("agent/1", 0, 9).await.unwrap(),
        [HiddenMessage { id: 2, seen_count: 4, why: HideReason::Superseded }]
    );
    assert_eq!(store.events("agent/1", 0, 9).await.unwrap().len(), 1);
    assert_eq!(store.records("agent/1", RecordRange::Turn(1)).await.unwrap().len(), 1);
    assert_eq!(store.search_messages("walrus", 9).await.unwrap().len(), 1);
    let memory = store.list("ann", "", 9).await.unwrap().remove(0).memory;
    assert_eq!((memory.kind, memory.agent.as_str(), memory.turn), (MemoryKind::Final, "agent", 1));
    assert_eq!(store.search(&MemoryFilter::of_user("ann"), "walrus", 9).await.unwrap().len(), 1);
    assert_eq!(store.outbox(None, OutboxFilter::All, 0, 9).await.unwrap(), []);
    assert_eq!(store.allowed("agent").await.unwrap(), []);
    assert_eq!(store.audit_entries(0, 0, 9).await.unwrap(), []);
    assert_eq!(store.versions(VersionFilter::default(), 9).await.unwrap(), []);
    let bucket = |quota| Bucket { agent: "agent".into(), plugin: "notes".into(), name: String::new(), quota };
    let refused = store.set(&bucket(2 * ENTRY_BYTES + 901), "n", Vec::new()).await;
    assert!(
        matches!(refused, Err(StoreError::TooLarge { .. })),
        "existing values count towards the quota: {refused:?}"
    );
    store.set(&bucket(2 * ENTRY_BYTES + 902), "n", Vec::new()).await.unwrap();
    assert_eq!(store.unfinished("", 9).await.unwrap(), [("agent/1".to_owned(), br#"{"version":1}"#.to_vec())]);
    opened.lease
}

#[tokio::test]
async fn d1_file_of_the_first_version_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    write_first_version(&path);
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let lease = check_migrated_data(&store).await;
    let edited = CallChange::Edited { id: CallId("call_1_2_1".to_owned()), arguments: json!([2]) };
    let change = Change { calls: vec![edited], ..Change::default() };
    assert_eq!(store.commit(&lease, 3, Commit { change, ..Commit::default() }).await, Ok(4));
    drop(store);

    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let calls = store.calls("agent/1", CallFilter::Unfinished).await.unwrap();
    assert_eq!((&calls[0].arguments, &calls[0].edited), (&json!([1]), &Some(json!([2]))));
    let version = Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    assert_eq!(version, Ok(super::MIGRATIONS.len() as i64));
}

/// Limit 32: several processes may open a file of an earlier version at the same time, and only one process migrates
/// the file.
#[test]
fn d1_only_one_of_many_instances_migrates_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    write_first_version(&path);
    let opening = || {
        let path = path.clone();
        std::thread::spawn(move || SqliteStore::open(path, Options::default()).map(|_| ()))
    };
    let openings: Vec<_> = (0..8).map(|_| opening()).collect();
    for opening in openings {
        assert_eq!(opening.join().unwrap(), Ok(()));
    }
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(check_migrated_data(&store));
}

/// I9: deadlines and queued prompts of an earlier version are found in the snapshots.
#[tokio::test]
async fn i9_times_to_continue_are_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    write_first_version(&path);
    let running = json!({"turn": {"pinned": {}, "phase": "building"}});
    let waiting = json!({"turn": {"pinned": {}, "input": {"expires_at": 1}, "phase": {"working": {"calls": [
        {"state": {"outstanding": {"cause": "service", "expires_at": 9_000}}},
        {"state": {"outstanding": {"cause": "answer", "expires_at": 7_000}}},
    ]}}}});
    let queued = json!({"kept": [{"input": {"text": "And then?"}}], "turn": null});
    let connection = Connection::open(&path).unwrap();
    for (id, state, run) in [
        (6, "running", running.to_string()),
        (8, "suspended", waiting.to_string()),
        (9, "idle", queued.to_string()),
        (10, "suspended", "{".to_owned()),
    ] {
        let session = "INSERT INTO sessions SELECT ?1, 'agent/' || ?1, agent, user, created, updated, revision, epoch,
                       owner, last_message, last_event, turns, ?2, title FROM sessions WHERE id = 7";
        connection.execute(session, rusqlite::params![id, state]).unwrap();
        connection.execute("INSERT INTO snapshots VALUES (?1, ?2)", rusqlite::params![id, run.into_bytes()]).unwrap();
    }
    drop(connection);
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let due = async |now| {
        let found = store.continuable(&["agent".to_owned()], now, "", 9).await.unwrap();
        found.into_iter().map(|session| session.subject).collect::<Vec<_>>()
    };
    assert_eq!(due(6_999).await, ["agent/6", "agent/9"]);
    assert_eq!(due(7_000).await, ["agent/6", "agent/8", "agent/9"]);
}

/// O3: entries of an earlier version become a chain, and keep their content, numbers and times.
#[tokio::test]
async fn o3_existing_audit_entries_are_chained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let connection = Connection::open(&path).unwrap();
    let earlier = super::MIGRATIONS.iter().position(|migration| *migration == super::AUDIT_CHAIN).unwrap();
    for migration in &super::MIGRATIONS[..earlier] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    connection.pragma_update(None, "user_version", earlier as i64).unwrap();
    let insert = "INSERT INTO audit (time, kind, subject, body) VALUES (?1, 'refused', '/p/' || ?1, ?2)";
    for number in 1..=2_500 {
        let body = format!(r#"{{"type":"refused","directory":"/p","subject":"{number}","reason":"ä \u0000"}}"#);
        connection.execute(insert, rusqlite::params![number, body]).unwrap();
    }
    drop(connection);
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let verified = crate::verify_store(&store, None).await.unwrap();
    assert_eq!(verified.head.number, 2_500);
    let entries = store.audit_entries(0, 2_499, 9).await.unwrap();
    let (directory, subject, reason) = ("/p".to_owned(), "2500".to_owned(), "ä \0".to_owned());
    let action = crate::AuditAction::Refused { directory, subject, reason };
    assert_eq!(entries, [crate::AuditEntry { number: 2_500, time: "1970-01-01T00:00:00.0025Z".into(), action }]);
    let changed = Connection::open(&path).unwrap();
    for forbidden in ["UPDATE audit SET time = 0 WHERE number = 3", "DELETE FROM audit WHERE number = 3"] {
        assert!(changed.execute(forbidden, []).is_err(), "{forbidden}");
    }
}
