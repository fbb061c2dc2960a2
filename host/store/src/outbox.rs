//! The outbox: effects outside a session that its commits request (D6). They are stored with the commit, and delivered
//! afterwards with as many attempts as it takes.

use crate::StoreError;
use agent_core::change::OutboxItem;
use async_trait::async_trait;
use serde::Serialize;

/// Reads the outbox items that commits have written (see [`crate::Commit::change`]) and records their delivery. Writing an id
/// that the session already has changes nothing; deleting a session also deletes its items, delivered or not.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Returns the items with a number above `after` in commit order, at most `limit`: of one session, or of all.
    async fn outbox(
        &self,
        session: Option<&str>,
        which: OutboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredOutboxItem>, StoreError>;

    /// Records that the item's effect was performed. Recording it again, or for a deleted item, changes nothing. An item that
    /// added a memory then drops its copy of the text, so that the memory can be forgotten.
    async fn mark_delivered(&self, number: u64) -> Result<(), StoreError>;
}

/// Selects outbox items by their delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFilter {
    /// Items that are not delivered yet.
    Pending,
    /// All items, delivered or not.
    All,
}

/// An outbox item with its number, session and times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredOutboxItem {
    /// Number of the item. Numbers increase in commit order over all sessions and are never reused.
    pub number: u64,
    /// Subject of the session.
    pub session: String,
    /// The item itself; its fields are serialised next to `number`.
    #[serde(flatten)]
    pub item: OutboxItem,
    /// Time of the item's commit, as RFC 3339 in UTC.
    pub created: String,
    /// Time of the first recorded delivery, as RFC 3339 in UTC. `None` if the item is pending.
    pub delivered: Option<String>,
}
