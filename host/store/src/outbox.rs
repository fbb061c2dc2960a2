//! Deeds outside a session that its commits have asked for (D6): stored with the commit, done after it, as often as it
//! takes.

use crate::StoreError;
use agent_core::change::OutboxItem;
use async_trait::async_trait;
use serde::Serialize;

/// What has become of the items that are written in [`crate::Commit::change`]. Writing an id that the session has
/// already changes nothing; deleting a session removes its items, done or not.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Items with a number above `after`, in the order of their commits, at most `limit`: of one session, or of all.
    async fn outbox(
        &self,
        session: Option<&str>,
        which: OutboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredOutboxItem>, StoreError>;

    /// Notes that the deed is done. Noting it again, or for an item that is gone, changes nothing. Of a memory the item
    /// keeps no text then: it stands among the memories, and is forgotten there.
    async fn delivered(&self, number: u64) -> Result<(), StoreError>;
}

/// Which items to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFilter {
    /// Those that are not done.
    Pending,
    /// Those that are done as well.
    All,
}

/// An item with its place and its times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredOutboxItem {
    /// Rises in the order of commits, over all sessions; never given twice.
    pub number: u64,
    /// The session's subject.
    pub session: String,
    /// Itself.
    #[serde(flatten)]
    pub item: OutboxItem,
    /// Time of its commit; RFC 3339 in UTC.
    pub created: String,
    /// When it was first noted as done; RFC 3339 in UTC.
    pub delivered: Option<String>,
}
