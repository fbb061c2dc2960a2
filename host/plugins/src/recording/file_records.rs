//! Records of files and directories: the state in which a call found them in its file trees, and the state in which it left them.

use super::bytes::{Extent, RecordedBytes};
use crate::grants::manifest::Access;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};

/// A file tree that a call had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenTree {
    /// Path under which the guest saw it.
    pub guest: String,
    /// Access that the call had.
    pub access: Access,
}

/// The state of a path when the call first accessed it, before any change by the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundFile {
    /// The path did not exist.
    Nothing,
    /// A regular file.
    File {
        /// Size, link count and times.
        stat: FileStat,
        /// Content of the file, if the call opened it.
        content: FoundContent,
    },
    /// A directory.
    Directory {
        /// Size, link count and times.
        stat: FileStat,
        /// Names in the directory, if the call listed it.
        names: FoundNames,
    },
    /// A symbolic link.
    Link {
        /// Size, link count and times.
        stat: FileStat,
        /// Target of the link.
        to: String,
    },
    /// Something else, such as a pipe, which guests cannot open.
    Other {
        /// Size, link count and times.
        stat: FileStat,
    },
}

/// The metadata of a file. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Size in bytes.
    pub size: u64,
    /// Number of hard links.
    pub links: u64,
    /// Time of the last access. None: the system does not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed: Option<u64>,
    /// Time of the last modification. None: the system does not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// Time of creation. None: the system does not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
}

/// The content of a file when the call opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundContent {
    /// The call did not open it.
    NotOpened,
    /// The system refused to open it.
    Refused,
    /// The complete content.
    #[serde(rename = "kept")]
    Recorded(RecordedBytes),
    /// The content did not fit into the record.
    TooLarge,
    /// The content contained a secret of the plugin and is therefore not recorded.
    Secret,
}

/// The names in a directory when the call listed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundNames {
    /// The call did not list it.
    NotListed,
    /// The call listed it.
    Listed {
        /// Names with their kinds, in the order in which the system returned them.
        names: Vec<(String, NamedKind)>,
        /// Whether the list is complete.
        read: Extent,
    },
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Something else.
    Other,
    /// Something that the call itself had created.
    Own,
}

/// The state of a path that the call changed, at the end of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftFile {
    /// The path no longer exists.
    Nothing,
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Digest of its content. None: too many bytes had changed to hash them all.
        content: Option<Digest>,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Target of the link.
        to: String,
    },
    /// Something that was at a different path at the start of the call.
    Moved {
        /// Number of the tree in which it was.
        tree: usize,
        /// Path at which it was in that tree.
        from: String,
    },
    /// Something else.
    Other,
}
