//! What a call has left in its trees when it is over.

use super::{CallRecord, RecordedTrees, Watched};
use crate::answers::{HostAnswer, Read};
use crate::files::overlay::Origin;
use crate::files::walk::Place;
use crate::files::{FoundFile, LeftFile, look};
use std::collections::BTreeMap;

/// Bytes of changed files that are looked at, in all.
const LOOKED_AT: u64 = 32 << 20;
/// Differences that are told.
const TOLD: usize = 32;

/// What is to be said of files when a call is over.
#[derive(Default)]
pub(crate) struct Ending {
    /// What the call met and left, to be kept.
    pub(crate) answers: Vec<HostAnswer>,
    /// What it left otherwise than when it first ran.
    pub(crate) effects: Vec<String>,
}

impl CallRecord {
    /// What the call met and left in its trees. Where it ran again, that is held against what it left then.
    pub(crate) async fn finish_files(&self) -> Ending {
        let Some(watched) = crate::record::lock(&self.files.0).take() else { return Ending::default() };
        let (watched, left) = if watched.overlay.changed().next().is_none() {
            (watched, BTreeMap::new())
        } else {
            let looked = tokio::task::spawn_blocking(move || {
                let left = watched.left();
                (watched, left)
            });
            // It fails only when the process ends.
            let Ok(looked) = looked.await else { return Ending::default() };
            looked
        };
        match watched.then.clone() {
            None => Ending { answers: watched.answers(left), ..Ending::default() },
            Some(then) => Ending { effects: effects(&watched, &then, &left), ..Ending::default() },
        }
    }
}

fn effects(watched: &Watched, then: &RecordedTrees, left: &BTreeMap<Place, LeftFile>) -> Vec<String> {
    let differing: Vec<_> = match then.changes {
        Read::Whole => differing(&then.left, left).collect(),
        // What it left then is not recorded.
        Read::Partly => left.keys().map(|place| (place, "changed, of which nothing is recorded")).collect(),
    };
    let more = differing.len().saturating_sub(TOLD);
    let told = differing.iter().take(TOLD).map(|(place, how)| format!("leaves {} {how}", watched.shown(place)));
    told.chain((more > 0).then(|| format!("leaves {more} more otherwise"))).collect()
}

/// What was left otherwise than then, and how.
fn differing<'a>(
    then: &'a BTreeMap<Place, LeftFile>,
    now: &'a BTreeMap<Place, LeftFile>,
) -> impl Iterator<Item = (&'a Place, &'static str)> {
    let changed = now.iter().filter_map(|(place, left)| match then.get(place) {
        None => Some((place, "changed, which it did not do then")),
        Some(before) if before != left => Some((place, "otherwise than then")),
        Some(_) => None,
    });
    let unchanged = then.keys().filter(|place| !now.contains_key(*place));
    changed.chain(unchanged.map(|place| (place, "as it was, which it did not do then")))
}

impl Watched {
    fn left(&self) -> BTreeMap<Place, LeftFile> {
        let mut bytes = LOOKED_AT;
        let changed = self.overlay.changed().filter_map(|(place, origin)| {
            let root = self.roots.get(place.tree)?;
            let left = match origin {
                Origin::Before(before) => LeftFile::Moved { tree: before.tree, from: before.path.clone() },
                Origin::Own => look::left(root, &place.path, &mut bytes),
            };
            // What came and went is no change.
            let was_nothing = matches!(self.known.get(place), Some(FoundFile::Nothing));
            (left != LeftFile::Nothing || !was_nothing).then(|| (place.clone(), left))
        });
        changed.collect()
    }

    fn answers(self: Box<Self>, left: BTreeMap<Place, LeftFile>) -> Vec<HostAnswer> {
        if self.roots.is_empty() {
            return Vec::new();
        }
        let changes = self.followed;
        let files = self.known.into_iter().map(|(Place { tree, path }, found)| HostAnswer::File { tree, path, found });
        let left = left.into_iter().map(|(Place { tree, path }, left)| HostAnswer::LeftFile { tree, path, left });
        let left = left.filter(|_| changes == Read::Whole);
        std::iter::once(HostAnswer::Trees { trees: self.trees, changes }).chain(files).chain(left).collect()
    }
}
