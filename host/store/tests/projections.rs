//! D6: damaged search indexes and session lists are reported and can be rebuilt from the log. A file with an unreadable
//! index is refused.

use agent_core::change::{Body, Change, NewMessage};
use agent_core::cost::TurnCost;
use agent_core::event::{EndReason, Event, EventKind};
use agent_core::message::{Part, Role};
use agent_store::{
    Commit, Indexes, Integrity, Memories, Memory, MemoryFilter, MemoryKind, OpenMode, Options, Projection,
    ProjectionComparison, Projections, SessionIndex, SessionLog, SessionMeta, SqliteStore, Status, StoreError,
};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

fn no_status(_: &[u8]) -> Option<Status> {
    None
}

/// Creates a file with three indexed messages, two indexed memories, and one turn that has ended.
async fn create_database(folder: &Path) -> PathBuf {
    let path = std::fs::canonicalize(folder).unwrap().join("agent.db");
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let lease = store.open("s/1", OpenMode::CreateNew, SessionMeta::default()).await.unwrap().lease;
    let texts = ["a walrus", "an owl", "a bat"];
    let messages = (1..).zip(texts).map(|(id, text)| NewMessage {
        id,
        turn: 1,
        role: Role::User,
        body: Body::Parts(vec![Part::Text(text.to_owned())]),
        tokens: 3,
    });
    let kind =
        EventKind::LoopEnd { reason: EndReason::Answered, cost: Some(TurnCost { turn: 1, ..TurnCost::default() }) };
    let event = Event { session: "s/1".to_owned(), turn: 1, sequence: 1, provisional: None, kind };
    let change = Change { messages: messages.collect(), events: vec![event], ..Change::default() };
    store.commit(&lease, 0, Commit { change, ..Commit::default() }).await.unwrap();
    for (id, text) in [("m1", "likes owls"), ("m2", "likes bats")] {
        let memory = Memory {
            user: "ann".into(),
            kind: MemoryKind::Final,
            session: "s/1".into(),
            agent: "a".into(),
            turn: 1,
            text: text.into(),
            project: None,
            written: None,
        };
        store.add(id, memory).await.unwrap();
    }
    assert_eq!(store.search_messages("walrus", 9).await.unwrap().len(), 1);
    path
}

