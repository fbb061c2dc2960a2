//! Copies of the files that a call names, and their comparison with the original files after the call has run on the copies.

use super::named_paths::{MAX_DEPTH, Place, place_of};
use crate::requests::ProposedChange;
use crate::turn::calls::changed_files::{MAX_BYTES, text_of};
use crate::turn::calls::file_trees::{self, HostTrees};
use agent_plugins::{Access, Grants, HostTreeEntry, ScratchQuota, ScratchTrees, TreeGrant};
use cap_std::fs::Dir;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Maximum number of files that are copied, and of files that are read after the rehearsal.
const MAX_FILES: usize = 64;
/// Maximum size of all copied files together, and of all files that are read after the rehearsal, in bytes.
const MAX_TOTAL_BYTES: usize = 4 << 20;
/// Maximum number of files and folders that are looked at after the rehearsal.
const MAX_ENTRIES: usize = 10_000;
/// How much the call may add to the copies. A call that replaces all files by new ones needs twice their size.
const QUOTA: ScratchQuota = ScratchQuota::Own { bytes: 16 << 20, entries: 1_000 };

/// Contents of text files.
type Files = BTreeMap<Place, String>;

/// What a call did to the copies.
pub(super) enum RehearsalOutcome {
    /// The call made these changes.
    Changes(Vec<ProposedChange>),
    /// The call wrote files that exist and were not copied. These are the paths of the files.
    AlsoCopy(Vec<String>),
}

/// Copies of the files that a call names, in one scratch tree for each tree that the plugin may change. No other plugin
/// can read or change the copies, and the host accesses them only through open directories.
pub(super) struct Copies {
    scratch: Arc<ScratchTrees>,
    originals: HostTrees,
    before: Files,
}

impl Copies {
    /// Copies the text files that the paths name. Only the directories in which the plugin may write at this moment are
    /// read, and through the same descriptors. Returns `None` if there are no such directories, if there are too many
    /// files, or if the rehearsal was cancelled.
    pub(super) fn new(originals: HostTrees, paths: &BTreeSet<String>, cancelled: &CancellationToken) -> Option<Self> {
        if originals.granted.is_empty() {
            return None;
        }
        let scratch = Arc::new(originals.sandbox.scratch_trees(originals.granted.len(), QUOTA).ok()?);
        let mut copies = Self { scratch, originals, before: Files::new() };
        for path in paths {
            if cancelled.is_cancelled() {
                return None;
            }
            copies.copy(path)?;
            if is_too_much(&copies.before) {
                return None;
            }
        }
        Some(copies)
    }

    /// Copies a file. If the file does not exist, creates its folder if the folder exists in the original tree.
    fn copy(&mut self, path: &str) -> Option<()> {
        let (Some(place), Some(text)) = (place_of(self.trees(), path), text_of(&self.originals, path)) else {
            return Some(());
        };
        let root = self.scratch.directory(place.0).ok()?;
        let parent = place.1.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent
            && (text.is_some() || self.has_original_folder(path))
        {
            root.create_dir_all(parent).ok()?;
        }
        if let Some(text) = text {
            root.write(&place.1, &text).ok()?;
            self.before.insert(place, text);
        }
        Some(())
    }

    fn has_original_folder(&self, path: &str) -> bool {
        let folder = Path::new(path).parent().and_then(Path::to_str);
        folder
            .is_some_and(|folder| matches!(file_trees::open(&self.originals, folder), Ok(HostTreeEntry::Directory(_))))
    }

    fn trees(&self) -> &[TreeGrant] {
        &self.originals.granted
    }

    /// The scratch trees with the copies.
    pub(super) fn scratch(&self) -> &Arc<ScratchTrees> {
        &self.scratch
    }

    /// Returns the grants of the rehearsal: those of the original grants with which a plugin can only read, and the right
    /// to change the copies.
    pub(super) fn grants(&self, original: &Grants) -> Grants {
        let read_only = original.trees.iter().filter(|tree| tree.access == Access::Read).cloned();
        let copies = self.scratch.replacing(self.trees());
        let Grants { env, config, .. } = original.clone();
        Grants { trees: read_only.chain(copies).collect(), env, config, ..Grants::default() }
    }

    /// Compares the copies with the original files. Returns `None` if there are too many files, if a file cannot be
    /// compared, or if the rehearsal was cancelled.
    pub(super) fn outcome(self, cancelled: &CancellationToken) -> Option<RehearsalOutcome> {
        let mut after = Files::new();
        for number in 0..self.trees().len() {
            let root = self.scratch.directory(number).ok()?;
            read_files(&root, number, &mut after, cancelled)?;
        }
        let mut also_copy = Vec::new();
        for place in after.keys().filter(|place| !self.before.contains_key(*place)) {
            let path = Path::new(&self.trees()[place.0].guest).join(&place.1).to_string_lossy().into_owned();
            if text_of(&self.originals, &path)?.is_some() {
                also_copy.push(path);
            }
        }
        if !also_copy.is_empty() {
            return Some(RehearsalOutcome::AlsoCopy(also_copy));
        }
        let mut places: Vec<_> = self.before.keys().chain(after.keys()).cloned().collect();
        places.sort();
        places.dedup();
        let changes = places.into_iter().filter_map(|place| {
            let (old, new) = (self.before.get(&place).cloned(), after.get(&place).cloned());
            let path = self.trees()[place.0].host.join(&place.1);
            (old != new).then(|| ProposedChange { path: std::path::absolute(&path).unwrap_or(path), old, new })
        });
        Some(RehearsalOutcome::Changes(changes.collect()))
    }
}

