//! Records the content of the files that a call opens and the names in the directories that it lists.

use super::{CallRecord, Fetch, ListingSource, NamesBeingRecorded, Opened};
use crate::recording::bytes::Extent;
use crate::recording::file_records::{EntryKind, FileStat, FoundContent, FoundNames, InitialFileState};
use crate::recording::files::inspection;
use crate::recording::files::overlay::Origin;
use crate::recording::files::path_walk::{FileKind, FinalLink, PathTarget, TreePath};
use crate::recording::files::replay_tree::CopyDepth;
use agent_core::redaction::Edges;
use cap_std::fs::Dir;
use std::fs::File;
use std::sync::Arc;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

/// A file or directory that existed before the call. The content of such a file, or the names in such a directory, may
/// have to be recorded.
struct ExistingFile {
    fetch: Option<Fetch>,
    original: TreePath,
    location: TreePath,
    root: Arc<Dir>,
    found: InitialFileState,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    First,
    Replay,
}

impl CallRecord {
    /// Records that the guest opened a file or directory. If the guest opened a file whose content is not known yet,
    /// also records the content.
    pub(crate) async fn opened(
        &self,
        handle: u32,
        target: PathTarget,
        opened: Opened,
    ) -> wasmtime::Result<Result<(), ErrorCode>> {
        let PathTarget::At(location, _) = target else {
            self.files.with(|watched| watched.locations.remove(&handle));
            return Ok(Ok(()));
        };
        self.files.with(|watched| watched.locations.insert(handle, location.clone()));
        match opened {
            Opened::Directory => Ok(Ok(())),
            Opened::Emptied => {
                self.changed(&location);
                Ok(Ok(()))
            }
            Opened::File(file) => match self.existing_file(location) {
                Some(existing) => self.read(existing, file).await,
                None => Ok(Ok(())),
            },
        }
    }

    /// Returns the known facts about the file that is now at the path. `None` means that the file did not exist before
    /// the call, or no facts about it are known.
    fn existing_file(&self, location: TreePath) -> Option<ExistingFile> {
        let existing = self.files.with(|watched| {
            let Origin::Before(original) = watched.overlay.origin(&location) else { return None };
            let root = watched.roots.get(location.tree)?.clone();
            let found = match watched.known.get(&original)? {
                // The callers do not need the recorded content, so it is not cloned.
                InitialFileState::File { stat, content: FoundContent::Recorded(_) } => {
                    InitialFileState::File { stat: *stat, content: inspection::recorded_content(Vec::new()) }
                }
                found => found.clone(),
            };
            let current = watched.replay.as_ref().and_then(|recorded| recorded.current.get(original.tree)?.clone());
            let run = if watched.replay.is_some() { Run::Replay } else { Run::First };
            let fetch =
                |current| Fetch { current, root: root.clone(), original: original.clone(), location: location.clone() };
            Some(ExistingFile { fetch: current.map(fetch), original, location, root, found, run })
        });
        existing.flatten()
    }

    /// In the original call, records the content of a file that the guest has opened. In a replay, checks that the
    /// content is recorded or can be copied from a current tree.
    async fn read(&self, existing: ExistingFile, file: Arc<File>) -> wasmtime::Result<Result<(), ErrorCode>> {
        let InitialFileState::File { content, .. } = &existing.found else { return Ok(Ok(())) };
        match (content, existing.run) {
            (FoundContent::Recorded(_), _) => {}
            (FoundContent::NotOpened, Run::First) => self.record_content(existing, file).await?,
            (_, Run::First) => {}
            (FoundContent::Refused, Run::Replay) => return Ok(Err(ErrorCode::Access)),
            (_, Run::Replay) => {
                let why = match content {
                    FoundContent::Secret => ", which contained a secret of the plugin",
                    FoundContent::TooLarge => ", whose content was too large to be recorded (`recorded_kib`)",
                    _ => "",
                };
                let fetched = match existing.fetch {
                    Some(fetch) => self.fetch(fetch, CopyDepth::Content).await?,
                    None => None,
                };
                if fetched.is_none() {
                    self.unrecorded("reading", &existing.original, why);
                    return Ok(Err(ErrorCode::NotPermitted));
                }
            }
        }
        Ok(Ok(()))
    }

    async fn record_content(&self, existing: ExistingFile, file: Arc<File>) -> wasmtime::Result<()> {
        let ExistingFile { original, location, root, .. } = existing;
        let room = self.answers.room();
        let read = move || match inspection::content(&file, room) {
            // Reading failed, probably because the guest opened the file only for writing, so the host opens the
            // file itself.
            Err(_) => inspection::content(&inspection::open(&root, &location.path)?, room),
            read => read,
        };
        let content = match tokio::task::spawn_blocking(read).await? {
            Ok(Some(bytes)) if self.contains_secret(&bytes) => FoundContent::Secret,
            Ok(Some(bytes)) if self.answers.has_room(bytes.len()) => inspection::recorded_content(bytes),
            Ok(Some(_)) => FoundContent::TooLarge,
            Ok(None) => {
                self.answers.leave_out();
                FoundContent::TooLarge
            }
            Err(_) => return Ok(()),
        };
        self.set_content(&original, content);
        Ok(())
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        self.secrets.redaction().bytes(bytes, Edges::Whole).is_some()
    }

    /// Records that the operating system refused to open a file.
    pub(crate) fn refused_opening(&self, target: PathTarget) {
        let PathTarget::At(location, FileKind::File) = target else { return };
        if let Some(ExistingFile { original, run: Run::First, .. }) = self.existing_file(location) {
            self.set_content(&original, FoundContent::Refused);
        }
    }

    fn set_content(&self, original: &TreePath, new: FoundContent) {
        self.files.with(|watched| {
            if let Some(InitialFileState::File { content, .. }) = watched.known.get_mut(original) {
                *content = new;
            }
        });
    }

