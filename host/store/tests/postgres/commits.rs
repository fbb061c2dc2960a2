//! Commits whose connection breaks: each of them is stored exactly once.

use super::clients::{database_of, open_store, parsed};
use super::proxy::{Cut, Proxy};
use super::server::{Server, shared};
use super::{append, open, texts};
use agent_store::{OpenMode, OpenedSession, PostgresOptions, PostgresStore, SessionLog, SessionMeta, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// D6: the id of a commit decides an unknown outcome, however the connection breaks.
#[tokio::test(flavor = "multi_thread")]
async fn d6_unknown_outcome_is_decided_by_the_commit_id() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let proxy = Proxy::start(server.folder.join(".s.PGSQL.5432")).await;
    let through = format!("postgres://agent@127.0.0.1:{}/{}?sslmode=disable", proxy.port, database_of(&address));
    let store = open_store(&through).await.unwrap();
    let opened = open(&store, "s").await;
    let cuts = [Cut::Never, Cut::Before, Cut::After, Cut::BeforeAndLate, Cut::Delayed, Cut::After, Cut::Never];
    let mut expected = Vec::new();
    for (revision, cut) in (0..).zip(cuts) {
        proxy.cut_next(cut);
        let text = format!("{cut:?} {revision}");
        let stored = store.commit(&opened.lease, revision, append(revision + 1, &text)).await;
        assert_eq!(stored, Ok(revision + 1), "{cut:?}");
        assert!(proxy.has_cut(), "{cut:?}");
        expected.push(text);
    }
    assert_eq!(texts(&store, "s").await, expected);
    assert_eq!(store.release(opened.lease).await, Ok(()));
}

/// D6: an unknown outcome is also decided after another worker has taken over the session.
#[tokio::test(flavor = "multi_thread")]
async fn d6_outcome_is_known_after_a_takeover() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let database = database_of(&address);
    let proxy = Proxy::start(server.folder.join(".s.PGSQL.5432")).await;
    let through = format!("postgres://agent@127.0.0.1:{}/{database}?sslmode=disable", proxy.port);
    // With one connection, the first worker needs a new connection to read the outcome.
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let first = Arc::new(PostgresStore::open(parsed(&through), options).await.unwrap());
    let second = open_store(&address).await.unwrap();
    for (session, cut, stored) in [("stored", Cut::After, 2), ("lost", Cut::Before, 1)] {
        let opened = open(&first, session).await;
        first.commit(&opened.lease, 0, append(1, "before")).await.unwrap();
        proxy.hold_new_connections(true);
        proxy.cut_next(cut);
        let (store, lease) = (first.clone(), opened.lease.clone());
        let commit = tokio::spawn(async move { store.commit(&lease, 1, append(2, "unknown")).await });
        while !proxy.has_cut() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let taken = take_over(server, (&second, database), session).await;
        assert_eq!(taken.revision, stored, "{session}");
        second.commit(&taken.lease, stored, append(stored + 1, "after")).await.unwrap();
        proxy.hold_new_connections(false);
        let lost = StoreError::LeaseLost { session: session.to_owned(), epoch: opened.lease.epoch };
        let outcome = commit.await.unwrap();
        assert_eq!(outcome, if stored == 2 { Ok(2) } else { Err(lost) });
        let expected: &[&str] = if stored == 2 { &["before", "unknown", "after"] } else { &["before", "after"] };
        assert_eq!(texts(&second, session).await, expected);
    }
}

/// Opens a session whose owner no longer renews its leases according to the database.
async fn take_over(server: &Server, (store, database): (&PostgresStore, &str), session: &str) -> OpenedSession {
    loop {
        server.execute(database, "UPDATE owners SET expires = 0").await;
        match store.open(session, OpenMode::Existing, SessionMeta::default()).await {
            // The owner has renewed its leases in the meantime.
            Err(StoreError::Busy { .. }) => {}
            opened => return opened.unwrap(),
        }
    }
}

/// F1: connections that the server ends at any moment lose and double nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f1_killed_connections_lose_no_commit() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let database = database_of(&address).to_owned();
    let store = open_store(&address).await.unwrap();
    let opened = open(&store, "s").await;
    let client = server.client("postgres").await;
    let killer = tokio::spawn(async move {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = $1 AND application_name = 'agent-host'";
        let mut killed = 0;
        loop {
            killed += client.query(sql, &[&database]).await.unwrap().len();
            tokio::time::sleep(Duration::from_millis(30)).await;
            if killed > 40 {
                return killed;
            }
        }
    });
    let mut count = 0;
    while !killer.is_finished() || count < 50 {
        let stored = store.commit(&opened.lease, count, append(count + 1, &count.to_string())).await;
        assert_eq!(stored, Ok(count + 1));
        count += 1;
    }
    assert!(killer.await.unwrap() > 40);
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(texts(&store, "s").await, expected);
}

/// F2: many sessions commit at the same time through several workers.
#[tokio::test(flavor = "multi_thread")]
async fn f2_many_sessions_commit_concurrently() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let stores = [Arc::new(open_store(&address).await.unwrap()), Arc::new(open_store(&address).await.unwrap())];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60_usize {
        let store = stores[number % 2].clone();
        tasks.spawn(async move {
            let session = format!("s{number}");
            let opened = open(&store, &session).await;
            for revision in 0..5 {
                let mut commit = append(revision + 1, &format!("{session} {revision}"));
                // All sessions write the same texts, in different orders.
                commit.texts = (0..3).map(|text| format!("text {}", (text + number) % 3)).collect();
                assert_eq!(store.commit(&opened.lease, revision, commit).await, Ok(revision + 1));
            }
            texts(&store, &session).await
        });
    }
    let found = tasks.join_all().await;
    assert_eq!(found.len(), 60);
    assert!(found.iter().all(|texts| texts.len() == 5), "{found:?}");
}
