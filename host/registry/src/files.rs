//! Reads files that other programs or users may have created. Only regular files of limited size are read.

use crate::error::RegistryError;
use agent_plugins::{LoadError, read_component};
use std::io;
use std::path::Path;

/// Maximum size of a component in bytes. The setting `component_mib` cannot exceed this limit.
pub(crate) const MAX_COMPONENT_BYTES: u64 = 256 * 1024 * 1024;

/// Reads a file of at most `max_bytes`. Does not open anything other than a regular file, because reading a pipe or a
/// device could block or never end.
pub(crate) fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, RegistryError> {
    read_component(path, max_bytes).map_err(|error| match error {
        LoadError::Read(source) => RegistryError::file(path, "read", source),
        LoadError::TooLarge { size, most } => {
            RegistryError::TooLarge { place: path.display().to_string(), size, limit: most }
        }
        error => RegistryError::file(path, "read", io::Error::other(error)),
    })
}

/// Like [`read`], but returns `None` if the file does not exist.
pub(crate) fn read_if_exists(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, RegistryError> {
    match read(path, max_bytes) {
        Err(RegistryError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
