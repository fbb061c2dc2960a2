//! Memories: records about a user that the host keeps beyond one session (D4).

use serde::{Deserialize, Serialize};

/// The source of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// The memory was made from an interaction with a tool.
    Tool,
    /// The memory was made from the final answer of a turn.
    Final,
    /// The memory was made from a turn that reached its interaction limit.
    Limit,
}

impl MemoryKind {
    /// The name of the kind in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Tool => "tool",
            MemoryKind::Final => "final",
            MemoryKind::Limit => "limit",
        }
    }
}

/// A record in a user's long-term memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The user to whom the memory belongs.
    pub user: String,
    /// The source of the memory.
    pub kind: MemoryKind,
    /// Name of the agent that created the memory. The name is empty if the agent is unknown.
    #[serde(default)]
    pub agent: String,
    /// Id (subject) of the session that the memory comes from.
    pub session: String,
    /// Number of the turn that the memory comes from, starting at 1. The number is 0 if the turn is unknown.
    #[serde(default)]
    pub turn: u32,
    /// Path of the project folder that the session worked in. `None` means that no folder is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Text of the memory. The store limits the length of the text.
    pub text: String,
    /// Time at which the memory was written, in RFC 3339. `None` means that the store uses the time at which it stores
    /// the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
}
