//! Replaces files atomically: a reader sees either the old content or the complete new content.

use crate::file_trees::DRAFT_PREFIX;
use std::io::{self, Write};
use std::path::Path;

/// Replaces the file at `path` with these bytes in one step. The bytes are first written to a hidden temporary file in
/// the same directory, which no plugin can change ([`DRAFT_PREFIX`]).
pub fn write_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(DRAFT_PREFIX);
    // The file gets the usual permissions of a new file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Writes the parts to a temporary file in `directory`, which is created if necessary, and renames the file to `path`.
pub(crate) fn write_atomically(
    directory: &Path,
    (path, mutability): (&Path, Mutability),
    parts: &[&[u8]],
) -> io::Result<()> {
    make_private_directory(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    for part in parts {
        file.write_all(part)?;
    }
    if mutability != Mutability::Writable {
        let mut permissions = file.as_file().metadata()?.permissions();
        permissions.set_readonly(true);
        #[cfg(unix)]
        if mutability == Mutability::PublicReadOnly {
            std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o444);
        }
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether the permissions of the written file allow changes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutability {
    /// The owner may write to the file.
    Writable,
    /// The file is read-only, so it can be replaced but not changed.
    ReadOnly,
    /// The file is read-only, and all users may read it.
    PublicReadOnly,
}

/// Creates a directory that only this user can read and write.
pub(crate) fn make_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}
