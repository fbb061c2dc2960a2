//! Folders that belong to one person: how they are made, and what is refused (row 56).

use std::fs::{self, DirBuilder};
use std::io;
use std::path::Path;

/// Makes the folder, and those above it that are missing, for their owner only.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(found) if found.is_file() => return Err(io::Error::other("there is a file of that name")),
        Ok(found) if found.is_symlink() && !folder.exists() => {
            return Err(io::Error::other("it is a symbolic link that leads nowhere"));
        }
        _ => {}
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Refuses a folder that belongs to somebody else or that others may enter. One in which nothing is yet is made private.
#[cfg(unix)]
pub(super) fn check_owner(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let found = fs::metadata(folder).map_err(|error| error.to_string())?;
    let (owner, me) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != me {
        return Err(format!(
            "it belongs to the user with the number {owner}, and you are {me}; name a folder of your own with --data DIR"
        ));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if is_empty(folder).map_err(|error| error.to_string())? {
        return fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).map_err(|error| error.to_string());
    }
    let shown = crate::terminal::text::shell_word(&folder.display().to_string());
    Err(format!("others may read or change it (its mode is {mode:o}); `chmod 700 {shown}` makes it yours alone"))
}

#[cfg(not(unix))]
pub(super) fn check_owner(_folder: &Path) -> Result<(), String> {
    Ok(())
}

/// Whether there is nothing in a folder but the folders that were just made in it.
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

/// Refuses a folder in which something is a symbolic link: what the host keeps is in this folder and nowhere else.
pub(super) fn refuse_links(folder: &Path) -> Result<(), String> {
    let refused = |path: &Path| {
        let shown = path.display();
        format!(
            "`{shown}` is a symbolic link; put the real file or folder there, or name another folder with --data DIR"
        )
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // It is made when it is needed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => return Err(refused(&entry.path())),
            Ok(_) => {}
            // Another process has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
