//! `files.write` and `files.move`.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

const LARGEST: usize = 4 * 1024 * 1024;

/// Arguments of `files.write`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file, for example `notes/today.md`.
    path: String,
    /// What is written; at most 4 MiB.
    text: String,
    /// What may happen to a file that exists.
    #[serde(default)]
    mode: Mode,
}

/// What may happen to a file that exists.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Create,
    Overwrite,
    Append,
}

/// What was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Written {
    path: String,
    /// Bytes in the file now.
    size: u64,
    /// Whether the file existed before.
    existed: bool,
}

/// Arguments of `files.move`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Move {
    /// The file or directory to move.
    from: String,
    /// Its new path, name included.
    to: String,
    /// Replaces a file at the new path.
    #[serde(default)]
    overwrite: bool,
}

/// Writes a file.
pub(crate) fn write(WriteFile { path, text, mode }: WriteFile) -> Result<Written, ToolError> {
    if text.len() > LARGEST {
        return Err(ToolError::invalid("/text", format!("has {} bytes; at most {LARGEST} are written", text.len())));
    }
    let target = trees::locate(&path)?;
    let failed = |error: io::Error| trees::error(&path, &error);
    let existed = match fs::metadata(&target) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(ToolError::invalid("/path", format!("`{path}` exists and is not a file")));
        }
        Ok(_) if mode == Mode::Create => return Err(exists(&path)),
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match mode {
        Mode::Append => append(&target, &text).map_err(failed)?,
        // Made at once and never by replacing, so that a file that appears meanwhile is not lost.
        Mode::Create => create(&target, &text).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(&path),
            _ => failed(error),
        })?,
        Mode::Overwrite => replace(&target, &text).map_err(failed)?,
    }
    let size = fs::metadata(&target).map_err(failed)?.len();
    Ok(Written { path, size, existed })
}

/// Moves a file or directory.
pub(crate) fn move_entry(Move { from, to, overwrite }: Move) -> Result<String, ToolError> {
    let (source, target) = (trees::locate(&from)?, trees::locate(&to)?);
    let metadata = fs::symlink_metadata(&source).map_err(|error| trees::error(&from, &error))?;
    if source == target {
        return Err(ToolError::invalid("/to", "is where it is already"));
    }
    if target.starts_with(&source) {
        return Err(ToolError::invalid("/to", format!("lies in `{from}` itself")));
    }
    match fs::symlink_metadata(&target) {
        Ok(_) if !overwrite => {
            return Err(ToolError::invalid("/to", format!("`{to}` exists; set `overwrite` to replace a file")));
        }
        Ok(existing) if existing.is_dir() || metadata.is_dir() => {
            return Err(ToolError::invalid("/to", format!("`{to}` exists, and only a file can replace a file")));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(trees::error(&to, &error)),
        _ => {}
    }
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(|error| trees::error(&to, &error))?;
    }
    fs::rename(&source, &target).map_err(|error| match error.kind() {
        ErrorKind::CrossesDevices => {
            ToolError::failed(format!("`{from}` and `{to}` are on different file systems; read and write it instead"))
        }
        _ => trees::error(&from, &error),
    })?;
    Ok(format!("moved `{from}` to `{to}`"))
}

fn exists(path: &str) -> ToolError {
    ToolError::invalid("/path", format!("`{path}` exists; set `mode` to `overwrite` or `append`"))
}

fn append(target: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(target)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn create(target: &Path, text: &str) -> io::Result<()> {
    let file = File::create_new(target)?;
    fill(file, text).inspect_err(|_| {
        // A half-written file would look like a whole one; that it cannot be removed either adds nothing to the error.
        let _ = fs::remove_file(target);
    })
}

/// Readers see the old file or the new one, never a part.
fn replace(target: &Path, text: &str) -> io::Result<()> {
    let (temporary, file) = temporary(target)?;
    fill(file, text).and_then(|()| fs::rename(&temporary, target)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 0;
    loop {
        let temporary = target.with_file_name(format!(".{name}.{number}.tmp"));
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // Left by a call that was killed, or of one beside this.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(error),
        }
    }
}
