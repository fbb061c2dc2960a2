//! The tool `files.edit`, which replaces exact pieces of a text file. Either all edits of a call are made or none.

use crate::write::replace;
use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::fs;
use tree_search::lookup;

/// Maximum size of a file that can be edited, in bytes.
const MAX_SIZE: u64 = 4 * 1024 * 1024;
/// Maximum number of edits of one call.
const MAX_EDITS: usize = 100;
/// Maximum number of line numbers in a message.
const MAX_LINES: usize = 10;
/// Maximum number of characters of a line in a message.
const MAX_CHARACTERS: usize = 120;

/// Arguments of `files.edit`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The path of the file, for example `src/lib.rs`.
    path: String,
    /// The edits, which are made one after the other.
    edits: Vec<Edit>,
}

/// One edit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The text to replace, exactly as it is in the file, with enough lines around it that it occurs only once.
    old: String,
    /// The text that replaces it. An empty text deletes it.
    new: String,
    /// Replace every occurrence. Otherwise, the text must occur exactly once.
    #[serde(default)]
    all: bool,
}

/// The result of `files.edit`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Edited {
    path: String,
    /// Size of the file after the edits, in bytes.
    size: u64,
    /// What each edit has replaced.
    edits: Vec<Replaced>,
}

/// What an edit has replaced.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replaced {
    /// Number of the first changed line, from 1, before the later edits.
    line: usize,
    /// Number of occurrences that were replaced.
    occurrences: usize,
}

/// Runs `files.edit`.
pub(crate) fn edit(EditFile { path, edits }: EditFile) -> Result<Edited, ToolError> {
    if edits.is_empty() || edits.len() > MAX_EDITS {
        return Err(ToolError::invalid("/edits", format!("must contain 1 to {MAX_EDITS} edits")));
    }
    let entry = lookup::file(&path)?;
    if entry.metadata.len() > MAX_SIZE {
        let size = entry.metadata.len();
        return Err(ToolError::invalid(
            "/path",
            format!("`{path}` has {size} bytes; at most {MAX_SIZE} can be edited"),
        ));
    }
    let read = || fs::read(&entry.path).map_err(|error| trees::error(&path, &error));
    let original = read()?;
    let text = String::from_utf8(original.clone())
        .map_err(|error| ToolError::failed(format!("`{path}` is not UTF-8 text: {}", error.utf8_error())))?;
    let (edited, replaced) = edited(text, &edits)?;
    // Another program may have changed the file meanwhile.
    if read()? != original {
        return Err(ToolError::failed(format!("`{path}` was changed by another program meanwhile: read it again")));
    }
    replace(&entry.path, &edited).map_err(|error| trees::error(&path, &error))?;
    Ok(Edited { path, size: edited.len() as u64, edits: replaced })
}

/// Makes the edits one after the other.
fn edited(mut text: String, edits: &[Edit]) -> Result<(String, Vec<Replaced>), ToolError> {
    let mut replaced = Vec::new();
    for (index, Edit { old, new, all }) in edits.iter().enumerate() {
        let conflict = |problem: String| ToolError::invalid(format!("/edits/{index}/old"), problem);
        if old.is_empty() {
            return Err(conflict("must not be empty; `files.write` writes whole files".to_owned()));
        }
        if old == new {
            return Err(ToolError::invalid(format!("/edits/{index}/new"), "is the same as `old`"));
        }
        let places: Vec<usize> = text.match_indices(old.as_str()).map(|(place, _)| place).collect();
        match places[..] {
            [] => return Err(conflict(not_found(&text, old, index))),
            [_, _, ..] if !all => return Err(conflict(ambiguous(&text, &places))),
            [first, ..] => replaced.push(Replaced { line: line_of(&text, first), occurrences: places.len() }),
        }
        let size = text.len() - places.len() * old.len() + places.len() * new.len();
        if size as u64 > MAX_SIZE {
            let problem = format!("the file would have {size} bytes; at most {MAX_SIZE} are allowed");
            return Err(ToolError::invalid(format!("/edits/{index}/new"), problem));
        }
        text = text.replace(old.as_str(), new);
    }
    Ok((text, replaced))
}

/// Explains that the text does not occur, and what in the file resembles it.
fn not_found(text: &str, old: &str, index: usize) -> String {
    let earlier = if index > 0 { " after the earlier edits" } else { "" };
    let problem = format!("does not occur in the file{earlier}; nothing was changed");
    if text.replace("\r\n", "\n").contains(&old.replace("\r\n", "\n")) {
        return format!("{problem}: the file has other line ends (`\\r\\n` or `\\n`) than `old`");
    }
    let first = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let similar = text.lines().enumerate().find(|(_, line)| !first.is_empty() && line.trim() == first);
    match similar {
        Some((number, line)) => {
            let shown: String = line.chars().take(MAX_CHARACTERS).collect();
            format!("{problem}: line {} is `{shown}`, but the text around it or its indentation differs", number + 1)
        }
        None => format!("{problem}: read the file again"),
    }
}

/// Explains that the text occurs several times.
fn ambiguous(text: &str, places: &[usize]) -> String {
    let lines: Vec<_> = places.iter().take(MAX_LINES).map(|place| line_of(text, *place).to_string()).collect();
    let more = if places.len() > MAX_LINES { ", …" } else { "" };
    format!(
        "occurs {} times, in the lines {}{more}: add lines around it, or set `all`; nothing was changed",
        places.len(),
        lines.join(", ")
    )
}

/// Returns the number of the line, from 1, in which this byte is.
fn line_of(text: &str, place: usize) -> usize {
    text[..place].matches('\n').count() + 1
}
