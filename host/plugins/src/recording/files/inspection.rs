//! Reads the state of files in a granted tree or in the temporary folder of a replay. Files are always opened below a
//! directory that is already open, and never through a symbolic link.

use crate::recording::bytes::{Extent, RecordedBytes};
use crate::recording::file_records::{EntryKind, FileStat, FinalFileState, FoundContent, FoundNames, InitialFileState};
use agent_core::message::Digest;
use cap_std::fs::{Dir, FileType, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use cap_std::time::SystemTime;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;

/// The state of the file or directory at a path. All parents of the path must be directories. `None` means that the
/// operating system returned an error, with which the guest's own operation on the path will also fail.
pub(crate) fn state_at(root: &Dir, path: &str) -> Option<InitialFileState> {
    let metadata = if path.is_empty() { root.dir_metadata() } else { root.symlink_metadata(path) };
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(InitialFileState::Nothing),
        Err(_) => return None,
    };
    let stat = stat(&metadata);
    Some(match kind(metadata.file_type()) {
        EntryKind::File => InitialFileState::File { stat, content: FoundContent::NotOpened },
        EntryKind::Directory => InitialFileState::Directory { stat, names: FoundNames::NotListed },
        EntryKind::Link => InitialFileState::Link {
            stat,
            to: root.read_link_contents(path).ok()?.into_os_string().into_string().ok()?,
        },
        EntryKind::Other | EntryKind::Own => InitialFileState::Other { stat },
    })
}

fn stat(metadata: &Metadata) -> FileStat {
    let time = |time: io::Result<SystemTime>| {
        let since = time.ok()?.into_std().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    };
    FileStat {
        size: metadata.len(),
        links: metadata.nlink(),
        accessed: time(metadata.accessed()),
        modified: time(metadata.modified()),
        created: time(metadata.created()),
    }
}

/// The kind of a directory entry.
pub(crate) fn kind(found: FileType) -> EntryKind {
    if found.is_dir() {
        EntryKind::Directory
    } else if found.is_file() {
        EntryKind::File
    } else if found.is_symlink() {
        EntryKind::Link
    } else {
        EntryKind::Other
    }
}

/// The whole content of an open file. `None` means that the file has more than `limit` bytes.
pub(crate) fn content(file: &File, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    if file.metadata()?.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    PositionedReader { file, offset: 0 }.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Reads a file without changing the guest's read position.
struct PositionedReader<'a> {
    file: &'a File,
    offset: u64,
}

impl io::Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Opens the regular file at a path for reading. Fails without blocking if the path is not a regular file.
pub(crate) fn open(root: &Dir, path: &str) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).unwrap_or_default();
    let file = root.open_with(path, OpenOptions::new().read(true).custom_flags(flags))?.into_std();
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// The first `limit` names in a directory.
pub(crate) fn names(root: &Dir, path: &str, limit: usize) -> io::Result<FoundNames> {
    let entries = if path.is_empty() { root.entries()? } else { root.read_dir(path)? };
    let (mut names, mut read) = (Vec::new(), Extent::Whole);
    for entry in entries {
        let entry = entry?;
        if names.len() == limit {
            read = Extent::Partly;
            break;
        }
        if let Ok(name) = entry.file_name().into_string() {
            names.push((name, entry.file_type().map_or(EntryKind::Other, kind)));
        }
    }
    Ok(FoundNames::Listed { names, read })
}

/// The state of a changed path. If the path is a file of at most `bytes` bytes, its content is hashed and its size is
/// subtracted from `bytes`.
pub(crate) fn final_state_at(root: &Dir, path: &str, bytes: &mut u64) -> FinalFileState {
    match state_at(root, path) {
        Some(InitialFileState::Nothing) => FinalFileState::Nothing,
        Some(InitialFileState::File { stat, .. }) => {
            FinalFileState::File { size: stat.size, content: digest(root, path, (stat.size, bytes)) }
        }
        Some(InitialFileState::Directory { .. }) => FinalFileState::Directory,
        Some(InitialFileState::Link { to, .. }) => FinalFileState::Link { to },
        Some(InitialFileState::Other { .. }) | None => FinalFileState::Other,
    }
}

fn digest(root: &Dir, path: &str, (size, bytes): (u64, &mut u64)) -> Option<Digest> {
    *bytes = bytes.checked_sub(size)?;
    let mut file = open(root, path).ok()?.take(size);
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Some(Digest::from_sha256(hash.finalize().into()))
}

/// Converts the content of a file to its recorded form.
pub(crate) fn recorded_content(bytes: Vec<u8>) -> FoundContent {
    FoundContent::Recorded(RecordedBytes(bytes))
}
