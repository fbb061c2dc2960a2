//! What has changed on disk since the turn began: stamps of its files travel from `init` to the steps as state.

use crate::tree::{Stamp, Tree};
use agent_host_sdk::serde_json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most bytes of state; the host takes 64 KiB.
const MOST_BYTES: usize = 60_000;
/// Names that are told at most, of each kind of change.
const MOST_NAMES: usize = 20;

/// The files of a tree with their stamps, as many as fit.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// Path, size, milliseconds since 1970.
    files: Vec<(String, u64, u64)>,
    /// Whether these are all files: only then a file that is not among them is new.
    complete: bool,
}

impl Stamps {
    /// The stamps of a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut stamps = Self { files: Vec::new(), complete: !tree.cut };
        let mut bytes = 64;
        for entry in &tree.entries {
            let Some(Stamp { size, modified }) = entry.file else {
                continue;
            };
            // The path may double where JSON escapes it, and the numbers have at most 20 digits each.
            bytes += entry.path.len() * 2 + 48;
            if bytes > MOST_BYTES {
                stamps.complete = false;
                break;
            }
            stamps.files.push((entry.path.clone(), size, modified));
        }
        stamps
    }

    /// As state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Strings, numbers and a flag always become JSON; without state the steps just say nothing.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From state.
    pub(crate) fn decode(state: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(state)
    }

    /// What is different now, in at most `room` bytes; none if nothing is.
    pub(crate) fn compare(&self, now: &Tree, room: usize) -> Option<String> {
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
        // A file that a limit kept out of the tree now is not gone.
        let gone = if now.cut { Vec::new() } else { before.into_keys().collect() };
        let mut text = String::new();
        for (what, names) in [("changed", changed), ("new", new), ("removed", gone)] {
            if !names.is_empty() {
                text.push_str(&line(what, &names));
            }
        }
        if text.is_empty() {
            return None;
        }
        let text = format!("Files of the project since this turn began:\n{text}");
        (text.len() <= room).then_some(text)
    }
}

fn line(what: &str, names: &[&str]) -> String {
    let told = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => format!("{what}: {told}\n"),
        more => format!("{what}: {told} and {more} more\n"),
    }
}
