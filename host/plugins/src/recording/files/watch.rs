//! Watches how a running call accesses and changes its granted trees. The accesses and changes of an original call are
//! recorded, and those of a replay are compared with the record.

mod contents;
mod outcome;

pub(crate) use self::outcome::FilesOutcome;

use super::inspection;
use super::overlay::{Origin, Overlay};
use super::path_walk::{FileKind, FinalLink, PathPosition, PathTarget, PathWalk, Step, TreePath};
use super::replay_tree::{self, CopyDepth, ReplayTrees};
use crate::file_trees::{HostTree, SHOWN_PATH_BYTES};
use crate::grants::{Grants, TreeGrant, file_reading_advice, quoted};
use crate::recording::CallRecord;
use crate::recording::bytes::Extent;
use crate::recording::file_records::{EntryKind, FoundNames, GrantedTree, InitialFileState};
use crate::sync::lock;
use crate::text::clean;
use cap_std::fs::Dir;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex};

/// Maximum size of a path that the operating system accepts, in bytes. Longer paths are not resolved.
const MAX_PATH_BYTES: usize = 4096;

/// The watched files of a call. `None` means that the call has no granted trees, or nothing is recorded.
#[derive(Default)]
pub(crate) struct FileWatch(Mutex<Option<Box<Watched>>>);

struct Watched {
    trees: Vec<GrantedTree>,
    /// In a replay, the record of the original call.
    replay: Option<Arc<ReplayTrees>>,
    /// The root directory of each tree. The list is empty until the guest asks for its granted directories.
    roots: Vec<Arc<Dir>>,
    /// Paths of the guest's open handles.
    locations: HashMap<u32, TreePath>,
    /// The files whose state is known, by the paths that they had at the start of the call.
    known: BTreeMap<TreePath, InitialFileState>,
    /// Kinds of the entries in the directories that the call has listed.
    named: HashMap<TreePath, EntryKind>,
    overlay: Overlay,
    /// Files whose times the call has set.
    files_with_changed_times: BTreeSet<TreePath>,
    /// Whether all accesses are recorded. [`Extent::Partly`]: the record is full, so nothing more is recorded.
    extent: Extent,
}

/// How the kind of file at a path is determined.
enum KindSource {
    Known(FileKind),
    /// The host must look at the file in the tree.
    Inspect(Arc<Dir>, Origin),
    /// The file is missing from the recording and must be copied from a current tree.
    Fetch(Fetch),
    Unrecorded,
    /// The record is full, or the path is not in a watched tree, so accesses to the path are not recorded.
    Untracked,
}

/// A file that is missing from the recording and must be copied from the directory as it is now.
struct Fetch {
    current: Arc<HostTree>,
    root: Arc<Dir>,
    original: TreePath,
    location: TreePath,
}

/// The kind of object that a guest has opened.
pub(crate) enum Opened {
    Directory,
    /// An existing file that was opened without truncating it, so its content is still the original content.
    File(Arc<File>),
    /// A file that was created or truncated when it was opened.
    Emptied,
}

/// The source of a directory listing.
pub(crate) enum ListingSource {
    /// The current entries of the directory.
    Current,
    /// The current entries of the directory, whose names must be recorded.
    Recording(NamesBeingRecorded),
    /// The recorded names that still exist, followed by the names that the replayed call created. The second field is
    /// the path of the directory if the original call did not read all names in it.
    Recorded(Vec<(String, EntryKind)>, Option<TreePath>),
    Unrecorded,
}

/// A directory listing whose names are being recorded.
pub(crate) struct NamesBeingRecorded {
    now: TreePath,
    original: TreePath,
    /// Number of names that the guest has read so far.
    seen: usize,
}

impl FileWatch {
    fn with<T>(&self, action: impl FnOnce(&mut Watched) -> T) -> Option<T> {
        lock(&self.0).as_deref_mut().map(action)
    }
}

