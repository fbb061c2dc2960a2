//! Granted file trees (P6, P13): which directory a grant means, how the host reaches files beneath it, which files no grant
//! covers, and how much one turn may add.

mod beneath;
mod call;
mod host;
mod open;
mod operations;
mod protected;
mod quota;
mod roots;
mod streams;

pub use host::{HostObject, HostTree};
pub use protected::{ProtectedKind, ProtectedPath, WITHOUT_ENDING, is_foreign_toml};
pub use roots::TreeError;

pub(crate) use beneath::Last;
pub(crate) use call::{CallTree, Circumstances, Handles};
pub(crate) use host::TreeHost;
pub(crate) use open::OpenRequest;
pub(crate) use operations::{Base, Change, Times};
pub(crate) use protected::ProtectedPaths;
pub(crate) use quota::{Quotas, TurnKey};
pub(crate) use roots::OpenTree;
pub(crate) use streams::{GuardedReader, GuardedWriter, Refused, WritePosition};

use crate::limits::Limit;
use rustix::fs::Stat;
use std::io;

/// Identifies a file or directory for as long as it exists: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl From<&Stat> for FileId {
    #[allow(clippy::unnecessary_cast, reason = "the fields have other widths on other systems")]
    fn from(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }
}

/// Why an operation on a granted tree was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The operating system refused it.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The path leads out of its tree, or the tree is granted for reading only.
    #[error("not permitted")]
    NotPermitted,
    /// The flags contradict each other, or this host does not support them.
    #[error("not supported")]
    Unsupported,
    /// No grant covers this file, because agent-host itself relies on it.
    #[error("{0}")]
    Protected(String),
    /// The turn has added as much to the tree as it may.
    #[error("{0}")]
    Quota(Limit),
}

impl From<rustix::io::Errno> for Refusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}
