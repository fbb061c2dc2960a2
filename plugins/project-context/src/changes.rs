//! Detects changes on disk since the start of the turn. `init` passes the stamps of the files to the steps as state.

use crate::tree::{Stamp, Tree};
use agent_host_sdk::serde_json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum size of the state in bytes; the host accepts 64 KiB.
const MAX_BYTES: usize = 60_000;
/// Maximum number of names that are listed for each kind of change.
const MAX_NAMES: usize = 20;

/// The files of a tree with their stamps, as many as fit.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// Path, size, and modification time in milliseconds since 1970.
    files: Vec<(String, u64, u64)>,
    /// Whether the list contains all files. Only then is a file that is not in the list a new file.
    complete: bool,
}

impl Stamps {
    /// Takes the stamps of a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut stamps = Self { files: Vec::new(), complete: !tree.cut };
        let mut bytes = 64;
        for entry in &tree.entries {
            let Some(Stamp { size, modified }) = entry.file else {
                continue;
            };
            // JSON escapes may double the length of the path, and the numbers have at most 20 digits each.
            bytes += entry.path.len() * 2 + 48;
            if bytes > MAX_BYTES {
                stamps.complete = false;
                break;
            }
            stamps.files.push((entry.path.clone(), size, modified));
        }
        stamps
    }

    /// Encodes the stamps as state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Strings, numbers and a flag can always be written as JSON. Without state, the steps add nothing.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes the stamps from state.
    pub(crate) fn decode(state: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(state)
    }

    /// The changes in at most `limit` bytes; `None` if there are none.
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
        // A file that is missing only because the tree was cut was not removed.
        let removed = if now.cut { Vec::new() } else { before.into_keys().collect() };
        let mut text = String::new();
        for (what, names) in [("changed", changed), ("new", new), ("removed", removed)] {
            if !names.is_empty() {
                text.push_str(&line(what, &names));
            }
        }
        if text.is_empty() {
            return None;
        }
        let text = format!("Files of the project since this turn began:\n{text}");
        (text.len() <= limit).then_some(text)
    }
}

fn line(what: &str, names: &[&str]) -> String {
    let listed = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => format!("{what}: {listed}\n"),
        more => format!("{what}: {listed} and {more} more\n"),
    }
}
