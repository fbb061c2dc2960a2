//! Reads granted directories through open descriptors. A path or link cannot refer to a file outside the granted
//! directories (P6, rows 12 and 39).

use agent_core::message::Content;
use agent_core::tool::{ToolDone, ToolError};
use agent_plugins::{HostTree, HostTreeEntry, Sandbox, TreeGrant};
use cap_std::fs::FileType;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// Maximum number of directory entries in a listing.
const MAX_ENTRIES: usize = 1_000;
/// Default number of lines that one call reads.
const DEFAULT_LINES: u64 = 1_000;
/// Maximum number of bytes of a file that one call returns.
const MAX_BYTES: usize = 512 * 1024;
/// Maximum number of bytes of a file that one call reads in order to find the requested lines.
const MAX_SCANNED_BYTES: u64 = 64 << 20;

/// The directories that the host's built-in tools may read.
pub(super) struct HostTrees {
    /// The sandbox, which keeps the directories open.
    pub(super) sandbox: Sandbox,
    /// The grants that are in effect now. Each grant names a directory that the tools may read.
    pub(super) granted: Vec<TreeGrant>,
}

/// Lists the entries of a directory, sorted by name.
pub(super) fn list(trees: &HostTrees, path: &str) -> Result<ToolDone, ToolError> {
    let directory = match open(trees, path)? {
        HostTreeEntry::Directory(directory) => directory,
        HostTreeEntry::File(_) => {
            return Err(ToolError::Failed { message: format!("`{path}` is a file, not a directory") });
        }
        HostTreeEntry::Special => {
            return Err(ToolError::Failed { message: format!("`{path}` is a special file, not a directory") });
        }
    };
    let entries = directory.entries().map_err(|error| explain(path, &error))?;
    // The listing contains those entries whose names sort first, independently of the order in which the file system
    // returns the entries.
    let mut first = BTreeMap::new();
    let mut left_out = 0_u64;
    for entry in entries {
        let entry = entry.map_err(|error| explain(path, &error))?;
        first.insert(entry.file_name(), entry);
        if first.len() > MAX_ENTRIES {
            first.pop_last();
            left_out += 1;
        }
    }
    let entries: Vec<_> = first
        .into_iter()
        .map(|(name, entry)| (name.to_string_lossy().into_owned(), entry.metadata().ok()))
        .map(|(name, metadata)| match metadata {
            Some(metadata) if metadata.is_file() => json!({"name": name, "kind": "file", "bytes": metadata.len()}),
            Some(metadata) => json!({"name": name, "kind": kind(metadata.file_type())}),
            None => json!({"name": name, "kind": "unknown"}),
        })
        .collect();
    let listing = json!({"path": path, "entries": entries, "left_out": left_out});
    Ok(ToolDone { content: vec![Content::Json(listing)], structured: None })
}

/// Returns lines of a text file, with a line number before each line.
pub(super) fn read(trees: &HostTrees, path: &str, from_line: u64, lines: Option<u64>) -> Result<ToolDone, ToolError> {
    if path.ends_with('/') {
        return Err(ToolError::Failed { message: format!("`{path}` names a directory, not a file") });
    }
    let kind = match open(trees, path)? {
        HostTreeEntry::File(file) => return lines_of(file, path, (from_line, lines)),
        HostTreeEntry::Directory(_) => "directory",
        HostTreeEntry::Special => "special file",
    };
    Err(ToolError::Failed { message: format!("`{path}` is a {kind}, not a file") })
}

fn lines_of(file: File, path: &str, (from_line, lines): (u64, Option<u64>)) -> Result<ToolDone, ToolError> {
    let mut reader = BufReader::new(file.take(MAX_SCANNED_BYTES));
    let last = from_line.saturating_add(lines.unwrap_or(DEFAULT_LINES)) - 1;
    let (mut text, mut number, mut line) = (String::new(), 0, Vec::new());
    loop {
        line.clear();
        let line_limit = (MAX_BYTES + 1) as u64;
        let bytes =
            reader.by_ref().take(line_limit).read_until(b'\n', &mut line).map_err(|error| explain(path, &error))?;
        if bytes == 0 && reader.get_ref().limit() == 0 {
            text.push_str(&format!("[only the first {MAX_SCANNED_BYTES} bytes of {path} are read]\n"));
            break;
        }
        if bytes == 0 {
            if number < from_line {
                text.push_str(&format!("[{path} has {number} lines]\n"));
            }
            break;
        }
        number += 1;
        if bytes > MAX_BYTES {
            let message =
                format!("line {number} of `{path}` has more than {MAX_BYTES} bytes: it cannot be read by lines");
            return Err(ToolError::Failed { message });
        }
        if number < from_line {
            continue;
        }
        if number > last || text.len() >= MAX_BYTES {
            text.push_str(&format!("[continue with from_line {number}]\n"));
            break;
        }
        let line = std::str::from_utf8(&line).map_err(|_| ToolError::Failed {
            message: format!("`{path}` is not UTF-8 text: line {number} contains invalid bytes"),
        })?;
        text.push_str(&format!("{number}\t{}\n", line.trim_end_matches(['\r', '\n'])));
    }
    Ok(ToolDone::text(text))
}