fn damage(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

async fn compare_projections(path: &Path) -> Vec<ProjectionComparison> {
    SqliteStore::open(path, Options::default()).unwrap().check_projections(no_status).await.unwrap()
}

async fn rebuild(path: &Path) {
    let options = Options { indexes: Indexes::ToBeRebuilt, ..Options::default() };
    let store = SqliteStore::open(path, options).unwrap();
    let rebuilt = store.rebuild_projections(no_status).await.unwrap();
    let counts: Vec<_> = rebuilt.iter().map(|projection| projection.made_from).collect();
    assert_eq!(counts, [3, 2, 1, 1]);
}

#[tokio::test]
async fn d6_damaged_projections_are_reported_and_rebuilt() {
    let cases = [
        ("DELETE FROM message_words WHERE rowid = 2", Projection::MessageWords, "message 2 of session s/1"),
        (
            "INSERT INTO message_words (rowid, text) VALUES (9, 'ghosts')",
            Projection::MessageWords,
            "the index contains unexpected words for row 9",
        ),
        (
            "DELETE FROM message_words WHERE rowid = 1; INSERT INTO message_words (rowid, text) VALUES (1, 'walrus a')",
            Projection::MessageWords,
            "message 1 of session s/1",
        ),
        ("DELETE FROM memory_words WHERE rowid = 1", Projection::MemoryWords, "memory m1"),
        ("UPDATE sessions SET last_message = 7, turns = 4", Projection::Sessions, "session s/1: stored "),
        ("UPDATE turn_usage SET nanodollars = 5", Projection::Usage, "turn 1 of session s/1"),
        ("UPDATE turn_usage SET model_calls = -1", Projection::Usage, "the usage of a turn cannot be read"),
        ("UPDATE turn_usage SET uncached_prompt = 3", Projection::Usage, "the usage of a turn cannot be read"),
        ("UPDATE turn_usage SET turn = 5000000000", Projection::Usage, "the usage of a turn cannot be read"),
        ("DELETE FROM turn_usage", Projection::Usage, "turn 1 of session s/1"),
        (
            "UPDATE turn_usage SET turn = 2",
            Projection::Usage,
            "turn 2 of session s/1: the log contains no usage of this turn",
        ),
        (
            "DELETE FROM message_words_progress; DELETE FROM message_words WHERE rowid = 3",
            Projection::MessageWords,
            "the index contains unexpected words for row 1",
        ),
    ];
    for (sql, projection, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = create_database(folder.path()).await;
        assert!(compare_projections(&path).await.iter().all(|comparison| comparison.different == 0));
        damage(&path, sql);
        let found = compare_projections(&path).await;
        for comparison in &found {
            let is_described = comparison.examples.iter().any(|example| example.contains(expected));
            // `no_status` does not read snapshots, so the number of turns is not compared.
            assert_eq!(
                comparison.projection == projection,
                comparison.different > 0 && is_described,
                "{sql}: {found:?}"
            );
        }
        rebuild(&path).await;
        let after_rebuild = compare_projections(&path).await;
        assert!(after_rebuild.iter().all(|comparison| comparison.different == 0), "{sql}: {after_rebuild:?}");
        let store = SqliteStore::open(&path, Options::default()).unwrap();
        for words in ["walrus", "owl", "bat"] {
            assert_eq!(store.search_messages(words, 9).await.unwrap().len(), 1, "{sql}: {words}");
        }
        assert_eq!(store.search_messages("ghosts", 9).await.unwrap().len(), 0, "{sql}");
        assert_eq!(store.search(&MemoryFilter::of_user("ann"), "owls", 9).await.unwrap().len(), 1, "{sql}");
        assert_eq!(store.integrity_check().await, Ok(()), "{sql}");
    }
}

/// Limit 28: a damaged index is distinguished from a damaged log, and the log can still be used.
#[tokio::test]
async fn d6_unreadable_index_is_refused_until_it_is_rebuilt() {
    for sql in ["DELETE FROM message_words_data", "DELETE FROM memory_words_data"] {
        let folder = tempfile::tempdir().unwrap();
        let path = create_database(folder.path()).await;
        damage(&path, sql);
        let error = SqliteStore::open(&path, Options::default()).err().unwrap_or_else(|| panic!("{sql}: not refused"));
        assert!(
            matches!(&error, StoreError::DamagedIndex { path: error_path, .. } if *error_path == path),
            "{sql}: {error:?}"
        );
        assert!(error.to_string().contains("`agent-host store rebuild`"), "{error}");
        let options = Options { indexes: Indexes::ToBeRebuilt, ..Options::default() };
        let store = SqliteStore::open(&path, options).unwrap();
        let found = store.check_projections(no_status).await.unwrap();
        let examples: Vec<_> = found
            .iter()
            .filter(|comparison| comparison.different > 0)
            .flat_map(|comparison| &comparison.examples)
            .collect();
        assert!(examples.iter().any(|example| example.contains("the index cannot be read")), "{sql}: {found:?}");
        drop(store);
        rebuild(&path).await;
        let after_rebuild = compare_projections(&path).await;
        assert!(after_rebuild.iter().all(|comparison| comparison.different == 0), "{sql}: {after_rebuild:?}");
    }
}

/// A rebuilt index has the same definition as the original index.
#[tokio::test]
async fn d6_rebuilt_index_has_the_same_definition() {
    let folder = tempfile::tempdir().unwrap();
    let path = create_database(folder.path()).await;
    let definitions = || {
        let connection = Connection::open(&path).unwrap();
        let sql = "SELECT sql FROM sqlite_schema WHERE name IN ('message_words', 'memory_words') ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let found: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        found
            .iter()
            .map(|sql| sql.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")"))
            .collect::<Vec<_>>()
    };
    let before = definitions();
    assert_eq!(before.len(), 2);
    rebuild(&path).await;
    assert_eq!(definitions(), before);
}
