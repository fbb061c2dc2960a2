//! Reads the project's notes, cut to the available size.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Folder and name of the notes, most important first, and the maximum number of bytes of each.
const SOURCES: [(&str, &str, usize); 5] = [
    ("", "agents.md", 24_000),
    ("", "notes.md", 6_000),
    ("", "readme.md", 4_000),
    ("docs", "readme.md", 3_000),
    ("docs", "notes.md", 6_000),
];
/// Maximum number of directory entries that are searched for a note in any capitalization.
const MAX_ENTRIES: usize = 2_000;
/// Minimum size of a piece of a note in bytes; shorter pieces are useless.
const MIN_PIECE: usize = 80;

/// The notes under `root` in at most `limit` bytes; `None` if there are none.
pub(crate) fn gather(root: &Path, limit: usize) -> Option<String> {
    let mut text = String::new();
    for (folder, name, max) in SOURCES {
        let Some((shown, path)) = find(root, folder, name) else {
            continue;
        };
        let heading = format!("{}--- {shown} ---\n", if text.is_empty() { "" } else { "\n" });
        let cut = format!("… ({shown} continues)\n");
        let left = limit.saturating_sub(text.len() + heading.len() + cut.len());
        if left < MIN_PIECE {
            break;
        }
        let Some((content, whole)) = head(&path, max.min(left)) else {
            continue;
        };
        if content.trim().is_empty() {
            continue;
        }
        text.push_str(&heading);
        text.push_str(content.trim_end());
        text.push('\n');
        if !whole {
            text.push_str(&cut);
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Finds the file with this name in any capitalization; if there are several, the first by name.
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

/// The start of a text file, in whole lines if possible, and whether it is the whole file; `None` if it is not text.
fn head(path: &Path, max: usize) -> Option<(String, bool)> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max as u64 + 1).read_to_end(&mut bytes).ok()?;
    let whole = bytes.len() <= max;
    bytes.truncate(max);
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let end = match text.rfind('\n') {
        Some(end) if !whole => end,
        _ => text.len(),
    };
    Some((text[..end].to_owned(), whole))
}
