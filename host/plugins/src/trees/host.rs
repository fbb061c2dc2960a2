//! Granted trees as the host itself uses them: its own file tools, replays, and whoever sets a sandbox up.

use super::beneath::{self, Entry, Last};
use super::protected::ProtectedPaths;
use super::quota::Quotas;
use super::roots::TreeRoots;
use super::{OpenTree, ProtectedPath, Refusal};
use crate::grants::TreeGrant;
use crate::sandbox::Sandbox;
use crate::state::TreeProblem;
use cap_std::fs::Dir;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// What all calls of a sandbox share about files.
#[derive(Debug, Default)]
pub(crate) struct TreeHost {
    pub(crate) roots: TreeRoots,
    pub(crate) protected: Arc<ProtectedPaths>,
    pub(crate) quotas: Quotas,
}

impl Sandbox {
    /// No grant covers these from now on (P13).
    pub fn protect(&self, paths: impl IntoIterator<Item = ProtectedPath>) {
        self.shared.trees.protected.add(paths);
    }

    /// What no grant covers.
    pub fn protected(&self) -> Vec<ProtectedPath> {
        self.shared.trees.protected.all().to_vec()
    }

    /// Opens granted trees before any guest runs, so that none can change what they are. It blocks.
    pub fn open_trees(&self, trees: &[TreeGrant]) -> Vec<TreeProblem> {
        let opened = self.shared.trees.roots.open(trees).into_iter().zip(trees);
        opened.filter_map(|(opened, tree)| Some(TreeProblem::new(tree, &opened.err()?))).collect()
    }

    /// A granted tree, for the host's own tools to read. It blocks.
    pub fn host_tree(&self, tree: &TreeGrant) -> Result<HostTree, TreeProblem> {
        let opened = self.shared.trees.roots.open(std::slice::from_ref(tree)).into_iter().next();
        let missing = || TreeProblem::new(tree, &io::Error::from(io::ErrorKind::NotFound).into());
        let root = opened.ok_or_else(missing)?.map_err(|error| TreeProblem::new(tree, &error))?;
        Ok(HostTree { root, protected: Arc::clone(&self.shared.trees.protected) })
    }
}

/// An open granted tree, to be read by the host.
#[derive(Debug)]
pub struct HostTree {
    root: Arc<OpenTree>,
    protected: Arc<ProtectedPaths>,
}

/// What is at a path of a granted tree.
#[derive(Debug)]
pub enum HostObject {
    /// A regular file, open for reading.
    File(File),
    /// A directory.
    Directory(Dir),
    /// A pipe, a socket or a device, which was not opened.
    Special,
}

impl HostTree {
    /// Opens something below the tree, without waiting for the other end of a pipe. What leads out of the tree, or into a folder
    /// that is nobody's to read, is refused.
    pub fn open(&self, path: &str) -> io::Result<HostObject> {
        self.opened(path).map_err(|refusal| match refusal {
            Refusal::System(error) => error,
            refusal => io::Error::new(io::ErrorKind::PermissionDenied, refusal.to_string()),
        })
    }

    fn opened(&self, path: &str) -> Result<HostObject, Refusal> {
        let Entry { parent, name, names_directory } = beneath::resolve(&self.root.directory, path, Last::Follow)?;
        let protection = self.protected.private_now();
        protection.check_directory(parent.as_fd())?;
        let name = name.unwrap_or_else(|| ".".into());
        let kind = FileType::from_raw_mode(statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match kind {
            FileType::Directory => {
                let directory = openat(&parent, &name, flags | OFlags::DIRECTORY, Mode::empty())?;
                protection.check_directory(directory.as_fd())?;
                Ok(HostObject::Directory(Dir::from_std_file(File::from(directory))))
            }
            _ if names_directory => Err(Errno::NOTDIR.into()),
            FileType::RegularFile => {
                let file = openat(&parent, &name, flags, Mode::empty())?;
                // Something else may have come there just now.
                let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode).is_file();
                Ok(if is_file { HostObject::File(File::from(file)) } else { HostObject::Special })
            }
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => Ok(HostObject::Special),
        }
    }

    /// The tree's directory, to look at what is below it.
    pub(crate) fn directory(&self) -> io::Result<Dir> {
        Ok(Dir::from_std_file(self.root.directory.try_clone()?))
    }
}
