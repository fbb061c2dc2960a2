//! Lists directories for guests in small batches, so that memory use does not depend on the size of a directory. The
//! implementation of wasmtime-wasi reads all entries of a directory into memory before it returns the first entry.

use super::{Answer, FILESYSTEM, FilesView, HasFiles};
use crate::recording::file_records::EntryKind;
use crate::recording::files::{ListingSource, NamesBeingRecorded, TreePath};
use crate::recording::guest_log::LogLevel;
use cap_std::fs::{Dir, DirEntry, FileType, ReadDir};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

/// Maximum number of entries in a batch. With batches of this size, a thousand open directories need about 16 MiB
/// of memory.
const BATCH_ENTRIES: usize = 64;

/// A directory that is being read.
struct Entries {
    /// The entries that have not been read yet. None while a batch is being read, after a read has failed, and if the
    /// listing comes from a recording.
    remaining: Option<ReadDir>,
    next: VecDeque<Answer<DirectoryEntry>>,
    /// The recording to which the names in the directory are added. `None` means that the names are not recorded.
    recording: Option<NamesBeingRecorded>,
    /// During a replay, the path of the directory if its recorded listing is incomplete. Otherwise `None`.
    incomplete: Option<TreePath>,
}

pub(super) fn add_to_linker<T: HasFiles>(linker: &mut Linker<T>) -> Result<()> {
    let mut filesystem = linker.instance(FILESYSTEM)?;
    filesystem.resource(
        "directory-entry-stream",
        ResourceType::host::<Entries>(),
        |mut store: StoreContextMut<'_, T>, number| {
            store.data_mut().capability().table.delete(Resource::<Entries>::new_own(number))?;
            Ok(())
        },
    )?;
    filesystem.func_wrap_async(
        "[method]descriptor.read-directory",
        |mut store: StoreContextMut<'_, T>, (directory,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((open(store.data_mut().capability(), &directory).await?,)) })
        },
    )?;
    filesystem.func_wrap_async(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: StoreContextMut<'_, T>, (entries,): (Resource<Entries>,)| {
            Box::new(async move { Ok((next(store.data_mut().capability(), &entries).await?,)) })
        },
    )
}

async fn open(mut files: FilesView<'_>, handle: &Resource<Descriptor>) -> Result<Answer<Resource<Entries>>> {
    if let Err(code) = files.check_readable(handle) {
        return Ok(Err(code));
    }
    let directory = match files.table.get(handle)? {
        Descriptor::Dir(directory) => Arc::clone(&directory.dir),
        Descriptor::File(_) => return Ok(Err(ErrorCode::NotDirectory)),
    };
    let listing = files.call.record.listing_source(handle.rep()).await?;
    let mut entries = Entries { remaining: None, next: VecDeque::new(), recording: None, incomplete: None };
    match listing {
        ListingSource::Current => {}
        ListingSource::Recording(recording) => entries.recording = Some(recording),
        ListingSource::Recorded(names, incomplete) => {
            entries.next = match tokio::task::spawn_blocking(move || recorded_entries(&directory, &names)).await? {
                Ok(next) => next,
                Err(error) => return Ok(Err(ErrorCode::from(&error))),
            };
            entries.incomplete = incomplete;
            return Ok(Ok(files.push(entries)?));
        }
        ListingSource::Unrecorded => return Ok(Err(ErrorCode::NotPermitted)),
    }
    match tokio::task::spawn_blocking(move || read_dir(&directory)).await? {
        Ok(remaining) => Ok(Ok(files.push(Entries { remaining: Some(remaining), ..entries })?)),
        Err(error) => Ok(Err(ErrorCode::from(&error))),
    }
}

/// The entries of a replayed listing: the recorded names that still exist, in their recorded order, followed by the
/// entries that the replayed call itself created.
fn recorded_entries(
    directory: &File,
    recorded: &[(String, EntryKind)],
) -> io::Result<VecDeque<Answer<DirectoryEntry>>> {
    let mut existing: BTreeMap<String, DirectoryEntry> = read_dir(directory)?
        .filter_map(|entry| directory_entry(entry.ok()?)?.ok())
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let recorded_entries: Vec<_> = recorded
        .iter()
        .filter_map(|(name, kind)| {
            let entry = existing.remove(name)?;
            let type_ = if *kind == EntryKind::Other { DescriptorType::Unknown } else { entry.type_ };
            Some(DirectoryEntry { type_, ..entry })
        })
        .collect();
    Ok(recorded_entries.into_iter().chain(existing.into_values()).map(Ok).collect())
}