impl CallRecord {
    /// Starts to watch the granted trees of the call. An original call is recorded, and a replay is compared with
    /// the record.
    pub(crate) fn watch_files(&self, granted: &Arc<Grants>, replay: Option<Arc<ReplayTrees>>) {
        let (trees, known) = match &replay {
            Some(recorded) => (recorded.trees.clone(), recorded.known.clone()),
            None if !self.answers.is_enabled() => return,
            None => {
                let recorded = |tree: &TreeGrant| GrantedTree { guest: tree.guest.clone(), access: tree.access };
                (granted.trees.iter().map(recorded).collect(), BTreeMap::new())
            }
        };
        let mut watched = Watched {
            trees,
            named: HashMap::new(),
            replay,
            roots: Vec::new(),
            locations: HashMap::new(),
            known: BTreeMap::new(),
            overlay: Overlay::default(),
            files_with_changed_times: BTreeSet::new(),
            extent: Extent::Whole,
        };
        for (location, found) in known {
            watched.add_known(location, found);
        }
        *lock(&self.files.0) = Some(Box::new(watched));
    }

    /// Records the guest's handles of the granted trees, in the order of the trees.
    pub(crate) fn record_tree_handles(&self, handles: &[(u32, Arc<File>)]) -> std::io::Result<()> {
        let watched = self.files.with(|watched| {
            for (number, (handle, file)) in handles.iter().enumerate().take(watched.trees.len()) {
                if watched.roots.len() == number {
                    watched.roots.push(Arc::new(Dir::from_std_file(file.try_clone()?)));
                }
                watched.locations.insert(*handle, TreePath { tree: number, path: String::new() });
            }
            Ok(())
        });
        watched.unwrap_or(Ok(()))
    }

    /// Resolves a path that the guest has passed to a host function. In an original call, records the state of every
    /// file and directory that the resolution visits.
    pub(crate) async fn follow_path(
        &self,
        directory: u32,
        path: &str,
        final_link: FinalLink,
    ) -> wasmtime::Result<PathTarget> {
        let is_followed = !path.starts_with('/') && path.len() <= MAX_PATH_BYTES;
        let Some(from) = self.location_of(directory).filter(|_| is_followed) else { return Ok(PathTarget::Elsewhere) };
        let mut walk = PathWalk::new(from, path, final_link);
        loop {
            let location = match walk.step() {
                Step::Done(target) => return Ok(target),
                Step::Lookup(location) => location,
            };
            let source = self
                .files
                .with(|watched| watched.kind_source(&location, walk.position()))
                .unwrap_or(KindSource::Untracked);
            let kind = match source {
                KindSource::Known(kind) => kind,
                KindSource::Inspect(root, origin) => match self.inspect(root, location, origin).await? {
                    Some(kind) => kind,
                    None => return Ok(PathTarget::Elsewhere),
                },
                KindSource::Fetch(fetch) => match self.fetch(fetch, CopyDepth::Entry).await? {
                    Some(found) => FileKind::from(&found),
                    None => return Ok(self.unrecorded_target(&location)),
                },
                KindSource::Unrecorded => return Ok(self.unrecorded_target(&location)),
                KindSource::Untracked => return Ok(PathTarget::Elsewhere),
            };
            walk.provide(kind);
        }
    }

    /// Inspects a path and records its state. `None` means that the state could not be read, because the operating
    /// system returned an error.
    async fn inspect(&self, root: Arc<Dir>, location: TreePath, origin: Origin) -> wasmtime::Result<Option<FileKind>> {
        let found = tokio::task::spawn_blocking(move || inspection::state_at(&root, &location.path)).await?;
        let kind = found.as_ref().map(FileKind::from);
        if let (Some(found), Origin::Before(original)) = (found, origin) {
            let size = original.path.len() + if let InitialFileState::Link { to, .. } = &found { to.len() } else { 0 };
            let has_room = self.answers.has_room(size);
            self.files.with(|watched| match has_room {
                true => drop(watched.known.entry(original).or_insert(found)),
                false => watched.extent = Extent::Partly,
            });
        }
        Ok(kind)
    }

    fn unrecorded_target(&self, location: &TreePath) -> PathTarget {
        self.unrecorded("looking at", location, "");
        PathTarget::Unrecorded
    }

