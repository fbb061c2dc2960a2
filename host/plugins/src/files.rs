//! What a call met in its granted trees, as far as a later look at it needs that (S6): what it found where it first looked, and
//! what it left there. A replay finds the same, and nothing else.

mod laid_out;
mod look;
mod overlay;
mod walk;
mod watch;

use crate::answers::{Bytes, Read};
use crate::manifest::Access;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};

pub use laid_out::{NotLaidOut, RecordedTrees};
pub(crate) use walk::{Kind, Last, Met, Place};
pub(crate) use watch::{Ending, FileWatch, Listing, Noting, Opened};

/// A tree that a call was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenTree {
    /// What the guest calls it.
    pub guest: String,
    /// What might be done there.
    pub access: Access,
}

/// What a call found at a path before it changed anything there itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundFile {
    /// Nothing.
    Nothing,
    /// A regular file.
    File {
        /// Size and times.
        stat: FileStat,
        /// What is in it, where the call opened it.
        content: FoundContent,
    },
    /// A directory.
    Directory {
        /// Size and times.
        stat: FileStat,
        /// What is in it, where the call listed it.
        names: FoundNames,
    },
    /// A symbolic link.
    Link {
        /// Size and times.
        stat: FileStat,
        /// Where it leads.
        to: String,
    },
    /// Something else, such as a pipe: nobody may open it.
    Other {
        /// Size and times.
        stat: FileStat,
    },
}

/// What the system says of a file. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Bytes.
    pub size: u64,
    /// Names that it has.
    pub links: u64,
    /// When it was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed: Option<u64>,
    /// When it was written last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
}

/// What was in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundContent {
    /// The call did not open it.
    NotOpened,
    /// The system did not let it be opened.
    Refused,
    /// All of it, when it was opened.
    Kept(Bytes),
    /// More than is kept.
    TooLarge,
    /// A secret of the plugin, which no record holds.
    Secret,
}

/// What was in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundNames {
    /// The call did not list it.
    NotListed,
    /// These, in the order in which the system named them.
    Listed {
        /// Each with what it was.
        names: Vec<(String, NamedKind)>,
        /// Whether there was more.
        read: Read,
    },
}

/// What a directory says of a name in it.
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
    /// Something that the call had put there itself.
    Own,
}

/// What a call left at a path that it has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftFile {
    /// Nothing: it was removed, or moved away.
    Nothing,
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Of its content. None: there was too much to look at.
        content: Option<Digest>,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Where it leads.
        to: String,
    },
    /// What stood elsewhere when the call began.
    Moved {
        /// The number of its tree.
        tree: usize,
        /// Its path there.
        from: String,
    },
    /// Something else.
    Other,
}
