//! The changes that a call makes to its trees, as a layer over the state at the start of the call. For each path, the
//! layer returns the path that the file had at the start of the call, or reports that the call itself created the file.

use super::TreePath;
use std::collections::BTreeMap;

/// The origin of the file that is now at a path. If the file existed at the start of the call, its origin is the path
/// that it had at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file existed and had this path at the start of the call.
    Before(TreePath),
    /// The call created the file at the path, or removed the file that was at the path.
    Own,
}

/// The paths that one call has changed, each with the origin of the file that is now at the path.
#[derive(Default)]
pub(crate) struct Overlay(BTreeMap<TreePath, Origin>);

impl Overlay {
    /// The origin of the file that is now at this path.
    pub(crate) fn origin(&self, location: &TreePath) -> Origin {
        if self.0.is_empty() {
            return Origin::Before(location.clone());
        }
        let mut end = location.path.len();
        loop {
            let above = TreePath { tree: location.tree, path: location.path[..end].to_owned() };
            match self.0.get(&above) {
                Some(Origin::Own) => return Origin::Own,
                Some(Origin::Before(original)) => {
                    return Origin::Before(TreePath {
                        tree: original.tree,
                        path: original.path.clone() + &location.path[end..],
                    });
                }
                None => match location.path[..end].rfind('/') {
                    Some(slash) => end = slash,
                    None => return Origin::Before(location.clone()),
                },
            }
        }
    }

    /// Records that the call created, wrote or removed the file at this path.
    pub(crate) fn change(&mut self, location: &TreePath) {
        self.take_below(location);
        self.0.insert(location.clone(), Origin::Own);
    }

    /// Records that the call renamed a file or directory.
    pub(crate) fn rename(&mut self, from: &TreePath, to: &TreePath) {
        if from == to {
            return;
        }
        let origin = self.origin(from);
        let moved = self.take_below(from);
        self.take_below(to);
        for (location, origin) in moved {
            let path = to.path.clone() + &location.path[from.path.len()..];
            self.0.insert(TreePath { tree: to.tree, path }, origin);
        }
        self.0.insert(from.clone(), Origin::Own);
        self.0.insert(to.clone(), origin);
    }

    /// Records that the call created a hard link.
    pub(crate) fn link(&mut self, from: &TreePath, to: &TreePath) {
        let origin = self.origin(from);
        self.0.insert(to.clone(), origin);
    }

    /// Returns all paths that the call has changed, each with its origin.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&TreePath, &Origin)> {
        self.0.iter()
    }

    /// Removes from the layer all changed paths below the given path, and returns these paths.
    fn take_below(&mut self, location: &TreePath) -> BTreeMap<TreePath, Origin> {
        let at = |path| TreePath { tree: location.tree, path };
        let mut entries = self.0.split_off(&at(format!("{}/", location.path)));
        // The paths below `location` start with `location/`. In sorted order, all of them come before `location0`,
        // because `0` follows `/` in ASCII.
        self.0.append(&mut entries.split_off(&at(format!("{}0", location.path))));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> TreePath {
        TreePath { tree: 0, path: path.to_owned() }
    }

    fn original(path: &str) -> Origin {
        Origin::Before(at(path))
    }

    /// S6: files that the call created, and all files below directories that it created, have no original path. All
    /// other files keep their original path.
    #[test]
    fn s6_created_paths_have_no_earlier_origin() {
        let mut overlay = Overlay::default();
        assert_eq!(overlay.origin(&at("a/b")), original("a/b"));
        overlay.change(&at("made"));
        assert_eq!(overlay.origin(&at("made/below/it")), Origin::Own);
        assert_eq!(overlay.origin(&at("made-up")), original("made-up"), "paths are compared by components");
        assert_eq!(
            overlay.origin(&TreePath { tree: 1, path: "made".into() }),
            Origin::Before(TreePath { tree: 1, path: "made".into() })
        );
    }

    /// S6: a file keeps its origin when it is renamed several times. A file that the call created in a directory also
    /// keeps its origin when the directory is moved.
    #[test]
    fn s6_renamed_paths_keep_their_origin() {
        let mut overlay = Overlay::default();
        overlay.change(&at("d/own"));
        overlay.change(&at("d-other"));
        overlay.rename(&at("d"), &at("e"));
        overlay.rename(&at("e/file"), &at("f"));
        assert_eq!(overlay.origin(&at("e/x/y")), original("d/x/y"));
        assert_eq!(overlay.origin(&at("e/own")), Origin::Own);
        assert_eq!(overlay.origin(&at("d/own")), Origin::Own, "the directory was moved away");
        assert_eq!(overlay.origin(&at("f")), original("d/file"));
        assert_eq!(overlay.origin(&at("e/file")), Origin::Own);
        assert_eq!(overlay.origin(&at("d-other")), Origin::Own);
        overlay.link(&at("f"), &at("g"));
        assert_eq!(overlay.origin(&at("g")), original("d/file"));
        overlay.change(&at("e"));
        assert_eq!(overlay.origin(&at("e/own")), Origin::Own, "e was removed with everything in it");
        let changed: Vec<_> = overlay.changed().map(|(location, _)| location.path.as_str()).collect();
        assert_eq!(changed, ["d", "d-other", "e", "f", "g"]);
    }
}
