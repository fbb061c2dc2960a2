//! Resolves a guest's path component by component and through links, as the operating system does. Each file is
//! therefore recorded under a single resolved path, and every directory on the way to the file is also recorded.

pub(crate) use crate::file_trees::FinalLink;
use crate::recording::file_records::InitialFileState;
use std::collections::VecDeque;

/// Maximum number of symbolic links that are followed in one path, as in Linux.
const MAX_LINKS: u32 = 40;

/// A path in a granted tree that contains no symbolic links, no `.` and no `..`. The path of the tree itself is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TreePath {
    /// Index of the tree in the list of the call's trees.
    pub(crate) tree: usize,
    pub(crate) path: String,
}

impl TreePath {
    /// The parent directory of this path, and the last component of the path. `None` means that the path is the root of
    /// the tree.
    pub(crate) fn parent(&self) -> Option<(TreePath, &str)> {
        let (above, name) = match self.path.rsplit_once('/') {
            Some(parts) => parts,
            None if self.path.is_empty() => return None,
            None => ("", self.path.as_str()),
        };
        Some((TreePath { tree: self.tree, path: above.to_owned() }, name))
    }

    /// The path of the entry with this name in the directory.
    pub(crate) fn join(&self, name: &str) -> TreePath {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        TreePath { tree: self.tree, path }
    }
}

/// The kind of file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Nothing,
    File,
    Directory,
    Link(String),
    Other,
}

impl From<&InitialFileState> for FileKind {
    fn from(found: &InitialFileState) -> Self {
        match found {
            InitialFileState::Nothing => FileKind::Nothing,
            InitialFileState::File { .. } => FileKind::File,
            InitialFileState::Directory { .. } => FileKind::Directory,
            InitialFileState::Link { to, .. } => FileKind::Link(to.clone()),
            InitialFileState::Other { .. } => FileKind::Other,
        }
    }
}

/// Whether the walk has reached the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPosition {
    Through,
    End,
}

/// The result of resolving a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathTarget {
    /// The path does not lead to a file in the granted trees. The guest gets the error that the operating system
    /// returns for the path.
    Elsewhere,
    /// The path was resolved to this path. There may be no file at this path.
    At(TreePath, FileKind),
    /// In a replay, the path leads to a file that is not recorded. The walk's caller has already recorded the denial.
    Unrecorded,
}

/// A path that is being resolved.
#[derive(Debug)]
pub(crate) struct PathWalk {
    final_link: FinalLink,
    current: TreePath,
    todo: VecDeque<String>,
    links: u32,
    /// The kind of file at the current path. `None` means that the caller has not provided the kind yet.
    kind_at_current: Option<FileKind>,
}

/// The next step of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The caller must provide the kind of file at this path.
    Lookup(TreePath),
    /// The walk has ended with this result.
    Done(PathTarget),
}

impl PathWalk {
    pub(crate) fn new(from: TreePath, path: &str, final_link: FinalLink) -> Self {
        let todo = path.split('/').map(str::to_owned).collect();
        Self { final_link, current: from, todo, links: 0, kind_at_current: None }
    }

    /// Whether the walk has reached the end of the guest's path or is at a directory on the way to it.
    pub(crate) fn position(&self) -> PathPosition {
        // Empty components are ignored, because a path may have a trailing slash after the name of a new directory.
        if self.todo.iter().all(String::is_empty) { PathPosition::End } else { PathPosition::Through }
    }

