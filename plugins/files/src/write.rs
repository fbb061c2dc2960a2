//! The tools `files.write` and `files.move`.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Maximum size of the text that one call writes, in bytes.
const MAX_SIZE: usize = 4 * 1024 * 1024;

/// Arguments of `files.write`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The path of the file, for example `notes/today.md`.
    path: String,
    /// The text to write, at most 4 MiB.
    text: String,
    /// What may happen to an existing file.
    #[serde(default)]
    mode: Mode,
}

/// What may happen to an existing file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Create,
    Overwrite,
    Append,
}

/// The result of `files.write`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Written {
    path: String,
    /// Size of the file after writing, in bytes.
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
    /// The new path, including the name.
    to: String,
    /// Replace an existing file at the new path.
    #[serde(default)]
    overwrite: bool,
}

/// Runs `files.write`.
pub(crate) fn write(WriteFile { path, text, mode }: WriteFile) -> Result<Written, ToolError> {
    if text.len() > MAX_SIZE {
        return Err(ToolError::invalid(
            "/text",
            format!("has {} bytes; at most {MAX_SIZE} can be written", text.len()),
        ));
    }
    let target = trees::locate(&path)?;
    let failed = |error: io::Error| trees::error(&path, &error);
    let existed = match fs::metadata(&target) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(ToolError::invalid("/path", format!("`{path}` exists and is not a file")));
        }
        Ok(_) if mode == Mode::Create => return Err(exists_error(&path)),
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match mode {
        Mode::Append => append(&target, &text).map_err(failed)?,
        // `create` fails if the file exists, so a file that another program has created since the check above is
        // not overwritten.
        Mode::Create => create(&target, &text).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists_error(&path),
            _ => failed(error),
        })?,
        Mode::Overwrite => replace(&target, &text).map_err(failed)?,
    }
    let size = fs::metadata(&target).map_err(failed)?.len();
    Ok(Written { path, size, existed })
}

/// Runs `files.move`.
pub(crate) fn move_entry(Move { from, to, overwrite }: Move) -> Result<String, ToolError> {
    let (source, target) = (trees::locate(&from)?, trees::locate(&to)?);
    let metadata = fs::symlink_metadata(&source).map_err(|error| trees::error(&from, &error))?;
    if source == target {
        return Err(ToolError::invalid("/to", "is the same as `from`"));
    }
    if target.starts_with(&source) {
        return Err(ToolError::invalid("/to", format!("is inside `{from}`")));
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
        ErrorKind::CrossesDevices => ToolError::failed(format!(
            "`{from}` and `{to}` are on different file systems; read the file and write it instead"
        )),
        _ => trees::error(&from, &error),
    })?;
    Ok(format!("moved `{from}` to `{to}`"))
}

fn exists_error(path: &str) -> ToolError {
    ToolError::invalid("/path", format!("`{path}` exists; set `mode` to `overwrite` or `append`"))
}

fn append(target: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(target)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn create(target: &Path, text: &str) -> io::Result<()> {
    let file = File::create_new(target)?;
    write_and_sync(file, text).inspect_err(|_| {
        // Remove the incomplete file, because a reader could not recognise that it is incomplete. If the removal
        // of the file fails, its error is ignored, because the caller gets the error of the write.
        let _ = fs::remove_file(target);
    })
}

/// Replaces the file atomically: a reader sees either the complete old content or the complete new content. A file that may not be
/// written is not replaced, and the error is about this file and not about the temporary one.
pub(crate) fn replace(target: &Path, text: &str) -> io::Result<()> {
    match OpenOptions::new().write(true).open(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (temporary, file) = create_temporary(target)?;
    write_and_sync(file, text).and_then(|()| fs::rename(&temporary, target)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

fn write_and_sync(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn create_temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 0;
    loop {
        let temporary = target.with_file_name(format!(".{name}.{number}.tmp"));
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // The temporary file already exists: a call that was stopped has left it behind, or a parallel call is
            // using it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(error),
        }
    }
}
