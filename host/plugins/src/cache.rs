//! Compiled code on disk (P9). Loading compiled code means running it, so a file counts only if this host wrote it for
//! exactly this component and engine: its keyed hash says so. Anything else is ignored and rebuilt.
//!
//! All files together have a limit: what was used least recently is deleted first, and nothing that a process has in use, which
//! holds a shared lock on the file.
//!
//! A file is the code, the record of what was learned about the component, and a trailer. The code stands at the beginning, so
//! that it can be mapped, a page when it is needed: that is a tenth of the time of copying it, and processes share it.

use crate::store::{Later, make_private_directory, write_atomically};
use agent_core::message::Digest;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Last bytes of a cache file.
pub(crate) const MAGIC: &[u8] = b"agent-host compiled 2\n";
/// Largest record of what was learned about a component.
const MOST_RECORD: u64 = 32 * 1024 * 1024;
/// The ending of the files' names.
const EXTENSION: &str = "cwasm";
const KEY_BYTES: usize = blake3::KEY_LEN;
const MAC_BYTES: usize = blake3::OUT_LEN;
const LENGTH_BYTES: usize = size_of::<u32>();

/// What is read at once: it stays in the processor's nearest memory while it is hashed.
const CHUNK_BYTES: usize = 64 * 1024;

/// A directory of compiled components for one engine.
pub(crate) struct CompiledCache {
    directory: PathBuf,
    engine: blake3::Hash,
    key: [u8; KEY_BYTES],
    /// Bytes of all files together.
    most: u64,
    /// Of all engines' folders.
    root: PathBuf,
    /// Files cannot be run where they are.
    copies: AtomicBool,
}

/// A verified cache file: what was learned about the component, and its compiled code.
pub(crate) struct CacheEntry {
    /// The record's JSON.
    pub(crate) record: Vec<u8>,
    /// The compiled code, as `Component::serialize` gave it.
    pub(crate) code: CompiledCode,
    /// Its file. As long as it is open, the entry is not deleted to make room.
    pub(crate) file: File,
}

/// Verified code.
#[derive(Debug)]
pub(crate) enum CompiledCode {
    /// At the beginning of the entry's file, which nobody changes as long as it is there.
    InFile,
    /// In memory.
    Bytes(Vec<u8>),
}

/// Keyed hash, length of the record, magic.
const TRAILER_BYTES: usize = MAC_BYTES + LENGTH_BYTES + MAGIC.len();

impl CompiledCache {
    /// The cache in `directory` for this engine. The key is made if need be; two processes that make it at once get the
    /// same one. None: the folder is another user's.
    pub(crate) fn open(directory: &Path, engine: blake3::Hash, most: u64) -> io::Result<Option<Self>> {
        make_private_directory(directory)?;
        // What was just made belongs to the user for whom this process acts.
        let user = owner(&tempfile::tempfile_in(directory)?.metadata()?);
        let metadata = directory.metadata()?;
        if owner(&metadata) != user {
            let cache = directory.display();
            tracing::warn!(%cache, "the folder for compiled code belongs to another user; nothing is kept in it");
            return Ok(None);
        }
        let past = if mode(&metadata) & 0o022 == 0 { Past::Private } else { Past::Open };
        if past == Past::Open {
            make_private(directory)?;
        }
        let key = open_key(directory, user, past)?;
        let root = directory.to_owned();
        let directory = directory.join(engine.to_hex().as_str());
        Ok(Some(Self { directory, engine, key, most, root, copies: AtomicBool::new(false) }))
    }

    /// The verified entry for this component, if there is one.
    pub(crate) fn get(&self, component: &Digest) -> Option<CacheEntry> {
        let path = self.path(component);
        let metadata = std::fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > self.most {
            return None;
        }
        let file = File::open(&path).ok()?;
        // Where files cannot be locked, an entry in use may be deleted; what is mapped stays usable.
        let _ = file.try_lock_shared();
        let _ = file.set_modified(SystemTime::now());
        let entry = self.read(component, file);
        if entry.is_none() {
            tracing::warn!(file = %path.display(), "compiled code in the cache does not verify; it is built again");
        }
        entry
    }

    /// From now on code is copied: it cannot be run where it is.
    pub(crate) fn copy(&self) {
        self.copies.store(true, Ordering::Relaxed);
    }

