//! What is in the files that a call opens, and in the directories that it lists.

use super::{CallRecord, Fetch, Listing, Noting, Opened};
use crate::answers::Read;
use crate::files::laid_out::What;
use crate::files::overlay::Origin;
use crate::files::walk::{Kind, Last, Met, Place};
use crate::files::{FileStat, FoundContent, FoundFile, FoundNames, NamedKind, look};
use agent_core::redaction::Edges;
use cap_std::fs::Dir;
use std::fs::File;
use std::sync::Arc;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

/// Something that was there before, for whom it matters what is in it.
struct Inside {
    fetch: Option<Fetch>,
    before: Place,
    place: Place,
    root: Arc<Dir>,
    found: FoundFile,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    First,
    Again,
}

impl CallRecord {
    /// Something was opened; what is in it may still be unknown.
    pub(crate) async fn opened(
        &self,
        handle: u32,
        met: Met,
        opened: Opened,
    ) -> wasmtime::Result<Result<(), ErrorCode>> {
        let Met::At(place, _) = met else {
            self.files.with(|watched| watched.places.remove(&handle));
            return Ok(Ok(()));
        };
        self.files.with(|watched| watched.places.insert(handle, place.clone()));
        match opened {
            Opened::Directory => Ok(Ok(())),
            Opened::Emptied => {
                self.changed(&place);
                Ok(Ok(()))
            }
            Opened::File(file) => match self.inside(place) {
                Some(inside) => self.read(inside, file).await,
                None => Ok(Ok(())),
            },
        }
    }

    /// None: it is the call's own.
    fn inside(&self, place: Place) -> Option<Inside> {
        let inside = self.files.with(|watched| {
            let Origin::Before(before) = watched.overlay.origin(&place) else { return None };
            let root = watched.roots.get(place.tree)?.clone();
            let found = match watched.known.get(&before)? {
                // Its bytes are of no interest here.
                FoundFile::File { stat, content: FoundContent::Kept(_) } => {
                    FoundFile::File { stat: *stat, content: look::kept(Vec::new()) }
                }
                found => found.clone(),
            };
            let now = watched.then.as_ref().and_then(|then| then.now.get(before.tree)?.clone());
            let run = if watched.then.is_some() { Run::Again } else { Run::First };
            let of = |now| Fetch { now, root: root.clone(), before: before.clone(), place: place.clone() };
            Some(Inside { fetch: now.map(of), before, place, root, found, run })
        });
        inside.flatten()
    }

    /// The guest may read a file from now on.
    async fn read(&self, inside: Inside, file: Arc<File>) -> wasmtime::Result<Result<(), ErrorCode>> {
        let FoundFile::File { content, .. } = &inside.found else { return Ok(Ok(())) };
        match (content, inside.run) {
            (FoundContent::Kept(_), _) => {}
            (FoundContent::NotOpened, Run::First) => self.note_content(inside, file).await?,
            (_, Run::First) => {}
            (FoundContent::Refused, Run::Again) => return Ok(Err(ErrorCode::Access)),
            (_, Run::Again) => {
                let why = match content {
                    FoundContent::Secret => ", which held a secret of the plugin",
                    FoundContent::TooLarge => ", whose content was more than is recorded (`recorded_kib`)",
                    _ => "",
                };
                let fetched = match inside.fetch {
                    Some(fetch) => self.fetch(fetch, What::Content).await?,
                    None => None,
                };
                if fetched.is_none() {
                    self.unrecorded("reading", &inside.before, why);
                    return Ok(Err(ErrorCode::NotPermitted));
                }
            }
        }
        Ok(Ok(()))
    }

    async fn note_content(&self, inside: Inside, file: Arc<File>) -> wasmtime::Result<()> {
        let Inside { before, place, root, .. } = inside;
        let room = self.answers.room();
        let read = move || match look::content(&file, room) {
            // It was opened for writing alone.
            Err(_) => look::content(&look::open(&root, &place.path)?, room),
            read => read,
        };
        let content = match tokio::task::spawn_blocking(read).await? {
            Ok(Some(bytes)) if self.holds_secret(&bytes) => FoundContent::Secret,
            Ok(Some(bytes)) if self.answers.has_room(bytes.len()) => look::kept(bytes),
            Ok(Some(_)) => FoundContent::TooLarge,
            Ok(None) => {
                self.answers.leave_out();
                FoundContent::TooLarge
            }
            Err(_) => return Ok(()),
        };
        self.set_content(&before, content);
        Ok(())
    }

    fn holds_secret(&self, bytes: &[u8]) -> bool {
        self.secrets.redaction().bytes(bytes, Edges::Whole).is_some()
    }

    /// The system did not let something be opened.
    pub(crate) fn refused_opening(&self, met: Met) {
        let Met::At(place, Kind::File) = met else { return };
        if let Some(Inside { before, run: Run::First, .. }) = self.inside(place) {
            self.set_content(&before, FoundContent::Refused);
        }
    }

    fn set_content(&self, before: &Place, now: FoundContent) {
        self.files.with(|watched| {
            if let Some(FoundFile::File { content, .. }) = watched.known.get_mut(before) {
                *content = now;
            }
        });
    }