fn read_dir(directory: &File) -> io::Result<ReadDir> {
    Dir::from_std_file(directory.try_clone()?).entries()
}

async fn next(files: FilesView<'_>, entries_of: &Resource<Entries>) -> Result<Answer<Option<DirectoryEntry>>> {
    let entries = files.table.get_mut(entries_of)?;
    if entries.next.is_empty()
        && let Some(remaining) = entries.remaining.take()
    {
        let (remaining, Batch { entries: next, unnamed }) =
            tokio::task::spawn_blocking(move || next_batch(remaining)).await?;
        (entries.remaining, entries.next) = (Some(remaining), next);
        if unnamed > 0 {
            let left_out = format!("{unnamed} names in a directory are not UTF-8 and are left out");
            files.call.record.log_message(LogLevel::Warn, "", &left_out);
        }
    }
    let entries = files.table.get_mut(entries_of)?;
    let next = entries.next.pop_front().transpose();
    match (&next, entries.recording.take()) {
        (Ok(Some(entry)), Some(recording)) => {
            let kind = kind_of(entry.type_);
            entries.recording = files.call.record.record_name(recording, &entry.name, kind);
        }
        (Ok(None), Some(recording)) => files.call.record.record_all_names(&recording),
        _ => {}
    }
    if let (Ok(None), Some(location)) = (&next, &entries.incomplete) {
        files.call.record.unrecorded("listing all of", location, "");
        return Ok(Err(ErrorCode::NotPermitted));
    }
    Ok(next)
}

fn kind_of(found: DescriptorType) -> EntryKind {
    match found {
        DescriptorType::RegularFile => EntryKind::File,
        DescriptorType::Directory => EntryKind::Directory,
        DescriptorType::SymbolicLink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

/// Directory entries that were read from the file system together.
#[derive(Default)]
struct Batch {
    /// The directory entries that were read for this batch. The batch is empty only at the end of the directory.
    entries: VecDeque<Answer<DirectoryEntry>>,
    /// Number of entries whose names are not UTF-8. WASI cannot represent names that are not UTF-8. Entries with such
    /// names are left out, because guest libraries stop listing a directory at the first error.
    unnamed: usize,
}

/// Reads up to `BATCH_ENTRIES` directory entries. This function blocks the current thread.
fn next_batch(mut remaining: ReadDir) -> (ReadDir, Batch) {
    let mut read = Batch::default();
    for entry in remaining.by_ref() {
        match entry.map_or_else(|error| Some(Err((&error).into())), directory_entry) {
            Some(answer) => read.entries.push_back(answer),
            None => read.unnamed += 1,
        }
        if read.entries.len() == BATCH_ENTRIES {
            break;
        }
    }
    (remaining, read)
}

/// Converts a directory entry of the operating system to a directory entry of WASI. Returns None if the name of the
/// entry is not UTF-8.
fn directory_entry(entry: DirEntry) -> Option<Answer<DirectoryEntry>> {
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

    // Row 33: every entry of the directory is in one of the batches.
    #[test]
    fn row_33_large_directory_is_read_in_batches() {
        let folder = tempfile::tempdir().expect("a folder");
        let names: BTreeSet<_> = (0..10 * BATCH_ENTRIES + 1).map(|number| format!("name-{number}")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        std::fs::create_dir(folder.path().join("below")).expect("a folder");
        let mut remaining =
            read_dir(&File::open(folder.path()).expect("the folder opens")).expect("the folder is read");
        let mut found = Vec::new();
        loop {
            let (later, Batch { entries: next, unnamed: 0 }) = next_batch(remaining) else {
                panic!("all names are text")
            };
            assert!(next.len() <= BATCH_ENTRIES, "{}", next.len());
            if next.is_empty() {
                break;
            }
            (remaining, found) =
                (later, [found, next.into_iter().map(|entry| entry.expect("an entry")).collect()].concat());
        }
        let folders = found.iter().filter(|entry| entry.type_ == DescriptorType::Directory).count();
        assert_eq!((folders, found.len()), (1, names.len() + 1));
        assert!(names.iter().all(|name| found.iter().any(|entry| entry.name == *name)));
    }
}
