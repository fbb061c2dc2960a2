//! Files of folders that anybody may have filled: regular ones, of bounded size.

use crate::error::ShareError;
use agent_plugins::{LoadError, read_component};
use std::io;
use std::path::Path;

/// Larger files are no components of any host: `component_mib` goes no further.
pub(crate) const LARGEST: u64 = 256 * 1024 * 1024;

/// The bytes of a file. What is no regular file is not even opened: some would be waited for, others never end.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, ShareError> {
    read_component(path, most).map_err(|error| match error {
        LoadError::Read(source) => ShareError::file(path, "read", source),
        LoadError::TooLarge { size, most } => ShareError::TooLarge { place: path.display().to_string(), size, most },
        error => ShareError::file(path, "read", io::Error::other(error)),
    })
}

/// The same; nothing where there is no file.
pub(crate) fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>, ShareError> {
    match read(path, most) {
        Err(ShareError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}