    /// Copies a file or directory from a current tree. `None` means that the file or directory cannot be read.
    async fn fetch(&self, fetch: Fetch, depth: CopyDepth) -> wasmtime::Result<Option<InitialFileState>> {
        let Fetch { current, root, original, location } = fetch;
        let from = original.path.clone();
        let fetched = tokio::task::spawn_blocking(move || {
            replay_tree::copy_current((&current, &from), (&root, &location.path), depth)
        });
        let Ok(found) = fetched.await? else { return Ok(None) };
        self.files.with(|watched| watched.add_known(original, found.clone()));
        Ok(Some(found))
    }

    /// Records that an action was denied because the file is missing from the recording.
    pub(crate) fn unrecorded(&self, action: &str, location: &TreePath, why: &str) {
        let Some(guest_path) = self.files.with(|watched| watched.guest_path(location)) else { return };
        self.deny(format!("{action} {guest_path}{why}"), file_reading_advice(&self.plugin.name));
    }

    /// Records that the call created, wrote or removed the file at this path.
    pub(crate) fn changed(&self, location: &TreePath) {
        self.change(location, |overlay| overlay.change(location));
    }

    /// Records that the call wrote to an open file.
    pub(crate) fn changed_open_file(&self, handle: u32) {
        let location = self.location_of(handle);
        // Most writes change a file that is already recorded as changed, so nothing has to be done.
        if let Some(location) = location
            && self.files.with(|watched| watched.overlay.origin(&location) != Origin::Own) == Some(true)
        {
            self.changed(&location);
        }
    }

    /// Records that the call changed the file to which a resolved path leads.
    pub(crate) fn changed_at(&self, targets: &[PathTarget]) {
        if let [PathTarget::At(location, _)] = targets {
            self.changed(location);
        }
    }

    /// Records that the call renamed a file or directory.
    pub(crate) fn renamed_at(&self, targets: &[PathTarget]) {
        let [PathTarget::At(from, _), PathTarget::At(to, _)] = targets else { return };
        self.change(to, |overlay| overlay.rename(from, to));
        self.files.with(|watched| {
            let below = format!("{}/", from.path);
            for location in watched.locations.values_mut().filter(|location| location.tree == from.tree) {
                if *location == *from || location.path.starts_with(&below) {
                    let path = to.path.clone() + &location.path[from.path.len()..];
                    *location = TreePath { tree: to.tree, path };
                }
            }
        });
    }

    /// Records that the call created a hard link.
    pub(crate) fn linked_at(&self, targets: &[PathTarget]) {
        if let [PathTarget::At(from, _), PathTarget::At(to, _)] = targets {
            self.change(to, |overlay| overlay.link(from, to));
        }
    }

    /// Records that the call set the times of the file to which a resolved path leads.
    pub(crate) fn times_changed_at(&self, targets: &[PathTarget]) {
        if let [PathTarget::At(location, _)] = targets {
            self.times_changed(location);
        }
    }

    /// Whether the call has listed the directory and the listing contains this name. After listing a directory,
    /// guest libraries query the identity of each entry. A query of a listed entry does not count as an access.
    pub(crate) fn is_listed(&self, directory: u32, name: &str) -> bool {
        let listed = self.files.with(|watched| {
            let location = watched.locations.get(&directory).filter(|_| !name.contains('/'))?.join(name);
            let Origin::Before(original) = watched.overlay.origin(&location) else { return None };
            Some(!matches!(watched.listed(&original)?, FileKind::Nothing))
        });
        listed.flatten().unwrap_or(false)
    }

    /// Resolves the two paths of one operation, for example of a rename. If a path ends with a symbolic link, the link
    /// is not followed.
    pub(crate) async fn follow_both_paths(
        &self,
        from: (u32, &str),
        to: (u32, &str),
    ) -> wasmtime::Result<[PathTarget; 2]> {
        Ok([
            self.follow_path(from.0, from.1, FinalLink::Keep).await?,
            self.follow_path(to.0, to.1, FinalLink::Keep).await?,
        ])
    }

