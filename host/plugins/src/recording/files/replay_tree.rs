//! The directory trees of a replayed call. The trees are scratch trees, which contain only the recorded files and are
//! deleted after the call. The replayed call can change only files in these trees.

use super::inspection;
use super::path_walk::TreePath;
use crate::file_trees::{HostTree, HostTreeEntry, ScratchQuota, ScratchTrees, TreeHost};
use crate::grants::TreeGrant;
use crate::recording::bytes::{Extent, RecordedBytes};
use crate::recording::file_records::{
    EntryKind, FinalFileState, FoundContent, FoundNames, GrantedTree, InitialFileState,
};
use crate::recording::host_calls::{HostCallLog, HostCallResult};
use cap_std::fs::{Dir, OpenOptions};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// If only the name of a link is recorded, the link in the scratch tree has this target. Such a link is
/// never followed.
const UNRECORDED_TARGET: &str = "unrecorded";

/// The error if the recorded files could not be written to a scratch tree.
#[derive(Debug, thiserror::Error)]
#[error(
    "the recorded files cannot be written for the replay: {0}; check the free space and the permissions of the data folder"
)]
pub struct ReplayTreeError(#[from] io::Error);

/// The recorded directory trees of a call, written to a scratch tree.
#[derive(Debug)]
pub struct ReplayTrees {
    scratch: Arc<ScratchTrees>,
    pub(crate) trees: Vec<GrantedTree>,
    /// The state that each path had when the original call first accessed it, without the content of files.
    pub(crate) known: BTreeMap<TreePath, InitialFileState>,
    /// The recorded state of each changed path at the end of the call.
    pub(crate) left: BTreeMap<TreePath, FinalFileState>,
    pub(crate) changes: Extent,
    /// For each recorded tree, the currently granted tree with the same name. Files that are missing from the recording
    /// are copied from the current tree.
    pub(crate) current: Vec<Option<Arc<HostTree>>>,
}

impl ReplayTrees {
    /// Writes the recorded files to a scratch tree. Returns None if no trees are recorded. If the replay
    /// needs a file that is missing from the recording, the file is copied from the granted tree that has the same name
    /// as the recorded tree. The granted trees are never changed.
    pub(crate) fn create_in(
        recorded: &HostCallLog,
        granted: &[TreeGrant],
        host: &TreeHost,
    ) -> Result<Option<Self>, ReplayTreeError> {
        let recorded_trees = recorded.answers.iter().find_map(|answer| match answer {
            HostCallResult::Trees { trees, changes } => Some((trees.clone(), *changes)),
            _ => None,
        });
        let Some((trees, changes)) = recorded_trees else { return Ok(None) };
        let scratch = host.scratch.create(&host.protected, trees.len(), ScratchQuota::OfTurn)?;
        let roots = (0..trees.len()).map(|number| scratch.directory(number)).collect::<io::Result<Vec<_>>>()?;
        let (mut known, mut left) = (BTreeMap::new(), BTreeMap::new());
        for answer in &recorded.answers {
            match answer {
                HostCallResult::File { tree, path, found } if is_normalized(path) => {
                    known.insert(TreePath { tree: *tree, path: path.clone() }, found.clone());
                }
                HostCallResult::LeftFile { tree, path, left: state } => {
                    left.insert(TreePath { tree: *tree, path: path.clone() }, state.clone());
                }
                _ => {}
            }
        }
        for (location, found) in &mut known {
            if let Some(root) = roots.get(location.tree) {
                write_recorded(root, &location.path, found)?;
            }
            if let InitialFileState::File { content: FoundContent::Recorded(bytes), .. } = found {
                *bytes = RecordedBytes::default();
            }
        }
        for (location, found) in &known {
            if let (Some(root), InitialFileState::Directory { names: FoundNames::Listed { names, .. }, .. }) =
                (roots.get(location.tree), found)
            {
                write_names(root, &location.path, names)?;
            }
        }
        let current = |tree: &GrantedTree| {
            let grant = granted.iter().find(|granted| granted.guest == tree.guest)?;
            host.tree(grant).ok().map(Arc::new)
        };
        let current = trees.iter().map(current).collect();
        Ok(Some(Self { scratch: Arc::new(scratch), trees, known, left, changes, current }))
    }

    /// Returns the grants for the replayed call. The grants of a replayed call refer to scratch trees instead of the
    /// original directories.
    pub fn grants(&self) -> Vec<TreeGrant> {
        let trees = self.trees.iter();
        let recorded: Vec<_> = trees
            .map(|tree| TreeGrant { host: PathBuf::new(), guest: tree.guest.clone(), access: tree.access })
            .collect();
        self.scratch.replacing(&recorded)
    }

    pub(crate) fn scratch(&self) -> Arc<ScratchTrees> {
        Arc::clone(&self.scratch)
    }
}

/// Which parts of a file or directory are copied from a current tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyDepth {
    /// Only the kind and the metadata of the file or directory.
    Entry,
    /// The metadata and the content of a file.
    Content,
    /// The metadata of a directory and the names in it.
    Names,
}

