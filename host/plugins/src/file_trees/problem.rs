//! The error for a granted directory that cannot be opened.

use super::TreeError;
use crate::grants::TreeGrant;
use crate::grants::manifest::Access;

/// A granted directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the granted directory {guest:?} ({}) cannot be opened: {reason}", host.display())]
pub struct TreeProblem {
    /// Path of the directory as the user wrote it.
    pub guest: String,
    /// Path of the directory on the host.
    pub host: std::path::PathBuf,
    /// The line in agent.toml that grants the directory, for example `read = ["docs"]`.
    pub line: String,
    /// The reason why the directory cannot be opened, for example an error message of the operating system.
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
