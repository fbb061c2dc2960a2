//! Directories as guests read them: entry after entry, a few of them held at a time, however many there are. WASI's own
//! implementation reads all of them first.

use crate::bindings::wasi::logging::logging::Level;
use crate::files::{Listing, NamedKind, Noting, Place};
use crate::opening::{Answer, FILESYSTEM};
use crate::state::CallState;
use cap_std::fs::{Dir, DirEntry, FileType, ReadDir};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

/// Entries that are read at once: a thousand open directories hold some 16 MiB.
const AT_ONCE: usize = 64;

type Store<'a> = StoreContextMut<'a, CallState>;

/// A directory that is being read.
struct Entries {
    /// Those that come next. None while others are read, or once a reading was given up.
    rest: Option<ReadDir>,
    next: VecDeque<Answer<DirectoryEntry>>,
    /// They are noted.
    noting: Option<Noting>,
    /// A directory of then, of which no more is recorded.
    partly: Option<Place>,
}

/// Puts them in the place of WASI's own.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.resource(
        "directory-entry-stream",
        ResourceType::host::<Entries>(),
        |mut store: Store<'_>, number| {
            store.data_mut().table.delete(Resource::<Entries>::new_own(number))?;
            Ok(())
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.read-directory",
        |mut store: Store<'_>, (directory,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((open(store.data_mut(), &directory).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: Store<'_>, (entries,): (Resource<Entries>,)| {
            Box::new(async move { Ok((next(store.data_mut(), &entries).await?,)) })
        },
    )
}

async fn open(state: &mut CallState, handle: &Resource<Descriptor>) -> Result<Answer<Resource<Entries>>> {
    if let Err(code) = state.readable(handle) {
        return Ok(Err(code));
    }
    let directory = match state.table.get(handle)? {
        Descriptor::Dir(directory) => Arc::clone(&directory.dir),
        Descriptor::File(_) => return Ok(Err(ErrorCode::NotDirectory)),
    };
    let listing = state.record.list(handle.rep()).await?;
    let mut entries = Entries { rest: None, next: VecDeque::new(), noting: None, partly: None };
    match listing {
        Listing::AsItIs => {}
        Listing::Noted(noting) => entries.noting = Some(noting),
        Listing::Then(names, partly) => {
            entries.next = match tokio::task::spawn_blocking(move || as_then(&directory, &names)).await? {
                Ok(next) => next,
                Err(error) => return Ok(Err(ErrorCode::from(&error))),
            };
            entries.partly = partly;
            return Ok(Ok(state.push(entries)?));
        }
        Listing::Unrecorded => return Ok(Err(ErrorCode::NotPermitted)),
    }
    match tokio::task::spawn_blocking(move || begun(&directory)).await? {
        Ok(rest) => Ok(Ok(state.push(Entries { rest: Some(rest), ..entries })?)),
        Err(error) => Ok(Err(ErrorCode::from(&error))),
    }
}

/// The names of then in their order, as far as they are still there, and then what the call has put beside them.
fn as_then(directory: &File, then: &[(String, NamedKind)]) -> io::Result<VecDeque<Answer<DirectoryEntry>>> {
    let mut here: BTreeMap<String, DirectoryEntry> = begun(directory)?
        .filter_map(|entry| named(entry.ok()?)?.ok())
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let before: Vec<_> = then
        .iter()
        .filter_map(|(name, kind)| {
            let entry = here.remove(name)?;
            let type_ = if *kind == NamedKind::Other { DescriptorType::Unknown } else { entry.type_ };
            Some(DirectoryEntry { type_, ..entry })
        })
        .collect();
    Ok(before.into_iter().chain(here.into_values()).map(Ok).collect())
}

fn begun(directory: &File) -> io::Result<ReadDir> {
    Dir::from_std_file(directory.try_clone()?).entries()
}

