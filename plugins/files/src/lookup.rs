//! Opens a file or directory in a granted tree by the path that the model gave. Anything else, such as a pipe or a
//! device, is rejected before it is opened, because opening it could block.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::fs::{self, Metadata};
use std::path::PathBuf;

/// A file or directory that was looked up.
pub(crate) struct Entry {
    /// The path for `std::fs`.
    pub(crate) path: PathBuf,
    pub(crate) metadata: Metadata,
}

/// Looks up the file or directory at `path`.
pub(crate) fn entry(path: &str) -> Result<Entry, ToolError> {
    let located = trees::locate(path)?;
    let metadata = fs::metadata(&located).map_err(|error| trees::error(path, &error))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(ToolError::failed(format!("`{path}` is neither a file nor a directory")));
    }
    Ok(Entry { path: located, metadata })
}

/// Looks up the regular file at `path`.
pub(crate) fn file(path: &str) -> Result<Entry, ToolError> {
    let entry = entry(path)?;
    match entry.metadata.is_dir() {
        true => Err(ToolError::invalid("/path", format!("`{path}` is a directory; list it with files.list"))),
        false => Ok(entry),
    }
}