/// Maximum number of names that are copied from a current directory.
const MAX_NAMES: usize = 100_000;

/// Copies a file or directory from a current tree to the scratch tree. The current tree is never changed.
pub(super) fn copy_current(
    (tree, from): (&HostTree, &str),
    (root, to): (&Dir, &str),
    depth: CopyDepth,
) -> io::Result<InitialFileState> {
    let current = &tree.directory()?;
    let mut found = inspection::state_at(current, from).unwrap_or(InitialFileState::Nothing);
    write_recorded(root, to, &found)?;
    match (depth, &mut found) {
        (CopyDepth::Content, InitialFileState::File { content, .. }) => {
            let mut file = root.open_with(to, OpenOptions::new().write(true))?;
            let HostTreeEntry::File(mut current_content) = tree.open(from)? else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            io::copy(&mut current_content, &mut file)?;
            *content = inspection::recorded_content(Vec::new());
        }
        (CopyDepth::Names, InitialFileState::Directory { names, .. }) => {
            tree.open(if from.is_empty() { "." } else { from })?;
            *names = inspection::names(current, from, MAX_NAMES)?;
            if let FoundNames::Listed { names, .. } = names {
                write_names(root, to, names)?;
            }
        }
        _ => {}
    }
    Ok(found)
}

/// Whether a recorded path has the form in which the host writes paths: relative, without `.` and `..`.
fn is_normalized(path: &str) -> bool {
    path.is_empty() || path.split('/').all(is_name)
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Writes one file and its parent directories. A file is left out if its record contradicts the record of another file,
/// which can happen if another process changed the tree during the recorded call.
fn write_recorded(root: &Dir, path: &str, found: &InitialFileState) -> io::Result<()> {
    let write = || match found {
        InitialFileState::Nothing => Ok(()),
        InitialFileState::File { content: FoundContent::Recorded(bytes), .. } => root.write(path, &bytes.0),
        InitialFileState::File { .. } | InitialFileState::Other { .. } => root.write(path, []),
        InitialFileState::Directory { .. } if path.is_empty() => Ok(()),
        InitialFileState::Directory { .. } => root.create_dir_all(path),
        InitialFileState::Link { to, .. } => root.symlink_contents(to, path),
    };
    match (write(), path.rsplit_once('/')) {
        (Err(error), Some((above, _))) if error.kind() == io::ErrorKind::NotFound => {
            ignore_conflicts(root.create_dir_all(above))?;
            ignore_conflicts(write())
        }
        (done, _) => ignore_conflicts(done),
    }
}

/// Creates the entries of a directory if only the names of these entries are recorded.
fn write_names(root: &Dir, directory: &str, names: &[(String, EntryKind)]) -> io::Result<()> {
    for (name, kind) in names.iter().filter(|(name, _)| is_name(name)) {
        let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
        if root.symlink_metadata(&path).is_ok() {
            continue;
        }
        ignore_conflicts(match kind {
            EntryKind::File | EntryKind::Other => root.write(&path, []),
            EntryKind::Directory => root.create_dir(&path),
            EntryKind::Link => root.symlink_contents(UNRECORDED_TARGET, &path),
            EntryKind::Own => Ok(()),
        })?;
    }
    Ok(())
}

fn ignore_conflicts(done: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
    match done {
        Err(error) if matches!(error.kind(), AlreadyExists | IsADirectory | NotADirectory | NotFound) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::Access;
    use crate::recording::file_records::FileStat;

    fn recorded(files: Vec<(&str, InitialFileState)>) -> HostCallLog {
        let given = GrantedTree { guest: "docs".into(), access: Access::Read };
        let trees = HostCallResult::Trees { trees: vec![given], changes: Extent::Whole };
        let files = files.into_iter().map(|(path, found)| HostCallResult::File { tree: 0, path: path.into(), found });
        HostCallLog { answers: std::iter::once(trees).chain(files).collect(), left_out: 0 }
    }

    fn file(text: &str) -> InitialFileState {
        InitialFileState::File {
            stat: FileStat::default(),
            content: FoundContent::Recorded(RecordedBytes(text.into())),
        }
    }

    fn link(to: &str) -> InitialFileState {
        InitialFileState::Link { stat: FileStat::default(), to: to.into() }
    }

    /// S6: recorded files are written to a scratch tree, which is deleted afterwards. If only the name of a file is
    /// recorded, the file in the folder is empty.
    #[test]
    fn s6_recorded_files_are_written_and_deleted() {
        let names =
            vec![("f".into(), EntryKind::File), ("b".into(), EntryKind::File), ("d".into(), EntryKind::Directory)];
        let listed = FoundNames::Listed { names, read: Extent::Whole };
        let files = vec![
            ("a", InitialFileState::Directory { stat: FileStat::default(), names: listed }),
            ("a/b", file("text")),
            ("a/none", InitialFileState::Nothing),
            ("to", link("a/b")),
            ("out", link("/etc/passwd")),
        ];
        let trees =
            ReplayTrees::create_in(&recorded(files), &[], &TreeHost::default()).expect("written").expect("trees");
        let grant = trees.grants().remove(0);
        let read = |name: &str| std::fs::read_to_string(grant.host.join(name)).ok();
        assert_eq!((grant.guest.as_str(), grant.access), ("docs", Access::Read));
        assert_eq!(
            (read("a/b").as_deref(), read("to").as_deref(), read("a/f").as_deref()),
            (Some("text"), Some("text"), Some(""))
        );
        assert!(grant.host.join("a/d").is_dir() && !grant.host.join("a/none").exists());
        drop(trees);
        assert!(!grant.host.exists());
        assert!(ReplayTrees::create_in(&HostCallLog::default(), &[], &TreeHost::default()).expect("nothing").is_none());
    }

    /// S6, row 12: the replay of a forged record does not write outside the scratch tree.
    #[test]
    fn s6_row_12_a_forged_record_does_not_write_outside_the_folder() {
        let outside = tempfile::tempdir().expect("a folder");
        let target = outside.path().to_str().expect("text");
        for files in [
            vec![("../../../../forged", file("x"))],
            vec![("/tmp/forged-by-a-record", file("x"))],
            vec![("l", link(target)), ("l/forged", file("x"))],
            vec![("l", link("../..")), ("l/forged", file("x"))],
        ] {
            // Either the call fails because of the forged file, or the created trees do not contain this file.
            let _ = ReplayTrees::create_in(&recorded(files), &[], &TreeHost::default());
        }
        assert_eq!(std::fs::read_dir(outside.path()).expect("the folder exists").count(), 0);
        assert!(
            !std::env::temp_dir().join("forged").exists() && !std::env::temp_dir().join("forged-by-a-record").exists()
        );
    }
}
