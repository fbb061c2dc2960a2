//! Reads the files and directories of the project in a fixed order, and draws a tree with as many levels as fit.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Maximum number of entries that are read, so that a call takes little time even in a large project.
const MAX_ENTRIES: usize = 5_000;
/// Maximum number of entries of one directory that are read.
const MAX_IN_DIRECTORY: usize = 1_000;
/// Maximum depth to which the tree is read.
const MAX_DEPTH: usize = 6;
/// Maximum number of entries of one directory that are drawn.
const MAX_DRAWN: usize = 40;
/// Names of directories that are left out, because build tools and package managers create the files in
/// these directories.
const EXCLUDED: [&str; 6] = ["target", "node_modules", "dist", "build", "vendor", "__pycache__"];

/// The files and directories of the project.
pub(crate) struct Tree {
    /// The entries, sorted by name. A directory comes before its entries.
    pub(crate) entries: Vec<Entry>,
    /// Whether entries are missing because a limit was reached.
    pub(crate) cut: bool,
}

/// A file or directory of the project.
pub(crate) struct Entry {
    /// The path relative to the root, with `/` as the separator.
    pub(crate) path: String,
    /// The number of directories between the root and this entry.
    level: usize,
    /// The stamp of a file; `None` for a directory.
    pub(crate) file: Option<Stamp>,
}

/// Size and modification time of a file, to detect changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Size of the file, in bytes.
    pub(crate) size: u64,
    /// Modification time in milliseconds since 1970. 0 if the time is unknown.
    pub(crate) modified: u64,
}

impl Tree {
    /// Reads the tree under `root`. Subdirectories that cannot be read are treated as empty.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self { entries: Vec::new(), cut: false };
        let mut pending = tree.read_directory(root, "", 0)?;
        while let Some(entry) = pending.pop() {
            if tree.entries.len() == MAX_ENTRIES {
                tree.cut = true;
                break;
            }
            let inner = match entry.file {
                None if entry.level + 1 < MAX_DEPTH => tree.read_directory(root, &entry.path, entry.level + 1).ok(),
                _ => None,
            };
            tree.entries.push(entry);
            pending.extend(inner.into_iter().flatten());
        }
        Ok(tree)
    }

    /// Reads the entries of a directory. The entries are sorted in reverse order, so that `pop` returns the first
    /// name first.
    fn read_directory(&mut self, root: &Path, path: &str, level: usize) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(root.join(path))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            let is_excluded = name.starts_with('.') || kind.is_dir() && EXCLUDED.contains(&name.as_str());
            if is_excluded || !(kind.is_dir() || kind.is_file()) {
                continue;
            }
            if entries.len() == MAX_IN_DIRECTORY {
                self.cut = true;
                break;
            }
            let file = match kind.is_file() {
                true => Some(entry.metadata().map(|metadata| stamp(&metadata))?),
                false => None,
            };
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            entries.push(Entry { path, level, file });
        }
        entries.sort_by(|left, right| right.path.cmp(&left.path));
        Ok(entries)
    }

    /// Draws the tree as indented names in at most `limit` bytes, with as many levels as fit. Returns `None` if the
    /// first level does not fit.
    pub(crate) fn draw(&self, limit: usize) -> Option<String> {
        (1..=MAX_DEPTH)
            .rev()
            .map(|levels| self.draw_levels(levels))
            .find(|drawing| drawing.len() <= limit && !drawing.is_empty())
    }

    fn draw_levels(&self, levels: usize) -> String {
        let mut drawing = String::new();
        let mut left_out = false;
        // For each level, two counts for the current directory of this level: the number of entries that were drawn,
        // and the number of entries that were left out.
        let mut counts = vec![(0_usize, 0_usize); levels + 1];
        let mut hidden_below = None;
        for entry in &self.entries {
            if hidden_below.is_some_and(|level| entry.level > level) {
                continue;
            }
            hidden_below = None;
            if entry.level >= levels {
                left_out = true;
                continue;
            }
            finish_directories(&mut drawing, &mut counts, entry.level);
            let (drawn, hidden) = &mut counts[entry.level];
            if *drawn == MAX_DRAWN {
                *hidden += 1;
                hidden_below = Some(entry.level);
                continue;
            }
            *drawn += 1;
            let name = entry.path.rsplit('/').next().unwrap_or(&entry.path);
            let mark = if entry.file.is_none() { "/" } else { "" };
            drawing.push_str(&format!("{}{name}{mark}\n", "  ".repeat(entry.level)));
        }
        finish_directories(&mut drawing, &mut counts, 0);
        write_hidden_count(&mut drawing, 0, counts[0].1);
        if left_out || self.cut {
            drawing.push_str("(cut: there are more entries)\n");
        }
        drawing
    }
}

/// Writes how many entries were left out in the directories below `level`, and resets the counts of these directories.
fn finish_directories(drawing: &mut String, counts: &mut [(usize, usize)], level: usize) {
    for deeper in (level + 1..counts.len()).rev() {
        write_hidden_count(drawing, deeper, counts[deeper].1);
        counts[deeper] = (0, 0);
    }
}

fn write_hidden_count(drawing: &mut String, level: usize, hidden: usize) {
    if hidden > 0 {
        drawing.push_str(&format!("{}… {hidden} more\n", "  ".repeat(level)));
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|time| u64::try_from(time.as_millis()).ok()).unwrap_or(0);
    Stamp { size: metadata.len(), modified }
}
