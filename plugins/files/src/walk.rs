//! Walks a directory tree in the order of names, up to a depth and a number of entries. Links are listed but not
//! followed: their target is listed under its own name if it is in the tree.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::cmp::Reverse;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Maximum number of entries of one directory, so that a huge directory cannot fill the memory.
const MAX_DIRECTORY: usize = 20_000;

/// The type of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// An entry of the tree.
pub(crate) struct Entry {
    /// The path for `std::fs`.
    pub(crate) path: PathBuf,
    /// The path relative to the start of the walk, with `/`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The directories that a walk could not read completely.
#[derive(Default)]
pub(crate) struct Skipped {
    /// Names of directories that could not be read.
    pub(crate) unreadable: Vec<String>,
    /// Names of directories with more than 20,000 entries, of which only the first ones are listed.
    pub(crate) truncated: Vec<String>,
}

/// Visits the entries below `root`, directories before their entries. `shown` is `root` as the model gave it.
pub(crate) fn walk(
    root: &Path,
    shown: &str,
    depth: u32,
    mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
) -> Result<Skipped, ToolError> {
    let mut skipped = Skipped::default();
    let mut waiting = entries(root, "", 1, &mut skipped).map_err(|error| trees::error(shown, &error))?;
    while let Some((level, found)) = waiting.pop() {
        if visit(&found).is_break() {
            break;
        }
        if found.kind == Kind::Directory && level < depth {
            match entries(&found.path, &found.name, level + 1, &mut skipped) {
                Ok(inner) => waiting.extend(inner),
                Err(_) => skipped.unreadable.push(found.name),
            }
        }
    }
    Ok(skipped)
}

/// The entries of one directory, sorted in reverse, so that `pop` returns them in order.
fn entries(path: &Path, prefix: &str, level: u32, skipped: &mut Skipped) -> std::io::Result<Vec<(u32, Entry)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entries.len() == MAX_DIRECTORY {
            skipped.truncated.push(if prefix.is_empty() { ".".to_owned() } else { prefix.to_owned() });
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
        entries.push((level, Entry { path: entry.path(), name, kind }));
    }
    entries.sort_by(|one, other| Reverse(&one.1.name).cmp(&Reverse(&other.1.name)));
    Ok(entries)
}
