//! Visits the entries of a directory tree up to a maximum depth, in the order of their names. Links are visited but not
//! followed. If the target of a link is in the same tree, the walk visits the target at its own path.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::cmp::Reverse;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Maximum number of entries of one directory that are visited, so that a directory with very many entries cannot fill
/// the memory.
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

/// An entry of a directory tree.
pub(crate) struct Entry {
    /// The path to pass to `std::fs`.
    pub(crate) path: PathBuf,
    /// The path relative to the directory in which the walk started, with `/` as the separator.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The directories that a walk could not read completely.
#[derive(Default)]
pub(crate) struct Skipped {
    /// Names of directories that could not be read.
    pub(crate) unreadable: Vec<String>,
    /// Names of directories that have more than 20,000 entries and were therefore visited only in part.
    pub(crate) truncated: Vec<String>,
}

/// Visits the entries below `root`. A directory is visited before its entries. `shown` is the path of `root` in the
/// arguments of the call, and is used in error messages.
pub(crate) fn walk(
    root: &Path,
    shown: &str,
    depth: u32,
    mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
) -> Result<Skipped, ToolError> {
    let mut skipped = Skipped::default();
    let mut pending = entries(root, "", 1, &mut skipped).map_err(|error| trees::error(shown, &error))?;
    while let Some((level, found)) = pending.pop() {
        if visit(&found).is_break() {
            break;
        }
        if found.kind == Kind::Directory && level < depth {
            match entries(&found.path, &found.name, level + 1, &mut skipped) {
                Ok(inner) => pending.extend(inner),
                Err(_) => skipped.unreadable.push(found.name),
            }
        }
    }
    Ok(skipped)
}

/// Reads the entries of one directory. The entries are sorted in reverse order, so that `pop` returns the first
/// name first.
fn entries(path: &Path, prefix: &str, level: u32, skipped: &mut Skipped) -> std::io::Result<Vec<(u32, Entry)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entries.len() == MAX_DIRECTORY {
            skipped.truncated.push(if prefix.is_empty() { ".".to_owned() } else { prefix.to_owned() });
            break;
        }
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { file_name } else { format!("{prefix}/{file_name}") };
        let kind = match entry.file_type()? {
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File,
            _ => Kind::Other,
        };
        entries.push((level, Entry { path: entry.path(), name, kind }));
    }
    entries.sort_by(|left, right| Reverse(&left.1.name).cmp(&Reverse(&right.1.name)));
    Ok(entries)
}
