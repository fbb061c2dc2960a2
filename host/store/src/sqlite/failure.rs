//! Errors inside the store, which do not contain the path of the database yet.

use super::lock_holder::lock_holder;
use crate::StoreError;
use crate::encoding::values::Unreadable;
pub(super) use crate::encoding::values::invalid;
use rusqlite::ErrorCode;
use std::path::Path;

/// Error of an operation on a database connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error that is returned to the caller unchanged.
    Store(StoreError),
    /// An error that SQLite reported.
    Sqlite(rusqlite::Error),
    /// Stored data does not have the form that the store writes.
    Unreadable(String),
    /// A search index is damaged.
    DamagedIndex(String),
}

impl Failure {
    /// Converts the failure to the error for the caller, which contains the path of the file.
    pub(super) fn into_error(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        if self.is_index_damage() {
            return StoreError::DamagedIndex { path, problem: self.to_string() };
        }
        match self {
            Failure::Store(error) => error,
            Failure::DamagedIndex(problem) => StoreError::DamagedIndex { path, problem },
            Failure::Unreadable(problem) => StoreError::Damaged { path, problem },
            Failure::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
                // SQLite reports an I/O error if the disk is full when SQLite grows the shared memory of the
                // write-ahead log.
                Some(ErrorCode::SystemIoFailure) if has_no_space(&path) => StoreError::DiskFull { path },
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    StoreError::Locked { holder: lock_holder(&path), path }
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
    /// Returns whether the failure is caused by a damaged search index, and not by damage to other data.
    pub(super) fn is_index_damage(&self) -> bool {
        match self {
            Failure::DamagedIndex(_) => true,
            Failure::Sqlite(error) => {
                error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) && is_index_problem(&error.to_string())
            }
            Failure::Store(_) | Failure::Unreadable(_) => false,
        }
    }
}

/// Displays the failure without the path of the file.
impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(formatter),
            Failure::Sqlite(error) => error.fmt(formatter),
            Failure::Unreadable(problem) | Failure::DamagedIndex(problem) => formatter.write_str(problem),
        }
    }
}

/// Returns whether a message of SQLite reports damage in a full-text index.
pub(super) fn is_index_problem(problem: &str) -> bool {
    problem.contains("inverted index for FTS5 table") || problem.starts_with("fts5: corruption")
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl From<Unreadable> for Failure {
    fn from(Unreadable(problem): Unreadable) -> Self {
        Failure::Unreadable(problem)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sqlite(error)
    }
}

/// Returns whether the database's disk has less free space than SQLite needs.
#[cfg(unix)]
fn has_no_space(database: &Path) -> bool {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).is_ok_and(|disk| is_full(disk.f_bavail, disk.f_frsize))
}

#[cfg(not(unix))]
fn has_no_space(_: &Path) -> bool {
    false
}

/// Returns whether this amount of free space is too small for SQLite. SQLite grows the shared memory of the write-ahead
/// log in steps of 32 KiB.
#[cfg(unix)]
fn is_full(blocks: u64, block_size: u64) -> bool {
    blocks.saturating_mul(block_size) < 32 * 1024
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Limit 28: an I/O error is reported as a full disk only if the disk really is full.
    #[test]
    fn io_error_is_a_full_disk_only_if_no_space_is_left() {
        assert!(is_full(0, 4096) && is_full(7, 4096));
        assert!(!is_full(8, 4096) && !is_full(u64::MAX, 4096));
        let folder = tempfile::tempdir().unwrap();
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_WRITE);
        let failure = Failure::Sqlite(rusqlite::Error::SqliteFailure(code, None));
        assert!(matches!(failure.into_error(&folder.path().join("agent.db")), StoreError::Failed { .. }));
    }
}
