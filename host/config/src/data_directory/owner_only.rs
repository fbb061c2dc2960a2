//! Creates and checks folders that only their owner can access (row 56).

use std::fs::{self, DirBuilder};
use std::io;
use std::path::Path;

/// Creates the folder and its missing parent folders, so that only their owner can access them.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(metadata) if metadata.is_file() => return Err(io::Error::other("there is a file with this name")),
        Ok(metadata) if metadata.is_symlink() && !folder.exists() => {
            return Err(io::Error::other("it is a symbolic link to a folder that does not exist"));
        }
        _ => {}
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Rejects a folder that belongs to another user or that other users can access. An empty folder that other users can
/// access is not rejected, but made private.
#[cfg(unix)]
pub(super) fn check_owner(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let metadata = fs::metadata(folder).map_err(|error| error.to_string())?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let is_open_to_others = metadata.permissions().mode() & 0o077 != 0;
    if is_own && is_open_to_others && is_empty(folder).map_err(|error| error.to_string())? {
        return fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).map_err(|error| error.to_string());
    }
    examine_owner(folder)
}

/// Rejects a folder that belongs to another user or that other users can access. Nothing is changed.
#[cfg(unix)]
pub(super) fn examine_owner(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let metadata = fs::metadata(folder).map_err(|error| error.to_string())?;
    let (owner, current_user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != current_user {
        return Err(format!(
            "the folder belongs to the user with the id {owner}, and your id is {current_user}; use --data DIR to name a folder that belongs to you"
        ));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = crate::text::shell_word(&folder.display().to_string());
    Err(format!("other users can read or change the folder (mode {mode:o}); `chmod 700 {shown}` makes it private"))
}

#[cfg(not(unix))]
pub(super) fn check_owner(_folder: &Path) -> Result<(), String> {
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn examine_owner(_folder: &Path) -> Result<(), String> {
    Ok(())
}

/// Whether a folder contains nothing except empty folders. A folder that contains only empty folders counts as empty,
/// because the host may have just created the inner folders.
#[cfg(unix)]
fn is_empty(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || fs::read_dir(entry.path())?.next().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rejects a folder that contains a symbolic link, because all data of the host must be in this folder.
pub(super) fn refuse_links(folder: &Path) -> Result<(), String> {
    let link_error = |path: &Path| {
        let shown = path.display();
        format!(
            "`{shown}` is a symbolic link; put the real file or folder there, or name another folder with --data DIR"
        )
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // A missing folder contains no links, and is created when it is needed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => return Err(link_error(&entry.path())),
            Ok(_) => {}
            // The entry is missing because another process has removed it in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
