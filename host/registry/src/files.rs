//! Reads files that other people may have placed: only regular files of limited size.

use crate::error::RegistryError;
use agent_plugins::{LoadError, read_component};
use std::io;
use std::path::Path;

/// Maximum size of a component in bytes; the setting `component_mib` cannot exceed it.
pub(crate) const MAX_COMPONENT_BYTES: u64 = 256 * 1024 * 1024;

/// Reads a file. Files that are not regular are not opened, because reading some of them blocks or never ends.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, RegistryError> {
    read_component(path, most).map_err(|error| match error {
        LoadError::Read(source) => RegistryError::file(path, "read", source),
        LoadError::TooLarge { size, most } => RegistryError::TooLarge { place: path.display().to_string(), size, most },
        error => RegistryError::file(path, "read", io::Error::other(error)),
    })
}

/// Like [`read`], but returns `None` if the file does not exist.
pub(crate) fn read_if_exists(path: &Path, most: u64) -> Result<Option<Vec<u8>>, RegistryError> {
    match read(path, most) {
        Err(RegistryError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}
