//! Failures below the store's surface, before they know the file's name.

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
}

impl Failure {
    /// The error that the caller sees, naming the file.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Failure::Store(error) => error,
            Failure::Unreadable(problem) => StoreError::Damaged { path, problem },
            Failure::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked { path },
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    StoreError::Damaged { path, problem: error.to_string() }
                }
                _ => StoreError::Failed { path, problem: error.to_string() },
            },
        }
    }
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

/// What the caller gave cannot be stored.
pub(super) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> StoreError {
    StoreError::Invalid { what: what.into(), problem: problem.into() }
}