async fn next(state: &mut CallState, entries_of: &Resource<Entries>) -> Result<Answer<Option<DirectoryEntry>>> {
    let entries = state.table.get_mut(entries_of)?;
    if entries.next.is_empty()
        && let Some(rest) = entries.rest.take()
    {
        let (rest, Batch { entries: next, unnamed }) = tokio::task::spawn_blocking(move || some(rest)).await?;
        (entries.rest, entries.next) = (Some(rest), next);
        if unnamed > 0 {
            let left_out = format!("{unnamed} of a directory's names are not UTF-8: they are left out");
            state.record.log_message(Level::Warn, "", &left_out);
        }
    }
    let entries = state.table.get_mut(entries_of)?;
    let next = entries.next.pop_front().transpose();
    match (&next, entries.noting.take()) {
        (Ok(Some(entry)), Some(noting)) => {
            let kind = kind_of(entry.type_);
            entries.noting = state.record.named(noting, &entry.name, kind);
        }
        (Ok(None), Some(noting)) => state.record.named_all(&noting),
        _ => {}
    }
    if let (Ok(None), Some(place)) = (&next, &entries.partly) {
        state.record.unrecorded("listing all of", place, "");
        return Ok(Err(ErrorCode::NotPermitted));
    }
    Ok(next)
}

fn kind_of(found: DescriptorType) -> NamedKind {
    match found {
        DescriptorType::RegularFile => NamedKind::File,
        DescriptorType::Directory => NamedKind::Directory,
        DescriptorType::SymbolicLink => NamedKind::Link,
        _ => NamedKind::Other,
    }
}

/// What was read of a directory.
#[derive(Default)]
struct Batch {
    /// None only at the end.
    entries: VecDeque<Answer<DirectoryEntry>>,
    /// Entries that WASI cannot speak of, whose names are text there: a guest's own library would stop at the first.
    unnamed: usize,
}

/// The next ones.
fn some(mut rest: ReadDir) -> (ReadDir, Batch) {
    let mut read = Batch::default();
    for entry in rest.by_ref() {
        match entry.map_or_else(|error| Some(Err((&error).into())), named) {
            Some(answer) => read.entries.push_back(answer),
            None => read.unnamed += 1,
        }
        if read.entries.len() == AT_ONCE {
            break;
        }
    }
    (rest, read)
}

/// None where its name is no text.
fn named(entry: DirEntry) -> Option<Answer<DirectoryEntry>> {
    let type_ = entry.file_type().map_or(DescriptorType::Unknown, type_of);
    let name = entry.file_name().into_string().ok()?;
    Some(Ok(DirectoryEntry { type_, name }))
}

fn type_of(found: FileType) -> DescriptorType {
    if found.is_dir() {
        DescriptorType::Directory
    } else if found.is_file() {
        DescriptorType::RegularFile
    } else if found.is_symlink() {
        DescriptorType::SymbolicLink
    } else {
        DescriptorType::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // Row 33: however many there are, a few are held at a time, and none is missed.
    #[test]
    fn a_few_entries_are_held_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let names: BTreeSet<_> = (0..10 * AT_ONCE + 1).map(|number| format!("name-{number}")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        std::fs::create_dir(folder.path().join("below")).expect("a folder");
        let mut rest = begun(&File::open(folder.path()).expect("it opens")).expect("it is read");
        let mut found = Vec::new();
        loop {
            let (later, Batch { entries: next, unnamed: 0 }) = some(rest) else { panic!("all names are text") };
            assert!(next.len() <= AT_ONCE, "{}", next.len());
            if next.is_empty() {
                break;
            }
            (rest, found) = (later, [found, next.into_iter().map(|entry| entry.expect("an entry")).collect()].concat());
        }
        let folders = found.iter().filter(|entry| entry.type_ == DescriptorType::Directory).count();
        assert_eq!((folders, found.len()), (1, names.len() + 1));
        assert!(names.iter().all(|name| found.iter().any(|entry| entry.name == *name)));
    }
}
