//! A text from a granted file tree.

use agent_host_sdk::tool::ToolError;
use agent_host_sdk::trees;
use std::fs::{self, File};
use std::io::{self, Read};

/// Largest file that is read, in bytes.
pub const MAX_SIZE: u64 = 16 * 1024 * 1024;

/// Reads a whole file of UTF-8 text. Outside of the granted trees nothing can be opened.
pub fn read(path: &str) -> Result<String, ToolError> {
    let located = trees::locate(path)?;
    let failed = |error: io::Error| trees::error(path, &error);
    // Asked before opening, since opening a pipe would wait for its other end.
    let metadata = fs::metadata(&located).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ToolError::failed(format!("`{path}` is not a regular file")));
    }
    let mut bytes = Vec::new();
    File::open(&located).map_err(failed)?.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_SIZE {
        let size = metadata.len();
        return Err(ToolError::failed(format!("`{path}` has {size} bytes; at most {MAX_SIZE} are read")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        ToolError::failed(format!("`{path}` is not UTF-8 text: byte {offset} (from 0) is not part of a character"))
    })
}
