//! What a running call does in its trees: noted where it runs for the first time, and held against what was noted then where it
//! runs again.

mod contents;
mod ending;

pub(crate) use self::ending::Ending;

use super::laid_out::{self, RecordedTrees, What};
use super::overlay::{Origin, Overlay};
use super::walk::{Kind, Last, Met, Place, Step, Walk, Way};
use super::{FoundFile, FoundNames, GivenTree, NamedKind, look};
use crate::answers::Read;
use crate::grants::{Grants, TreeGrant, file_reading_advice, quoted};
use crate::opening::SHOWN;
use crate::record::{CallRecord, lock};
use crate::text::clean;
use crate::trees::HostTree;
use cap_std::fs::Dir;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex};

/// Bytes of the longest path that the system takes; following another one would be work for nothing.
const LONGEST: usize = 4096;

/// Nothing where the call has no trees, or nothing is to be kept.
#[derive(Default)]
pub(crate) struct FileWatch(Mutex<Option<Box<Watched>>>);

struct Watched {
    trees: Vec<GivenTree>,
    /// What it is held against.
    then: Option<Arc<RecordedTrees>>,
    /// By tree; empty until the guest asks for its trees.
    roots: Vec<Arc<Dir>>,
    /// What the guest's handles stand for.
    places: HashMap<u32, Place>,
    /// What was found, by where it was before the call changed anything.
    known: BTreeMap<Place, FoundFile>,
    /// What directories have said of the names in them.
    named: HashMap<Place, NamedKind>,
    overlay: Overlay,
    /// What has times that the call gave it.
    dated: BTreeSet<Place>,
    /// Partly: nothing has room any more.
    followed: Read,
}

/// How it is known what is at a place.
enum Node {
    Known(Kind),
    /// By looking there.
    Look(Arc<Dir>, Origin),
    /// By looking in a tree of now.
    Fetch(Fetch),
    Unrecorded,
    /// It is not.
    Lost,
}

/// Something that is not recorded, and is looked for in a tree of now.
struct Fetch {
    now: Arc<HostTree>,
    root: Arc<Dir>,
    before: Place,
    place: Place,
}

/// What was opened.
pub(crate) enum Opened {
    Directory,
    /// As it was.
    File(Arc<File>),
    /// Made, or emptied.
    Emptied,
}

/// What a guest gets that reads a directory.
pub(crate) enum Listing {
    /// What is there.
    AsItIs,
    /// What is there, to be noted.
    Noted(Noting),
    /// These names of then, where they are still there, before all others. The place is that of a directory of which the call
    /// then read no more.
    Then(Vec<(String, NamedKind)>, Option<Place>),
    Unrecorded,
}

/// A directory whose names are being noted.
pub(crate) struct Noting {
    now: Place,
    before: Place,
    /// Names so far.
    seen: usize,
}

impl FileWatch {
    fn with<T>(&self, what: impl FnOnce(&mut Watched) -> T) -> Option<T> {
        lock(&self.0).as_deref_mut().map(what)
    }
}

impl CallRecord {
    /// From now on all that the call does in the granted trees is noted; or, where it was, held against it.
    pub(crate) fn watch_files(&self, granted: &Arc<Grants>, then: Option<Arc<RecordedTrees>>) {
        let (trees, known) = match &then {
            Some(then) => (then.trees.clone(), then.known.clone()),
            None if !self.answers.is_kept() => return,
            None => {
                let given = |tree: &TreeGrant| GivenTree { guest: tree.guest.clone(), access: tree.access };
                (granted.trees.iter().map(given).collect(), BTreeMap::new())
            }
        };
        let mut watched = Watched {
            trees,
            named: HashMap::new(),
            then,
            roots: Vec::new(),
            places: HashMap::new(),
            known: BTreeMap::new(),
            overlay: Overlay::default(),
            dated: BTreeSet::new(),
            followed: Read::Whole,
        };
        for (place, found) in known {
            watched.know(place, found);
        }
        *lock(&self.files.0) = Some(Box::new(watched));
    }

    /// The guest gets handles of its trees, in order.
    pub(crate) fn gave_trees(&self, given: &[(u32, Arc<File>)]) -> std::io::Result<()> {
        let watched = self.files.with(|watched| {
            for (number, (handle, file)) in given.iter().enumerate().take(watched.trees.len()) {
                if watched.roots.len() == number {
                    watched.roots.push(Arc::new(Dir::from_std_file(file.try_clone()?)));
                }
                watched.places.insert(*handle, Place { tree: number, path: String::new() });
            }
            Ok(())
        });
        watched.unwrap_or(Ok(()))
    }