    /// Keeps compiled code; the file keeps it from being deleted to make room. None: it is larger than all there may be. Failing
    /// costs only time at the next start.
    pub(crate) fn put(&self, component: &Digest, record: &[u8], code: &[u8]) -> io::Result<Option<File>> {
        let size = (code.len() + record.len() + TRAILER_BYTES) as u64;
        if record.len() as u64 > MOST_RECORD || !self.make_room(component, size)? {
            tracing::warn!(%component, size, "compiled code is not kept: there is no room for it (`cache_mib` under [host.limits])");
            return Ok(None);
        }
        let length = u32::try_from(record.len()).map_err(io::Error::other)?.to_le_bytes();
        let mac = self.mac(component, &[&length, record, code]);
        let parts = [code, record, mac.as_bytes(), &length, MAGIC];
        let path = self.path(component);
        write_atomically(&self.directory, (&path, Later::Never), &parts)?;
        let file = File::open(path)?;
        let _ = file.try_lock_shared();
        Ok(Some(file))
    }

    /// Deletes what was used least recently until so many more bytes have room, whichever engine it is for. What is in use stays:
    /// without enough to delete, there is no room.
    fn make_room(&self, component: &Digest, size: u64) -> io::Result<bool> {
        let replaced = self.path(component);
        let mut files = self.files()?;
        files.retain(|file| file.path != replaced);
        let mut total: u64 = files.iter().map(|file| file.size).sum();
        let wanted = self.most.saturating_sub(size);
        files.sort_by_key(|file| file.used);
        for file in files {
            if size > self.most || total <= wanted {
                break;
            }
            if delete_unused(&file.path) {
                total -= file.size;
            }
        }
        Ok(size <= self.most && total <= wanted)
    }

    /// Every file of compiled code, also those of other engines and what an interrupted writer has left.
    fn files(&self) -> io::Result<Vec<CachedFile>> {
        let mut found = Vec::new();
        for folder in std::fs::read_dir(&self.root)?.flatten() {
            let is_engines = folder.file_name().to_str().is_some_and(|name| blake3::Hash::from_hex(name).is_ok());
            if !is_engines || !folder.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for entry in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if let Ok(metadata) = entry.metadata()
                    && metadata.is_file()
                {
                    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push(CachedFile { path: entry.path(), size: metadata.len(), used });
                }
            }
        }
        Ok(found)
    }

    /// Hashes the file from its end to its begin, as far as it is needed to know what it is.
    fn read(&self, component: &Digest, mut file: File) -> Option<CacheEntry> {
        let length = file.metadata().ok()?.len().min(self.most);
        let record_end = length.checked_sub(TRAILER_BYTES as u64)?;
        file.seek(SeekFrom::Start(record_end)).ok()?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact(&mut trailer).ok()?;
        let (mac, length) = trailer.strip_suffix(MAGIC)?.split_at_checked(MAC_BYTES)?;
        let stored = blake3::Hash::from_bytes(mac.try_into().ok()?);
        let mut hasher = self.hasher(component);
        hasher.update(length);
        let length = u32::from_le_bytes(length.try_into().ok()?);
        let code_end = record_end.checked_sub(length.into())?;
        if u64::from(length) > MOST_RECORD {
            return None;
        }
        file.seek(SeekFrom::Start(code_end)).ok()?;
        let mut record = vec![0; usize::try_from(length).ok()?];
        file.read_exact(&mut record).ok()?;
        hasher.update(&record);
        file.rewind().ok()?;
        let stays = !self.copies.load(Ordering::Relaxed) && stays(&file);
        let mut code = Vec::with_capacity(if stays { 0 } else { usize::try_from(code_end).ok()? });
        let mut rest = (&file).take(code_end);
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            match rest.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&chunk[..read]);
                    if !stays {
                        code.extend_from_slice(&chunk[..read]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        // The comparison takes constant time. Code that was cut leaves a hash that is another.
        let code = if stays { CompiledCode::InFile } else { CompiledCode::Bytes(code) };
        (hasher.finalize() == stored).then_some(CacheEntry { record, code, file })
    }

    fn mac(&self, component: &Digest, payload: &[&[u8]]) -> blake3::Hash {
        let mut hasher = self.hasher(component);
        for part in payload {
            hasher.update(part);
        }
        hasher.finalize()
    }

    /// Both are of fixed length, so the parts cannot be mistaken for one another.
    fn hasher(&self, component: &Digest) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(self.engine.as_bytes()).update(component.as_str().as_bytes());
        hasher
    }

    /// The file that is locked while a component is compiled for this cache.
    pub(crate) fn claim_path(&self, component: &Digest) -> PathBuf {
        self.directory.join(format!("{}.lock", component.hex()))
    }

    fn path(&self, component: &Digest) -> PathBuf {
        self.directory.join(format!("{}.{EXTENSION}", component.hex()))
    }
}

