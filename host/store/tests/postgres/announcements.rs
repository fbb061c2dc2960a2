//! Announcements between processes (F1).

use super::clients::{database_of, open_store};
use super::server::shared;
use agent_store::{Announcement, Announcements, News, PostgresStore};
use std::time::{Duration, Instant};

fn work(session: &str) -> Announcement {
    Announcement { news: News::Work, session: session.to_owned() }
}

/// Announces until another store receives it.
async fn until_received(sender: &PostgresStore, receiver: &PostgresStore, announcement: &Announcement) {
    let (mut received, begun) = (receiver.announcements().expect("PostgreSQL has announcements"), Instant::now());
    loop {
        sender.announce(vec![announcement.clone(), announcement.clone()]).await;
        let found = tokio::time::timeout(Duration::from_millis(200), received.recv()).await;
        if matches!(&found, Ok(Ok(found)) if found == announcement) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is received: {found:?}");
    }
}

/// F1: announcements reach other stores, also after the connection has broken. Strange subjects are no problem.
#[tokio::test(flavor = "multi_thread")]
async fn f1_announcements_reach_other_processes() {
    let Some(server) = shared() else { return };
    let address = server.new_database().await;
    let (first, second) = (open_store(&address).await.unwrap(), open_store(&address).await.unwrap());
    until_received(&first, &second, &work("a/1 \0 \u{1} ' \" é")).await;
    until_received(&second, &first, &work("a/2")).await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    server.execute(database_of(&address), sql).await;
    until_received(&first, &second, &work("a/3")).await;
    // A subject that is too long for a notification is left out, and the others are sent.
    let mut received = second.announcements().unwrap();
    first.announce(vec![work(&"x".repeat(9_000)), work("a/4")]).await;
    assert_eq!(received.recv().await, Ok(work("a/4")));
}
