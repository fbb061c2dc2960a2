//! Memories: facts about a user that are kept across sessions (D4).

use crate::{StoreError, StoredOutboxItem};
use agent_core::memory::Memory;
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use serde::Serialize;

/// Maximum size of a memory's text, in bytes.
pub const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Stores long-term memories.
#[async_trait]
pub trait Memories: Send + Sync {
    /// Stores a memory under an id that the caller derives from the memory's content and origin. If a
    /// memory with this id is already stored, nothing changes. A text of more than [`MAX_MEMORY_BYTES`]
    /// bytes fails with [`StoreError::TooLarge`].
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError>;

    /// Delivers an outbox item that adds a memory: adds the memory, with the time of the item's commit, and records the
    /// delivery, in one transaction. Adds no memory if the item was delivered before, if the session has a later item that
    /// forgets the turn, or if the session was deleted. The text is removed from the item, so that no copy remains after
    /// the memory is forgotten. An item with another effect fails with [`StoreError::Invalid`].
    async fn remember(&self, item: &StoredOutboxItem) -> Result<(), StoreError>;

    /// Returns up to `limit` memories that the filter selects and that match the query, best match first. A memory
    /// matches if it contains any word of the query. Rare words of the query have more weight than common words. If many
    /// memories contain a common word, a store may rank only the newest of them.
    async fn search(&self, filter: &MemoryFilter, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError>;

    /// Returns up to `limit` memories of the user, newest first. The list starts after the memory with the id `after`,
    /// or with the newest memory if `after` is empty.
    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<StoredMemory>, StoreError>;

    /// Removes the memory with this id if the memory belongs to the user. Returns whether such a memory existed.
    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError>;

    /// Removes the memories of a turn that was undone, and returns the number of removed memories. Returns 0 if the
    /// memories were already removed.
    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError>;
}

/// Selects the memories to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFilter {
    /// The user whose memories are searched.
    pub user: String,
    /// The agents whose memories are searched.
    pub scope: MemoryScope,
    /// The project folder whose memories are searched. Memories without a project folder are searched, too. `None` if the
    /// memories of all projects are searched.
    pub project: Option<String>,
    /// Subject of a session whose memories are not searched. `None` if the memories of all sessions are searched.
    pub excluded_session: Option<String>,
}

impl MemoryFilter {
    /// Returns a filter that selects all memories of a user.
    pub fn of_user(user: impl Into<String>) -> Self {
        Self { user: user.into(), scope: MemoryScope::AllAgents, project: None, excluded_session: None }
    }
}

/// Selects memories by the agents that made them. Each agent is identified by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryScope {
    /// The memories that any agent of the user made.
    AllAgents,
    /// All memories that the agent with this name made, and the memories of turns that the user's other agents made.
    /// Memories of the other agents' tool calls are left out, because those agents called the tools with their own
    /// grants.
    OwnAndOtherResults(String),
    /// Only the memories that the agent with this name made.
    OwnOnly(String),
}

/// A stored memory with its id. The memory's `written` field is always set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredMemory {
    /// Id of the memory.
    pub id: String,
    /// The memory without its id. The fields of the memory are serialised next to `id`.
    #[serde(flatten)]
    pub memory: Memory,
}
