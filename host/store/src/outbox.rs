//! The outbox (D6) stores the effects that a session's commits request and that happen outside of the session, such as
//! sending an event. Each effect is stored as an item, in the same transaction as the commit that requests it. The host
//! delivers the item afterwards and retries until the delivery succeeds.

use crate::StoreError;
use agent_core::change::OutboxItem;
use async_trait::async_trait;
use serde::Serialize;

/// Reads the outbox items that commits have written (see [`crate::Commit::change`]) and records their delivery. An item
/// is not written if the session already has an item with the same id. Deleting a session also deletes its items,
/// including pending items.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Returns up to `limit` items whose number is above `after`, in the order of their numbers. If `session` is `None`,
    /// returns the items of all sessions.
    ///
    /// A reader that asks again later, with the highest number that it has seen, misses no item of a session. It may miss an
    /// item of another session, which was committed later with a lower number. A reader of all sessions must therefore
    /// look back.
    async fn outbox(
        &self,
        session: Option<&str>,
        which: OutboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredOutboxItem>, StoreError>;

    /// Records that the item's effect was performed. If the item was already delivered or deleted, nothing changes.
    /// An item that adds a memory does not change either, because [`Memories::remember`](crate::Memories::remember)
    /// delivers it.
    async fn mark_delivered(&self, number: u64) -> Result<(), StoreError>;

    /// Records that an attempt to deliver the item has failed, and why. If the item was delivered or deleted in the
    /// meantime, nothing changes.
    async fn note_failed_delivery(&self, number: u64, problem: &str) -> Result<(), StoreError>;
}

/// Selects outbox items by whether they were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFilter {
    /// Items that are not delivered yet.
    Pending,
    /// All items, whether they are delivered or not.
    All,
}

/// An outbox item with its number, session and times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredOutboxItem {
    /// Number that identifies the item. The numbers of the items of a session increase in commit order. Numbers are unique
    /// over all sessions and are never reused.
    pub number: u64,
    /// Subject that identifies the session.
    pub session: String,
    /// Name of the session's agent.
    pub agent: String,
    /// The item without its number, session and times. The fields of the item are serialised next to `number`.
    #[serde(flatten)]
    pub item: OutboxItem,
    /// Time of the item's commit, as RFC 3339 in UTC.
    pub created: String,
    /// Time of the first recorded delivery, as RFC 3339 in UTC. `None` if the item is pending.
    pub delivered: Option<String>,
    /// Number of attempts to deliver the item that have failed.
    pub failed_attempts: u32,
    /// Why the last attempt failed. `None` if no attempt has failed.
    pub problem: Option<String>,
}