    /// What a guest gets that reads this directory.
    pub(crate) async fn list(&self, handle: u32) -> wasmtime::Result<Listing> {
        let place = match self.meet(handle, "", Last::Keep).await? {
            Met::Unrecorded => return Ok(Listing::Unrecorded),
            Met::Elsewhere => return Ok(Listing::AsItIs),
            Met::At(place, _) => place,
        };
        let Some(Inside { fetch, before, place, found, run, .. }) = self.inside(place) else {
            return Ok(Listing::AsItIs);
        };
        let FoundFile::Directory { names, .. } = found else { return Ok(Listing::AsItIs) };
        Ok(match (names, run, fetch) {
            (FoundNames::Listed { read: Read::Whole, .. }, Run::First, _) => Listing::AsItIs,
            (_, Run::First, _) => Listing::Noted(Noting { now: place, before, seen: 0 }),
            (FoundNames::Listed { names, read: Read::Whole }, Run::Again, _) => Listing::Then(names, None),
            (_, Run::Again, Some(fetch)) => match self.fetch(fetch, What::Names).await? {
                Some(FoundFile::Directory { names: FoundNames::Listed { names, .. }, .. }) => {
                    Listing::Then(names, None)
                }
                _ => self.unlisted(&before),
            },
            (FoundNames::Listed { names, read: Read::Partly }, Run::Again, None) => Listing::Then(names, Some(before)),
            (FoundNames::NotListed, Run::Again, None) => self.unlisted(&before),
        })
    }

    fn unlisted(&self, before: &Place) -> Listing {
        self.unrecorded("listing", before, "");
        Listing::Unrecorded
    }

    /// A directory was not removed or replaced, since there is something in it: one name says so again.
    pub(crate) async fn was_not_empty(&self, met: &[Met]) -> wasmtime::Result<()> {
        let Some(Met::At(place, Kind::Directory)) = met.last() else { return Ok(()) };
        let Some(Inside { before, place, root, run: Run::First, .. }) = self.inside(place.clone()) else {
            return Ok(());
        };
        let found = tokio::task::spawn_blocking(move || look::names(&root, &place.path, 1)).await?;
        let Ok(FoundNames::Listed { names, .. }) = found else { return Ok(()) };
        self.files.with(|watched| {
            if let (Some([]), Some((name, kind))) = (watched.names(&before).map(|known| &known[..]), names.first())
                && self.answers.has_room(name.len())
            {
                watched.name(&before, name, *kind);
                if let Some(known) = watched.names(&before) {
                    known.extend(names);
                }
            }
        });
        Ok(())
    }

    /// The guest gets a name. None: it is noted no longer.
    pub(crate) fn named(&self, mut noting: Noting, name: &str, kind: NamedKind) -> Option<Noting> {
        let is_from_before = self.files.with(|watched| {
            let before = Origin::Before(noting.before.join(name));
            watched.overlay.origin(&noting.now.join(name)) == before
        })?;
        let kind = if is_from_before { kind } else { NamedKind::Own };
        noting.seen += 1;
        let is_known =
            self.files.with(|watched| watched.names(&noting.before).is_some_and(|names| names.len() >= noting.seen))?;
        if is_known {
            return Some(noting);
        }
        if !self.answers.has_room(name.len()) {
            return None;
        }
        self.files.with(|watched| {
            if let Some(names) = watched.names(&noting.before) {
                names.push((name.to_owned(), kind));
                watched.name(&noting.before, name, kind);
            }
        });
        Some(noting)
    }

    /// The guest has got all names.
    pub(crate) fn named_all(&self, noting: &Noting) {
        self.files.with(|watched| {
            // A directory without any is a listed one, too.
            watched.names(&noting.before);
            if let Some(FoundFile::Directory { names: FoundNames::Listed { read, .. }, .. }) =
                watched.known.get_mut(&noting.before)
            {
                *read = Read::Whole;
            }
        });
    }

    /// In a call that runs again, what the system said then of something that the call has not changed.
    pub(crate) fn stat_then(&self, place: &Place) -> Option<FileStat> {
        let stat = self.files.with(|watched| {
            watched.then.as_ref()?;
            let Origin::Before(before) = watched.overlay.origin(place) else { return None };
            if watched.dated.contains(&before) {
                return None;
            }
            Some(match watched.known.get(&before)? {
                FoundFile::File { stat, .. } | FoundFile::Directory { stat, .. } => *stat,
                FoundFile::Link { stat, .. } | FoundFile::Other { stat } => *stat,
                FoundFile::Nothing => return None,
            })
        });
        stat.flatten()
    }
}

impl super::Watched {
    /// The names of a directory that is being listed.
    fn names(&mut self, before: &Place) -> Option<&mut Vec<(String, NamedKind)>> {
        let Some(FoundFile::Directory { names, .. }) = self.known.get_mut(before) else { return None };
        if *names == FoundNames::NotListed {
            *names = FoundNames::Listed { names: Vec::new(), read: Read::Partly };
        }
        match names {
            FoundNames::Listed { names, .. } => Some(names),
            FoundNames::NotListed => None,
        }
    }
}
