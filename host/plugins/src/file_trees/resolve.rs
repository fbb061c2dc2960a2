//! Resolves a path below an open directory, one component at a time. Links inside the directory are followed, but no
//! path can lead out of the directory. The result is an open parent directory and the name of an entry in it, so that a
//! later rename cannot redirect the path.

use super::TreeRefusal;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// Maximum number of symbolic links that are followed in one path, as in Linux.
const MAX_LINKS: u32 = 40;
/// Maximum size of a path that the operating system accepts, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Flags that open a directory to access its entries. With these flags, the directory can be opened even without the
/// permission to list it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const SEARCH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Flags that open a directory to access its entries.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const SEARCH: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalLink {
    Follow,
    Keep,
}

/// A resolved path: its parent directory and its last component.
#[derive(Debug)]
pub(super) struct Entry {
    /// The directory that contains the last component.
    pub(super) parent: OwnedFd,
    /// Name of the path's last component in `parent`. `None` means that the path ends at `parent` itself, as `.` and
    /// `a/..` do.
    pub(super) name: Option<OsString>,
    /// Whether the path ends with a slash.
    pub(super) names_directory: bool,
}

/// Resolves a path to its last component, which need not exist.
pub(super) fn resolve(base: impl AsFd, path: &str, final_link: FinalLink) -> Result<Entry, TreeRefusal> {
    resolve_from(base.as_fd(), path, final_link)
}

fn resolve_from(base: BorrowedFd<'_>, path: &str, final_link: FinalLink) -> Result<Entry, TreeRefusal> {
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(Errno::NAMETOOLONG.into());
    }
    if path.contains('\0') {
        return Err(Errno::INVAL.into());
    }
    let mut walk = Walk { base, current: open_directory(base, ".".as_ref())?, trail: Vec::new(), links: 0 };
    let mut names_directory = path.ends_with('/');
    let mut todo = VecDeque::new();
    push_front(&mut todo, path.as_bytes())?;
    while let Some(component) = todo.pop_front() {
        match component.as_encoded_bytes() {
            b"." => {}
            b".." => walk.go_to_parent()?,
            _ => {
                let is_last = todo.is_empty();
                let link = match is_last && final_link == FinalLink::Keep {
                    true => None,
                    false => walk.read_link(&component)?,
                };
                match link {
                    Some(target) => {
                        names_directory |= is_last && target.ends_with(b"/");
                        push_front(&mut todo, &target)?;
                    }
                    None if is_last => {
                        return Ok(Entry { parent: walk.current, name: Some(component), names_directory });
                    }
                    None => walk.enter(component)?,
                }
            }
        }
    }
    Ok(Entry { parent: walk.current, name: None, names_directory: true })
}

/// Inserts the components of a path or of a link's target before the remaining components.
fn push_front(todo: &mut VecDeque<OsString>, path: &[u8]) -> Result<(), TreeRefusal> {
    if path.first() == Some(&b'/') {
        return Err(TreeRefusal::NotPermitted);
    }
    let components: Vec<_> = path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()).collect();
    for component in components.into_iter().rev() {
        todo.push_front(OsString::from_vec(component.to_vec()));
    }
    Ok(())
}

struct Walk<'b> {
    base: BorrowedFd<'b>,
    current: OwnedFd,
    /// The names on the way from the base directory to the current directory. No name in this list is a symbolic link.
    trail: Vec<OsString>,
    links: u32,
}

impl Walk<'_> {
    fn enter(&mut self, name: OsString) -> Result<(), TreeRefusal> {
        self.current = open_directory(self.current.as_fd(), &name)?;
        self.trail.push(name);
        Ok(())
    }

    /// Handles a `..`: walks from the base directory to the parent of the current directory. The `..` of the operating
    /// system could lead elsewhere after a rename.
    fn go_to_parent(&mut self) -> Result<(), TreeRefusal> {
        if self.trail.pop().is_none() {
            return Err(TreeRefusal::NotPermitted);
        }
        let mut current = open_directory(self.base, ".".as_ref())?;
        for name in &self.trail {
            current = open_directory(current.as_fd(), name)?;
        }
        self.current = current;
        Ok(())
    }

    /// Returns the target of a symbolic link. `None` means that the entry does not exist or is not a link.
    fn read_link(&mut self, name: &OsString) -> Result<Option<Vec<u8>>, TreeRefusal> {
        let target = match readlinkat(&self.current, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        Ok(Some(target))
    }
}

/// Opens a directory by its name in another directory. Fails if the entry is not a directory, for example if it is a
/// link.
pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &std::ffi::OsStr) -> io::Result<OwnedFd> {
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    fn ends_at(base: &File, path: &str, final_link: FinalLink) -> Result<Option<OsString>, String> {
        resolve(base, path, final_link).map(|entry| entry.name).map_err(|refusal| refusal.to_string())
    }

    // Rows 12 and 39: links inside the base directory are followed, and no path leads out of it.
    #[test]
    fn row_12_row_39_no_path_leads_out_of_the_directory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let base = folder.path().join("base");
        std::fs::create_dir_all(base.join("a/b")).expect("created");
        for (target, name) in [
            ("/etc", "absolute"),
            ("..", "up"),
            ("a/../..", "round"),
            ("self", "self"),
            ("a/b", "inside"),
            ("new", "dangling"),
        ] {
            symlink(target, base.join(name)).expect("linked");
        }
        let base = File::open(&base).expect("the folder opens");
        for path in
            ["..", "../x", "a/../..", "absolute/x", "up/x", "round/x", "a/b/../../../x", "/x", "self/x", "", "a\0"]
        {
            assert!(resolve(&base, path, FinalLink::Follow).is_err(), "{path}");
        }
        let name = |text: &str| Ok(Some(OsString::from(text)));
        assert_eq!(ends_at(&base, "inside/new", FinalLink::Keep), name("new"));
        assert_eq!(ends_at(&base, "inside", FinalLink::Keep), name("inside"), "the link is not followed");
        assert_eq!(ends_at(&base, "inside", FinalLink::Follow), name("b"));
        assert_eq!(ends_at(&base, "dangling", FinalLink::Follow), name("new"));
        assert_eq!(ends_at(&base, "a/b/..", FinalLink::Keep), Ok(None));
        assert_eq!(ends_at(&base, "a/./b/../c", FinalLink::Keep), name("c"));
        assert!(ends_at(&base, "absent/c", FinalLink::Keep).is_err());
    }
}
