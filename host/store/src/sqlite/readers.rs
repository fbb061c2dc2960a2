//! A pool of read connections on blocking threads. Readers see committed data and never wait for the writer.

use super::failure::Failure;
use super::{Access, file};
use crate::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Maximum number of concurrent reads. A higher number would not be faster, because all reads wait for the same disk.
const MAX_CONCURRENT_READS: usize = 4;

/// The pool of read connections. A connection is opened when it is first needed, and is then reused.
pub(super) struct Readers {
    pool: Arc<ConnectionPool>,
    permits: Arc<Semaphore>,
}

struct ConnectionPool {
    path: PathBuf,
    access: Access,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, access: Access) -> Self {
        let pool = ConnectionPool { path, access, idle: Mutex::new(Vec::with_capacity(MAX_CONCURRENT_READS)) };
        Self { pool: Arc::new(pool), permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)) }
    }

    /// Runs `work` in one read transaction. The read counts towards [`MAX_CONCURRENT_READS`] until its thread is done,
    /// even if the caller's future is dropped.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let pool = self.pool.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            pool.run(work).map_err(|failure| failure.into_error(&pool.path))
        });
        reading.await.map_err(|_| StoreError::Closed)?
    }

    /// Empties the write-ahead log. The function opens a separate connection for this purpose.
    pub(super) async fn empty_log(&self) -> Result<(), StoreError> {
        let pool = self.pool.clone();
        let emptying = tokio::task::spawn_blocking(move || {
            let emptied = file::open_reader(&pool.path)
                .and_then(|connection| Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?));
            emptied.map_err(|failure| failure.into_error(&pool.path))
        });
        emptying.await.map_err(|_| StoreError::Closed)?
    }
}

impl ConnectionPool {
    /// Runs `work` on an idle or new connection. If `work` fails, the connection is closed, because its state is
    /// unknown.
    fn run<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None if self.access == Access::ReadOnly => file::open_to_read(&self.path)?,
            None => file::open_reader(&self.path)?,
        };
        connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        let result = work(&connection)?;
        connection.prepare_cached("COMMIT")?.execute([])?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(result)
    }
}
