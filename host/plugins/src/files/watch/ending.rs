//! What a call has left in its trees when it is over.

use super::{CallRecord, Watched};
use crate::answers::{HostAnswer, Read};
use crate::files::overlay::Origin;
use crate::files::walk::Place;
use crate::files::{FoundFile, LeftFile, look};
use std::collections::BTreeMap;

/// Bytes of changed files that are looked at, in all.
const LOOKED_AT: u64 = 32 << 20;

impl CallRecord {
    /// What the call met and left in its trees, to be kept. Where it ran again, it is held against what it left then instead, and
    /// what differs is denied.
    pub(crate) async fn finish_files(&self) -> Vec<HostAnswer> {
        let Some(watched) = crate::record::lock(&self.files.0).take() else { return Vec::new() };
        let (watched, left) = if watched.overlay.changed().next().is_none() {
            (watched, BTreeMap::new())
        } else {
            let looked = tokio::task::spawn_blocking(move || {
                let left = watched.left();
                (watched, left)
            });
            // It fails only when the process ends.
            let Ok(looked) = looked.await else { return Vec::new() };
            looked
        };
        match watched.then.clone() {
            None => watched.answers(left),
            Some(then) => {
                if then.changes == Read::Whole {
                    let differing = differing(&then.left, &left).map(|(place, how)| (watched.shown(place), how));
                    for (shown, how) in differing {
                        self.deny(
                            format!("leaving {shown} {how}"),
                            crate::grants::file_change_advice(&self.plugin.name),
                        );
                    }
                }
                Vec::new()
            }
        }
    }
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
