//! Removes scratch folders. Plugins decide how many entries such a folder has and how deep they are, so the removal
//! needs the same stack and the same number of open files for every folder (row 44).

use super::READ;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Maximum number of abandoned folders that are removed at a time.
const MAX_ABANDONED: usize = 64;
/// Maximum number of times that a folder is emptied again, because a call that has just ended still wrote to it.
const MAX_REFILLS: usize = 64;

/// Removes the folders that processes have left behind which ended without removing them. Folders in use are locked.
pub(super) fn remove_abandoned(base: &OwnedFd) {
    for name in names_in(base).unwrap_or_default().into_iter().take(MAX_ABANDONED) {
        let Ok(folder) = openat(base, &name, READ, Mode::empty()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(base, name.to_string_lossy().as_ref(), &folder);
        }
    }
}

/// Removes a folder with everything in it. If this fails, the next process that opens the base folder tries again.
pub(super) fn remove(base: &OwnedFd, name: &str, folder: &OwnedFd) {
    let _ = empty(folder);
    let _ = unlinkat(base, name, AtFlags::REMOVEDIR);
}

/// Removes everything in a folder. A folder that is not empty is first moved to the top, so that no folder is deeper
/// than two levels when it is emptied.
fn empty(top: &OwnedFd) -> rustix::io::Result<()> {
    let (mut moved, mut refills) = (0_u64, 0);
    let mut todo = names_in(top)?;
    while let Some(name) = todo.pop() {
        if is_removed(top, &name)? {
            continue;
        }
        let folder = openat(top, &name, READ, Mode::empty())?;
        for inner in names_in(&folder)? {
            if !is_removed(&folder, &inner)? {
                let to = OsString::from(format!("moved-{moved}"));
                moved += 1;
                renameat(&folder, &inner, top, &to)?;
                todo.push(to);
            }
        }
        if !is_removed(top, &name)? {
            refills += 1;
            if refills > MAX_REFILLS {
                return Err(Errno::NOTEMPTY);
            }
            todo.push(name);
        }
    }
    Ok(())
}

/// Removes a file, a link or an empty folder. Returns false if the entry is a folder that is not empty.
fn is_removed(parent: impl AsFd, name: &OsString) -> rustix::io::Result<bool> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        // Linux returns the first error for a folder, and other systems return the second one.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn names_in(folder: impl AsFd) -> rustix::io::Result<Vec<OsString>> {
    let entries = Dir::read_from(folder)?;
    let names = entries.map(|entry| Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec())));
    names.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
}