    /// Where a path leads. What is on its way is noted, or was.
    pub(crate) async fn meet(&self, directory: u32, path: &str, last: Last) -> wasmtime::Result<Met> {
        let is_followed = !path.starts_with('/') && path.len() <= LONGEST;
        let Some(from) = self.place_of(directory).filter(|_| is_followed) else { return Ok(Met::Elsewhere) };
        let mut walk = Walk::new(from, path, last);
        loop {
            let place = match walk.step() {
                Step::Over(met) => return Ok(met),
                Step::Know(place) => place,
            };
            let node = self.files.with(|watched| watched.node(&place, walk.way())).unwrap_or(Node::Lost);
            let kind = match node {
                Node::Known(kind) => kind,
                Node::Look(root, origin) => match self.look(root, place, origin).await? {
                    Some(kind) => kind,
                    None => return Ok(Met::Elsewhere),
                },
                Node::Fetch(fetch) => match self.fetch(fetch, What::Entry).await? {
                    Some(found) => Kind::from(&found),
                    None => return Ok(self.unseen(&place)),
                },
                Node::Unrecorded => return Ok(self.unseen(&place)),
                Node::Lost => return Ok(Met::Elsewhere),
            };
            walk.know(kind);
        }
    }

    /// None: the system does not say.
    async fn look(&self, root: Arc<Dir>, place: Place, origin: Origin) -> wasmtime::Result<Option<Kind>> {
        let found = tokio::task::spawn_blocking(move || look::at(&root, &place.path)).await?;
        let kind = found.as_ref().map(Kind::from);
        if let (Some(found), Origin::Before(before)) = (found, origin) {
            let size = before.path.len() + if let FoundFile::Link { to, .. } = &found { to.len() } else { 0 };
            let has_room = self.answers.has_room(size);
            self.files.with(|watched| match has_room {
                true => drop(watched.known.entry(before).or_insert(found)),
                false => watched.followed = Read::Partly,
            });
        }
        Ok(kind)
    }

    fn unseen(&self, place: &Place) -> Met {
        self.unrecorded("looking at", place, "");
        Met::Unrecorded
    }

    /// Takes over what is there now. None: it cannot be read.
    async fn fetch(&self, fetch: Fetch, what: What) -> wasmtime::Result<Option<FoundFile>> {
        let Fetch { now, root, before, place } = fetch;
        let from = before.path.clone();
        let fetched = tokio::task::spawn_blocking(move || laid_out::fetch((&now, &from), (&root, &place.path), what));
        let Ok(found) = fetched.await? else { return Ok(None) };
        self.files.with(|watched| watched.know(before, found.clone()));
        Ok(Some(found))
    }

    /// The call wants something that is not recorded: it is denied, and told.
    pub(crate) fn unrecorded(&self, doing: &str, place: &Place, why: &str) {
        let Some(shown) = self.files.with(|watched| watched.shown(place)) else { return };
        self.deny(format!("{doing} {shown}{why}"), file_reading_advice(&self.plugin.name));
    }

    /// The call has made, written or removed what is there.
    pub(crate) fn changed(&self, place: &Place) {
        self.change(place, |overlay| overlay.change(place));
    }

    /// What a handle stands for is written.
    pub(crate) fn changed_open(&self, handle: u32) {
        let place = self.place_of(handle);
        // Most is written to files that are the call's own by then.
        if let Some(place) = place
            && self.files.with(|watched| watched.overlay.origin(&place) != Origin::Own) == Some(true)
        {
            self.changed(&place);
        }
    }

    /// The call has changed where these paths led.
    pub(crate) fn changed_at(&self, met: &[Met]) {
        if let [Met::At(place, _)] = met {
            self.changed(place);
        }
    }

    /// It has given something another name.
    pub(crate) fn renamed_at(&self, met: &[Met]) {
        let [Met::At(from, _), Met::At(to, _)] = met else { return };
        self.change(to, |overlay| overlay.rename(from, to));
        self.files.with(|watched| {
            let below = format!("{}/", from.path);
            for place in watched.places.values_mut().filter(|place| place.tree == from.tree) {
                if *place == *from || place.path.starts_with(&below) {
                    let path = to.path.clone() + &place.path[from.path.len()..];
                    *place = Place { tree: to.tree, path };
                }
            }
        });
    }

    /// It has given something one more name.
    pub(crate) fn linked_at(&self, met: &[Met]) {
        if let [Met::At(from, _), Met::At(to, _)] = met {
            self.change(to, |overlay| overlay.link(from, to));
        }
    }

    /// It has given something other times.
    pub(crate) fn dated_at(&self, met: &[Met]) {
        if let [Met::At(place, _)] = met {
            self.dated(place);
        }
    }