/// A file in the cache, and when it was used last.
struct CachedFile {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

/// Deletes a file that nobody has in use; says whether it is gone.
fn delete_unused(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // Whoever has it in use holds a shared lock, which the system takes back when that process ends.
    matches!(file.try_lock(), Ok(())) && std::fs::remove_file(path).is_ok()
}

/// Who could write to the folder until now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    /// Its owner only.
    Private,
    /// Others, too.
    Open,
}

/// Whether a file stays as it is while its code runs: nobody writes to it by mistake, as it is for reading only and this host
/// replaces its files whole, and no other machine does. The folder is the user's own; who acts for him needs no file for harm.
#[cfg(target_os = "linux")]
fn stays(file: &File) -> bool {
    /// Magic numbers of statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs.
    const LOCAL: [u32; 8] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];
    let is_for_reading = file.metadata().is_ok_and(|metadata| mode(&metadata) & 0o222 == 0);
    is_for_reading && rustix::fs::fstatfs(file).is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)))
}

/// Elsewhere it is copied.
#[cfg(not(target_os = "linux"))]
fn stays(_: &File) -> bool {
    false
}

fn open_key(directory: &Path, user: u32, past: Past) -> io::Result<[u8; KEY_BYTES]> {
    let path = directory.join("key");
    // Looked at first: a key that appears from here on is one that another process has just made.
    let there = path.symlink_metadata().is_ok();
    if past == Past::Private
        && let Some(key) = read_key(&path, user)
    {
        return Ok(key);
    }
    // A key that others made or can read, or of another length, is no secret: what it signed is not trusted any more.
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    io::Write::write_all(&mut file, &key)?;
    file.as_file().sync_all()?;
    if there {
        file.persist(&path).map_err(|error| error.error)?;
        return Ok(key);
    }
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(key),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(&path, user).ok_or_else(|| io::Error::other(format!("{} is not a key", path.display())))
        }
        Err(error) => Err(error.error),
    }
}

fn read_key(path: &Path, user: u32) -> Option<[u8; KEY_BYTES]> {
    let metadata = path.symlink_metadata().ok()?;
    if owner(&metadata) != user || mode(&metadata) & 0o077 != 0 {
        return None;
    }
    if !metadata.is_file() || metadata.len() != KEY_BYTES as u64 {
        return None;
    }
    std::fs::read(path).ok()?.try_into().ok()
}

#[cfg(unix)]
fn owner(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(metadata)
}

