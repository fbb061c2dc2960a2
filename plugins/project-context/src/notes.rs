//! The project's own notes, cut to the room that there is.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Where notes are looked for, the most telling first, and how much of each is read.
const SOURCES: [(&str, &str, usize); 5] = [
    ("", "agents.md", 24_000),
    ("", "notes.md", 6_000),
    ("", "readme.md", 4_000),
    ("docs", "readme.md", 3_000),
    ("docs", "notes.md", 6_000),
];
/// Entries of a directory that are looked at to find a note whatever its capital letters.
const MOST_ENTRIES: usize = 2_000;
/// A shorter piece of a note says nothing.
const SHORTEST: usize = 80;

/// The notes under `root` in at most `room` bytes; none if there are none.
pub(crate) fn gather(root: &Path, room: usize) -> Option<String> {
    let mut text = String::new();
    for (folder, name, most) in SOURCES {
        let Some((shown, path)) = find(root, folder, name) else {
            continue;
        };
        let heading = format!("{}--- {shown} ---\n", if text.is_empty() { "" } else { "\n" });
        let cut = format!("… ({shown} goes on)\n");
        let left = room.saturating_sub(text.len() + heading.len() + cut.len());
        if left < SHORTEST {
            break;
        }
        let Some((content, whole)) = head(&path, most.min(left)) else {
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

/// The file of this name in whatever capital letters, the first in the order of names.
fn find(root: &Path, folder: &str, name: &str) -> Option<(String, std::path::PathBuf)> {
    let directory = root.join(folder);
    let names = fs::read_dir(&directory).ok()?.take(MOST_ENTRIES).filter_map(Result::ok);
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

/// The beginning of a text file in whole lines where possible, and whether that is all of it; none if it is no text.
fn head(path: &Path, most: usize) -> Option<(String, bool)> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    let whole = bytes.len() <= most;
    bytes.truncate(most);
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
