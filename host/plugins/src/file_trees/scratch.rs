//! Scratch trees: folders that a call uses instead of granted folders. They contain copies of files for a rehearsal, or
//! recorded files for a replay. Scratch trees are in a folder that no grant covers, and the host and the call access
//! them only through open directories, so that no plugin can read, change or redirect them (rows 39 and 40).

mod removal;

use super::protected::{ProtectedKind, ProtectedPath, ProtectedPaths};
use super::quota::{TreeLimits, TreeUsage};
use super::{FileId, OpenTree};
use crate::grants::TreeGrant;
use crate::sync::lock;
use cap_std::fs::Dir;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, open, openat, statat};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Flags that open a directory so that it can be listed.
const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Maximum number of attempts to create a folder while another process removes abandoned folders.
const ATTEMPTS: usize = 8;

/// How much a call may add to its scratch trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchQuota {
    /// As much as the limits of the call allow for each granted tree.
    OfTurn,
    /// These numbers of bytes and of new entries for all scratch trees together.
    Own {
        /// Maximum number of added bytes.
        bytes: u64,
        /// Maximum number of added entries.
        entries: u64,
    },
}

/// The folder that contains the scratch trees of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct ScratchFolders {
    /// Path of the folder. None means a folder in the system's temporary folder.
    configured: Option<PathBuf>,
    opened: Mutex<Option<Arc<Base>>>,
}

/// The open folder that contains all scratch trees of a sandbox.
#[derive(Debug)]
struct Base {
    path: PathBuf,
    directory: OwnedFd,
    /// The folder is deleted together with this value if it is in the system's temporary folder.
    _temporary: Option<TempDir>,
}

impl ScratchFolders {
    pub(crate) fn new(configured: Option<PathBuf>) -> Self {
        Self { configured, opened: Mutex::default() }
    }

    /// Creates empty scratch trees. This function blocks the current thread.
    pub(crate) fn create(
        &self,
        protected: &ProtectedPaths,
        trees: usize,
        quota: ScratchQuota,
    ) -> io::Result<ScratchTrees> {
        let folder = ScratchFolder::create(self.base(protected)?)?;
        let mut roots = Vec::new();
        for number in 0..trees {
            let name = number.to_string();
            mkdirat(&folder.directory, &name, Mode::RWXU)?;
            let directory = openat(&folder.directory, &name, READ, Mode::empty())?;
            roots.push(Arc::new(OpenTree::scratch(File::from(directory))?));
        }
        let quota = match quota {
            ScratchQuota::OfTurn => None,
            ScratchQuota::Own { bytes, entries } => Some((Arc::default(), TreeLimits { bytes, entries })),
        };
        Ok(ScratchTrees { roots, quota, folder })
    }

    /// Opens the folder for scratch trees, and creates it if it does not exist.
    fn base(&self, protected: &ProtectedPaths) -> io::Result<Arc<Base>> {
        let mut opened = lock(&self.opened);
        if let Some(base) = opened.as_ref().filter(|base| base.is_in_place()) {
            return Ok(Arc::clone(base));
        }
        let base = Arc::new(Base::open(self.configured.as_deref(), protected)?);
        removal::remove_abandoned(&base.directory);
        *opened = Some(Arc::clone(&base));
        Ok(base)
    }
}

impl Base {
    fn open(configured: Option<&Path>, protected: &ProtectedPaths) -> io::Result<Self> {
        let temporary = match configured {
            Some(path) => {
                DirBuilder::new().recursive(true).mode(0o700).create(path)?;
                None
            }
            None => Some(tempfile::Builder::new().prefix("agent-host-scratch-").tempdir()?),
        };
        let path = temporary.as_ref().map(TempDir::path).or(configured).unwrap_or(Path::new("")).to_owned();
        let what = "the folder for rehearsals and replays of calls".to_owned();
        protected.add([ProtectedPath { path: path.clone(), what, kind: ProtectedKind::PrivateFolder }]);
        let directory = open(&path, READ, Mode::empty())?;
        let base = Self { path: std::path::absolute(path)?, directory, _temporary: temporary };
        // Before its path was protected, a plugin could have moved a folder that is in the system's temporary folder.
        match base.is_in_place() {
            true => Ok(base),
            false => Err(io::Error::other("the folder for scratch files was replaced while it was opened")),
        }
    }

    fn is_in_place(&self) -> bool {
        let id = fstat(&self.directory).map(|stat| FileId::from(&stat));
        rustix::fs::lstat(&self.path).is_ok_and(|stat| Ok(FileId::from(&stat)) == id)
    }
}

/// A folder that contains the scratch trees of one call. The folder is deleted when this value is dropped.
#[derive(Debug)]
struct ScratchFolder {
    base: Arc<Base>,
    name: String,
    /// The open folder. It is locked as long as it is open, so that no other process deletes it as abandoned.
    directory: Arc<OwnedFd>,
}

impl ScratchFolder {
    fn create(base: Arc<Base>) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let mut random = [0; 16];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let name = format!("{:032x}", u128::from_le_bytes(random));
            mkdirat(&base.directory, &name, Mode::RWXU)?;
            // Between the creation and the lock, another process may take the folder for an abandoned one.
            let directory = match openat(&base.directory, &name, READ, Mode::empty()) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let id = FileId::from(&fstat(&directory)?);
            if statat(&base.directory, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| FileId::from(&stat) == id) {
                return Ok(Self { base, name, directory: Arc::new(directory) });
            }
        }
        Err(Errno::BUSY.into())
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let (base, directory) = (Arc::clone(&self.base), Arc::clone(&self.directory));
        let name = std::mem::take(&mut self.name);
        let remove = move || removal::remove(&base.directory, &name, &directory);
        // A plugin may have created many entries, and their removal must not delay other tasks. If the runtime stops
        // before the removal begins, the next process removes the folder.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Empty folders that a call uses instead of granted folders. They are deleted when this value is dropped.
#[derive(Debug)]
pub struct ScratchTrees {
    roots: Vec<Arc<OpenTree>>,
    quota: Option<(Arc<TreeUsage>, TreeLimits)>,
    folder: ScratchFolder,
}

impl ScratchTrees {
    /// Returns the open directory of a scratch tree, which is used to write and to read its files.
    pub fn directory(&self, number: usize) -> io::Result<Dir> {
        let root = self.roots.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Dir::from_std_file(root.directory.try_clone()?))
    }

    /// Returns the grants with which a call uses the scratch trees instead of the granted trees. The call must also have
    /// the scratch trees themselves, because these grants alone allow nothing.
    pub fn replacing<'g>(&self, granted: impl IntoIterator<Item = &'g TreeGrant>) -> Vec<TreeGrant> {
        let numbered = granted.into_iter().enumerate();
        numbered.map(|(number, tree)| TreeGrant { host: self.path(number), ..tree.clone() }).collect()
    }

    /// Returns the scratch tree that a grant names.
    pub(crate) fn tree(&self, grant: &TreeGrant) -> Option<Arc<OpenTree>> {
        let number = (0..self.roots.len()).find(|number| self.path(*number) == grant.host)?;
        Some(Arc::clone(&self.roots[number]))
    }

    /// The common quota of all trees. `None` means that each tree has the quota of a granted tree.
    pub(super) fn quota(&self) -> Option<(Arc<TreeUsage>, TreeLimits)> {
        self.quota.clone()
    }

    fn path(&self, number: usize) -> PathBuf {
        self.folder.base.path.join(&self.folder.name).join(number.to_string())
    }
}

#[cfg(test)]
mod tests;
