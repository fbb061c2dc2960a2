//! Announcements with NOTIFY and LISTEN (F1). They are sent outside of commits, because PostgreSQL serialises all
//! transactions with a notification, and because a commit must not depend on them.

use super::PostgresStore;
use super::address::PostgresAddress;
use super::failure::described;
use super::text::{Text, unescaped};
use super::tls::Tls;
use crate::announcements::{Announcement, Announcements, News};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

/// Name of the channel.
const CHANNEL: &str = "agent_host";
/// Number of announcements that a receiver may be behind.
const CAPACITY: usize = 1024;
/// Longest subject that is announced, in bytes. PostgreSQL limits a notification to 8,000 bytes.
const LONGEST_SUBJECT: usize = 4_000;
/// Maximum number of announcements in one statement.
const BATCH: usize = 200;
/// Maximum time to send announcements.
const SEND_TIME: Duration = Duration::from_secs(2);
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Receives the announcements of all processes until it is dropped.
pub(super) struct Listener {
    received: broadcast::Sender<Announcement>,
    /// `None` before the store has been opened completely.
    task: Option<AbortHandle>,
}

impl Listener {
    pub(super) fn new() -> Self {
        Self { received: broadcast::channel(CAPACITY).0, task: None }
    }

    /// Connects to the database in a task of its own, and again after each failure.
    pub(super) fn start(&mut self, address: PostgresAddress, tls: Tls) {
        let received = self.received.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = listen(&address, tls.clone(), &received).await {
                    tracing::debug!(problem = described(&error), "announcements are not received at the moment");
                }
                tokio::time::sleep(RETRY).await;
            }
        });
        self.task = Some(task.abort_handle());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Receives announcements until the connection ends.
async fn listen(
    address: &PostgresAddress,
    tls: Tls,
    received: &broadcast::Sender<Announcement>,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = address.config.connect(tls).await?;
    let statement = format!("LISTEN {CHANNEL}");
    let listening = async {
        client.batch_execute(&statement).await?;
        // The client must live as long as the connection.
        std::future::pending().await
    };
    let receiving = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message?
                && let Some(announcement) = parse(notification.payload())
            {
                // There may be no receiver.
                let _ = received.send(announcement);
            }
        }
        Ok(())
    };
    tokio::select! {
        result = listening => result,
        result = receiving => result,
    }
}

#[async_trait]
impl Announcements for PostgresStore {
    async fn announce(&self, announcements: Vec<Announcement>) {
        let unique: BTreeSet<Announcement> = announcements.into_iter().collect();
        let payloads: Vec<String> = unique.iter().filter_map(payload).collect();
        let sent = tokio::time::timeout(SEND_TIME, async {
            for batch in payloads.chunks(BATCH) {
                let batch: Vec<Text<'_>> = batch.iter().map(|payload| Text(payload)).collect();
                let sql = "SELECT pg_notify($1::text, payload) FROM unnest($2::text[]) AS payload";
                self.connection().await?.query(sql, &[&CHANNEL, &batch]).await?;
            }
            Ok::<_, super::failure::Failure>(())
        });
        if !matches!(sent.await, Ok(Ok(()))) {
            tracing::debug!("announcements were not sent, so other processes find the news by searching");
        }
    }

    fn announcements(&self) -> Option<broadcast::Receiver<Announcement>> {
        Some(self.listener.received.subscribe())
    }
}

fn payload(Announcement { news, session }: &Announcement) -> Option<String> {
    let kind = match news {
        News::Events => "events",
        News::Work => "work",
        News::Answer => "answer",
    };
    (session.len() <= LONGEST_SUBJECT).then(|| format!("{kind} {session}"))
}

/// Parses what another process has sent. Returns `None` for the announcements of later versions.
fn parse(payload: &str) -> Option<Announcement> {
    let payload = unescaped(payload);
    let (kind, session) = payload.split_once(' ')?;
    let news = match kind {
        "events" => News::Events,
        "work" => News::Work,
        "answer" => News::Answer,
        _ => return None,
    };
    Some(Announcement { news, session: session.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::text::escaped;
    use super::*;

    #[test]
    fn announcements_are_parsed_as_they_are_sent() {
        for news in [News::Events, News::Work, News::Answer] {
            let announcement = Announcement { news, session: "a/1 \0 b".to_owned() };
            let sent = payload(&announcement).unwrap();
            assert_eq!(parse(&escaped(&sent)), Some(announcement));
        }
        assert_eq!(parse("later a/1"), None);
        assert_eq!(parse(""), None);
        assert_eq!(payload(&Announcement { news: News::Work, session: "a".repeat(5_000) }), None);
    }
}
