//! The root directories of granted trees. Each root is opened once, by a path in which no guest can have placed a link.
//! The grant keeps referring to the opened directory even if a guest renames or replaces it (row 39).

use super::FileId;
use super::resolve::SEARCH;
use crate::grants::TreeGrant;
use crate::grants::manifest::Access;
use crate::sync::lock;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, open, openat, readlinkat, stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum number of symbolic links that are followed in one path.
const MAX_LINKS: u32 = 40;

/// The reason why a granted directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The operating system refused to open the directory.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The path contains a symbolic link that a guest may have created.
    #[error(
        "`{}` is a symbolic link in a folder that a plugin may write to, so a plugin may have created it; put the folder itself there, \
         or grant the folder that the link leads to",
        .0.display()
    )]
    LinkBelowWriteGrant(PathBuf),
    /// The path leads through too many symbolic links.
    #[error("its path leads through more than {MAX_LINKS} symbolic links")]
    TooManyLinks,
}

/// A granted directory that the host has opened.
#[derive(Debug)]
pub(crate) struct OpenTree {
    pub(crate) directory: File,
    pub(crate) id: FileId,
    control: PathControl,
}

/// Whether guests can change the path that leads to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathControl {
    /// Guests may write to at least one directory on the path.
    InWritableTree,
    Outside,
}

impl OpenTree {
    /// A tree that only the host has access to, and whose path no guest can change.
    pub(super) fn scratch(directory: File) -> io::Result<Self> {
        let id = FileId::from(&fstat(&directory)?);
        Ok(Self { directory, id, control: PathControl::Outside })
    }

    /// Returns whether the path leads to this open directory now.
    fn is_at(&self, path: &Path) -> bool {
        stat(path).is_ok_and(|stat| FileId::from(&stat) == self.id)
    }

    /// Whether the directory was removed.
    fn is_removed(&self) -> bool {
        fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0) || self.is_marked_removed()
    }

    /// Whether the kernel marks the directory as deleted. This mark is needed because the link count of a directory is
    /// not reliable on every file system.
    #[cfg(target_os = "linux")]
    fn is_marked_removed(&self) -> bool {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        let path = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(path).is_ok_and(|path| path.as_os_str().as_bytes().ends_with(b" (deleted)"))
    }

    #[cfg(not(target_os = "linux"))]
    fn is_marked_removed(&self) -> bool {
        false
    }
}

/// The open trees of a process, each under the path that was granted.
#[derive(Debug, Default)]
pub(crate) struct TreeRoots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: HashMap<PathBuf, Arc<OpenTree>>,
    /// All directories that have been granted to guests for writing since the process started.
    writable: HashSet<FileId>,
}

impl TreeRoots {
    /// Opens trees that are granted together and returns them in the same order. Paths with links inside a tree that is
    /// granted for writing are refused.
    pub(crate) fn open(&self, trees: &[TreeGrant]) -> Vec<Result<Arc<OpenTree>, TreeError>> {
        let mut state = lock(&self.0);
        let mut writable: Vec<_> = trees.iter().filter(|tree| tree.access == Access::ReadWrite).collect();
        // Outer trees are opened before inner trees. When an inner tree is opened, the host therefore already knows
        // that a guest may have created the links in the outer tree.
        writable.sort_by_key(|tree| tree.host.components().count());
        for tree in writable {
            if let Ok(open) = state.tree(&tree.host) {
                state.writable.insert(open.id);
            }
        }
        trees.iter().map(|tree| state.tree(&tree.host)).collect()
    }
}

impl State {
    fn tree(&mut self, path: &Path) -> Result<Arc<OpenTree>, TreeError> {
        let path = std::path::absolute(path)?;
        // In most cases, the path still leads to the directory that is already open.
        if let Some(existing) = self.open.get(&path).filter(|existing| existing.is_at(&path)) {
            return Ok(Arc::clone(existing));
        }
        self.open.retain(|_, tree| !tree.is_removed());
        let existing = self.open.get(&path);
        let found = open_root(&path, &self.writable);
        if let Some(existing) = existing {
            // If a guest can change what the path leads to, the grant keeps referring to the directory that was
            // opened first.
            let keeps_existing = match &found {
                Ok(found) => found.id == existing.id || found.control == PathControl::InWritableTree,
                Err(error) => matches!(error, TreeError::LinkBelowWriteGrant(_)),
            };
            if keeps_existing || existing.control == PathControl::InWritableTree {
                return Ok(Arc::clone(existing));
            }
        }
        let tree = Arc::new(found?);
        self.open.insert(path, Arc::clone(&tree));
        Ok(tree)
    }
}

