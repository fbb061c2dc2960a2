//! Opens the database in the data folder, for writing, for reading only, or to rebuild its indexes.

use crate::data_directory::DataDirectory;
use crate::error::ConfigError;
use agent_store::{Indexes, Options, SqliteStore, Store, StoreError};
use std::path::Path;
use std::sync::Arc;

/// Opens the database, and creates the database file if it does not exist.
pub fn open_store(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    Ok(Arc::new(SqliteStore::open(data.database(), Options::default())?))
}

/// Opens the database for a command that only reads. If the file or its disk cannot be written, the store is
/// read-only and every write fails.
pub fn open_store_to_read(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    let cannot_write = match SqliteStore::open(data.database(), Options::default()) {
        Err(cannot_write @ (StoreError::ReadOnly { .. } | StoreError::DiskFull { .. })) => cannot_write,
        opened => return Ok(Arc::new(opened?)),
    };
    // If the database cannot be opened for reading, return the error of the attempt to open the database for writing,
    // because that error is more helpful.
    let Ok(store) = SqliteStore::open_to_read(data.database()) else { return Err(cannot_write.into()) };
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
pub fn open_store_to_rebuild(data: &DataDirectory) -> Result<Arc<dyn Store>, ConfigError> {
    let options = Options { indexes: Indexes::ToBeRebuilt, ..Options::default() };
    Ok(Arc::new(SqliteStore::open(data.database(), options)?))
}
