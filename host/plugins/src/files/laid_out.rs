//! The trees of a call that is run again: a temporary folder with what the call found then and nothing else, which goes when the
//! call is over. Whatever the call changes, it changes there.

use super::walk::Place;
use super::{FoundContent, FoundFile, FoundNames, GivenTree, LeftFile, NamedKind, look};
use crate::answers::{Bytes, HostAnswer, HostAnswers, Read};
use crate::grants::TreeGrant;
use crate::sandbox::Sandbox;
use crate::trees::{HostObject, HostTree};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// Where a link leads of which only the name is known. Nobody gets there.
const UNKNOWN: &str = "unrecorded";

/// Recorded trees that cannot be laid out.
#[derive(Debug, thiserror::Error)]
#[error("the recorded files cannot be laid out in a temporary folder: {0}; look at its free space and rights")]
pub struct NotLaidOut(#[from] io::Error);

/// The trees of a call as it met them.
#[derive(Debug)]
pub struct RecordedTrees {
    folder: TempDir,
    pub(crate) trees: Vec<GivenTree>,
    /// What was found, without the bytes of files.
    pub(crate) known: BTreeMap<Place, FoundFile>,
    /// What was left.
    pub(crate) left: BTreeMap<Place, LeftFile>,
    pub(crate) changes: Read,
    /// By the number of a recorded tree: one of now under the same name, for what is not recorded.
    pub(crate) now: Vec<Option<Arc<HostTree>>>,
}

impl RecordedTrees {
    /// Lays out what was recorded. None: nothing was. What is not recorded is looked for in the granted trees of the same
    /// names, which are only read.
    pub fn lay_out(
        recorded: &HostAnswers,
        granted: &[TreeGrant],
        sandbox: &Sandbox,
    ) -> Result<Option<Self>, NotLaidOut> {
        let given = recorded.answers.iter().find_map(|answer| match answer {
            HostAnswer::Trees { trees, changes } => Some((trees.clone(), *changes)),
            _ => None,
        });
        let Some((trees, changes)) = given else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("agent-host-replay-").tempdir()?;
        let mut roots = Vec::new();
        for number in 0..trees.len() {
            let path = folder.path().join(number.to_string());
            std::fs::create_dir(&path)?;
            roots.push(Dir::open_ambient_dir(&path, ambient_authority())?);
        }
        let (mut known, mut left) = (BTreeMap::new(), BTreeMap::new());
        for answer in &recorded.answers {
            match answer {
                HostAnswer::File { tree, path, found } if is_plain(path) => {
                    known.insert(Place { tree: *tree, path: path.clone() }, found.clone());
                }
                HostAnswer::LeftFile { tree, path, left: what } => {
                    left.insert(Place { tree: *tree, path: path.clone() }, what.clone());
                }
                _ => {}
            }
        }
        for (place, found) in &mut known {
            if let Some(root) = roots.get(place.tree) {
                lay(root, &place.path, found)?;
            }
            if let FoundFile::File { content: FoundContent::Kept(bytes), .. } = found {
                *bytes = Bytes::default();
            }
        }
        for (place, found) in &known {
            if let (Some(root), FoundFile::Directory { names: FoundNames::Listed { names, .. }, .. }) =
                (roots.get(place.tree), found)
            {
                lay_names(root, &place.path, names)?;
            }
        }
        let now = |tree: &GivenTree| {
            let same = granted.iter().find(|granted| granted.guest == tree.guest)?;
            sandbox.host_tree(same).ok().map(Arc::new)
        };
        let now = trees.iter().map(now).collect();
        Ok(Some(Self { folder, trees, known, left, changes, now }))
    }

    /// What the call is granted.
    pub fn grants(&self) -> Vec<TreeGrant> {
        let host = |number: usize| -> PathBuf { self.folder.path().join(number.to_string()) };
        let trees = self.trees.iter().enumerate();
        trees
            .map(|(number, tree)| TreeGrant { host: host(number), guest: tree.guest.clone(), access: tree.access })
            .collect()
    }
}

/// What is taken over of a tree of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What it is.
    Entry,
    /// A file with what is in it.
    Content,
    /// A directory with its names.
    Names,
}

/// Names of a directory of now that are taken over.
const MOST_NAMES: usize = 100_000;

/// Copies something of a tree of now, which is only read.
pub(super) fn fetch((tree, from): (&HostTree, &str), (root, to): (&Dir, &str), what: What) -> io::Result<FoundFile> {
    let now = &tree.directory()?;
    let mut found = look::at(now, from).unwrap_or(FoundFile::Nothing);
    lay(root, to, &found)?;
    match (what, &mut found) {
        (What::Content, FoundFile::File { content, .. }) => {
            let mut file = root.open_with(to, OpenOptions::new().write(true))?;
            let HostObject::File(mut content_now) = tree.open(from)? else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            io::copy(&mut content_now, &mut file)?;
            *content = look::kept(Vec::new());
        }
        (What::Names, FoundFile::Directory { names, .. }) => {
            tree.open(if from.is_empty() { "." } else { from })?;
            *names = look::names(now, from, MOST_NAMES)?;
            if let FoundNames::Listed { names, .. } = names {
                lay_names(root, to, names)?;
            }
        }
        _ => {}
    }
    Ok(found)
}

