//! Finds a file or directory in a granted tree by the path in the arguments of a call. Pipes, devices and other special
//! files are rejected without being opened, because opening such a file could block.

use agent_host_sdk::tool::ToolError;
use agent_host_sdk::trees;
use std::fs::{self, Metadata};
use std::path::PathBuf;

/// A file or directory in a granted tree.
pub struct Entry {
    /// The path to pass to `std::fs`.
    pub path: PathBuf,
    /// The metadata of the file or directory. If the path is that of a link, the metadata of the link's target.
    pub metadata: Metadata,
}

/// Looks up the file or directory at `path`.
pub fn entry(path: &str) -> Result<Entry, ToolError> {
    let located = trees::locate(path)?;
    let metadata = fs::metadata(&located).map_err(|error| trees::error(path, &error))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(ToolError::failed(format!("`{path}` is neither a file nor a directory")));
    }
    Ok(Entry { path: located, metadata })
}

/// Looks up the regular file at `path`, and rejects a directory.
pub fn file(path: &str) -> Result<Entry, ToolError> {
    let entry = entry(path)?;
    match entry.metadata.is_dir() {
        true => Err(ToolError::invalid("/path", format!("`{path}` is a directory; list it with files.list"))),
        false => Ok(entry),
    }
}
