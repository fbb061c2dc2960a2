//! Tests the errors that are reported when an unusable file is opened. No refused file is overwritten (limits 26 and
//! 28).

use agent_core::change::{Body, Change, NewMessage};
use agent_core::message::{Digest, Part, Role};
use agent_store::{
    Commit, Integrity, Lease, Memories, Memory, MemoryKind, MessageRange, OpenMode, Options, PluginVersions,
    SessionIndex, SessionLog, SessionMeta, SqliteStore, Status, StoreError,
};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// First byte of a page that contains rows of a table (<https://www.sqlite.org/fileformat2.html>, "B-tree Pages").
const TABLE_LEAF_PAGE: u8 = 0x0d;

/// A temporary folder, and the path of a database in this folder.
struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn database(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join("agent.db")
    }

    /// Creates a database with one session of 40 commits, and closes it.
    async fn with_session(self) -> Self {
        let store = SqliteStore::open(self.database(), Options::default()).unwrap();
        let lease = open(&store, "s").await;
        for revision in 0..40 {
            store.commit(&lease, revision, large_commit()).await.unwrap();
        }
        self
    }
}

async fn open(store: &SqliteStore, session: &str) -> Lease {
    store.open(session, OpenMode::Either, SessionMeta::default()).await.unwrap().lease
}

/// Returns a commit that fills several database pages with text that no other commit contains.
fn large_commit() -> Commit {
    let text = uuid::Uuid::new_v4().to_string().repeat(400);
    Commit { texts: vec![text], snapshot: vec![b'x'; 3000], ..Commit::default() }
}

fn opening_error(path: &Path) -> StoreError {
    let before = fs::read(path).ok();
    let error = SqliteStore::open(path, Options::default()).err().expect("the file is refused");
    assert_eq!(fs::read(path).ok(), before, "a refused file is left unchanged");
    assert!(error.to_string().contains(&path.display().to_string()), "the error contains the path: {error}");
    error
}

