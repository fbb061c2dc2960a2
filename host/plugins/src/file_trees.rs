//! Granted directories (P6, P13), which are also called granted trees. This module opens granted directories and the
//! files below them, refuses changes to protected files even inside a granted directory, and limits how much data one
//! turn may add.

mod call_tree;
mod host_tree;
mod open;
mod operations;
mod problem;
mod protected;
mod quota;
mod resolve;
mod roots;
mod scratch;
mod streams;

pub use host_tree::{HostTree, HostTreeEntry};
pub use problem::TreeProblem;
pub use protected::{DRAFT_PREFIX, NO_EXTENSION, ProtectedKind, ProtectedPath, is_foreign_toml};
pub use roots::TreeError;
pub use scratch::{ScratchQuota, ScratchTrees};

pub(crate) use call_tree::{CallTree, CallTreeContext, TreeHandles};
pub(crate) use host_tree::TreeHost;
pub(crate) use open::OpenRequest;
pub(crate) use operations::{OpenDirectory, Times, TreeChange};
pub(crate) use protected::ProtectedPaths;
pub(crate) use quota::{Quotas, TurnKey};
pub(crate) use resolve::FinalLink;
pub(crate) use roots::OpenTree;
pub(crate) use scratch::ScratchFolders;
pub(crate) use streams::{GuardedReader, GuardedWriter, OnRefusal, WritePosition};

use crate::limits::Limit;
use rustix::fs::Stat;
use std::io;

/// Maximum number of bytes of a path that a denial quotes.
pub(crate) const SHOWN_PATH_BYTES: usize = 256;

/// Identifies an existing file or directory by device and inode. After the file or directory is deleted, a new file or
/// directory may get the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl From<&Stat> for FileId {
    #[allow(clippy::unnecessary_cast, reason = "the integer types of the fields differ between operating systems")]
    fn from(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }
}

/// The reason why an operation on a granted tree was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeRefusal {
    /// The operating system returned an error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The path leads out of its granted tree, or the grant of the tree does not allow this kind of access.
    #[error("not permitted")]
    NotPermitted,
    /// This host does not support the flags that the guest passed.
    #[error("not supported")]
    Unsupported,
    /// The file is protected: no grant allows the operation, because agent-host itself relies on the file.
    #[error("{0}")]
    Protected(String),
    /// The turn has reached its quota for the tree.
    #[error("{0}")]
    Quota(Limit),
}

impl From<rustix::io::Errno> for TreeRefusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}
