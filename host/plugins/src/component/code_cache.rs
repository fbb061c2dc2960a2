//! The cache of compiled code on disk (P9). Loading compiled code means running it, so a file is used only if its keyed
//! hash proves that this host wrote the file for exactly this component and engine. If the cache has no valid file for
//! a component, the component is compiled again.
//!
//! The total size of the files is limited. If space is needed, the least recently used file is deleted first. A process
//! keeps a shared lock on each file that it uses, and locked files are not deleted.

use super::atomic_write::{Mutability, make_private_directory};
use super::code_file::{self, CodeEntry, CodeStore, Placement, mode, owner};
use agent_core::message::Digest;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

const KEY_BYTES: usize = blake3::KEY_LEN;

/// The compiled components for one engine.
pub(crate) struct CompiledCache {
    directory: PathBuf,
    engine: blake3::Hash,
    key: [u8; KEY_BYTES],
    /// Maximum total size of all files in the cache, in bytes.
    max_bytes: u64,
    /// The directory of the cache, which contains one directory for each engine.
    root: PathBuf,
    /// Whether code must be copied into memory because it cannot be mapped from its file.
    must_copy: AtomicBool,
}

impl CompiledCache {
    /// Opens the cache in `directory` for this engine. Creates the key for the keyed hashes if the cache has no valid
    /// key. If two processes create the key at the same time, both get the same key. Returns None if the directory
    /// belongs to another user.
    pub(crate) fn open(directory: &Path, engine: blake3::Hash, max_bytes: u64) -> io::Result<Option<Self>> {
        make_private_directory(directory)?;
        // The owner of a new temporary file is the user under which this process runs.
        let user = owner(&tempfile::tempfile_in(directory)?.metadata()?);
        let metadata = directory.metadata()?;
        if owner(&metadata) != user {
            let cache = directory.display();
            tracing::warn!(%cache, "the folder for compiled code belongs to another user, so compiled code is not stored");
            return Ok(None);
        }
        let access = if mode(&metadata) & 0o022 == 0 { FolderAccess::Private } else { FolderAccess::Open };
        if access == FolderAccess::Open {
            make_private(directory)?;
        }
        let key = open_key(directory, user, access)?;
        let root = directory.to_owned();
        let directory = directory.join(engine.to_hex().as_str());
        Ok(Some(Self { directory, engine, key, max_bytes, root, must_copy: AtomicBool::new(false) }))
    }

    /// Stores the compiled code of a component and the facts about the component in the cache. While the returned file
    /// is open, the cache does not delete the entry. Returns None if the cache has no space for the code. If the code
    /// is not stored, the component is compiled again at the next start.
    pub(crate) fn put(&self, component: &Digest, record: &[u8], code: &[u8]) -> io::Result<Option<File>> {
        let size = code_file::size(record, code);
        if record.len() as u64 > code_file::MAX_RECORD_BYTES || !self.free_space(component, size)? {
            tracing::warn!(
                %component,
                size,
                "compiled code is not stored, because the cache has no space for it; raise `cache_mib` under [host.limits]"
            );
            return Ok(None);
        }
        let path = self.path(component);
        code_file::write(&path, self.hasher(component), (record, code), Mutability::ReadOnly)?;
        let file = File::open(path)?;
        let _ = file.try_lock_shared();
        Ok(Some(file))
    }

    /// Deletes the least recently used files of all engines until the cache has space for `size` more bytes. Files that
    /// are in use are not deleted. Returns whether the cache now has space for `size` more bytes.
    fn free_space(&self, component: &Digest, size: u64) -> io::Result<bool> {
        let replaced = self.path(component);
        let mut files = self.files()?;
        files.retain(|file| file.path != replaced);
        let mut total: u64 = files.iter().map(|file| file.size).sum();
        let largest_total = self.max_bytes.saturating_sub(size);
        files.sort_by_key(|file| file.used);
        for file in files {
            if size > self.max_bytes || total <= largest_total {
                break;
            }
            if delete_unused(&file.path) {
                total -= file.size;
            }
        }
        Ok(size <= self.max_bytes && total <= largest_total)
    }

