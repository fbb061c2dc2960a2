//! Leases of workers that are paused, or whose clocks are wrong (F1).

use super::clients::{database_of, open_store, parsed};
use super::server::{Server, shared};
use super::{append, open, texts};
use agent_store::{
    OpenMode, PostgresOptions, PostgresStore, SessionFilter, SessionIndex, SessionLog, SessionMeta, StoreError,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ADDRESS: &str = "AGENT_STORE_TEST_ADDRESS";

/// A short lease, so that the test does not wait long.
fn short_lease() -> PostgresOptions {
    PostgresOptions { lease: Duration::from_millis(1500), connections: 2, ..PostgresOptions::default() }
}

/// Runs in the process that is paused: commits once, waits for a line of input, and commits again.
#[tokio::test]
async fn worker_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let store = PostgresStore::open(parsed(&address), short_lease()).await.unwrap();
    let opened = open(&store, "s").await;
    store.commit(&opened.lease, 0, append(1, "first worker")).await.unwrap();
    say("committed");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let outcome = store.commit(&opened.lease, 1, append(2, "paused worker")).await;
    say(&format!("{outcome:?}"));
    std::process::exit(0);
}

fn say(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "\nworker: {line}").unwrap();
    output.flush().unwrap();
}

/// A child process that is killed when this value is dropped, even if the test fails.
struct Worker(Child);

impl Worker {
    fn start(address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "leases::worker_process", "--nocapture"]).env(ADDRESS, address);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ignore errors, because the process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// F1: a worker that was paused for longer than its lease cannot commit after another worker has taken over its session.
#[tokio::test(flavor = "multi_thread")]
async fn f1_paused_worker_cannot_commit() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let mut worker = Worker::start(&address);
    let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next_line = || lines.find_map(|line| Some(line.strip_prefix("worker: ")?.to_owned()));
    assert_eq!(next_line().as_deref(), Some("committed"));
    let store = PostgresStore::open(parsed(&address), short_lease()).await.unwrap();

    // The lease of a running worker is renewed for longer than its length.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let refused = store.open("s", OpenMode::Existing, SessionMeta::default()).await;
    let holder = match refused {
        Err(StoreError::Busy { holder, .. }) => holder,
        other => panic!("{other:?}"),
    };
    assert_eq!(holder.process_id(), Some(worker.0.id()));
    worker.signal("-STOP");
    let opened = loop {
        match store.open("s", OpenMode::Existing, SessionMeta::default()).await {
            Err(StoreError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(opened.revision, 1);
    store.commit(&opened.lease, 1, append(2, "second worker")).await.unwrap();
    worker.signal("-CONT");
    worker.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let outcome = next_line().unwrap();
    assert!(outcome.contains("LeaseLost"), "{outcome}");
    assert_eq!(texts(&store, "s").await, ["first worker", "second worker"]);
}

/// F1: a store that is closed releases its leases at once.
#[tokio::test(flavor = "multi_thread")]
async fn f1_closed_store_releases_its_sessions() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let (first, second) = (open_store(&address).await.unwrap(), open_store(&address).await.unwrap());
    let opened = open(&first, "s").await;
    let open_in = async || second.sessions(SessionFilter::default(), 1).await.unwrap().remove(0).open_in;
    assert!(open_in().await.is_some_and(|holder| holder.is_this_process()));
    drop(first);
    assert_eq!(open_in().await, None);
    let taken = open(&second, "s").await;
    assert_eq!(taken.lease.epoch, opened.lease.epoch + 1);
}

/// F1: the holder of a session on another machine is named, and is never mistaken for this process.
#[tokio::test(flavor = "multi_thread")]
async fn f1_holder_on_another_machine_is_named() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let (first, second) = (open_store(&address).await.unwrap(), open_store(&address).await.unwrap());
    let _opened = open(&first, "s").await;
    server.execute(database_of(&address), "UPDATE owners SET machine = 'elsewhere', host = 'worker-7'").await;
    let refused = second.open("s", OpenMode::Existing, SessionMeta::default()).await;
    let Err(StoreError::Busy { holder, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.to_string(), format!("process {} on worker-7", std::process::id()));
    assert!(!holder.is_this_process() && holder.process_id().is_none());
}

/// F1: only the clock of the database counts. Here, it is one hour ahead of the clocks of the workers, and later one hour
/// behind.
#[tokio::test(flavor = "multi_thread")]
async fn f1_clocks_of_workers_do_not_matter() {
    let Some(server) = shared() else { return };
    for (hours, earlier) in [(1, "s/ahead"), (-1, "s/behind")] {
        let address = server.new_database().await;
        shift_clock(server, database_of(&address), hours).await;
        let first = PostgresStore::open(parsed(&address), short_lease()).await.unwrap();
        let second = PostgresStore::open(parsed(&address), short_lease()).await.unwrap();
        let opened = open(&first, earlier).await;
        first.commit(&opened.lease, 0, append(1, "one")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let refused = second.open(earlier, OpenMode::Existing, SessionMeta::default()).await;
        assert!(matches!(refused, Err(StoreError::Busy { .. })), "the lease is renewed: {refused:?}");
        let listed = second.sessions(SessionFilter::default(), 1).await.unwrap().remove(0);
        let updated: jiff::Timestamp = listed.updated.parse().unwrap();
        let ahead = updated.as_second() - jiff::Timestamp::now().as_second();
        assert!((ahead - hours * 3600).abs() < 600, "the time comes from the database: {}", listed.updated);
        // The worker no longer renews its leases.
        server.execute(database_of(&address), "CREATE RULE stopped AS ON INSERT TO owners DO INSTEAD NOTHING").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let taken = second.open(earlier, OpenMode::Existing, SessionMeta::default()).await.unwrap();
        assert_eq!(second.commit(&taken.lease, 1, append(2, "two")).await, Ok(2));
        assert!(matches!(first.commit(&opened.lease, 2, append(3, "three")).await, Err(StoreError::LeaseLost { .. })));
    }
}

/// Replaces the function that returns the current time of the database.
async fn shift_clock(server: &Server, database: &str, hours: i64) {
    let sql = format!(
        "CREATE SCHEMA shifted;
         CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '{hours} hours' $$;
         ALTER DATABASE {database} SET search_path = public, shifted, pg_catalog"
    );
    server.execute(database, &sql).await;
}