/// Whether a path is one that this host would have written.
fn is_plain(path: &str) -> bool {
    path.is_empty() || path.split('/').all(is_name)
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Lays out one thing, and the directories that it is in. What contradicts the rest, since somebody else changed the tree
/// meanwhile, is left out.
fn lay(root: &Dir, path: &str, found: &FoundFile) -> io::Result<()> {
    let put = || match found {
        FoundFile::Nothing => Ok(()),
        FoundFile::File { content: FoundContent::Kept(bytes), .. } => root.write(path, &bytes.0),
        FoundFile::File { .. } | FoundFile::Other { .. } => root.write(path, []),
        FoundFile::Directory { .. } if path.is_empty() => Ok(()),
        FoundFile::Directory { .. } => root.create_dir_all(path),
        FoundFile::Link { to, .. } => root.symlink_contents(to, path),
    };
    match (put(), path.rsplit_once('/')) {
        (Err(error), Some((above, _))) if error.kind() == io::ErrorKind::NotFound => {
            settle(root.create_dir_all(above))?;
            settle(put())
        }
        (done, _) => settle(done),
    }
}

/// Lays out what is known by name alone.
fn lay_names(root: &Dir, directory: &str, names: &[(String, NamedKind)]) -> io::Result<()> {
    for (name, kind) in names.iter().filter(|(name, _)| is_name(name)) {
        let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
        if root.symlink_metadata(&path).is_ok() {
            continue;
        }
        settle(match kind {
            NamedKind::File | NamedKind::Other => root.write(&path, []),
            NamedKind::Directory => root.create_dir(&path),
            NamedKind::Link => root.symlink_contents(UNKNOWN, &path),
            NamedKind::Own => Ok(()),
        })?;
    }
    Ok(())
}

fn settle(done: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
    match done {
        Err(error) if matches!(error.kind(), AlreadyExists | IsADirectory | NotADirectory | NotFound) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileStat;
    use crate::manifest::Access;

    fn sandbox() -> Sandbox {
        Sandbox::new(crate::sandbox::SandboxOptions::default()).expect("a sandbox")
    }

    fn recorded(files: Vec<(&str, FoundFile)>) -> HostAnswers {
        let given = GivenTree { guest: "docs".into(), access: Access::Read };
        let trees = HostAnswer::Trees { trees: vec![given], changes: Read::Whole };
        let files = files.into_iter().map(|(path, found)| HostAnswer::File { tree: 0, path: path.into(), found });
        HostAnswers { answers: std::iter::once(trees).chain(files).collect(), left_out: 0 }
    }

    fn file(text: &str) -> FoundFile {
        FoundFile::File { stat: FileStat::default(), content: FoundContent::Kept(Bytes(text.into())) }
    }

    fn link(to: &str) -> FoundFile {
        FoundFile::Link { stat: FileStat::default(), to: to.into() }
    }

    /// S6: what was found lies where it was, what is known by name has its name, and all of it goes with the replay.
    #[test]
    fn what_was_found_is_laid_out_and_goes() {
        let names =
            vec![("f".into(), NamedKind::File), ("b".into(), NamedKind::File), ("d".into(), NamedKind::Directory)];
        let listed = FoundNames::Listed { names, read: Read::Whole };
        let files = vec![
            ("a", FoundFile::Directory { stat: FileStat::default(), names: listed }),
            ("a/b", file("text")),
            ("a/none", FoundFile::Nothing),
            ("to", link("a/b")),
            ("out", link("/etc/passwd")),
        ];
        let trees = RecordedTrees::lay_out(&recorded(files), &[], &sandbox()).expect("laid out").expect("trees");
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
        assert!(RecordedTrees::lay_out(&HostAnswers::default(), &[], &sandbox()).expect("nothing").is_none());
    }

    /// S6, row 12: a record is a document that somebody may have written: nothing of it is laid out elsewhere.
    #[test]
    fn a_forged_record_reaches_nothing() {
        let outside = tempfile::tempdir().expect("a folder");
        let target = outside.path().to_str().expect("text");
        for files in [
            vec![("../../../../forged", file("x"))],
            vec![("/tmp/forged-by-a-record", file("x"))],
            vec![("l", link(target)), ("l/forged", file("x"))],
            vec![("l", link("../..")), ("l/forged", file("x"))],
        ] {
            // Whether it is refused or left out, nothing comes of it.
            let _ = RecordedTrees::lay_out(&recorded(files), &[], &sandbox());
        }
        assert_eq!(std::fs::read_dir(outside.path()).expect("it is there").count(), 0);
        assert!(
            !std::env::temp_dir().join("forged").exists() && !std::env::temp_dir().join("forged-by-a-record").exists()
        );
    }
}
