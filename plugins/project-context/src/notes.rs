//! Reads the project's notes, and truncates the notes to the available size.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The files with notes, most important first. Each entry consists of the folder, the name, and the maximum number of
/// bytes that are used.
const SOURCES: [(&str, &str, usize); 5] = [
    ("", "agents.md", 24_000),
    ("", "notes.md", 6_000),
    ("", "readme.md", 4_000),
    ("docs", "readme.md", 3_000),
    ("docs", "notes.md", 6_000),
];
/// Maximum number of entries of a directory that are searched for a file with notes.
const MAX_ENTRIES: usize = 2_000;
/// Minimum number of bytes of a part of a file, if the complete file does not fit. A shorter part would be useless and
/// is left out.
const MIN_PIECE: usize = 80;

/// Returns the notes of the project in at most `limit` bytes, or `None` if there are no notes.
pub(crate) fn gather(root: &Path, limit: usize) -> Option<String> {
    let mut text = String::new();
    for (folder, name, max) in SOURCES {
        let Some((shown, path)) = find(root, folder, name) else {
            continue;
        };
        let heading = format!("{}--- {shown} ---\n", if text.is_empty() { "" } else { "\n" });
        let cut = format!("… ({shown} continues)\n");
        let remaining = limit.saturating_sub(text.len() + heading.len() + cut.len());
        if remaining < MIN_PIECE {
            break;
        }
        let Some((content, is_complete)) = head(&path, max.min(remaining)) else {
            continue;
        };
        if content.trim().is_empty() {
            continue;
        }
        text.push_str(&heading);
        text.push_str(content.trim_end());
        text.push('\n');
        if !is_complete {
            text.push_str(&cut);
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Finds the file `name` in any capitalization. If several files match, returns the file whose name sorts first.
fn find(root: &Path, folder: &str, name: &str) -> Option<(String, std::path::PathBuf)> {
    let directory = root.join(folder);
    let names = fs::read_dir(&directory).ok()?.take(MAX_ENTRIES).filter_map(Result::ok);
    let mut names = names
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|found| found.eq_ignore_ascii_case(name))
        .collect::<Vec<_>>();
    names.sort();
    let found = names.into_iter().next()?;
    let shown = if folder.is_empty() { found.clone() } else { format!("{folder}/{found}") };
    Some((shown, directory.join(found)))
}

/// Returns the beginning of a text file, and whether this beginning is the complete file. If possible, the beginning
/// ends after a whole line. Returns `None` if the file is not text.
fn head(path: &Path, max: usize) -> Option<(String, bool)> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max as u64 + 1).read_to_end(&mut bytes).ok()?;
    let is_complete = bytes.len() <= max;
    bytes.truncate(max);
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let end = match text.rfind('\n') {
        Some(end) if !is_complete => end,
        _ => text.len(),
    };
    Some((text[..end].to_owned(), is_complete))
}