    /// Lists every file of compiled code, including the files of other engines and the incomplete files of interrupted
    /// processes.
    fn files(&self) -> io::Result<Vec<CachedFile>> {
        let mut found = Vec::new();
        for folder in std::fs::read_dir(&self.root)?.flatten() {
            let is_engine_folder = folder.file_name().to_str().is_some_and(|name| blake3::Hash::from_hex(name).is_ok());
            if !is_engine_folder || !folder.file_type().is_ok_and(|kind| kind.is_dir()) {
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

    /// Reads and verifies a cache file.
    fn read(&self, component: &Digest, file: File) -> Option<CodeEntry> {
        let placement = if self.must_copy.load(Ordering::Relaxed) { Placement::Copied } else { Placement::Mapped };
        code_file::read(file, self.hasher(component), self.max_bytes, placement)
    }

    fn hasher(&self, component: &Digest) -> blake3::Hasher {
        code_file::hasher(&self.key, &self.engine, component)
    }

    /// Path of the file that a process locks while it compiles this component for this cache.
    pub(crate) fn lock_path(&self, component: &Digest) -> PathBuf {
        self.directory.join(format!("{}.lock", component.hex()))
    }

    fn path(&self, component: &Digest) -> PathBuf {
        self.directory.join(code_file::name(component))
    }
}

impl CodeStore for CompiledCache {
    fn get(&self, component: &Digest) -> Option<CodeEntry> {
        let path = self.path(component);
        let metadata = std::fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > self.max_bytes {
            return None;
        }
        let file = File::open(&path).ok()?;
        // If the file system has no locks, an entry in use may be deleted, but mapped code remains usable.
        let _ = file.try_lock_shared();
        let _ = file.set_modified(SystemTime::now());
        let entry = self.read(component, file);
        if entry.is_none() {
            tracing::warn!(file = %path.display(), "compiled code in the cache is not valid; the component is compiled again");
        }
        entry
    }

    fn disable_mapping(&self) {
        self.must_copy.store(true, Ordering::Relaxed);
    }
}

/// A file in the cache with the time of its last use.
struct CachedFile {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

/// Deletes a cache file unless a process is using it. Returns whether the file was deleted.
fn delete_unused(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // Each process that uses the file has a shared lock on it, which the system releases when the process ends.
    matches!(file.try_lock(), Ok(())) && std::fs::remove_file(path).is_ok()
}

/// Which users could write to the cache directory before this process opened the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FolderAccess {
    /// Only the directory's owner could write to it.
    Private,
    /// The directory's owner and other users could write to it.
    Open,
}

fn open_key(directory: &Path, user: u32, access: FolderAccess) -> io::Result<[u8; KEY_BYTES]> {
    let path = directory.join("key");
    // The host first checks whether a key file exists. If a key file appears only after this check, another process has
    // just created the file.
    let existed = path.symlink_metadata().is_ok();
    if access == FolderAccess::Private
        && let Some(key) = read_key(&path, user)
    {
        return Ok(key);
    }
    // A key is not secret if another user created it or can read it. A key that is not secret, or that has the wrong
    // length, is replaced. After the replacement, the host does not trust entries that were written with the old key.
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    io::Write::write_all(&mut file, &key)?;
    file.as_file().sync_all()?;
    if existed {
        file.persist(&path).map_err(|error| error.error)?;
        return Ok(key);
    }
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(key),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(&path, user).ok_or_else(|| io::Error::other(format!("{} contains no valid key", path.display())))
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
fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::code_file::{CHUNK_BYTES, CompiledCode, TRAILER_BYTES};
    use crate::component::plugin_store::digest_of;
    use std::io::{Read, Seek, Write};

    fn engine(name: &str) -> blake3::Hash {
        blake3::hash(name.as_bytes())
    }

    fn open(directory: &tempfile::TempDir, name: &str) -> CompiledCache {
        bounded(directory, name, 1 << 30)
    }

    fn bounded(directory: &tempfile::TempDir, name: &str, max_bytes: u64) -> CompiledCache {
        CompiledCache::open(directory.path(), engine(name), max_bytes).expect("opened").expect("a cache")
    }

    fn file_with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    fn code_of(entry: CodeEntry) -> Vec<u8> {
        let CodeEntry { code, mut file, .. } = entry;
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

    // P9: compiled code is valid only for its component, its engine and this host's key.
    #[test]
    fn p9_entry_of_another_component_engine_or_key_is_refused() {
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
            assert!(cache.read(&component, file_with(&flipped)).is_none(), "byte {index}");
            assert!(cache.read(&component, file_with(&file[..index])).is_none(), "cut at {index}");
            assert!(cache.read(&component, file_with(&file[index + 1..])).is_none(), "cut before {index}");
        }
        assert!(cache.read(&component, file_with(&file)).is_some(), "unchanged");
        assert!(cache.read(&digest_of(b"two"), file_with(&file)).is_none(), "another component's code");
        let other_engine = open(&directory, "b");
        assert!(other_engine.read(&component, file_with(&file)).is_none(), "another engine's code");
        let other = tempfile::tempdir().expect("a directory");
        let foreign = open(&other, "a");
        assert!(foreign.read(&component, file_with(&file)).is_none(), "another host's code");
    }

    // P9: compiled code that is too large for a single read is read completely.
    #[test]
    fn p9_code_of_several_chunks_is_read_completely() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(&directory, "a");
        let code: Vec<u8> = (0..3 * CHUNK_BYTES + 7).map(|index| (index % 251) as u8).collect();
        cache.put(&digest_of(b"long"), b"record", &code).expect("stored");
        let entry = cache.get(&digest_of(b"long")).expect("verified");
        assert!(
            matches!(entry.code, CompiledCode::InFile) == cfg!(target_os = "linux"),
            "code is mapped on Linux and copied on other systems"
        );
        assert!(code_of(entry)[..code.len()] == code);
    }

    // Row 37: the least recently used entry is deleted first, and entries in use are not deleted.
    #[test]
    fn row_37_cache_is_bounded_and_keeps_entries_in_use() {
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
        assert!(older.get(&digests[0]).is_none(), "the oldest entry is deleted, even if it is for another engine");
        wait();
        assert!(cache.get(&digests[2]).is_some(), "entry 2 can be read, which counts as a use");
        drop(put(&cache, 4));
        assert!(cache.get(&digests[3]).is_none(), "the least recently used unused entry is deleted");
        assert!(
            cache.get(&digests[1]).is_some() && cache.get(&digests[2]).is_some() && cache.get(&digests[4]).is_some()
        );
        let entries: Vec<_> = [1, 2, 4].map(|number| cache.get(&digests[number]).expect("the entry is cached")).into();
        assert!(put(&cache, 5).is_none(), "all entries are in use");
        assert!(cache.get(&digests[5]).is_none());
        drop((entries, in_use));
        assert!(put(&cache, 5).is_some());
        assert!(cache.put(&digest_of(b"large"), b"record", &[0; 1000]).expect("not stored").is_none());
        assert!(cache.get(&digests[5]).is_some(), "nothing is deleted for an entry that is larger than the cache");
    }

    // P9: code in a writable file is copied into memory before it runs, and the copy is verified.
    #[cfg(unix)]
    #[test]
    fn p9_code_in_a_writable_file_is_copied() {
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

    // P9: the key is created only once, even if several threads open the cache at the same time, and a key that other
    // users can read is replaced.
    #[test]
    fn p9_key_is_created_once_and_replaced_if_readable_by_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || open(&directory, "a").key;
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
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

    // P9: a key is used only if this user created it in a folder that other users cannot write to.
    #[cfg(unix)]
    #[test]
    fn p9_key_that_another_user_could_have_created_is_replaced() {
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
