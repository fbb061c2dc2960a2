//! The error for a granted file tree that cannot be opened.

use super::TreeError;
use crate::grants::TreeGrant;
use crate::grants::manifest::Access;

/// A granted file tree that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the granted directory {guest:?} ({}) cannot be opened: {reason}", host.display())]
pub struct TreeProblem {
    /// Path of the tree as the user wrote it.
    pub guest: String,
    /// Path of the tree on the host.
    pub host: std::path::PathBuf,
    /// Text of the line in agent.toml that grants the tree. Example: `read = ["docs"]`.
    pub line: String,
    /// Error message of the operating system, or another reason.
    pub reason: String,
}

impl TreeProblem {
    pub(crate) fn new(tree: &TreeGrant, error: &TreeError) -> Self {
        let key = match tree.access {
            Access::Read => "read",
            Access::ReadWrite => "write",
        };
        Self {
            guest: tree.guest.clone(),
            host: tree.host.clone(),
            line: format!("{key} = [{:?}]", tree.guest),
            reason: error.to_string(),
        }
    }
}
