//! What is remembered of a user over sessions (D4).

use crate::StoreError;
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Most bytes of one memory's text.
pub const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Long-term memory.
#[async_trait]
pub trait Memories: Send + Sync {
    /// Remembers under an id that the caller makes from what it remembers, so that doing it again changes nothing.
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError>;

    /// What is nearest to the query, nearest first, at most `limit`: any word of it counts, rare ones more.
    async fn search(&self, user: &str, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError>;

    /// The user's memories, newest first, those behind the memory `after` (empty: from the newest), at most `limit`.
    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<RememberedFact>, StoreError>;

    /// Removes a memory of this user; says whether it was there.
    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError>;
}

/// What a memory was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// An interaction with a tool.
    Tool,
    /// A final answer.
    Final,
    /// An ending at the limit.
    Limit,
}

impl MemoryKind {
    /// As it stands in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Tool => "tool",
            MemoryKind::Final => "final",
            MemoryKind::Limit => "limit",
        }
    }
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Whose.
    pub user: String,
    /// What it was made from.
    pub kind: MemoryKind,
    /// Subject of the session that it is from.
    pub session: String,
    /// Itself; at most [`MAX_MEMORY_BYTES`].
    pub text: String,
    /// RFC 3339. None: now.
    pub written: Option<String>,
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
