//! Runs the conformance suite on SQLite: on a file that two stores share, in memory, and in a temporary file (D1, D6, limit 32).

use agent_store::conformance::{TestStore, run};
use agent_store::{Integrity, Options, SqliteStore};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_on_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    let mut paths = Vec::new();
    run(|| {
        number += 1;
        let path = folder.path().join(format!("{number}.db"));
        let store = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
        let second = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
        paths.push(path);
        TestStore { store, second: Some(second) }
    })
    .await;
    assert!(paths.len() > 30);
    for path in paths {
        let store = SqliteStore::open(&path, Options::default()).unwrap();
        assert_eq!(store.integrity_check().await, Ok(()), "{}", path.display());
        drop(store);
        let remaining: Vec<_> = std::fs::read_dir(format!("{}.owners", path.display())).unwrap().collect();
        assert!(remaining.is_empty(), "lock files remain: {remaining:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_in_memory_conforms() {
    run(|| TestStore { store: Arc::new(SqliteStore::open_in_memory().unwrap()), second: None }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_in_a_temporary_file_conforms() {
    run(|| TestStore { store: Arc::new(SqliteStore::open_temporary().unwrap()), second: None }).await;
}
