//! The destination of an export: a file that appears only when it is complete, or a stream such as a pipe.

use crate::exit::Failure;
use std::fs::{FileType, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tokio::fs::File;

/// Whether an existing file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Existing {
    /// It is an error if the file exists.
    Keep,
    /// An existing file is replaced.
    Replace,
}

/// Kind of output that the path refers to.
pub(in crate::commands) enum Destination {
    /// A regular file that exists or will be created. Symbolic links are resolved.
    File(PathBuf, Existing),
    /// A pipe or a terminal. The export is written to the pipe or terminal directly, without a temporary file.
    Stream(PathBuf),
}

/// An export that is being written. If the export is dropped, its temporary file is removed.
pub(in crate::commands) enum Writing {
    File { part: NamedTempFile, path: PathBuf, existing: Existing },
    Stream,
}

impl Destination {
    /// Examines the path of the export. An existing file can be replaced only if it is a regular file. If the path is a
    /// symbolic link, its target is replaced.
    pub(in crate::commands) fn of(output: &Path, existing: Existing) -> Result<Self, Failure> {
        let shown = output.display();
        let metadata = match std::fs::metadata(output) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound && output.is_symlink() => {
                return Err(Failure::refused(format!(
                    "`{shown}` is a symbolic link to a file that does not exist: remove the link, or name the file"
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::File(output.to_owned(), existing)),
            Err(error) => return Err(unwritable(output, &error)),
        };
        match FileKind::of(&metadata) {
            FileKind::File if existing == Existing::Keep => Err(Failure::refused(format!(
                "`{shown}` already exists: --force replaces it, --output FILE writes to another file"
            ))),
            FileKind::File => {
                let path = output.canonicalize().map_err(|error| unwritable(output, &error))?;
                Ok(Self::File(path, existing))
            }
            FileKind::Stream => Ok(Self::Stream(output.to_owned())),
            FileKind::Folder => {
                Err(Failure::refused(format!("`{shown}` is a folder: name a file in it, as in `{shown}/export.json`")))
            }
            FileKind::Device => Err(Failure::refused(format!(
                "`{shown}` is neither a file nor a pipe, and is not overwritten: name a file, or `-` for stdout"
            ))),
        }
    }

    /// Opens the destination. Returns the file to write to, and a value whose method [`Writing::finish`] completes
    /// the export.
    pub(in crate::commands) async fn open(self) -> Result<(File, Writing), Failure> {
        match self {
            Self::File(path, existing) => {
                // The export contains private data, such as a whole conversation, so use a new file with a random name that only its owner
                // can read.
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let mut part = tempfile::Builder::new();
                let part = part.prefix(".agent-host-export-").suffix(".part");
                let part = part.tempfile_in(folder.unwrap_or(Path::new(".")));
                let part = part.map_err(|error| unwritable(&path, &without_path(&error)))?;
                let file = part.as_file().try_clone().map_err(|error| unwritable(&path, &error))?;
                Ok((File::from_std(file), Writing::File { part, path, existing }))
            }
            Self::Stream(path) => {
                let file = File::options().write(true).open(&path).await.map_err(|error| unwritable(&path, &error))?;
                Ok((file, Writing::Stream))
            }
        }
    }
}

impl Writing {
    /// Gives the temporary file its final name when the export is complete.
    pub(in crate::commands) async fn finish(self, file: File) -> Result<(), Failure> {
        let Self::File { part, path, existing } = self else { return Ok(()) };
        file.sync_all().await.map_err(|error| unwritable(&path, &error))?;
        let kept = match existing {
            Existing::Keep => part.persist_noclobber(&path),
            Existing::Replace => part.persist(&path),
        };
        kept.map(drop).map_err(|error| unwritable(&path, &error.error))
    }
}

/// Kind of an existing file.
enum FileKind {
    File,
    Folder,
    /// A pipe or a character device such as a terminal.
    Stream,
    /// A block device or a socket.
    Device,
}

impl FileKind {
    fn of(metadata: &Metadata) -> Self {
        match metadata.file_type() {
            kind if kind.is_file() => Self::File,
            kind if kind.is_dir() => Self::Folder,
            kind if is_stream(kind) => Self::Stream,
            _ => Self::Device,
        }
    }
}

#[cfg(unix)]
fn is_stream(kind: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_fifo() || kind.is_char_device()
}

#[cfg(not(unix))]
fn is_stream(_: FileType) -> bool {
    false
}

/// Returns the error's text without the path of the temporary file.
fn without_path(error: &io::Error) -> String {
    let message = error.to_string();
    message.split(" at path ").next().unwrap_or_default().to_owned()
}

pub(in crate::commands) fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("`{}` cannot be written: {error}", path.display()))
}
