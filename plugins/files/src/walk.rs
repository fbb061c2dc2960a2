//! A directory tree in the order of its names, to a depth and a number of entries. Links are named, never followed:
//! what
//! they lead to is in the tree under its own name, or not in the tree.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::cmp::Reverse;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Entries of one directory that are read at most, so that a huge one cannot fill the memory.
const LARGEST_DIRECTORY: usize = 20_000;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// One entry of the tree.
pub(crate) struct Found {
    /// For `std::fs`.
    pub(crate) path: PathBuf,
    /// Relative to the walk's beginning, with `/`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What a walk could not see.
#[derive(Default)]
pub(crate) struct Unseen {
    /// Directories that could not be read, by name.
    pub(crate) unreadable: Vec<String>,
    /// Directories of more than 20,000 entries, of which the rest was left out.
    pub(crate) cut: Vec<String>,
}

/// Visits the entries below `root` (given as the model wrote it in `shown`), directories before what is in them.
pub(crate) fn walk(
    root: &Path,
    shown: &str,
    depth: u32,
    mut visit: impl FnMut(&Found) -> ControlFlow<()>,
) -> Result<Unseen, ToolError> {
    let mut unseen = Unseen::default();
    let mut waiting = entries(root, "", 1, &mut unseen).map_err(|error| trees::error(shown, &error))?;
    while let Some((level, found)) = waiting.pop() {
        if visit(&found).is_break() {
            break;
        }
        if found.kind == Kind::Directory && level < depth {
            match entries(&found.path, &found.name, level + 1, &mut unseen) {
                Ok(inner) => waiting.extend(inner),
                Err(_) => unseen.unreadable.push(found.name),
            }
        }
    }
    Ok(unseen)
}

/// The entries of one directory, last name first, so that the next one is popped.
fn entries(path: &Path, prefix: &str, level: u32, unseen: &mut Unseen) -> std::io::Result<Vec<(u32, Found)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entries.len() == LARGEST_DIRECTORY {
            unseen.cut.push(if prefix.is_empty() { ".".to_owned() } else { prefix.to_owned() });
            break;
        }
        let own = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { own } else { format!("{prefix}/{own}") };
        let kind = match entry.file_type()? {
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File,
            _ => Kind::Other,
        };
        entries.push((level, Found { path: entry.path(), name, kind }));
    }
    entries.sort_by(|one, other| Reverse(&one.1.name).cmp(&Reverse(&other.1.name)));
    Ok(entries)
}