    /// Continues the walk until it needs to know the kind of a file, or until it ends.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            if let Some(kind) = self.kind_at_current.take()
                && let Some(target) = self.handle_kind(kind)
            {
                return Step::Done(target);
            }
            match self.todo.pop_front().as_deref() {
                // The path ends with `.`, `..` or an empty component.
                None => return Step::Lookup(self.current.clone()),
                Some("" | ".") => {}
                Some("..") => match self.current.parent() {
                    Some((above, _)) => self.current = above,
                    None => return Step::Done(PathTarget::Elsewhere),
                },
                Some(name) => {
                    self.current = self.current.join(name);
                    return Step::Lookup(self.current.clone());
                }
            }
        }
    }

    /// Provides the file kind that the last [`Step::Lookup`] asked for.
    pub(crate) fn provide(&mut self, kind: FileKind) {
        self.kind_at_current = Some(kind);
    }

    /// Continues the walk through the file at the current path. Returns the result if the walk ends at this file.
    fn handle_kind(&mut self, kind: FileKind) -> Option<PathTarget> {
        match kind {
            FileKind::Link(to) if self.final_link == FinalLink::Follow || !self.todo.is_empty() => {
                self.links += 1;
                if to.starts_with('/') || self.links > MAX_LINKS {
                    return Some(PathTarget::Elsewhere);
                }
                if let Some((above, _)) = self.current.parent() {
                    self.current = above;
                }
                for name in to.split('/').rev() {
                    self.todo.push_front(name.to_owned());
                }
                None
            }
            FileKind::Directory if !self.todo.is_empty() => None,
            FileKind::Nothing if self.position() == PathPosition::Through => Some(PathTarget::Elsewhere),
            FileKind::File | FileKind::Other if !self.todo.is_empty() => Some(PathTarget::Elsewhere),
            kind => Some(PathTarget::At(self.current.clone(), kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves a path in a simulated tree. The result also contains the paths of all files whose kind the walk asked
    /// its caller for.
    fn walk(path: &str, final_link: FinalLink) -> (PathTarget, Vec<String>) {
        let mut walk = PathWalk::new(TreePath::default(), path, final_link);
        let mut seen = Vec::new();
        loop {
            match walk.step() {
                Step::Done(target) => return (target, seen),
                Step::Lookup(location) => {
                    walk.provide(match location.path.as_str() {
                        "" | "a" | "a/b" | "c" => FileKind::Directory,
                        "a/f" | "c/f" => FileKind::File,
                        "l" => FileKind::Link("a/b".into()),
                        "a/b/up" => FileKind::Link("../../c".into()),
                        "out" => FileKind::Link("/a".into()),
                        "away" => FileKind::Link("../x".into()),
                        "round" => FileKind::Link("round".into()),
                        _ => FileKind::Nothing,
                    });
                    seen.push(location.path);
                }
            }
        }
    }

    fn at(path: &str, kind: FileKind) -> PathTarget {
        PathTarget::At(TreePath { tree: 0, path: path.into() }, kind)
    }

    /// S6, row 12: the walk follows links in the same way as the operating system.
    #[test]
    fn s6_row_12_all_paths_to_a_file_resolve_to_one_path() {
        for path in ["a/f", "./a//f", "a/b/../f", "l/../f", "c/../a/f"] {
            assert_eq!(walk(path, FinalLink::Keep).0, at("a/f", FileKind::File), "{path}");
        }
        assert_eq!(
            walk("l/up/f", FinalLink::Keep),
            (at("c/f", FileKind::File), ["l", "a", "a/b", "a/b/up", "c", "c/f"].map(String::from).into())
        );
        assert_eq!(walk("l", FinalLink::Keep).0, at("l", FileKind::Link("a/b".into())));
        assert_eq!(walk("l", FinalLink::Follow).0, at("a/b", FileKind::Directory));
        assert_eq!(
            walk("l/", FinalLink::Keep).0,
            at("a/b", FileKind::Directory),
            "the trailing slash makes the walk follow the link"
        );
        assert_eq!(walk(".", FinalLink::Follow).0, at("", FileKind::Directory));
        assert_eq!(walk("a/..", FinalLink::Follow).0, at("", FileKind::Directory));
        assert_eq!(walk("new", FinalLink::Follow).0, at("new", FileKind::Nothing));
        assert_eq!(walk("new/", FinalLink::Keep).0, at("new", FileKind::Nothing));
    }

    /// S6, row 12: the walk ends without a location if the path leads out of the tree, passes through a file, or passes
    /// through a missing directory.
    #[test]
    fn s6_row_12_paths_out_of_the_tree_are_not_resolved() {
        for path in ["..", "a/../../x", "out/f", "away", "round", "a/f/x", "a/f/", "none/x"] {
            assert_eq!(walk(path, FinalLink::Follow).0, PathTarget::Elsewhere, "{path}");
        }
    }
}