/// D1: a new database can be read only by the owner of the file, even if other users can read the folder. An existing
/// file keeps its permissions.
#[test]
fn new_database_is_private() {
    let folder = Folder::new();
    fs::set_permissions(folder.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let store = SqliteStore::open(folder.database(), Options::default()).unwrap();
    let mode = |extension: &str| {
        fs::metadata(folder.database().with_extension(extension)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(["db", "db-wal", "db-shm"].map(mode), [0o600; 3]);
    drop(store);
    fs::set_permissions(folder.database(), fs::Permissions::from_mode(0o660)).unwrap();
    drop(SqliteStore::open(folder.database(), Options::default()).unwrap());
    assert_eq!(mode("db"), 0o660);
}

/// Limit 28: a file that is not a database is refused.
#[test]
fn text_file_is_refused() {
    let folder = Folder::new();
    for content in ["notes\n", "SQLite format 4\0 and more"] {
        fs::write(folder.database(), content).unwrap();
        assert_eq!(opening_error(&folder.database()), StoreError::NotADatabase { path: folder.database() });
    }
    assert_eq!(fs::read_dir(folder.folder.path()).unwrap().count(), 1, "no other file is created");
}

/// Limit 28: the error for a damaged file contains its path, and the file is left unchanged.
#[tokio::test]
async fn damaged_file_is_refused_and_unchanged() {
    let folder = Folder::new().with_session().await;
    let path = folder.database();
    let intact = fs::read(&path).unwrap();
    let middle = intact.len() / 2 / 4096 * 4096;
    let mut scrambled = intact.clone();
    scrambled[middle..middle + 4096 * 4].fill(0x5a);
    let mut first_page = intact.clone();
    first_page[16..4096].fill(0xff);
    // Damage a table that is not read when a file is opened, so that only the check of the whole file finds the damage.
    let mut snapshot = intact.clone();
    let is_snapshot =
        |page: &&[u8]| page[0] == TABLE_LEAF_PAGE && page.windows(1_000).any(|window| window == [b'x'; 1_000]);
    let position =
        intact.chunks(4096).position(|page| is_snapshot(&page)).expect("the session's snapshot is in a table") * 4096;
    snapshot[position + 8..position + 16].fill(0xff);
    let truncated = intact[..middle].to_vec();
    for (what, damaged) in
        [("scrambled", scrambled), ("first page", first_page), ("snapshot", snapshot), ("truncated", truncated)]
    {
        fs::write(&path, damaged).unwrap();
        let error = opening_error(&path);
        assert!(matches!(error, StoreError::Damaged { .. }), "{what}: {error:?}");
    }
    fs::write(&path, intact).unwrap();
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    assert_eq!(store.integrity_check().await, Ok(()));
}

/// Limit 28: neither the database of another program nor the write-ahead log of that database is changed.
#[test]
fn database_of_another_program_is_refused_and_unchanged() {
    let folder = Folder::new();
    let path = folder.database();
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    // Copy the files in the state in which a killed process leaves them: the log contains data that the database file
    // does not contain.
    let copy = path.with_file_name("left.db");
    let log = copy.with_extension("db-wal");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_extension("db-wal"), &log).unwrap();
    let before = fs::read(&log).unwrap();
    assert_eq!(opening_error(&copy), StoreError::Foreign { path: copy.clone() });
    assert_eq!(fs::read(&log).unwrap(), before);
    let reopened = Connection::open(&copy).unwrap();
    let count: i64 = reopened.query_row("SELECT count(*) FROM theirs", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

/// D1: a file with a newer schema version is refused.
#[tokio::test]
async fn database_of_a_newer_host_is_refused() {
    let folder = Folder::new().with_session().await;
    let path = folder.database();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
    let error = opening_error(&path);
    assert!(matches!(error, StoreError::Newer { found: 999, supported: 1..999, .. }), "{error}");
}

/// Limit 28: a file without write permission is refused.
#[tokio::test]
async fn file_without_write_permission_is_refused() {
    let folder = Folder::new().with_session().await;
    let path = folder.database();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(opening_error(&path), StoreError::ReadOnly { path: path.clone() });
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    SqliteStore::open(&path, Options::default()).unwrap();
}

#[test]
fn folder_and_missing_folder_are_refused() {
    let folder = Folder::new();
    for path in [folder.folder.path().to_owned(), folder.folder.path().join("missing").join("agent.db")] {
        let error = opening_error(&path);
        assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    }
}

/// Limit 28: a commit on a full disk fails, earlier commits are kept, and commits succeed again when there is space.
#[tokio::test]
async fn commits_survive_a_full_disk() {
    let folder = Folder::new();
    let path = folder.database();
    let options = Options { max_bytes: Some(1 << 20), ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let lease = open(&store, "s").await;
    let mut revision = 0;
    let error = loop {
        match store.commit(&lease, revision, large_commit()).await {
            Ok(next) => revision = next,
            Err(error) => break error,
        }
    };
    assert_eq!(error, StoreError::DiskFull { path: path.clone() });
    assert!(revision > 3, "{revision}");
    let listed = store.sessions(Default::default(), 1).await.unwrap();
    assert_eq!(listed[0].revision, revision, "no part of the failed commit is stored");
    drop(store);

    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let opened = store.open("s", OpenMode::Existing, SessionMeta::default()).await.unwrap();
    assert_eq!(opened.revision, revision);
    assert_eq!(store.commit(&opened.lease, revision, large_commit()).await, Ok(revision + 1));
    assert_eq!(store.integrity_check().await, Ok(()));
}

/// Limit 28: a commit waits for another process that has the lock, but only for a limited time. The commit succeeds
/// after the lock is released.
#[tokio::test]
async fn commit_on_a_locked_database_fails_after_max_wait() {
    let folder = Folder::new();
    let path = folder.database();
    let wait = Duration::from_millis(20);
    let options = Options { lock_wait: wait, max_wait: wait, ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let lease = open(&store, "s").await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.commit(&lease, 0, Commit::default()).await;
    let Err(StoreError::Locked { path: error_path, holder }) = refused else { panic!("{refused:?}") };
    assert_eq!(error_path, path);
    let expected = if cfg!(target_os = "linux") { std::process::id().to_string() } else { String::new() };
    assert!(holder.contains(&expected), "{holder}");
    let range = MessageRange::After { id: 0, limit: 1 };
    assert_eq!(store.messages("s", range).await, Ok(Vec::new()), "readers do not wait for writers");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.commit(&lease, 0, Commit::default()).await, Ok(1));
}

/// Row 46: a commit waits while another process is writing, even for longer than SQLite's own timeout, and then
/// succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn row_46_commit_waits_for_a_lock() {
    let folder = Folder::new();
    let path = folder.database();
    let options = Options { lock_wait: Duration::from_millis(10), ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let lease = open(&store, "s").await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let unlocking = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(600));
        other.execute_batch("ROLLBACK").unwrap();
    });
    assert_eq!(store.commit(&lease, 0, Commit::default()).await, Ok(1));
    unlocking.await.unwrap();
}

/// Row 50: after a newer host has migrated the file, every commit fails with an error that names the versions. This
/// host can still read the data.
#[tokio::test]
async fn row_50_commit_fails_after_a_migration_by_a_newer_host() {
    let folder = Folder::new();
    let path = folder.database();
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let lease = open(&store, "s").await;
    assert_eq!(store.commit(&lease, 0, Commit::default()).await, Ok(1));
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 1_000).unwrap();
    let refused = store.commit(&lease, 1, Commit::default()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Newer { found: 1_000, .. }), "{refused}");
    let recorded = store
        .record_turn_plugins(
            "a",
            vec![("calc".to_owned(), Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap())],
        )
        .await;
    assert!(matches!(recorded, Err(StoreError::Newer { .. })), "{recorded:?}");
    let listed = store.sessions(Default::default(), 1).await.unwrap();
    assert_eq!(listed[0].revision, 1);
}

