//! `files.list`.

use crate::lookup;
use crate::walk::{Kind, walk};
use agent_host_sdk::prelude::*;
use std::ops::ControlFlow;

const MOST_ENTRIES: usize = 1_000;
const DEEPEST: u32 = 32;

/// Arguments of `files.list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// The directory, for example `src`.
    path: String,
    /// Levels of directories to list: 1 for the directory alone, at most 32.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    depth: u32,
}

/// What a directory holds.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Listing {
    /// The directory, as it was asked for.
    path: String,
    /// In the order of their names, directories before what is in them.
    entries: Vec<Listed>,
    /// What was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    /// Relative to the listed directory.
    name: String,
    kind: Kind,
    /// Bytes, for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

fn one() -> u32 {
    1
}

/// Lists a directory.
pub(crate) fn list(List { path, depth }: List) -> Result<Listing, ToolError> {
    if !(1..=DEEPEST).contains(&depth) {
        return Err(ToolError::invalid("/depth", format!("must be 1 to {DEEPEST}")));
    }
    let root = lookup::entry(&path)?;
    if root.metadata.is_file() {
        let entries = vec![Listed { name: path.clone(), kind: Kind::File, size: Some(root.metadata.len()) }];
        return Ok(Listing { path, entries, notes: Vec::new() });
    }
    let (mut entries, mut notes) = (Vec::new(), Vec::new());
    let unseen = walk(&root.path, &path, depth, |found| {
        if entries.len() == MOST_ENTRIES {
            notes.push(format!("cut after {MOST_ENTRIES} entries, before `{}`; list a subdirectory", found.name));
            return ControlFlow::Break(());
        }
        let size = match found.kind {
            Kind::File => found.path.metadata().ok().map(|metadata| metadata.len()),
            _ => None,
        };
        entries.push(Listed { name: found.name.clone(), kind: found.kind, size });
        ControlFlow::Continue(())
    })?;
    notes.extend(unseen.unreadable.iter().map(|name| format!("`{name}` could not be read")));
    notes.extend(unseen.cut.iter().map(|name| format!("`{name}` has too many entries to sort; the rest is left out")));
    Ok(Listing { path, entries, notes })
}
