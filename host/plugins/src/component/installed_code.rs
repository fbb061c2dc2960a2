//! Compiled code that was installed together with the program, for all users of a machine (P9). An installer compiles
//! the installed plugins once, so that the first start of each user is fast.
//!
//! Loading compiled code means running it, and the key of a hash cannot be secret if all users read the code.
//! Therefore, the host uses such code only if nobody except root and the user of this process could have written it: each
//! folder on the path and the file itself must belong to one of them, and no other user may write to them. The hash in
//! the file only detects damage, and code for another component or another engine.

use super::atomic_write::Mutability;
use super::code_file::{self, CodeEntry, CodeStore, Placement};
use agent_core::message::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Text from which the public key of the hashes is derived.
const KEY_CONTEXT: &str = "agent-host: compiled code of installed plugins";

/// The installed code for one engine.
pub(crate) struct InstalledCode {
    /// The folder with the code for this engine, as an absolute path without symbolic links.
    directory: PathBuf,
    engine: blake3::Hash,
    /// Maximum size of a file, in bytes.
    max_bytes: u64,
    /// Whether code must be copied into memory because it cannot be mapped from its file.
    must_copy: AtomicBool,
}

impl InstalledCode {
    /// Opens the installed code in `root` for this engine. Returns None if there is no code for this engine, or if users
    /// other than root and the user of this process may have written it.
    pub(crate) fn open(root: &Path, engine: blake3::Hash, max_bytes: u64) -> Option<Self> {
        let directory = engine_folder(root, &engine).canonicalize().ok()?;
        if !trust::is_folder_trusted(&directory) {
            let folder = directory.display();
            tracing::info!(
                %folder,
                "installed compiled code is not used, because users other than root and you can write to its folder"
            );
            return None;
        }
        Some(Self { directory, engine, max_bytes, must_copy: AtomicBool::new(false) })
    }
}

impl CodeStore for InstalledCode {
    fn get(&self, component: &Digest) -> Option<CodeEntry> {
        let path = self.directory.join(code_file::name(component));
        let metadata = path.symlink_metadata().ok()?;
        if !metadata.is_file() || metadata.len() > self.max_bytes || !trust::is_trusted(&metadata) {
            return None;
        }
        let placement = if self.must_copy.load(Ordering::Relaxed) { Placement::Copied } else { Placement::Mapped };
        let hasher = hasher(&self.engine, component);
        let entry = code_file::read(File::open(&path).ok()?, hasher, self.max_bytes, placement);
        if entry.is_none() {
            tracing::warn!(file = %path.display(), "installed compiled code is damaged; the component is compiled again");
        }
        entry
    }

    fn disable_mapping(&self) {
        self.must_copy.store(true, Ordering::Relaxed);
    }
}

/// Writes the code of one component and the facts about it into `root`. All users may read the file, and nobody may
/// write to it. Returns the path of the file.
pub(crate) fn write(
    root: &Path,
    (engine, component): (&blake3::Hash, &Digest),
    (record, code): (&[u8], &[u8]),
) -> io::Result<PathBuf> {
    let folder = engine_folder(root, engine);
    std::fs::create_dir_all(&folder)?;
    for folder in [root, &folder] {
        make_readable(folder)?;
    }
    let path = folder.join(code_file::name(component));
    code_file::write(&path, hasher(engine, component), (record, code), Mutability::PublicReadOnly)?;
    Ok(path)
}

/// Deletes all compiled code in `root` except the files in `kept`. Files and folders with other names are not deleted.
pub(crate) fn delete_other_code(root: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for folder in std::fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()? {
        let is_engine = folder.file_name().to_str().is_some_and(|name| blake3::Hash::from_hex(name).is_ok());
        if !is_engine || !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())?.collect::<io::Result<Vec<_>>>()? {
            if !kept.contains(&file.path()) {
                std::fs::remove_file(file.path())?;
            }
        }
        if std::fs::read_dir(folder.path())?.next().is_none() {
            std::fs::remove_dir(folder.path())?;
        }
    }
    Ok(())
}

fn engine_folder(root: &Path, engine: &blake3::Hash) -> PathBuf {
    root.join(engine.to_hex().as_str())
}

fn hasher(engine: &blake3::Hash, component: &Digest) -> blake3::Hasher {
    code_file::hasher(&blake3::derive_key(KEY_CONTEXT, &[]), engine, component)
}

/// Lets all users read a folder and its owner write to it, whatever the process's file mode mask is.
#[cfg(unix)]
fn make_readable(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_readable(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
mod trust {
    use super::code_file::{mode, owner};
    use std::fs::Metadata;
    use std::path::Path;

    /// Permission bits with which users other than the owner may write. An access control list that lets other users
    /// write sets the bit of the group, too.
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    /// In a folder with this bit, users may rename and delete only their own files.
    const STICKY: u32 = 0o1000;

    /// Whether only root and the user of this process can create, replace or rename files in this folder. The path must
    /// be absolute and must not contain symbolic links.
    pub(super) fn is_folder_trusted(folder: &Path) -> bool {
        let is_parent_trusted = |parent: &Path| {
            parent.symlink_metadata().is_ok_and(|metadata| {
                is_trusted(&metadata) || (is_owner_trusted(&metadata) && mode(&metadata) & STICKY != 0)
            })
        };
        folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() && is_trusted(&metadata))
            && folder.ancestors().skip(1).all(is_parent_trusted)
    }

    /// Whether a file or folder belongs to root or to the user of this process, and no other user may write to it.
    pub(super) fn is_trusted(metadata: &Metadata) -> bool {
        is_owner_trusted(metadata) && mode(metadata) & WRITABLE_BY_OTHERS == 0
    }

    fn is_owner_trusted(metadata: &Metadata) -> bool {
        [0, rustix::process::geteuid().as_raw()].contains(&owner(metadata))
    }
}

/// On systems other than Unix, the host does not examine the permissions of files, so it never uses installed code.
#[cfg(not(unix))]
mod trust {
    use std::fs::Metadata;
    use std::path::Path;

    pub(super) fn is_folder_trusted(_: &Path) -> bool {
        false
    }

    pub(super) fn is_trusted(_: &Metadata) -> bool {
        false
    }
}

#[cfg(all(test, unix))]
mod tests;