/// Opens the path in the granted directory that contains it. If several granted directories contain the path, the most
/// specific of these directories is used.
pub(super) fn open(trees: &HostTrees, path: &str) -> Result<HostTreeEntry, ToolError> {
    let requested = normalized(Path::new(path));
    let containing = trees.granted.iter().filter_map(|tree| {
        let guest = normalized(Path::new(&tree.guest));
        let host = normalized(&tree.host);
        let root =
            [guest, host].into_iter().filter(|root| requested.starts_with(root)).max_by_key(|r| r.as_os_str().len());
        root.filter(|root| root.is_absolute() == requested.is_absolute()).map(|root| (tree, root))
    });
    let Some((tree, root)) = containing.max_by_key(|(_, root)| root.as_os_str().len()) else {
        let granted: Vec<_> = trees.granted.iter().map(|tree| format!("`{}`", tree.guest)).collect();
        let message = format!("`{path}` is in none of the granted trees: {}", granted.join(", "));
        return Err(ToolError::Denied { message });
    };
    let inner = requested.strip_prefix(&root).unwrap_or(&requested);
    let inner = if inner.as_os_str().is_empty() { "." } else { inner.to_str().unwrap_or_default() };
    let opened: HostTree =
        trees.sandbox.host_tree(tree).map_err(|problem| ToolError::Failed { message: problem.to_string() })?;
    opened.open(inner).map_err(|error| explain(path, &error))
}

/// Removes `.` and empty components from a path. Path components `..` are kept, because the directory descriptor
/// checks them.
fn normalized(path: &Path) -> PathBuf {
    path.components().filter(|component| *component != Component::CurDir).collect()
}

fn kind(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "directory"
    } else if file_type.is_file() {
        "file"
    } else if file_type.is_symlink() {
        "link"
    } else {
        "special file"
    }
}

fn explain(path: &str, error: &std::io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => ToolError::NotFound { message: format!("there is no `{path}`") },
        ErrorKind::PermissionDenied => ToolError::Denied { message: format!("`{path}`: {error}") },
        _ => ToolError::Failed { message: format!("`{path}`: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::Access;

    fn tree() -> (tempfile::TempDir, HostTrees) {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("inside");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(outside.path().join("canary"), "secret").unwrap();
        std::fs::write(inside.join("a.txt"), "one\ntwo\nthree").unwrap();
        std::fs::write(inside.join("sub/b.txt"), "b").unwrap();
        std::os::unix::fs::symlink("../canary", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", inside.join("etc")).unwrap();
        let grant = TreeGrant { host: inside, guest: ".".to_owned(), access: Access::Read };
        let sandbox = Sandbox::new(agent_plugins::SandboxOptions::default()).unwrap();
        (outside, HostTrees { sandbox, granted: vec![grant] })
    }

    #[test]
    fn l7_file_tools_list_directories_and_read_lines() {
        let (_directory, trees) = tree();
        assert_eq!(read(&trees, "a.txt", 2, Some(1)).unwrap(), ToolDone::text("2\ttwo\n[continue with from_line 3]\n"));
        assert_eq!(read(&trees, "./sub/../a.txt", 3, None).unwrap(), ToolDone::text("3\tthree\n"));
        let Content::Json(listing) = &list(&trees, ".").unwrap().content[0] else { panic!() };
        assert_eq!(listing["entries"][0], json!({"name": "a.txt", "kind": "file", "bytes": 13}));
        let absolute = trees.granted[0].host.join("a.txt");
        assert!(read(&trees, absolute.to_str().unwrap(), 1, None).is_ok());
    }

    #[test]
    fn row_12_paths_and_links_out_of_a_tree_are_refused() {
        let (directory, trees) = tree();
        let canary = directory.path().join("canary").display().to_string();
        for path in ["../canary", "sub/../../canary", "link", "etc/passwd", "/etc/passwd", &canary, "", "a.txt/", "/"] {
            let read = read(&trees, path, 1, None);
            assert!(read.is_err(), "{path} was read: {read:?}");
        }
    }

    #[test]
    fn row_33_special_files_are_not_opened() {
        let (_directory, trees) = tree();
        let fifo = trees.granted[0].host.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let error = read(&trees, "fifo", 1, None).unwrap_err();
        assert!(matches!(error, ToolError::Failed { message } if message.contains("special file")));
    }
}
