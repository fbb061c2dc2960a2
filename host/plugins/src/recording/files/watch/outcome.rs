//! Determines, at the end of a call, which files in the granted trees the call has changed. For an original call, the
//! changes are recorded. For a replay, the changes are compared with the record.

use super::{CallRecord, ReplayTrees, Watched};
use crate::recording::bytes::Extent;
use crate::recording::file_records::{FinalFileState, InitialFileState};
use crate::recording::files::inspection;
use crate::recording::files::overlay::Origin;
use crate::recording::files::path_walk::TreePath;
use crate::recording::host_calls::HostCallResult;
use std::collections::BTreeMap;

/// Maximum total size of the changed files that are hashed, in bytes.
const MAX_HASHED_BYTES: u64 = 32 << 20;
/// Maximum number of differences that are reported.
const MAX_REPORTED: usize = 32;

/// The result of watching a call's files.
#[derive(Default)]
pub(crate) struct FilesOutcome {
    /// The records of files, for an original call. In a replay, this list is empty.
    pub(crate) answers: Vec<HostCallResult>,
    /// The differences between the files after a replay and the files after the recorded call.
    pub(crate) effects: Vec<String>,
}

impl CallRecord {
    /// Returns the records of the files that the call used or, in a replay, the differences from the recorded changes.
    pub(crate) async fn finish_files(&self) -> FilesOutcome {
        let Some(watched) = crate::sync::lock(&self.files.0).take() else { return FilesOutcome::default() };
        let (watched, left) = if watched.overlay.changed().next().is_none() {
            (watched, BTreeMap::new())
        } else {
            let inspected = tokio::task::spawn_blocking(move || {
                let left = watched.final_states();
                (watched, left)
            });
            // The blocking task fails only if the process is ending.
            let Ok(inspected) = inspected.await else { return FilesOutcome::default() };
            inspected
        };
        match watched.replay.clone() {
            None => FilesOutcome { answers: watched.answers(left), ..FilesOutcome::default() },
            Some(recorded) => FilesOutcome { effects: effects(&watched, &recorded, &left), ..FilesOutcome::default() },
        }
    }
}

fn effects(watched: &Watched, recorded: &ReplayTrees, left: &BTreeMap<TreePath, FinalFileState>) -> Vec<String> {
    let differing: Vec<_> = match recorded.changes {
        Extent::Whole => differing(&recorded.left, left).collect(),
        // Not all changes of the recorded call are known, so the changes cannot be compared.
        Extent::Partly => left
            .keys()
            .map(|location| (location, "changed, but the record does not contain the changes of the original call"))
            .collect(),
    };
    let more = differing.len().saturating_sub(MAX_REPORTED);
    let reported = differing
        .iter()
        .take(MAX_REPORTED)
        .map(|(location, how)| format!("leaves {} {how}", watched.guest_path(location)));
    reported
        .chain((more > 0).then(|| format!("leaves {more} other files in states that differ from the recorded call")))
        .collect()
}

/// The paths whose state at the end of the call differs from the recorded state, each with a description of
/// the difference.
fn differing<'a>(
    recorded: &'a BTreeMap<TreePath, FinalFileState>,
    current: &'a BTreeMap<TreePath, FinalFileState>,
) -> impl Iterator<Item = (&'a TreePath, &'static str)> {
    let changed = current.iter().filter_map(|(location, left)| match recorded.get(location) {
        None => Some((location, "changed, unlike the recorded call")),
        Some(original) if original != left => Some((location, "different from the recorded call")),
        Some(_) => None,
    });
    let unchanged = recorded.keys().filter(|location| !current.contains_key(*location));
    changed.chain(unchanged.map(|location| (location, "unchanged, unlike the recorded call")))
}

impl Watched {
    fn final_states(&self) -> BTreeMap<TreePath, FinalFileState> {
        let mut bytes = MAX_HASHED_BYTES;
        let changed = self.overlay.changed().filter_map(|(location, origin)| {
            let root = self.roots.get(location.tree)?;
            let left = match origin {
                Origin::Before(original) => FinalFileState::Moved { tree: original.tree, from: original.path.clone() },
                Origin::Own => inspection::final_state_at(root, &location.path, &mut bytes),
            };
            // A file that the call created and then removed does not count as a change.
            let was_nothing = matches!(self.known.get(location), Some(InitialFileState::Nothing));
            (left != FinalFileState::Nothing || !was_nothing).then(|| (location.clone(), left))
        });
        changed.collect()
    }

    fn answers(self: Box<Self>, left: BTreeMap<TreePath, FinalFileState>) -> Vec<HostCallResult> {
        if self.roots.is_empty() {
            return Vec::new();
        }
        let changes = self.extent;
        let files =
            self.known.into_iter().map(|(TreePath { tree, path }, found)| HostCallResult::File { tree, path, found });
        let left =
            left.into_iter().map(|(TreePath { tree, path }, left)| HostCallResult::LeftFile { tree, path, left });
        let left = left.filter(|_| changes == Extent::Whole);
        std::iter::once(HostCallResult::Trees { trees: self.trees, changes }).chain(files).chain(left).collect()
    }
}