    /// Whether a directory has been listed with this name in it: libraries that read one then ask for the identity of each entry,
    /// which is no look at it.
    pub(crate) fn is_listed(&self, directory: u32, name: &str) -> bool {
        let listed = self.files.with(|watched| {
            let place = watched.places.get(&directory).filter(|_| !name.contains('/'))?.join(name);
            let Origin::Before(before) = watched.overlay.origin(&place) else { return None };
            Some(!matches!(watched.listed(&before)?, Kind::Nothing))
        });
        listed.flatten().unwrap_or(false)
    }

    /// Where two paths lead.
    pub(crate) async fn meet_both(&self, from: (u32, &str), to: (u32, &str)) -> wasmtime::Result<[Met; 2]> {
        Ok([self.meet(from.0, from.1, Last::Keep).await?, self.meet(to.0, to.1, Last::Keep).await?])
    }

    /// It has given something other times.
    pub(crate) fn dated(&self, place: &Place) {
        self.files.with(|watched| {
            if let Origin::Before(before) = watched.overlay.origin(place)
                && watched.known.contains_key(&before)
            {
                watched.dated.insert(before);
            }
        });
    }

    /// What a handle stands for.
    pub(crate) fn place_of(&self, handle: u32) -> Option<Place> {
        self.files.with(|watched| watched.places.get(&handle).cloned()).flatten()
    }

    fn change(&self, place: &Place, change: impl FnOnce(&mut Overlay)) {
        let is_first = self.files.with(|watched| watched.then.is_none());
        let has_room = is_first != Some(true) || self.answers.has_room(place.path.len());
        self.files.with(|watched| match has_room {
            true => change(&mut watched.overlay),
            false => watched.followed = Read::Partly,
        });
    }
}

impl Watched {
    /// What is found at a place holds, with the names in it.
    fn know(&mut self, before: Place, found: FoundFile) {
        if let FoundFile::Directory { names: FoundNames::Listed { names, .. }, .. } = &found {
            for (name, kind) in names {
                self.name(&before, name, *kind);
            }
        }
        self.known.insert(before, found);
    }

    fn name(&mut self, directory: &Place, name: &str, kind: NamedKind) {
        // What is the call's own was not there before.
        if kind != NamedKind::Own {
            self.named.insert(directory.join(name), kind);
        }
    }

    /// How it is known what is at a place.
    fn node(&self, place: &Place, way: Way) -> Node {
        if self.followed == Read::Partly {
            return Node::Lost;
        }
        let Some(root) = self.roots.get(place.tree).cloned() else { return Node::Lost };
        let before = match self.overlay.origin(place) {
            Origin::Before(before) => before,
            Origin::Own => return Node::Look(root, Origin::Own),
        };
        match (self.known.get(&before), &self.then) {
            (Some(found), _) => Node::Known(found.into()),
            (None, None) => Node::Look(root, Origin::Before(before)),
            (None, Some(then)) => match self.listed(&before) {
                Some(Kind::Nothing) => Node::Known(Kind::Nothing),
                Some(Kind::Directory) if way == Way::Through => Node::Known(Kind::Directory),
                _ => match then.now.get(before.tree).cloned().flatten() {
                    Some(now) => Node::Fetch(Fetch { now, root, before, place: place.clone() }),
                    None => Node::Unrecorded,
                },
            },
        }
    }

    /// What the directory says of it, where it was listed.
    fn listed(&self, before: &Place) -> Option<Kind> {
        let (directory, _) = before.parent()?;
        let Some(FoundFile::Directory { names: FoundNames::Listed { read, .. }, .. }) = self.known.get(&directory)
        else {
            return None;
        };
        match (self.named.get(before), read) {
            (Some(NamedKind::Directory), _) => Some(Kind::Directory),
            (Some(NamedKind::File), _) => Some(Kind::File),
            // Where it leads is not known.
            (Some(NamedKind::Link), _) => Some(Kind::Link(String::new())),
            (Some(NamedKind::Other | NamedKind::Own), _) => Some(Kind::Other),
            (None, Read::Whole) => Some(Kind::Nothing),
            (None, Read::Partly) => None,
        }
    }

    /// A place as the guest calls it.
    fn shown(&self, place: &Place) -> String {
        let guest = self.trees.get(place.tree).map_or("", |tree| tree.guest.as_str());
        let path = match (guest, place.path.as_str()) {
            (guest, "") => guest.to_owned(),
            ("" | ".", path) => path.to_owned(),
            (guest, path) => format!("{}/{path}", guest.trim_end_matches('/')),
        };
        quoted(&clean(&path, SHOWN))
    }
}
