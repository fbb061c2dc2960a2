//! Failures below the store's surface, before they know the file's name.

use super::holder::holder;
use crate::StoreError;
use rusqlite::ErrorCode;
use std::path::Path;

/// What a piece of work on a connection may fail with.
#[derive(Debug)]
pub(super) enum Failure {
    /// A situation that the caller knows.
    Store(StoreError),
    /// SQLite says so.
    Sqlite(rusqlite::Error),
    /// What is stored is not what was written.
    Unreadable(String),
    /// An index of words is not whole.
    BrokenIndex(String),
}

impl Failure {
    /// The error that the caller sees, naming the file.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        if self.is_of_an_index() {
            return StoreError::DamagedIndex { path, problem: self.to_string() };
        }
        match self {
            Failure::Store(error) => error,
            Failure::BrokenIndex(problem) => StoreError::DamagedIndex { path, problem },
            Failure::Unreadable(problem) => StoreError::Damaged { path, problem },
            Failure::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
                // What SQLite writes without a page of its own, such as the log's shared memory, fails like this too.
                Some(ErrorCode::SystemIoFailure) if has_no_space(&path) => StoreError::DiskFull { path },
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    StoreError::Locked { holder: holder(&path), path }
                }
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    StoreError::Damaged { path, problem: error.to_string() }
                }
                _ => StoreError::Failed { path, problem: error.to_string() },
            },
        }
    }
}

impl Failure {
    /// Whether nothing is damaged but an index of words.
    pub(super) fn is_of_an_index(&self) -> bool {
        match self {
            Failure::BrokenIndex(_) => true,
            Failure::Sqlite(error) => {
                error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) && speaks_of_an_index(&error.to_string())
            }
            Failure::Store(_) | Failure::Unreadable(_) => false,
        }
    }
}

/// Without the file's name.
impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(formatter),
            Failure::Sqlite(error) => error.fmt(formatter),
            Failure::Unreadable(problem) | Failure::BrokenIndex(problem) => formatter.write_str(problem),
        }
    }
}

/// What SQLite says of damage in an index of words, and of nothing else.
pub(super) fn speaks_of_an_index(problem: &str) -> bool {
    problem.contains("inverted index for FTS5 table") || problem.starts_with("fts5: corruption")
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sqlite(error)
    }
}

/// Whether the disk has no room left for what SQLite writes at least.
#[cfg(unix)]
fn has_no_space(database: &Path) -> bool {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).is_ok_and(|disk| is_full(disk.f_bavail, disk.f_frsize))
}

#[cfg(not(unix))]
fn has_no_space(_: &Path) -> bool {
    false
}

/// The log's shared memory grows by 32 KiB at once.
#[cfg(unix)]
fn is_full(blocks: u64, block_size: u64) -> bool {
    blocks.saturating_mul(block_size) < 32 * 1024
}

/// What the caller gave cannot be stored.
pub(super) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> StoreError {
    StoreError::Invalid { what: what.into(), problem: problem.into() }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Limit 28: a full disk is named, also where SQLite only speaks of an I/O error.
    #[test]
    fn an_io_error_is_a_full_disk_only_where_no_space_is_left() {
        assert!(is_full(0, 4096) && is_full(7, 4096));
        assert!(!is_full(8, 4096) && !is_full(u64::MAX, 4096));
        let folder = tempfile::tempdir().unwrap();
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_WRITE);
        let failure = Failure::Sqlite(rusqlite::Error::SqliteFailure(code, None));
        assert!(matches!(failure.at(&folder.path().join("agent.db")), StoreError::Failed { .. }));
    }
}
