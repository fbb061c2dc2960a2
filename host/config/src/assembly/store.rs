//! Opens the database with the sessions: the file in the data folder, or a shared PostgreSQL database (F1).

use crate::data_directory::DataDirectory;
use crate::error::ConfigError;
use agent_store::{DatabaseState, Indexes, Options, PostgresOptions, PostgresStore, SqliteStore, Store, StoreError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time for which an examination waits until the database is reachable.
const EXAMINATION: Duration = Duration::from_secs(5);

/// Opens the database, and creates the database file or the tables of the shared database if they do not exist.
pub async fn open_store(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    match open_shared(data).await {
        Some(store) => store,
        None => Ok(Arc::new(SqliteStore::open(data.database_file(), Options::default())?)),
    }
}

/// Opens the database for a command that only reads. If the file or its disk cannot be written, the store is
/// read-only and every write fails.
pub async fn open_store_to_read(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    if let Some(store) = open_shared(data).await {
        return store;
    }
    let cannot_write = match SqliteStore::open(data.database_file(), Options::default()) {
        Err(cannot_write @ (StoreError::ReadOnly { .. } | StoreError::DiskFull { .. })) => cannot_write,
        opened => return Ok(Arc::new(opened?)),
    };
    // If the database cannot be opened for reading, return the error of the attempt to open the database for writing,
    // because that error is more helpful.
    let Ok(store) = SqliteStore::open_to_read(data.database_file()) else { return Err(cannot_write.into()) };
    tracing::warn!("{cannot_write}; the database is opened for reading only");
    Ok(Arc::new(store))
}

/// Opens a database file without changing anything.
pub fn open_store_unchanged(file: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open_to_read(file)?))
}

/// Opens a new, empty store. The store is deleted when the last reference to it is dropped.
pub fn open_temporary_store() -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(SqliteStore::open_temporary()?))
}

/// Opens a database whose indexes may be damaged, to check or rebuild the indexes.
pub async fn open_store_to_rebuild(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    if let Some(store) = open_shared(data).await {
        return store;
    }
    let options = Options { indexes: Indexes::ToBeRebuilt, ..Options::default() };
    Ok(Arc::new(SqliteStore::open(data.database_file(), options)?))
}

/// Checks, without changing anything, whether the shared database can be used.
pub async fn examine_shared_database(database: &crate::SharedDatabase) -> Result<DatabaseState, StoreError> {
    let options = PostgresOptions { connections: 1, max_wait: EXAMINATION, ..database.options() };
    PostgresStore::examine(database.address().clone(), options).await
}

/// Checks, with a small object that is deleted again, whether the object store with the media can be used.
pub async fn examine_media_store(media: &crate::MediaStore) -> Result<(), StoreError> {
    media.address().check().await
}

/// Opens the shared database, if the sessions are in one.
async fn open_shared(data: &DataDirectory) -> Option<Result<Arc<dyn Store>, ConfigError>> {
    let database = data.shared_database()?;
    Some(match PostgresStore::open(database.address().clone(), database.options()).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.into()),
    })
}