/// Reads the text files of a scratch tree. Links, which the plugin may have made, are not followed. Returns `None` if
/// there are too many entries, if they are too deep, if a file is not text or too large, or if the rehearsal was
/// cancelled.
fn read_files(root: &Dir, number: usize, files: &mut Files, cancelled: &CancellationToken) -> Option<()> {
    let (mut folders, mut entries) = (vec![PathBuf::new()], 0);
    while let Some(folder) = folders.pop() {
        if folder.components().count() > MAX_DEPTH {
            return None;
        }
        let directory = if folder.as_os_str().is_empty() { root.try_clone() } else { root.open_dir(&folder) };
        for entry in directory.ok()?.entries().ok()? {
            entries += 1;
            if entries > MAX_ENTRIES || cancelled.is_cancelled() {
                return None;
            }
            let entry = entry.ok()?;
            let (kind, path) = (entry.file_type().ok()?, folder.join(entry.file_name()));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let mut bytes = Vec::new();
                entry.open().ok()?.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
                if bytes.len() as u64 > MAX_BYTES {
                    return None;
                }
                files.insert((number, path), String::from_utf8(bytes).ok()?);
            }
            if is_too_much(files) {
                return None;
            }
        }
    }
    Some(())
}

/// Returns whether there are too many files, or the files are too large, to show their changes.
fn is_too_much(files: &Files) -> bool {
    files.len() > MAX_FILES || files.values().map(String::len).sum::<usize>() > MAX_TOTAL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::{Sandbox, SandboxOptions};

    fn originals(folder: &Path) -> HostTrees {
        let options = SandboxOptions { scratch_directory: Some(folder.join("scratch")), ..SandboxOptions::default() };
        let sandbox = Sandbox::new(options).expect("the sandbox starts");
        let tree = TreeGrant { host: folder.join("work"), guest: "work".to_owned(), access: Access::ReadWrite };
        HostTrees { sandbox, granted: vec![tree] }
    }

    fn paths<const N: usize>(paths: [&str; N]) -> BTreeSet<String> {
        paths.into_iter().map(|path| format!("work/{path}")).collect()
    }

    /// L17, row 44: only folders that exist in the original tree are created, so that paths which the model has invented
    /// cost nothing. A cancelled rehearsal ends.
    #[test]
    fn l17_row_44_only_existing_folders_are_created() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(folder.path().join("work/docs/deep")).expect("created");
        std::fs::write(folder.path().join("work/docs/deep/a.md"), "text").expect("written");
        let named = paths(["docs/deep/a.md", "docs/new.md", "absent/b.md", "absent/more/c.md", "docs"]);
        let running = CancellationToken::new();
        let copies = Copies::new(originals(folder.path()), &named, &running).expect("copied");
        let root = copies.scratch.directory(0).expect("open");
        assert_eq!(root.read_to_string("docs/deep/a.md").expect("copied"), "text");
        assert_eq!(root.entries().expect("listed").count(), 1, "only `docs` was created");
        root.write("docs/new.md", "new").expect("written");
        let Some(RehearsalOutcome::Changes(changes)) = copies.outcome(&running) else { panic!("no changes") };
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].path, folder.path().join("work/docs/new.md"));
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(Copies::new(originals(folder.path()), &named, &cancelled).is_none());
    }

    /// L17, rows 39 and 44: links in the copies are not followed, and deep or large results show no difference.
    #[test]
    fn l17_row_39_row_44_results_are_read_within_bounds() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(folder.path().join("work")).expect("created");
        std::fs::write(folder.path().join("secret"), "secret").expect("written");
        let running = CancellationToken::new();
        let changes_after = |change: &dyn Fn(&Dir)| {
            let copies = Copies::new(originals(folder.path()), &paths(["a.md"]), &running).expect("copied");
            change(&copies.scratch.directory(0).expect("open"));
            match copies.outcome(&running)? {
                RehearsalOutcome::Changes(changes) => Some(changes.len()),
                RehearsalOutcome::AlsoCopy(more) => panic!("{more:?}"),
            }
        };
        let deep = ["d"; MAX_DEPTH + 1].join("/");
        assert_eq!(changes_after(&|root| root.write("a.md", "new").expect("written")), Some(1));
        assert_eq!(changes_after(&|root| root.symlink_contents(folder.path(), "out").expect("linked")), Some(0));
        assert_eq!(changes_after(&|root| root.create_dir_all(&deep).expect("created")), None);
        assert_eq!(
            changes_after(&|root| root.write("a.md", "x".repeat(MAX_BYTES as usize + 1)).expect("written")),
            None
        );
        assert_eq!(changes_after(&|root| root.write("a.md", [0xff]).expect("written")), None);
        let many = |root: &Dir| {
            for number in 0..=MAX_FILES {
                root.write(number.to_string(), "").expect("written");
            }
        };
        assert_eq!(changes_after(&many), None);
    }
}
