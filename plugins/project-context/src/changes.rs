//! Detects files that have changed since the start of the turn. `init` stores the size and the modification time of
//! each file as state, and each later step compares the current files with this state.

use crate::tree::{Stamp, Tree};
use agent_host_sdk::serde_json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum size of the state, in bytes. The host accepts at most 64 KiB.
const MAX_BYTES: usize = 60_000;
/// Maximum number of names that are listed for each kind of change.
const MAX_NAMES: usize = 20;

/// The stamps of the files in a tree. A stamp is a file's size and modification time. If the stamps of all files
/// together would exceed [`MAX_BYTES`], some files have no stamp.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// Path, size in bytes, and modification time in milliseconds since 1970.
    files: Vec<(String, u64, u64)>,
    /// Whether `files` contains all files of the tree. If this value is false, a file that is not in `files` may have
    /// existed when the turn started.
    complete: bool,
}

impl Stamps {
    /// Returns the stamps of the files in a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut stamps = Self { files: Vec::new(), complete: !tree.cut };
        let mut bytes = 64;
        for entry in &tree.entries {
            let Some(Stamp { size, modified }) = entry.file else {
                continue;
            };
            // Adds the estimated size of the entry as JSON: escapes may double the length of the path, and each number
            // has at most 20 digits.
            bytes += entry.path.len() * 2 + 48;
            if bytes > MAX_BYTES {
                stamps.complete = false;
                break;
            }
            stamps.files.push((entry.path.clone(), size, modified));
        }
        stamps
    }

    /// Encodes the stamps as JSON, which `init` returns as the state of the turn.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // The encoding cannot fail, because every string, every number and every boolean of this type can be written
        // as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes the stamps from the state that [`encode`](Self::encode) returned.
    pub(crate) fn decode(state: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(state)
    }

    /// Returns a text about the changes, or `None` if there are no changes or if the text would exceed `limit` bytes.
    pub(crate) fn compare(&self, now: &Tree, limit: usize) -> Option<String> {
        let mut before = BTreeMap::new();
        for (path, size, modified) in &self.files {
            before.insert(path.as_str(), Stamp { size: *size, modified: *modified });
        }
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for entry in &now.entries {
            let Some(stamp) = entry.file else { continue };
            match before.remove(entry.path.as_str()) {
                Some(old) if old != stamp => changed.push(entry.path.as_str()),
                None if self.complete => new.push(entry.path.as_str()),
                _ => {}
            }
        }
        // If the current tree is incomplete because a limit was reached, a file that is missing from this tree may
        // still exist, so no files are reported as removed.
        let removed = if now.cut { Vec::new() } else { before.into_keys().collect() };
        let mut text = String::new();
        for (kind, names) in [("changed", changed), ("new", new), ("removed", removed)] {
            if !names.is_empty() {
                text.push_str(&change_line(kind, &names));
            }
        }
        if text.is_empty() {
            return None;
        }
        let text = format!("Files of the project since this turn began:\n{text}");
        (text.len() <= limit).then_some(text)
    }
}

fn change_line(kind: &str, names: &[&str]) -> String {
    let listed = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => format!("{kind}: {listed}\n"),
        more => format!("{kind}: {listed} and {more} more\n"),
    }
}
