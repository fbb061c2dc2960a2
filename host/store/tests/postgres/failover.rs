//! A primary with a synchronous standby: when the primary is killed and the standby is promoted, no acknowledged commit is
//! missing (F1).

use super::clients::{database_of, parsed};
use super::server::Server;
use super::{append, open, texts};
use agent_store::{PostgresOptions, PostgresStore, SessionLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn f1_failover_loses_no_acknowledged_commit() {
    let Some(primary) = Server::start(&[]) else { return };
    let address = primary.new_database().await;
    let database = database_of(&address).to_owned();
    let standby = primary.start_standby();
    let admin = primary.client("postgres").await;
    admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let is_synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while admin.query_one(is_synchronous, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let both = format!("postgres://agent@{},{}/{database}", primary.host(), standby.host());
    let options = PostgresOptions { max_wait: Duration::from_secs(120), ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open(parsed(&both), options).await.unwrap());
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(|_| AtomicU64::new(0)).collect());
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..4_usize {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        writers.spawn(async move {
            let opened = open(&store, &format!("s{number}")).await;
            for revision in 0..200 {
                let stored = store.commit(&opened.lease, revision, append(revision + 1, &revision.to_string())).await;
                assert_eq!(stored, Ok(revision + 1));
                acknowledged[number].store(revision + 1, Ordering::SeqCst);
            }
        });
    }
    while acknowledged.iter().any(|count| count.load(Ordering::SeqCst) < 30) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    primary.kill();
    let at_kill: Vec<u64> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert!(at_kill.iter().any(|count| *count < 200), "the primary was killed during commits: {at_kill:?}");
    standby.client("postgres").await.batch_execute("SELECT pg_promote()").await.unwrap();
    // The writers continue on the promoted standby by themselves.
    writers.join_all().await;
    let promoted = PostgresStore::open(parsed(&standby.address(&database)), PostgresOptions::default()).await.unwrap();
    for number in 0..4 {
        let expected: Vec<String> = (0..200).map(|revision: u64| revision.to_string()).collect();
        assert_eq!(texts(&promoted, &format!("s{number}")).await, expected, "every commit is stored once");
    }
}
