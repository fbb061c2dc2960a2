//! Processes that are stopped in a commit (F1): other processes do not wait for them longer than for one transaction.

use super::append;
use super::clients::{database_of, open_store, parsed};
use super::open;
use super::proxy::{Cut, Proxy};
use super::server::shared;
use agent_core::change::{Denial, OutboxEffect, OutboxItem};
use agent_core::event::{Event, EventKind};
use agent_store::{
    Audit, AuditAction, Commit, OpenedSession, Outbox, OutboxFilter, PostgresOptions, PostgresStore, SessionLog,
    StoreError,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Returns a commit that adds an outbox item and no audit entry.
fn unaudited() -> Commit {
    let mut commit = append(1, "text");
    commit.change.outbox = vec![OutboxItem { id: "forget".to_owned(), effect: OutboxEffect::Forget { turn: 1 } }];
    commit
}

/// Returns a commit that adds an audit entry.
fn audited(session: &str) -> Commit {
    let mut commit = append(1, "text");
    let text = || "a text".to_owned();
    let denial = Denial { plugin: text(), thing: text(), grant: text() };
    let kind = EventKind::Denied { call: None, denial };
    commit.change.events = vec![Event { session: session.to_owned(), turn: 1, sequence: 1, provisional: None, kind }];
    commit
}

/// Waits until the server does not receive the commit of a task.
async fn until_held(proxy: &Proxy, commit: &JoinHandle<Result<u64, StoreError>>) {
    while !proxy.has_cut() {
        assert!(!commit.is_finished(), "the commit does not end before the server has received it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Commits to an open session in a task.
fn spawn_commit(
    store: &Arc<PostgresStore>,
    opened: OpenedSession,
    commit: Commit,
) -> JoinHandle<Result<u64, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.commit(&opened.lease, 0, commit).await })
}

/// F1: while a process is stopped in a commit with outbox items, other processes commit such items. The item of the stopped
/// process becomes visible later, with a lower number.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_stopped_commit_does_not_hold_up_commits_of_other_processes() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let proxy = Proxy::start(server.folder.join(".s.PGSQL.5432")).await;
    let through = format!("postgres://agent@127.0.0.1:{}/{}?sslmode=disable", proxy.port, database_of(&address));
    let (stopped, other) =
        (Arc::new(open_store(&through).await.unwrap()), Arc::new(open_store(&address).await.unwrap()));
    let (of_stopped, of_other) = (open(&stopped, "held").await, open(&other, "passing").await);
    proxy.cut_next(Cut::Held);
    let held = spawn_commit(&stopped, of_stopped, unaudited());
    until_held(&proxy, &held).await;
    assert_eq!(other.commit(&of_other.lease, 0, unaudited()).await, Ok(1));
    let found = async || -> Vec<String> {
        let items = other.outbox(None, OutboxFilter::Pending, 0, 9).await.unwrap();
        items.into_iter().map(|stored| stored.session).collect()
    };
    assert_eq!(found().await, ["passing"], "the server has not ended the transaction of the stopped process");
    assert!(!held.is_finished());
    proxy.pass_held_commits();
    assert_eq!(held.await.unwrap(), Ok(1));
    assert_eq!(found().await, ["held", "passing"], "the items are in the order of their numbers");
}

/// F1: only one transaction of a process waits for the last entry of the audit log. So a stopped process holds it for the time of
/// one transaction, after which the server ends the transaction. The stopped process repeats its work when it continues.
#[tokio::test(flavor = "multi_thread")]
async fn f1_a_stopped_process_holds_the_audit_log_only_once() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let database = database_of(&address).to_owned();
    let proxy = Proxy::start(server.folder.join(".s.PGSQL.5432")).await;
    let through = format!("postgres://agent@127.0.0.1:{}/{database}?sslmode=disable", proxy.port);
    let options = PostgresOptions { connections: 8, ..PostgresOptions::default() };
    let stopped = Arc::new(PostgresStore::open(parsed(&through), options).await.unwrap());
    let other = Arc::new(open_store(&address).await.unwrap());
    let mut sessions = Vec::new();
    for session in ["first", "second", "third", "fourth"] {
        sessions.push((open(&stopped, session).await, audited(session)));
    }
    let of_other = open(&other, "passing").await;
    proxy.cut_next(Cut::Held);
    let (opened, commit) = sessions.remove(0);
    let mut commits = vec![spawn_commit(&stopped, opened, commit)];
    until_held(&proxy, &commits[0]).await;
    commits.extend(sessions.into_iter().map(|(opened, commit)| spawn_commit(&stopped, opened, commit)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let client = server.client(&database).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'";
    let waiting: i64 = client.query_one(waiting, &[&database]).await.unwrap().get(0);
    assert_eq!(waiting, 0, "the other commits of the process do not wait for the lock");

    assert_eq!(other.commit(&of_other.lease, 0, audited("passing")).await, Ok(1));
    proxy.pass_held_commits();
    for commit in commits {
        assert_eq!(commit.await.unwrap(), Ok(1), "what the server has ended runs again");
    }
    let entries: i64 = client.query_one("SELECT count(*) FROM audit", &[]).await.unwrap().get(0);
    assert_eq!(entries, 5);
}

/// F1: commits with audit entries and other audit entries of a process do not wait for one another's connections.
#[tokio::test(flavor = "multi_thread")]
async fn f1_audit_entries_do_not_use_up_the_connections() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let options = PostgresOptions { connections: 2, ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open(parsed(&address), options).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20_u8 {
        let session = format!("s{number}");
        let opened = open(&store, &session).await;
        let (committing, auditing) = (store.clone(), store.clone());
        tasks.spawn(async move { committing.commit(&opened.lease, 0, audited(&session)).await.map(drop) });
        tasks.spawn(async move {
            let refused = AuditAction::Refused {
                directory: "plugins".to_owned(),
                subject: number.to_string(),
                reason: "a reason".to_owned(),
            };
            auditing.audit(vec![refused]).await
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(15), tasks.join_all()).await;
    assert_eq!(ended.expect("nothing waits for a connection that is not returned"), vec![Ok(()); 40]);
    assert_eq!(store.last_audit_number().await, Ok(40));
}
