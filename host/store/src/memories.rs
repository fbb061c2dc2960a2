//! What is remembered of a user over sessions (D4).

use crate::StoreError;
use agent_core::memory::Memory;
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use serde::Serialize;

/// Most bytes of one memory's text.
pub const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Long-term memory.
#[async_trait]
pub trait Memories: Send + Sync {
    /// Remembers under an id that the caller makes from what it remembers, so that doing it again changes nothing. Its text
    /// has at most [`MAX_MEMORY_BYTES`].
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError>;

    /// What is nearest to the query among the memories that the filter lets through, nearest first, at most `limit`: any
    /// word of the query counts, rare ones more.
    async fn search(&self, filter: &MemoryFilter, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError>;

    /// The user's memories, newest first, those behind the memory `after` (empty: from the newest), at most `limit`.
    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<RememberedFact>, StoreError>;

    /// Removes a memory of this user; says whether it was there.
    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError>;

    /// Removes what was remembered of a turn that was taken back; says how many memories that were. Doing it again changes
    /// nothing.
    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError>;
}

/// Which memories are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFilter {
    /// Whose.
    pub user: String,
    /// Made by which of the user's agents.
    pub agents: MadeBy,
    /// All of this session are left out. None: none are.
    pub but_of: Option<String>,
}

impl MemoryFilter {
    /// All memories of a user.
    pub fn of_user(user: impl Into<String>) -> Self {
        Self { user: user.into(), agents: MadeBy::Anyone, but_of: None }
    }
}

/// Which agents made the memories that are searched, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadeBy {
    /// Any: for the user.
    Anyone,
    /// This one, and beside its own the endings of the others: what tools brought an agent under its grants is for no other.
    ThisOrEndings(String),
    /// This one alone.
    ThisAlone(String),
}

/// A memory as it is stored; its `written` is always set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RememberedFact {
    /// Identifies it.
    pub id: String,
    /// Itself.
    #[serde(flatten)]
    pub memory: Memory,
}
