//! Announcements between the processes that share a store (F1). An announcement only saves time: it may be lost, doubled or
//! late, because everything that it announces is in the store, and is found there by regular searches.

use async_trait::async_trait;
use tokio::sync::broadcast;

/// What has happened to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum News {
    /// The session has new durable events.
    Events,
    /// A request to the session was stored, or something for which it waited has happened.
    Work,
    /// A request to the session was answered.
    Answer,
}

/// News of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Announcement {
    /// What has happened.
    pub news: News,
    /// Subject of the session.
    pub session: String,
}

/// Tells other processes that share the store what has happened.
#[async_trait]
pub trait Announcements: Send + Sync {
    /// Announces something to the other processes. A failure is only logged.
    async fn announce(&self, announcements: Vec<Announcement>);

    /// Receives the announcements of all processes, including this process. A receiver that is too slow misses some. Returns
    /// `None` if the store has no announcements.
    fn announcements(&self) -> Option<broadcast::Receiver<Announcement>>;
}
