//! What is remembered of a user beyond the session that it was made in (D4).

use serde::{Deserialize, Serialize};

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
    /// Name of the agent that made it; empty where that is not known.
    #[serde(default)]
    pub agent: String,
    /// Subject of the session that it is from.
    pub session: String,
    /// The turn of it, from 1; 0 where that is not known.
    #[serde(default)]
    pub turn: u32,
    /// Itself; the store says how long it may be.
    pub text: String,
    /// RFC 3339. None: when it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
}
