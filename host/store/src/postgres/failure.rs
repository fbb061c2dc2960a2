//! Errors inside the store, which do not contain the address of the database yet.

use crate::StoreError;
use crate::encoding::values::Unreadable;
use deadpool_postgres::PoolError;
use std::error::Error;
use std::path::Path;
use tokio_postgres::error::SqlState;

/// Error of an operation on a database connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error that is returned to the caller unchanged.
    Store(StoreError),
    /// An error that PostgreSQL or the connection reported. Nothing was stored.
    Postgres(tokio_postgres::Error),
    /// No connection can be made.
    NoConnection(String),
    /// The connection broke while the transaction was being committed, so it may or may not be stored.
    OutcomeUnknown(String),
    /// Another transaction changed data that this transaction needs, so this transaction must run again.
    RunAgain,
    /// The object store with this address could not be used, but it may be later. Nothing was stored in the database.
    NoObjectStore { store: String, problem: String },
    /// Stored data does not have the form that the store writes.
    Unreadable(String),
}

/// What can be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The operation stored nothing, and can run again.
    Retry,
    /// The operation cannot succeed.
    None,
}

impl Failure {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Failure::RunAgain | Failure::NoConnection(_) | Failure::NoObjectStore { .. } => Remedy::Retry,
            Failure::Postgres(error) if is_temporary(error) => Remedy::Retry,
            _ => Remedy::None,
        }
    }

    /// Converts the failure to the error for the caller, which contains the address of the database.
    pub(super) fn into_error(self, database: &Path) -> StoreError {
        let path = database.to_owned();
        match self {
            Failure::Store(error) => error,
            Failure::Unreadable(problem) => StoreError::Damaged { path, problem },
            Failure::NoObjectStore { store, problem } => StoreError::ObjectStore { store, problem },
            Failure::NoConnection(problem) => {
                StoreError::Failed { path, problem: format!("no connection can be made ({problem})") }
            }
            Failure::OutcomeUnknown(problem) => StoreError::OutcomeUnknown { path, problem },
            Failure::RunAgain => StoreError::Failed {
                path,
                problem: "other changes interfered with this change again and again".to_owned(),
            },
            Failure::Postgres(error) => match error.code() {
                Some(&SqlState::DISK_FULL) => StoreError::DiskFull { path },
                Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
                    StoreError::Damaged { path, problem: described(&error) }
                }
                Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => StoreError::Invalid {
                    what: "a value".to_owned(),
                    problem: format!("it is too large for PostgreSQL ({})", described(&error)),
                },
                _ => StoreError::Failed { path, problem: described(&error) },
            },
        }
    }
}

/// Whether the error may not occur again. Nothing was stored.
fn is_temporary(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return error.is_closed() || is_io(error) };
    let temporary = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    temporary.contains(code)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|source| source.downcast_ref::<std::io::Error>().is_some())
}

/// Describes an error of PostgreSQL with the cause that the server or the operating system reported.
pub(super) fn described(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(server), _) => format!("{}, SQLSTATE {}", server.message(), server.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
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

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Postgres(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) if error.code().is_some_and(|_| !is_temporary(&error)) => {
                Failure::Postgres(error)
            }
            PoolError::Backend(error) => Failure::NoConnection(described(&error)),
            PoolError::Timeout(_) => Failure::NoConnection(
                "all connections of this process are in use, or the server does not answer".to_owned(),
            ),
            PoolError::Closed => Failure::Store(StoreError::Closed),
            other => Failure::NoConnection(other.to_string()),
        }
    }
}
