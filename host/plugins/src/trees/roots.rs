//! Which directories granted trees are. Each is opened once, by a path on which no guest can have put a link, and stays that
//! directory: a guest that renames or replaces it redirects nothing (row 39).

use super::FileId;
use super::beneath::SEARCH;
use crate::grants::TreeGrant;
use crate::manifest::Access;
use crate::record::lock;
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

/// Links on one path.
const MOST_LINKS: u32 = 40;

/// A granted folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The system refused to open it.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A guest may have made a link on the way to it.
    #[error(
        "`{}` is a symbolic link in a folder that a plugin may write, so a plugin may have made it: put the folder itself there, or \
         grant the folder that the link leads to",
        .0.display()
    )]
    LinkBelowWriteGrant(PathBuf),
    /// The path leads through too many links.
    #[error("its path leads through more than {MOST_LINKS} symbolic links")]
    TooManyLinks,
}

/// An open granted directory.
#[derive(Debug)]
pub(crate) struct OpenTree {
    pub(crate) directory: File,
    pub(crate) id: FileId,
    reach: Reach,
}

/// Whether guests can change the way to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Some directory on its path may be written by a guest.
    InWritableTree,
    Outside,
}

impl OpenTree {
    /// Whether the path leads to this directory now.
    fn is_at(&self, path: &Path) -> bool {
        stat(path).is_ok_and(|stat| FileId::from(&stat) == self.id)
    }

    /// Whether the directory was removed.
    fn is_removed(&self) -> bool {
        fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0) || self.is_marked_removed()
    }

    /// Not every file system counts the links of directories.
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

/// The open trees of a process, by the path that was granted.
#[derive(Debug, Default)]
pub(crate) struct TreeRoots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: HashMap<PathBuf, Arc<OpenTree>>,
    /// Directories that guests were ever granted to write.
    writable: HashSet<FileId>,
}

impl TreeRoots {
    /// Opens trees that are granted together, in order. Links below any tree that is granted for writing are refused.
    pub(crate) fn open(&self, trees: &[TreeGrant]) -> Vec<Result<Arc<OpenTree>, TreeError>> {
        let mut state = lock(&self.0);
        let mut writable: Vec<_> = trees.iter().filter(|tree| tree.access == Access::ReadWrite).collect();
        // Outer trees come first, so that links in them are known to be a guest's.
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
        // As a rule the path still leads to the directory that is open, whoever has written above it.
        if let Some(kept) = self.open.get(&path).filter(|kept| kept.is_at(&path)) {
            return Ok(Arc::clone(kept));
        }
        self.open.retain(|_, tree| !tree.is_removed());
        let kept = self.open.get(&path);
        let found = open_root(&path, &self.writable);
        if let Some(kept) = kept {
            // Where a guest can change the way, the directory that was opened first stays the granted one.
            let stays = match &found {
                Ok(found) => found.id == kept.id || found.reach == Reach::InWritableTree,
                Err(error) => matches!(error, TreeError::LinkBelowWriteGrant(_)),
            };
            if stays || kept.reach == Reach::InWritableTree {
                return Ok(Arc::clone(kept));
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
    let (mut links, mut reach) = (0, Reach::Outside);
    while let Some(name) = todo.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => walk = RootWalk::new()?,
            Some(Component::ParentDir) => walk.up()?,
            _ => {
                let is_below = walk.ids.iter().any(|id| writable.contains(id));
                if is_below {
                    reach = Reach::InWritableTree;
                }
                match openat(&walk.current, &name, search, Mode::empty()) {
                    Ok(next) => walk.down(next, name)?,
                    Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
                        let Ok(target) = readlinkat(&walk.current, &name, Vec::new()) else {
                            return Err(io::Error::from(errno).into());
                        };
                        if is_below {
                            return Err(TreeError::LinkBelowWriteGrant(walk.path.join(name)));
                        }
                        links += 1;
                        if links > MOST_LINKS {
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
        // It can be entered and not listed.
        Err(Errno::ACCESS) => walk.current,
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    let id = FileId::from(&fstat(&directory).map_err(io::Error::from)?);
    Ok(OpenTree { directory: File::from(directory), id, reach })
}

/// The way from `/` to a directory.
struct RootWalk {
    current: OwnedFd,
    path: PathBuf,
    /// Of the directories on the way, the last included.
    ids: Vec<FileId>,
}

impl RootWalk {
    fn new() -> io::Result<Self> {
        let current = open("/", SEARCH | OFlags::DIRECTORY, Mode::empty())?;
        let id = FileId::from(&fstat(&current)?);
        Ok(Self { current, path: PathBuf::from("/"), ids: vec![id] })
    }

    fn down(&mut self, next: OwnedFd, name: OsString) -> io::Result<()> {
        self.ids.push(FileId::from(&fstat(&next)?));
        self.path.push(name);
        self.current = next;
        Ok(())
    }

    fn up(&mut self) -> io::Result<()> {
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
        let file = openat(&tree.directory, "file", OFlags::RDONLY, Mode::empty()).expect("it opens");
        io::read_to_string(File::from(file)).expect("it is text")
    }

    fn folder(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        std::fs::create_dir_all(&path).expect("created");
        std::fs::write(path.join("file"), name).expect("written");
        path
    }

    // Row 39: a granted folder that was renamed and replaced is still the folder that was granted.
    #[test]
    fn a_replaced_folder_redirects_nothing() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let root = place.path().canonicalize().expect("there");
        let (outer, docs) = (folder(&root, "tree"), folder(&root, "tree/docs"));
        let outside = folder(&root, "outside");
        let grants = [tree(docs.clone(), Access::Read), tree(outer.clone(), Access::ReadWrite)];
        let roots = TreeRoots::default();
        let open = |roots: &TreeRoots| roots.open(&grants).remove(0);
        assert_eq!(content(&open(&roots).expect("open")), "tree/docs");
        std::fs::rename(&docs, outer.join("moved")).expect("renamed");
        symlink(&outside, &docs).expect("linked");
        assert_eq!(content(&open(&roots).expect("open")), "tree/docs");
        // The same after a restart, which has no descriptor: the link is refused.
        let error = open(&TreeRoots::default()).expect_err("a link");
        assert!(matches!(&error, TreeError::LinkBelowWriteGrant(path) if *path == docs), "{error}");
    }

    // Row 39: the user may replace a folder. What no guest can redirect is opened anew.
    #[test]
    fn a_folder_that_the_user_replaces_is_opened_anew() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let root = place.path().canonicalize().expect("there");
        let (docs, roots) = (folder(&root, "docs"), TreeRoots::default());
        let open = || roots.open(&[tree(docs.clone(), Access::ReadWrite)]).remove(0);
        assert_eq!(content(&open().expect("open")), "docs");
        std::fs::rename(&docs, root.join("old")).expect("renamed");
        assert!(open().is_err(), "it is gone");
        folder(&root, "docs");
        std::fs::write(docs.join("file"), "new").expect("written");
        assert_eq!(content(&open().expect("open")), "new");
        std::fs::remove_dir_all(&docs).expect("removed");
        folder(&root, "docs");
        assert_eq!(content(&open().expect("open")), "docs");
        // A link of the user's own outside of every writable tree is followed.
        symlink(&docs, root.join("link")).expect("linked");
        let linked = roots.open(&[tree(root.join("link"), Access::Read)]).remove(0);
        assert_eq!(content(&linked.expect("open")), "docs");
    }
}