    /// Chooses the source from which this directory is listed.
    pub(crate) async fn listing_source(&self, handle: u32) -> wasmtime::Result<ListingSource> {
        let location = match self.follow_path(handle, "", FinalLink::Keep).await? {
            PathTarget::Unrecorded => return Ok(ListingSource::Unrecorded),
            PathTarget::Elsewhere => return Ok(ListingSource::Current),
            PathTarget::At(location, _) => location,
        };
        let Some(ExistingFile { fetch, original, location, found, run, .. }) = self.existing_file(location) else {
            return Ok(ListingSource::Current);
        };
        let InitialFileState::Directory { names, .. } = found else { return Ok(ListingSource::Current) };
        Ok(match (names, run, fetch) {
            (FoundNames::Listed { read: Extent::Whole, .. }, Run::First, _) => ListingSource::Current,
            (_, Run::First, _) => ListingSource::Recording(NamesBeingRecorded { now: location, original, seen: 0 }),
            (FoundNames::Listed { names, read: Extent::Whole }, Run::Replay, _) => ListingSource::Recorded(names, None),
            (_, Run::Replay, Some(fetch)) => match self.fetch(fetch, CopyDepth::Names).await? {
                Some(InitialFileState::Directory { names: FoundNames::Listed { names, .. }, .. }) => {
                    ListingSource::Recorded(names, None)
                }
                _ => self.unlisted(&original),
            },
            (FoundNames::Listed { names, read: Extent::Partly }, Run::Replay, None) => {
                ListingSource::Recorded(names, Some(original))
            }
            (FoundNames::NotListed, Run::Replay, None) => self.unlisted(&original),
        })
    }

    fn unlisted(&self, original: &TreePath) -> ListingSource {
        self.unrecorded("listing", original, "");
        ListingSource::Unrecorded
    }

    /// If a directory could not be removed or replaced because it is not empty, adds the name of one of its entries to
    /// the record, so that the replayed call fails in the same way.
    pub(crate) async fn record_not_empty(&self, targets: &[PathTarget]) -> wasmtime::Result<()> {
        let Some(PathTarget::At(location, FileKind::Directory)) = targets.last() else { return Ok(()) };
        let Some(ExistingFile { original, location, root, run: Run::First, .. }) = self.existing_file(location.clone())
        else {
            return Ok(());
        };
        let found = tokio::task::spawn_blocking(move || inspection::names(&root, &location.path, 1)).await?;
        let Ok(FoundNames::Listed { names, .. }) = found else { return Ok(()) };
        self.files.with(|watched| {
            if let (Some([]), Some((name, kind))) = (watched.names(&original).map(|known| &known[..]), names.first())
                && self.answers.has_room(name.len())
            {
                watched.name(&original, name, *kind);
                if let Some(known) = watched.names(&original) {
                    known.extend(names);
                }
            }
        });
        Ok(())
    }

    /// Records a name that the guest reads from a directory listing. Returns None if the record is full.
    pub(crate) fn record_name(
        &self,
        mut recording: NamesBeingRecorded,
        name: &str,
        kind: EntryKind,
    ) -> Option<NamesBeingRecorded> {
        let is_from_before = self.files.with(|watched| {
            let original = Origin::Before(recording.original.join(name));
            watched.overlay.origin(&recording.now.join(name)) == original
        })?;
        let kind = if is_from_before { kind } else { EntryKind::Own };
        recording.seen += 1;
        let is_known = self
            .files
            .with(|watched| watched.names(&recording.original).is_some_and(|names| names.len() >= recording.seen))?;
        if is_known {
            return Some(recording);
        }
        if !self.answers.has_room(name.len()) {
            return None;
        }
        self.files.with(|watched| {
            if let Some(names) = watched.names(&recording.original) {
                names.push((name.to_owned(), kind));
                watched.name(&recording.original, name, kind);
            }
        });
        Some(recording)
    }

    /// Records that the guest has read all names of a directory listing.
    pub(crate) fn record_all_names(&self, recording: &NamesBeingRecorded) {
        self.files.with(|watched| {
            // Calling `names` marks the directory as listed, even if it is empty.
            watched.names(&recording.original);
            if let Some(InitialFileState::Directory { names: FoundNames::Listed { read, .. }, .. }) =
                watched.known.get_mut(&recording.original)
            {
                *read = Extent::Whole;
            }
        });
    }

    /// In a replay, returns the recorded metadata of a file, unless the call has changed the file.
    pub(crate) fn recorded_stat(&self, location: &TreePath) -> Option<FileStat> {
        let stat = self.files.with(|watched| {
            watched.replay.as_ref()?;
            let Origin::Before(original) = watched.overlay.origin(location) else { return None };
            if watched.files_with_changed_times.contains(&original) {
                return None;
            }
            Some(match watched.known.get(&original)? {
                InitialFileState::File { stat, .. } | InitialFileState::Directory { stat, .. } => *stat,
                InitialFileState::Link { stat, .. } | InitialFileState::Other { stat } => *stat,
                InitialFileState::Nothing => return None,
            })
        });
        stat.flatten()
    }
}

impl super::Watched {
    /// Returns the recorded names in a directory that is being listed.
    fn names(&mut self, original: &TreePath) -> Option<&mut Vec<(String, EntryKind)>> {
        let Some(InitialFileState::Directory { names, .. }) = self.known.get_mut(original) else { return None };
        if *names == FoundNames::NotListed {
            *names = FoundNames::Listed { names: Vec::new(), read: Extent::Partly };
        }
        match names {
            FoundNames::Listed { names, .. } => Some(names),
            FoundNames::NotListed => None,
        }
    }
}
