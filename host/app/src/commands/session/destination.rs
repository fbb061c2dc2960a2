//! Where an export goes: a file that appears when it is whole, or something that is written through, such as a pipe.

use crate::exit::Failure;
use std::fs::{FileType, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tokio::fs::File;

/// Whether a file that is there may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Existing {
    Keep,
    Replace,
}

/// What a path stands for.
pub(super) enum Destination {
    /// A file of that path, links resolved, whether it is there or not.
    File(PathBuf, Existing),
    /// A pipe or a terminal: what is written to it is gone, and nothing is replaced.
    Stream(PathBuf),
}

/// An export that is being written. Dropped, it leaves nothing behind.
pub(super) enum Writing {
    File { part: NamedTempFile, path: PathBuf, existing: Existing },
    Stream,
}

impl Destination {
    /// Looks at what is there. Nothing but a regular file is ever replaced, through a link the file that it leads to.
    pub(super) fn of(output: &Path, existing: Existing) -> Result<Self, Failure> {
        let shown = output.display();
        let there = match std::fs::metadata(output) {
            Ok(there) => there,
            Err(error) if error.kind() == ErrorKind::NotFound && output.is_symlink() => {
                return Err(Failure::refused(format!(
                    "`{shown}` is a symbolic link to a file that is not there: remove the link, or name the file"
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::File(output.to_owned(), existing)),
            Err(error) => return Err(unwritable(output, &error)),
        };
        match Kind::of(&there) {
            Kind::File if existing == Existing::Keep => Err(Failure::refused(format!(
                "`{shown}` is there already: --force replaces it, --output FILE writes another"
            ))),
            Kind::File => {
                let path = output.canonicalize().map_err(|error| unwritable(output, &error))?;
                Ok(Self::File(path, existing))
            }
            Kind::Stream => Ok(Self::Stream(output.to_owned())),
            Kind::Folder => {
                Err(Failure::refused(format!("`{shown}` is a folder: name a file in it, as in `{shown}/session.json`")))
            }
            Kind::Device => Err(Failure::refused(format!(
                "`{shown}` is no file and no pipe, and what it holds is not overwritten: name a file, or `-` for stdout"
            ))),
        }
    }

    /// What is written to, and what makes of it what was asked for.
    pub(super) async fn open(self) -> Result<(File, Writing), Failure> {
        match self {
            Self::File(path, existing) => {
                // A new file with a name that nobody can guess, for its owner alone: it holds a whole conversation.
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let mut part = tempfile::Builder::new();
                let part = part.prefix(".agent-host-export-").suffix(".part");
                let part = part.tempfile_in(folder.unwrap_or(Path::new(".")));
                let part = part.map_err(|error| unwritable(&path, &without_place(&error)))?;
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
    /// Makes a file appear under its name.
    pub(super) async fn finish(self, file: File) -> Result<(), Failure> {
        let Self::File { part, path, existing } = self else { return Ok(()) };
        file.sync_all().await.map_err(|error| unwritable(&path, &error))?;
        let kept = match existing {
            Existing::Keep => part.persist_noclobber(&path),
            Existing::Replace => part.persist(&path),
        };
        kept.map(drop).map_err(|error| unwritable(&path, &error.error))
    }
}

enum Kind {
    File,
    Folder,
    Stream,
    Device,
}

impl Kind {
    fn of(there: &Metadata) -> Self {
        match there.file_type() {
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

/// What went wrong, without the name that nobody means.
fn without_place(error: &io::Error) -> String {
    let told = error.to_string();
    told.split(" at path ").next().unwrap_or_default().to_owned()
}

pub(super) fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("`{}` cannot be written: {error}", path.display()))
}