/// Opens the directory at an absolute path, component by component.
fn open_root(path: &Path, writable: &HashSet<FileId>) -> Result<OpenTree, TreeError> {
    let search = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut walk = RootWalk::new()?;
    let mut todo = components(path);
    let (mut links, mut control) = (0, PathControl::Outside);
    while let Some(name) = todo.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => walk = RootWalk::new()?,
            Some(Component::ParentDir) => walk.go_to_parent()?,
            _ => {
                let is_below = walk.ids.iter().any(|id| writable.contains(id));
                if is_below {
                    control = PathControl::InWritableTree;
                }
                match openat(&walk.current, &name, search, Mode::empty()) {
                    Ok(next) => walk.enter(next, name)?,
                    Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
                        let Ok(target) = readlinkat(&walk.current, &name, Vec::new()) else {
                            return Err(io::Error::from(errno).into());
                        };
                        if is_below {
                            return Err(TreeError::LinkBelowWriteGrant(walk.path.join(name)));
                        }
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(TreeError::TooManyLinks);
                        }
                        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                        components(&target).into_iter().rev().for_each(|component| todo.push_front(component));
                    }
                    Err(errno) => return Err(io::Error::from(errno).into()),
                }
            }
        }
    }
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match openat(&walk.current, ".", readable, Mode::empty()) {
        Ok(directory) => directory,
        // The user may enter this directory but not list it.
        Err(Errno::ACCESS) => walk.current,
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    let id = FileId::from(&fstat(&directory).map_err(io::Error::from)?);
    Ok(OpenTree { directory: File::from(directory), id, control })
}

/// A walk from `/` to a directory.
struct RootWalk {
    current: OwnedFd,
    path: PathBuf,
    /// Ids of all directories on the way from `/` to the current directory, which is included.
    ids: Vec<FileId>,
}

impl RootWalk {
    fn new() -> io::Result<Self> {
        let current = open("/", SEARCH | OFlags::DIRECTORY, Mode::empty())?;
        let id = FileId::from(&fstat(&current)?);
        Ok(Self { current, path: PathBuf::from("/"), ids: vec![id] })
    }

    fn enter(&mut self, next: OwnedFd, name: OsString) -> io::Result<()> {
        self.ids.push(FileId::from(&fstat(&next)?));
        self.path.push(name);
        self.current = next;
        Ok(())
    }

    fn go_to_parent(&mut self) -> io::Result<()> {
        self.current = openat(&self.current, "..", SEARCH | OFlags::DIRECTORY, Mode::empty())?;
        self.path.pop();
        if self.ids.len() > 1 {
            self.ids.pop();
        }
        Ok(())
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let components = path.components().filter(|component| *component != Component::CurDir);
    components.map(|component| component.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(host: PathBuf, access: Access) -> TreeGrant {
        TreeGrant { host, guest: "tree".to_owned(), access }
    }

    fn content(tree: &OpenTree) -> String {
        let file = openat(&tree.directory, "file", OFlags::RDONLY, Mode::empty()).expect("the file opens");
        io::read_to_string(File::from(file)).expect("the file is text")
    }

    fn folder(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        std::fs::create_dir_all(&path).expect("created");
        std::fs::write(path.join("file"), name).expect("written");
        path
    }

    // Row 39: a grant still refers to the original directory after a guest has renamed it and put another directory in
    // its place.
    #[test]
    fn row_39_replaced_folder_does_not_redirect_the_grant() {
        let folder_guard = tempfile::tempdir().expect("a temporary folder");
        let root = folder_guard.path().canonicalize().expect("the folder exists");
        let (outer, docs) = (folder(&root, "tree"), folder(&root, "tree/docs"));
        let outside = folder(&root, "outside");
        let grants = [tree(docs.clone(), Access::Read), tree(outer.clone(), Access::ReadWrite)];
        let roots = TreeRoots::default();
        let open = |roots: &TreeRoots| roots.open(&grants).remove(0);
        assert_eq!(content(&open(&roots).expect("open")), "tree/docs");
        std::fs::rename(&docs, outer.join("moved")).expect("renamed");
        symlink(&outside, &docs).expect("linked");
        assert_eq!(content(&open(&roots).expect("open")), "tree/docs");
        // After a restart, the directory is not open, so its path is resolved, and the link that the guest created
        // is refused.
        let error = open(&TreeRoots::default()).expect_err("a link");
        assert!(matches!(&error, TreeError::LinkBelowWriteGrant(path) if *path == docs), "{error}");
    }

    // Row 39: if the user replaces a granted directory, the grant refers to the new directory.
    #[test]
    fn row_39_folder_replaced_by_the_user_is_opened_again() {
        let folder_guard = tempfile::tempdir().expect("a temporary folder");
        let root = folder_guard.path().canonicalize().expect("the folder exists");
        let (docs, roots) = (folder(&root, "docs"), TreeRoots::default());
        let open = || roots.open(&[tree(docs.clone(), Access::ReadWrite)]).remove(0);
        assert_eq!(content(&open().expect("open")), "docs");
        std::fs::rename(&docs, root.join("old")).expect("renamed");
        assert!(open().is_err(), "the folder no longer exists");
        folder(&root, "docs");
        std::fs::write(docs.join("file"), "new").expect("written");
        assert_eq!(content(&open().expect("open")), "new");
        std::fs::remove_dir_all(&docs).expect("removed");
        folder(&root, "docs");
        assert_eq!(content(&open().expect("open")), "docs");
        // A link that lies outside every writable tree cannot have been created by a guest, so the host follows it.
        symlink(&docs, root.join("link")).expect("linked");
        let linked = roots.open(&[tree(root.join("link"), Access::Read)]).remove(0);
        assert_eq!(content(&linked.expect("open")), "docs");
    }
}
