//! Databases that are refused, and messages without secrets.

use super::clients::{database_of, open_store, parsed};
use super::server::shared;
use super::{append, open, texts};
use agent_core::change::{OutboxEffect, OutboxItem};
use agent_store::{
    DatabaseState, Durability, Outbox, OutboxFilter, PostgresOptions, PostgresStore, SessionLog, SessionRequests,
    StoreError,
};
use std::path::PathBuf;

/// F1: a database that confirms commits before they are durable is refused, unless it is asked for explicitly.
#[tokio::test(flavor = "multi_thread")]
async fn f1_asynchronous_commits_are_refused() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let database = database_of(&address);
    server.execute(database, &format!("ALTER DATABASE {database} SET synchronous_commit = off")).await;
    let refused = open_store(&address).await.err();
    let Some(StoreError::NotDurable { setting, path }) = &refused else { panic!("{refused:?}") };
    assert_eq!((setting.as_str(), path.to_string_lossy().contains(database)), ("synchronous_commit", true));
    let durability = Durability::MayLoseCommits;
    let allowed =
        PostgresStore::open(parsed(&address), PostgresOptions { durability, ..PostgresOptions::default() }).await;
    let store = allowed.unwrap();
    let opened = open(&store, "s").await;
    store.commit(&opened.lease, 0, append(1, "one")).await.unwrap();

    // If the setting is changed while a store is open, new connections of the store do not use it.
    drop(store);
    server.execute(database, &format!("ALTER DATABASE {database} RESET synchronous_commit")).await;
    let store = open_store(&address).await.unwrap();
    server.execute(database, &format!("ALTER DATABASE {database} SET synchronous_commit = off")).await;
    assert_eq!(texts(&store, "s").await, ["one"]);
}

/// Row 50: a host that is older than the schema can neither commit nor open the database.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_older_worker_is_fenced_at_each_commit() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let database = database_of(&address);
    let store = open_store(&address).await.unwrap();
    let opened = open(&store, "s").await;
    store.commit(&opened.lease, 0, append(1, "before")).await.unwrap();
    // A migration that older hosts need not know changes nothing for them.
    server.execute(database, "UPDATE store_version SET version = 99").await;
    assert_eq!(store.commit(&opened.lease, 1, append(2, "compatible")).await, Ok(2));
    drop(open_store(&address).await.unwrap());
    server.execute(database, "UPDATE store_version SET oldest_writer = 99").await;
    let refused = store.commit(&opened.lease, 2, append(3, "too old")).await;
    assert!(matches!(refused, Err(StoreError::Newer { found: 99, supported: 5, .. })), "{refused:?}");
    let refused = open_store(&address).await.err();
    assert!(matches!(refused, Some(StoreError::Newer { .. })), "{refused:?}");
    assert_eq!(texts(&store, "s").await, ["before", "compatible"]);
}

/// Turns the tables into those of version 1.
const FIRST_VERSION: &str =
    "DROP TABLE requests, object_store, unused_objects, plugin_sources; ALTER TABLE blobs DROP COLUMN object;
     CREATE TABLE outbox_numbers (single boolean PRIMARY KEY DEFAULT true CHECK (single), last bigint NOT NULL);
     INSERT INTO outbox_numbers SELECT true, last_value FROM outbox_item_numbers; DROP SEQUENCE outbox_item_numbers;
     DROP INDEX outbox_pending_of_session;
     UPDATE store_version SET version = 1, oldest_writer = 1";

/// F1: a database of an earlier version is migrated while a host of that version works, and an examination changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_an_earlier_version_is_migrated_while_it_is_used() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let examine = async || PostgresStore::examine(parsed(&address), PostgresOptions::default()).await;
    assert_eq!(examine().await, Ok(DatabaseState::Empty));
    let earlier = open_store(&address).await.unwrap();
    let opened = open(&earlier, "s").await;
    let item = "INSERT INTO outbox (session, id, number, kind, body, created)
                VALUES ('s', 'earlier', nextval('outbox_item_numbers'), 'forget', '{\"turn\":1}', 0)";
    earlier.commit(&opened.lease, 0, append(1, "before")).await.unwrap();
    server.execute(database_of(&address), item).await;
    server.execute(database_of(&address), FIRST_VERSION).await;
    assert_eq!(examine().await, Ok(DatabaseState::Older));
    assert_eq!(examine().await, Ok(DatabaseState::Older), "nothing was changed");
    let migrated = open_store(&address).await.unwrap();
    assert_eq!(examine().await, Ok(DatabaseState::Current));
    assert_eq!(migrated.pending_requests(&["a".to_owned()], 1).await, Ok(Vec::new()));
    let mut after = append(2, "after");
    after.change.outbox = vec![OutboxItem { id: "later".to_owned(), effect: OutboxEffect::Forget { turn: 1 } }];
    earlier.commit(&opened.lease, 1, after).await.unwrap();
    assert_eq!(texts(&migrated, "s").await, ["before", "after"]);
    let items = migrated.outbox(None, OutboxFilter::All, 0, 9).await.unwrap();
    let items: Vec<(u64, &str)> = items.iter().map(|stored| (stored.number, &*stored.item.id)).collect();
    assert_eq!(items, [(1, "earlier"), (2, "later")], "numbers continue");
}

/// F1: a migration waits for running commits, and commits wait for a migration.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_commit_waits_for_a_migration() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let store = open_store(&address).await.unwrap();
    let opened = open(&store, "s").await;
    let migration = server.client(database_of(&address)).await;
    migration.batch_execute("BEGIN; LOCK TABLE store_version IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let commit = store.commit(&opened.lease, 0, append(1, "late"));
    let migrate = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let sql = "UPDATE store_version SET version = 99, oldest_writer = 99; COMMIT";
        migration.batch_execute(sql).await.unwrap();
    };
    let (refused, ()) = tokio::join!(commit, migrate);
    assert!(matches!(refused, Err(StoreError::Newer { .. })), "{refused:?}");
}

/// A database with the tables of another program is left unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_database_is_refused() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    server.execute(database_of(&address), "CREATE TABLE accounts (id integer)").await;
    let refused = open_store(&address).await.err().expect("the database is refused").to_string();
    assert!(refused.contains("another program"), "{refused}");
}

/// Several processes that start at the same time create the tables once.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_create_the_tables_once() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let address = address.clone();
        starts.spawn(async move { open_store(&address).await.map(drop) });
    }
    assert_eq!(starts.join_all().await, vec![Ok(()); 6]);
}

/// F1: messages name the database, but never the password.
#[tokio::test(flavor = "multi_thread")]
async fn f1_errors_do_not_contain_the_password() {
    // Nobody listens at this port.
    let address = "postgres://ann:s3cret@127.0.0.1:9/agents";
    let error = open_store(address).await.err().expect("no connection");
    let path = PathBuf::from("postgres://127.0.0.1:9/agents");
    assert!(matches!(&error, StoreError::Failed { path: named, .. } if *named == path), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    let Some(server) = shared() else { return };
    let missing = format!("postgres://agent:s3cret@{}/no_such_database", server.host());
    let error = open_store(&missing).await.err().expect("no database");
    assert!(error.to_string().contains("no_such_database"), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
}
