//! Finds the process that holds a database's write lock, for error messages.

use std::path::Path;

/// Returns a space and, in parentheses, a description of the process that holds the lock. The caller appends the
/// text to a sentence. Returns an empty text if the process cannot be determined.
pub(super) fn lock_holder(database: &Path) -> String {
    writing_process(database).map_or_else(String::new, |process| format!(" ({process})"))
}

/// Offset of the byte that SQLite locks for writing, in the shared memory file of the write-ahead
/// log (`WAL_WRITE_LOCK`, <https://sqlite.org/walformat.html>).
#[cfg(target_os = "linux")]
const WRITE_LOCK_BYTE: &str = "120";

/// Describes the process that holds the write lock, if `/proc/locks` lists it. The shared memory file is not opened
/// here, because closing it would release this process's own locks on the file.
#[cfg(target_os = "linux")]
fn writing_process(database: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let mut shared_memory = database.as_os_str().to_owned();
    shared_memory.push("-shm");
    let inode = std::fs::metadata(shared_memory).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| {
        // Example of a line: `1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 120 120`.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [.., "WRITE", process, file, WRITE_LOCK_BYTE, _] = fields[..] else { return None };
        (file.rsplit(':').next() == Some(&inode)).then(|| process.to_owned())
    })?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
    let name = value("Name:").map(|name| format!(", `{}`", name.escape_debug())).unwrap_or_default();
    let is_stopped = value("State:").is_some_and(|state| state.starts_with(['T', 't']));
    Some(format!("{process}{name}{}", if is_stopped { ", which is stopped" } else { "" }))
}

/// Returns `None`, because this operating system does not list the holders of locks.
#[cfg(not(target_os = "linux"))]
fn writing_process(_: &Path) -> Option<String> {
    None
}