    /// Records that the call set the times of a file.
    pub(crate) fn times_changed(&self, location: &TreePath) {
        self.files.with(|watched| {
            if let Origin::Before(original) = watched.overlay.origin(location)
                && watched.known.contains_key(&original)
            {
                watched.files_with_changed_times.insert(original);
            }
        });
    }

    /// The path of an open handle.
    pub(crate) fn location_of(&self, handle: u32) -> Option<TreePath> {
        self.files.with(|watched| watched.locations.get(&handle).cloned()).flatten()
    }

    fn change(&self, location: &TreePath, change: impl FnOnce(&mut Overlay)) {
        let is_original_call = self.files.with(|watched| watched.replay.is_none());
        let has_room = is_original_call != Some(true) || self.answers.has_room(location.path.len());
        self.files.with(|watched| match has_room {
            true => change(&mut watched.overlay),
            false => watched.extent = Extent::Partly,
        });
    }
}

impl Watched {
    /// Adds what is known about a path: its state and, if the path is a directory, the kind of each of its entries.
    fn add_known(&mut self, original: TreePath, found: InitialFileState) {
        if let InitialFileState::Directory { names: FoundNames::Listed { names, .. }, .. } = &found {
            for (name, kind) in names {
                self.name(&original, name, *kind);
            }
        }
        self.known.insert(original, found);
    }

    fn name(&mut self, directory: &TreePath, name: &str, kind: EntryKind) {
        // Entries that the call created are not added, because they did not exist at the start of the call.
        if kind != EntryKind::Own {
            self.named.insert(directory.join(name), kind);
        }
    }

    /// Chooses how the kind of file at a path is determined.
    fn kind_source(&self, location: &TreePath, position: PathPosition) -> KindSource {
        if self.extent == Extent::Partly {
            return KindSource::Untracked;
        }
        let Some(root) = self.roots.get(location.tree).cloned() else { return KindSource::Untracked };
        let original = match self.overlay.origin(location) {
            Origin::Before(original) => original,
            Origin::Own => return KindSource::Inspect(root, Origin::Own),
        };
        match (self.known.get(&original), &self.replay) {
            (Some(found), _) => KindSource::Known(found.into()),
            (None, None) => KindSource::Inspect(root, Origin::Before(original)),
            (None, Some(recorded)) => match self.listed(&original) {
                Some(FileKind::Nothing) => KindSource::Known(FileKind::Nothing),
                Some(FileKind::Directory) if position == PathPosition::Through => {
                    KindSource::Known(FileKind::Directory)
                }
                _ => match recorded.current.get(original.tree).cloned().flatten() {
                    Some(current) => KindSource::Fetch(Fetch { current, root, original, location: location.clone() }),
                    None => KindSource::Unrecorded,
                },
            },
        }
    }

    /// Returns the kind of a file according to the listing of its directory. `None` means that the directory was not
    /// listed, or its incomplete listing does not contain the name.
    fn listed(&self, original: &TreePath) -> Option<FileKind> {
        let (directory, _) = original.parent()?;
        let Some(InitialFileState::Directory { names: FoundNames::Listed { read, .. }, .. }) =
            self.known.get(&directory)
        else {
            return None;
        };
        match (self.named.get(original), read) {
            (Some(EntryKind::Directory), _) => Some(FileKind::Directory),
            (Some(EntryKind::File), _) => Some(FileKind::File),
            // A listing does not record the targets of links.
            (Some(EntryKind::Link), _) => Some(FileKind::Link(String::new())),
            (Some(EntryKind::Other | EntryKind::Own), _) => Some(FileKind::Other),
            (None, Extent::Whole) => Some(FileKind::Nothing),
            (None, Extent::Partly) => None,
        }
    }

    /// The path as the guest sees it, quoted for messages.
    fn guest_path(&self, location: &TreePath) -> String {
        let guest = self.trees.get(location.tree).map_or("", |tree| tree.guest.as_str());
        let path = match (guest, location.path.as_str()) {
            (guest, "") => guest.to_owned(),
            ("" | ".", path) => path.to_owned(),
            (guest, path) => format!("{}/{path}", guest.trim_end_matches('/')),
        };
        quoted(&clean(&path, SHOWN_PATH_BYTES))
    }
}