/// Limit 32: several processes may create the same database at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn many_stores_create_one_database() {
    let folder = Folder::new();
    let openings: Vec<_> = (0..8)
        .map(|_| {
            let path = folder.database();
            std::thread::spawn(move || SqliteStore::open(path, Options::default()))
        })
        .collect();
    let stores: Vec<_> = openings.into_iter().map(|opening| Arc::new(opening.join().unwrap().unwrap())).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, store) in stores.iter().cloned().enumerate() {
        tasks.spawn(async move {
            let lease = open(&store, &format!("s{number}")).await;
            for revision in 0..10 {
                let status = Status { turn: 1, ..Status::default() };
                store.commit(&lease, revision, Commit { status, ..Commit::default() }).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let listed = stores[0].sessions(Default::default(), 20).await.unwrap();
    assert!(listed.len() == 8 && listed.iter().all(|summary| summary.revision == 10), "{listed:?}");
    assert_eq!(stores[0].integrity_check().await, Ok(()));
}

/// D4, D5: after a deletion, no file contains the deleted messages or memories, not even in unused pages or indexes.
#[tokio::test(flavor = "multi_thread")]
async fn d5_no_file_contains_deleted_data() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.database(), Options::default()).unwrap();
    let files_contain = |word: &str| {
        let read = |suffix: &str| fs::read(format!("{}{suffix}", folder.database().display())).unwrap_or_default();
        let bytes = [read(""), read("-wal"), read("-shm")].concat();
        bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    };
    // Write the words in small rows and in large rows, and write each word several times.
    let (deleted_word, memory_word, kept_word) = ("xylophonwalrus", "zwerchfellwalrus", "harmonikawalrus");
    for (session, word) in [("gone", deleted_word), ("kept", kept_word)] {
        let lease = open(&store, session).await;
        for revision in 0..3_u64 {
            let text = format!("{word} {} {word}", "and so on ".repeat(2_000 * revision as usize));
            let body = Body::Parts(vec![Part::Text(text.clone())]);
            let messages = vec![NewMessage { id: revision + 1, turn: 1, role: Role::User, body, tokens: 1 }];
            let change = Change { messages, ..Change::default() };
            let commit = Commit { snapshot: text.clone().into_bytes(), change, texts: vec![text], ..Commit::default() };
            store.commit(&lease, revision, commit).await.unwrap();
        }
        store.release(lease).await.unwrap();
        for (id, text) in [("final", word), ("tool", memory_word)] {
            let (session, agent, text) = (session.to_owned(), "a".to_owned(), text.to_owned());
            let (user, kind, id) = ("ann".to_owned(), MemoryKind::Final, format!("{session}/1/{id}"));
            let memory = Memory { user, kind, agent, session, turn: 1, text, project: None, written: None };
            store.add(&id, memory).await.unwrap();
        }
    }
    assert_eq!(store.search_messages(deleted_word, 9).await.unwrap().len(), 3, "the index contains the messages");
    for word in [deleted_word, memory_word, kept_word] {
        assert!(files_contain(word), "{word} is in the files before it is deleted");
    }
    assert_eq!(store.delete("gone").await.unwrap().memories, 2);
    assert!(
        !files_contain(deleted_word) && !files_contain(&deleted_word[4..]),
        "a deleted message is still in the files"
    );
    assert!(files_contain(memory_word) && files_contain(kept_word), "data of the other session is kept");
    assert_eq!(store.forget("ann", "kept/1/tool").await, Ok(true));
    assert!(
        !files_contain(memory_word) && !files_contain(&memory_word[4..]),
        "a forgotten memory is still in the files"
    );
    assert!(files_contain(kept_word));
    assert_eq!(store.search_messages(kept_word, 9).await.unwrap().len(), 3);
    assert_eq!(store.integrity_check().await, Ok(()));
}
