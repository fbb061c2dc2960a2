//! The file format of compiled code, which the cache and installed code share (P9).
//!
//! A file consists of the compiled code, the record of the facts about the component, and a trailer. The compiled code
//! is at the start of the file, so that it can be mapped into memory page by page. Mapping a file is ten times faster
//! than copying it, and all processes that map the same file share the memory.

use super::atomic_write::{Mutability, write_atomically};
use crate::binary::scan::COMPILED_MAGIC;
use agent_core::message::Digest;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Maximum size of the record of the facts about a component, in bytes.
pub(super) const MAX_RECORD_BYTES: u64 = 32 * 1024 * 1024;
/// File name extension of compiled code.
const EXTENSION: &str = "cwasm";
const MAC_BYTES: usize = blake3::OUT_LEN;
const LENGTH_BYTES: usize = size_of::<u32>();

/// The trailer contains the keyed hash, the length of the record and the magic bytes.
pub(super) const TRAILER_BYTES: usize = MAC_BYTES + LENGTH_BYTES + COMPILED_MAGIC.len();

/// Number of bytes that are read and hashed at a time. A chunk of this size stays in the processor's first-level cache
/// while it is hashed.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// A folder from which the host loads compiled code. An implementation returns only code that this host compiled.
pub(crate) trait CodeStore {
    /// Returns the verified entry for this component, or None if there is no valid entry for it.
    fn get(&self, component: &Digest) -> Option<CodeEntry>;

    /// From now on, code is copied into memory and no longer mapped from its file.
    fn disable_mapping(&self);
}

/// A verified file: the facts about the component, and its compiled code.
pub(crate) struct CodeEntry {
    /// The facts about the component, as JSON.
    pub(crate) record: Vec<u8>,
    /// The compiled code, as returned by `Component::serialize`.
    pub(crate) code: CompiledCode,
    /// The open file of the entry. While the file is open, the cache does not delete the entry.
    pub(crate) file: File,
}

/// Compiled code whose keyed hash was verified.
#[derive(Debug)]
pub(crate) enum CompiledCode {
    /// The code is at the beginning of the entry's file. The content of the file never changes.
    InFile,
    /// The code was copied from the file into memory.
    Bytes(Vec<u8>),
}

/// How the code of a file gets into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The code is mapped from its file if the file cannot change, and copied in all other cases.
    Mapped,
    /// The code is copied.
    Copied,
}

/// A keyed hasher that has already hashed the engine's hash and the component's digest. The engine's hash and the
/// digest have fixed lengths, so two different pairs cannot have the same concatenation.
pub(super) fn hasher(key: &[u8; blake3::KEY_LEN], engine: &blake3::Hash, component: &Digest) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(engine.as_bytes()).update(component.as_str().as_bytes());
    hasher
}

/// Returns the name of the file with the code of a component.
pub(super) fn name(component: &Digest) -> String {
    format!("{}.{EXTENSION}", component.hex())
}

/// Returns the size in bytes of the file with this record and this code.
pub(super) fn size(record: &[u8], code: &[u8]) -> u64 {
    (code.len() + record.len() + TRAILER_BYTES) as u64
}

/// Writes a file with this record and this code.
pub(super) fn write(
    path: &Path,
    mut hasher: blake3::Hasher,
    (record, code): (&[u8], &[u8]),
    mutability: Mutability,
) -> io::Result<()> {
    let directory = path.parent().ok_or_else(|| io::Error::other("the path has no folder"))?;
    let length = u32::try_from(record.len()).map_err(io::Error::other)?.to_le_bytes();
    let mac = hasher.update(&length).update(record).update(code).finalize();
    write_atomically(directory, (path, mutability), &[code, record, mac.as_bytes(), &length, COMPILED_MAGIC])
}

/// Reads and verifies a file of at most `max_bytes` bytes: first the trailer, then the record, then the code. Returns
/// None as soon as one of the lengths in the file proves to be wrong.
pub(super) fn read(
    mut file: File,
    mut hasher: blake3::Hasher,
    max_bytes: u64,
    placement: Placement,
) -> Option<CodeEntry> {
    let length = file.metadata().ok()?.len().min(max_bytes);
    let record_end = length.checked_sub(TRAILER_BYTES as u64)?;
    file.seek(SeekFrom::Start(record_end)).ok()?;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact(&mut trailer).ok()?;
    let (mac, length) = trailer.strip_suffix(COMPILED_MAGIC)?.split_at_checked(MAC_BYTES)?;
    let stored = blake3::Hash::from_bytes(mac.try_into().ok()?);
    hasher.update(length);
    let length = u32::from_le_bytes(length.try_into().ok()?);
    let code_end = record_end.checked_sub(length.into())?;
    if u64::from(length) > MAX_RECORD_BYTES {
        return None;
    }
    file.seek(SeekFrom::Start(code_end)).ok()?;
    let mut record = vec![0; usize::try_from(length).ok()?];
    file.read_exact(&mut record).ok()?;
    hasher.update(&record);
    file.rewind().ok()?;
    let can_map = placement == Placement::Mapped && is_immutable(&file);
    let mut code = Vec::with_capacity(if can_map { 0 } else { usize::try_from(code_end).ok()? });
    let mut unread_code = (&file).take(code_end);
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        match unread_code.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&chunk[..read]);
                if !can_map {
                    code.extend_from_slice(&chunk[..read]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    // This comparison of hashes takes constant time. If the code in the file is truncated, the hash of the code
    // differs from the stored hash.
    let code = if can_map { CompiledCode::InFile } else { CompiledCode::Bytes(code) };
    (hasher.finalize() == stored).then_some(CodeEntry { record, code, file })
}

/// Whether the file cannot change while its code runs. The file must be read-only, so that no program writes to it by
/// mistake, and it must be on a local file system, so that no other machine changes it. This host only replaces files
/// with compiled code and never writes to existing files. The folder of the file belongs to the user under which the
/// host runs, or to root. A malicious program of that user could change the file, but such a program could do the same
/// harm without the file.
#[cfg(target_os = "linux")]
fn is_immutable(file: &File) -> bool {
    /// Magic numbers of statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs.
    const LOCAL_FILE_SYSTEMS: [u32; 8] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];
    let is_read_only = file.metadata().is_ok_and(|metadata| mode(&metadata) & 0o222 == 0);
    is_read_only && rustix::fs::fstatfs(file).is_ok_and(|system| LOCAL_FILE_SYSTEMS.contains(&(system.f_type as u32)))
}

/// On systems other than Linux, code is always copied into memory.
#[cfg(not(target_os = "linux"))]
fn is_immutable(_: &File) -> bool {
    false
}

#[cfg(unix)]
pub(super) fn owner(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(metadata)
}

#[cfg(unix)]
pub(super) fn mode(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

/// On systems other than Unix, the host assumes that other users cannot access the user's folders.
#[cfg(not(unix))]
pub(super) fn owner(_: &Metadata) -> u32 {
    0
}

#[cfg(not(unix))]
pub(super) fn mode(_: &Metadata) -> u32 {
    0
}
