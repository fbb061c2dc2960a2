//! The host's own access to granted trees, which it needs for its file tools, for replays and to set up a sandbox.

use super::protected::ProtectedPaths;
use super::quota::Quotas;
use super::resolve::{self, Entry, FinalLink};
use super::roots::TreeRoots;
use super::scratch::ScratchFolders;
use super::{OpenTree, TreeProblem, TreeRefusal};
use crate::grants::TreeGrant;
use cap_std::fs::Dir;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// The state of the granted directories. All calls of a sandbox share this state.
#[derive(Debug, Default)]
pub(crate) struct TreeHost {
    pub(crate) roots: TreeRoots,
    pub(crate) protected: Arc<ProtectedPaths>,
    pub(crate) quotas: Quotas,
    pub(crate) scratch: ScratchFolders,
}

impl TreeHost {
    /// Opens granted trees before any guest runs, so that no guest can redirect their paths. Returns the trees that
    /// cannot be opened. This function blocks the current thread.
    pub(crate) fn open_all(&self, trees: &[TreeGrant]) -> Vec<TreeProblem> {
        let opened = self.roots.open(trees).into_iter().zip(trees);
        opened.filter_map(|(opened, tree)| Some(TreeProblem::new(tree, &opened.err()?))).collect()
    }

    /// Opens a granted tree so that the host can read it. This function blocks the current thread.
    pub(crate) fn tree(&self, tree: &TreeGrant) -> Result<HostTree, TreeProblem> {
        let opened = self.roots.open(std::slice::from_ref(tree)).into_iter().next();
        let missing = || TreeProblem::new(tree, &io::Error::from(io::ErrorKind::NotFound).into());
        let root = opened.ok_or_else(missing)?.map_err(|error| TreeProblem::new(tree, &error))?;
        Ok(HostTree { root, protected: Arc::clone(&self.protected) })
    }
}

/// An open granted tree that the host can read.
#[derive(Debug)]
pub struct HostTree {
    root: Arc<OpenTree>,
    protected: Arc<ProtectedPaths>,
}

/// A file or directory that the host has opened in a granted tree.
#[derive(Debug)]
pub enum HostTreeEntry {
    /// A regular file, open for reading.
    File(File),
    /// A directory, open for reading.
    Directory(Dir),
    /// A pipe, a socket or a device, which the host does not open.
    Special,
}

impl HostTree {
    /// Opens a file or directory of the tree. Does not block, even if the path leads to a pipe. Fails if the path leads
    /// out of the tree or into a folder that plugins must not read.
    pub fn open(&self, path: &str) -> io::Result<HostTreeEntry> {
        self.opened(path).map_err(|refusal| match refusal {
            TreeRefusal::System(error) => error,
            refusal => io::Error::new(io::ErrorKind::PermissionDenied, refusal.to_string()),
        })
    }

    fn opened(&self, path: &str) -> Result<HostTreeEntry, TreeRefusal> {
        let Entry { parent, name, names_directory } = resolve::resolve(&self.root.directory, path, FinalLink::Follow)?;
        let protection = self.protected.private_folders_now();
        protection.check_directory(parent.as_fd())?;
        let name = name.unwrap_or_else(|| ".".into());
        let kind = FileType::from_raw_mode(statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match kind {
            FileType::Directory => {
                let directory = openat(&parent, &name, flags | OFlags::DIRECTORY, Mode::empty())?;
                protection.check_directory(directory.as_fd())?;
                Ok(HostTreeEntry::Directory(Dir::from_std_file(File::from(directory))))
            }
            _ if names_directory => Err(Errno::NOTDIR.into()),
            FileType::RegularFile => {
                let file = openat(&parent, &name, flags, Mode::empty())?;
                // The type of the file is checked a second time, because the file may have been replaced since the
                // first check.
                let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode).is_file();
                Ok(if is_file { HostTreeEntry::File(File::from(file)) } else { HostTreeEntry::Special })
            }
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => Ok(HostTreeEntry::Special),
        }
    }

    /// The root directory of the tree.
    pub(crate) fn directory(&self) -> io::Result<Dir> {
        Ok(Dir::from_std_file(self.root.directory.try_clone()?))
    }
}