#[cfg(unix)]
fn mode(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

#[cfg(unix)]
fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

/// Elsewhere the user's own folders are not open to others.
#[cfg(not(unix))]
fn owner(_: &Metadata) -> u32 {
    0
}

#[cfg(not(unix))]
fn mode(_: &Metadata) -> u32 {
    0
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::digest_of;
    use std::io::Write;

    fn engine(name: &str) -> blake3::Hash {
        blake3::hash(name.as_bytes())
    }

    fn open(directory: &tempfile::TempDir, name: &str) -> CompiledCache {
        bounded(directory, name, 1 << 30)
    }

    fn bounded(directory: &tempfile::TempDir, name: &str, most: u64) -> CompiledCache {
        CompiledCache::open(directory.path(), engine(name), most).expect("opened").expect("a cache")
    }

    fn holding(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    fn code_of(entry: CacheEntry) -> Vec<u8> {
        let CacheEntry { code, mut file, .. } = entry;
        match code {
            CompiledCode::Bytes(bytes) => bytes,
            CompiledCode::InFile => {
                let mut bytes = Vec::new();
                file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("read");
                let record = b"record".len();
                bytes.truncate(bytes.len() - TRAILER_BYTES - record);
                bytes
            }
        }
    }

    // P9: compiled code counts only for this component, this engine and this host's key.
    #[test]
    fn only_what_this_host_wrote_for_this_component_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(&directory, "a");
        let component = digest_of(b"one");
        cache.put(&component, b"record", b"code").expect("stored");
        let entry = cache.get(&component).expect("verified");
        assert_eq!((entry.record.clone(), code_of(entry)), (b"record".to_vec(), b"code".to_vec()));

        let file = std::fs::read(cache.path(&component)).expect("the file");
        for index in 0..file.len() {
            let mut flipped = file.clone();
            flipped[index] ^= 1;
            assert!(cache.read(&component, holding(&flipped)).is_none(), "byte {index}");
            assert!(cache.read(&component, holding(&file[..index])).is_none(), "cut at {index}");
            assert!(cache.read(&component, holding(&file[index + 1..])).is_none(), "cut before {index}");
        }
        assert!(cache.read(&component, holding(&file)).is_some(), "as it is");
        assert!(cache.read(&digest_of(b"two"), holding(&file)).is_none(), "another component's code");
        let other_engine = open(&directory, "b");
        assert!(other_engine.read(&component, holding(&file)).is_none(), "another engine's code");
        let other = tempfile::tempdir().expect("a directory");
        let foreign = open(&other, "a");
        assert!(foreign.read(&component, holding(&file)).is_none(), "another host's code");
    }

    // P9: code of more than one chunk comes back whole.
    #[test]
    fn long_code_comes_back_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(&directory, "a");
        let code: Vec<u8> = (0..3 * CHUNK_BYTES + 7).map(|index| (index % 251) as u8).collect();
        cache.put(&digest_of(b"long"), b"record", &code).expect("stored");
        let entry = cache.get(&digest_of(b"long")).expect("verified");
        assert!(matches!(entry.code, CompiledCode::InFile) == cfg!(target_os = "linux"), "it need not be copied");
        assert!(code_of(entry)[..code.len()] == code);
    }

    // Row 37: all that is kept has a limit; what was used least recently goes first, and nothing that is in use.
    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let size = (100 + b"record".len() + TRAILER_BYTES) as u64;
        let cache = bounded(&directory, "a", 3 * size);
        let older = bounded(&directory, "b", 3 * size);
        let digests: Vec<_> = (0..6_u8).map(|number| digest_of(&[number])).collect();
        let put =
            |cache: &CompiledCache, number: usize| cache.put(&digests[number], b"record", &[0; 100]).expect("stored");
        let wait = || std::thread::sleep(std::time::Duration::from_millis(20));
        drop(put(&older, 0));
        wait();
        let in_use = put(&cache, 1);
        assert!(in_use.is_some());
        wait();
        drop(put(&cache, 2));
        wait();
        drop(put(&cache, 3));
        assert!(older.get(&digests[0]).is_none(), "the oldest is gone, whichever engine it is for");
        wait();
        assert!(cache.get(&digests[2]).is_some(), "the second is used");
        drop(put(&cache, 4));
        assert!(cache.get(&digests[3]).is_none(), "so that the third goes");
        assert!(
            cache.get(&digests[1]).is_some() && cache.get(&digests[2]).is_some() && cache.get(&digests[4]).is_some()
        );
        let all: Vec<_> = [1, 2, 4].map(|number| cache.get(&digests[number]).expect("there")).into();
        assert!(put(&cache, 5).is_none(), "everything is in use");
        assert!(cache.get(&digests[5]).is_none());
        drop((all, in_use));
        assert!(put(&cache, 5).is_some());
        assert!(cache.put(&digest_of(b"large"), b"record", &[0; 1000]).expect("not stored").is_none());
        assert!(cache.get(&digests[5]).is_some(), "for what has no room at all, nothing is deleted");
    }

    // P9: code that somebody could write to is copied before it runs, and the copy is what was verified.
    #[cfg(unix)]
    #[test]
    fn code_that_can_be_written_to_is_copied() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(&directory, "a");
        cache.put(&digest_of(b"one"), b"record", b"code").expect("stored");
        let path = cache.path(&digest_of(b"one"));
        assert_eq!(mode(&path.metadata().expect("the file")) & 0o777, 0o400);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("changed");
        let entry = cache.get(&digest_of(b"one")).expect("verified");
        let CompiledCode::Bytes(code) = entry.code else { panic!("a copy") };
        assert_eq!(code, b"code");
    }

    // P9: the key is made once, also by many at once, and a key that others can read is replaced.
    #[test]
    fn the_key_is_made_once_and_kept_secret() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || open(&directory, "a").key;
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(open(), keys[0]);
        #[cfg(unix)]
        {
            let path = directory.path().join("key");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("changed");
            assert_ne!(open(), keys[0]);
        }
    }

    // P9: a key counts only if this user made it where others could not write.
    #[cfg(unix)]
    #[test]
    fn a_key_that_others_could_have_made_is_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let key = open(&directory, "a").key;
        let path = directory.path().join("key");
        let user = owner(&path.metadata().expect("the key"));
        assert_eq!(read_key(&path, user), Some(key));
        assert_eq!(read_key(&path, user + 1), None);
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o770)).expect("changed");
        let replaced = open(&directory, "a").key;
        assert_ne!(replaced, key);
        assert_eq!(mode(&directory.path().metadata().expect("the folder")) & 0o777, 0o700);
        assert_eq!(open(&directory, "a").key, replaced);
    }
}
