//! The changes in the trees at the end of a call, which are recorded or, in a replay, compared with the record.

use super::{CallRecord, ReplayTrees, Watched};
use crate::recording::bytes::Extent;
use crate::recording::file_records::{FoundFile, LeftFile};
use crate::recording::files::inspection;
use crate::recording::files::overlay::Origin;
use crate::recording::files::path_walk::TreePath;
use crate::recording::host_calls::HostAnswer;
use std::collections::BTreeMap;

/// Maximum bytes of changed files that are hashed, in total.
const MAX_HASHED_BYTES: u64 = 32 << 20;
/// Maximum number of differences that are reported.
const MAX_REPORTED: usize = 32;

/// The result of watching a call's files.
#[derive(Default)]
pub(crate) struct FilesOutcome {
    /// Records of a first run.
    pub(crate) answers: Vec<HostAnswer>,
    /// Differences between the changes of a replay and those of the recorded call.
    pub(crate) effects: Vec<String>,
}

impl CallRecord {
    /// The records of the call's files or, in a replay, the differences from the recorded changes.
    pub(crate) async fn finish_files(&self) -> FilesOutcome {
        let Some(watched) = crate::sync::lock(&self.files.0).take() else { return FilesOutcome::default() };
        let (watched, left) = if watched.overlay.changed().next().is_none() {
            (watched, BTreeMap::new())
        } else {
            let inspected = tokio::task::spawn_blocking(move || {
                let left = watched.left();
                (watched, left)
            });
            // The task fails only if the process ends.
            let Ok(inspected) = inspected.await else { return FilesOutcome::default() };
            inspected
        };
        match watched.replay.clone() {
            None => FilesOutcome { answers: watched.answers(left), ..FilesOutcome::default() },
            Some(recorded) => FilesOutcome { effects: effects(&watched, &recorded, &left), ..FilesOutcome::default() },
        }
    }
}

fn effects(watched: &Watched, recorded: &ReplayTrees, left: &BTreeMap<TreePath, LeftFile>) -> Vec<String> {
    let differing: Vec<_> = match recorded.changes {
        Extent::Whole => differing(&recorded.left, left).collect(),
        // The changes of the recorded call are not known.
        Extent::Partly => {
            left.keys().map(|place| (place, "changed, but the recorded call's changes are not recorded")).collect()
        }
    };
    let more = differing.len().saturating_sub(MAX_REPORTED);
    let reported =
        differing.iter().take(MAX_REPORTED).map(|(place, how)| format!("leaves {} {how}", watched.shown(place)));
    reported.chain((more > 0).then(|| format!("leaves {more} more files different from the recorded call"))).collect()
}

/// The paths that differ from the recorded state at the end of the call, with a description of the difference.
fn differing<'a>(
    recorded: &'a BTreeMap<TreePath, LeftFile>,
    current: &'a BTreeMap<TreePath, LeftFile>,
) -> impl Iterator<Item = (&'a TreePath, &'static str)> {
    let changed = current.iter().filter_map(|(place, left)| match recorded.get(place) {
        None => Some((place, "changed, unlike the recorded call")),
        Some(before) if before != left => Some((place, "different from the recorded call")),
        Some(_) => None,
    });
    let unchanged = recorded.keys().filter(|place| !current.contains_key(*place));
    changed.chain(unchanged.map(|place| (place, "unchanged, unlike the recorded call")))
}

impl Watched {
    fn left(&self) -> BTreeMap<TreePath, LeftFile> {
        let mut bytes = MAX_HASHED_BYTES;
        let changed = self.overlay.changed().filter_map(|(place, origin)| {
            let root = self.roots.get(place.tree)?;
            let left = match origin {
                Origin::Before(before) => LeftFile::Moved { tree: before.tree, from: before.path.clone() },
                Origin::Own => inspection::left(root, &place.path, &mut bytes),
            };
            // A file that the call created and removed again is not a change.
            let was_nothing = matches!(self.known.get(place), Some(FoundFile::Nothing));
            (left != LeftFile::Nothing || !was_nothing).then(|| (place.clone(), left))
        });
        changed.collect()
    }

    fn answers(self: Box<Self>, left: BTreeMap<TreePath, LeftFile>) -> Vec<HostAnswer> {
        if self.roots.is_empty() {
            return Vec::new();
        }
        let changes = self.extent;
        let files =
            self.known.into_iter().map(|(TreePath { tree, path }, found)| HostAnswer::File { tree, path, found });
        let left = left.into_iter().map(|(TreePath { tree, path }, left)| HostAnswer::LeftFile { tree, path, left });
        let left = left.filter(|_| changes == Extent::Whole);
        std::iter::once(HostAnswer::Trees { trees: self.trees, changes }).chain(files).chain(left).collect()
    }
}
