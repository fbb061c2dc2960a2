//! The records of files and directories: their state before a call first accessed them, and their state at the end of
//! the call.

use super::bytes::{Extent, RecordedBytes};
use crate::grants::manifest::Access;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};

/// A directory that was granted to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedTree {
    /// Path under which the guest saw the directory.
    pub guest: String,
    /// The kind of access to the directory that was granted to the call.
    pub access: Access,
}

/// The state of a path when the call first accessed it, before any change by the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialFileState {
    /// The path did not exist.
    Nothing,
    /// The path led to a regular file.
    File {
        /// Size, number of hard links, and times of the file.
        stat: FileStat,
        /// Content of the file, if the call opened it.
        content: FoundContent,
    },
    /// The path led to a directory.
    Directory {
        /// Size, number of hard links, and times of the directory.
        stat: FileStat,
        /// Names in the directory, if the call listed it.
        names: FoundNames,
    },
    /// The path led to a symbolic link.
    Link {
        /// Size, number of hard links, and times of the link itself.
        stat: FileStat,
        /// Path to which the link refers, as it is stored in the link.
        to: String,
    },
    /// The path led to a pipe or another object that is not a file, directory or link. Guests cannot open
    /// such an object.
    Other {
        /// Size, number of hard links, and times of the object.
        stat: FileStat,
    },
}

/// The metadata of a file. All times are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of hard links to the file.
    pub links: u64,
    /// Time of the last access. `None` means that the operating system does not provide this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed: Option<u64>,
    /// Time of the last modification. `None` means that the operating system does not provide this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// Time at which the file was created. `None` means that the operating system does not provide this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
}

/// The content of a file when the call opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundContent {
    /// The call did not open the file, so its content is not recorded.
    NotOpened,
    /// The operating system refused to open the file.
    Refused,
    /// The complete content of the file.
    #[serde(rename = "kept")]
    Recorded(RecordedBytes),
    /// The content did not fit into the record.
    TooLarge,
    /// The content contained a secret of the plugin and is therefore not recorded.
    Secret,
}

/// The names that a directory contained when the call listed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundNames {
    /// The call did not list the directory, so its names are not recorded.
    NotListed,
    /// The call listed the directory.
    Listed {
        /// The names and kinds of the entries, in the order in which the operating system returned them.
        names: Vec<(String, EntryKind)>,
        /// Whether the list contains all names in the directory.
        read: Extent,
    },
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// The entry is a regular file.
    File,
    /// The entry is a directory.
    Directory,
    /// The entry is a symbolic link.
    Link,
    /// The entry is of another type, such as a pipe.
    Other,
    /// An entry that the call itself had created before it listed the directory.
    Own,
}

/// The state that a changed path has at the end of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalFileState {
    /// The path no longer exists.
    Nothing,
    /// At the end of the call, the path leads to a regular file.
    File {
        /// Size of the file in bytes.
        size: u64,
        /// Digest of the file's content. `None` means that the file was not hashed, because the changed files of the
        /// call have too many bytes in total.
        content: Option<Digest>,
    },
    /// At the end of the call, the path leads to a directory.
    Directory,
    /// At the end of the call, the path leads to a symbolic link.
    Link {
        /// Path to which the link refers, as it is stored in the link.
        to: String,
    },
    /// A file or directory that was at a different path at the start of the call.
    Moved {
        /// Number of the tree that contained the file or directory at the start of the call.
        tree: usize,
        /// Path of the file or directory in that tree at the start of the call.
        from: String,
    },
    /// At the end of the call, the path leads to a pipe or another object that is not a file, directory or link.
    Other,
}
