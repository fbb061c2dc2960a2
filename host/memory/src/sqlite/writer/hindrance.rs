//! What keeps a batch from being stored and may pass: people are told once, and once more when it has passed (row 46).

use crate::StoreError;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waiting for another process, or for room on the disk.
pub(super) struct Hindrance<'p> {
    path: &'p Path,
    patience: Duration,
    since: Option<Instant>,
}

impl<'p> Hindrance<'p> {
    /// Nothing hinders yet. `patience` is how long is waited in all.
    pub(super) fn new(path: &'p Path, patience: Duration) -> Self {
        Self { path, patience, since: None }
    }

    /// Tells of the hindrance when it is new. Afterwards says whether there is time left.
    pub(super) fn is_worth_waiting(&mut self, error: &StoreError) -> bool {
        if self.patience.is_zero() {
            return false;
        }
        match self.since {
            Some(since) => since.elapsed() < self.patience,
            None => {
                self.since = Some(Instant::now());
                let most = self.patience.as_secs();
                match error {
                    StoreError::DiskFull { .. } => {
                        tracing::warn!("{error}; what is to be stored waits for room, for at most {most} s");
                    }
                    _ => {
                        let holder = holder(self.path).map_or_else(String::new, |holder| format!(" ({holder})"));
                        let path = self.path.display();
                        tracing::warn!(
                            "another process{holder} keeps the database `{path}` locked; what is to be stored waits, for at most \
                             {most} s"
                        );
                    }
                }
                true
            }
        }
    }

    /// It is stored.
    pub(super) fn has_passed(&mut self) {
        if let Some(since) = self.since.take() {
            let path = self.path.display();
            tracing::warn!("the database `{path}` can be written again, after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}

/// Where in the log's shared memory SQLite locks who writes (`WAL_WRITE_LOCK`, https://sqlite.org/walformat.html).
#[cfg(target_os = "linux")]
const WRITE_LOCK: &str = "120";

/// The process that holds the lock for writing, as far as the system says it. The file is not opened for that: closing it would
/// give up this process's own locks on it.
#[cfg(target_os = "linux")]
pub(super) fn holder(database: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let mut shared_memory = database.as_os_str().to_owned();
    shared_memory.push("-shm");
    let inode = std::fs::metadata(shared_memory).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| {
        // `1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 120 120`
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [.., "WRITE", process, file, WRITE_LOCK, _] = fields[..] else { return None };
        (file.rsplit(':').next() == Some(&inode)).then(|| process.to_owned())
    })?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
    let name = value("Name:").map(|name| format!(", `{}`", name.escape_debug())).unwrap_or_default();
    let is_stopped = value("State:").is_some_and(|state| state.starts_with(['T', 't']));
    Some(format!("{process}{name}{}", if is_stopped { ", which is stopped" } else { "" }))
}

/// Other systems do not say it.
#[cfg(not(target_os = "linux"))]
pub(super) fn holder(_: &Path) -> Option<String> {
    None
}
