//! The plugin store: components by digest, so that a suspended turn finds the generation that it began with (P10).

use agent_core::message::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What is compared at once.
const COMPARED_BYTES: usize = 64 * 1024;

/// Of all that is kept of who vouches for a component.
const VOUCHED_BYTES: usize = 64 * 1024;

/// A directory of components, each under the digest of its bytes.
#[derive(Clone, Debug)]
pub struct PluginStore {
    directory: PathBuf,
}

/// A component that the store cannot give or keep.
#[derive(Debug, thiserror::Error)]
pub enum PluginStoreError {
    /// It was never stored, or has been deleted.
    #[error("{digest} is not in the plugin store {}", directory.display())]
    Missing {
        /// Which.
        digest: Digest,
        /// The store.
        directory: PathBuf,
    },
    /// Its bytes have changed on disk.
    #[error("{} is damaged: its bytes no longer have the digest it is named by; delete it and load the plugin again",
        path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Reading or writing failed.
    #[error("the plugin store cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A component in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredComponent {
    /// Its name.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// When it was stored.
    pub modified: SystemTime,
}

impl PluginStore {
    /// In this directory, which is made with the first component.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps these bytes. Storing them twice changes nothing; a damaged copy is replaced.
    pub fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), PluginStoreError> {
        let path = self.path(digest);
        if File::open(&path).is_ok_and(|stored| are_equal(stored, bytes)) {
            return Ok(());
        }
        write_atomically(&self.directory, (&path, Later::Perhaps), &[bytes])
            .map_err(|source| PluginStoreError::Io { path, source })
    }

    /// Whether these bytes of a file are kept here under this digest.
    pub(crate) fn holds(&self, digest: &Digest, file: File) -> bool {
        File::open(self.path(digest)).is_ok_and(|stored| are_equal(stored, file))
    }

    /// Keeps what vouches for a component, beside what did so before.
    pub fn vouch(&self, digest: &Digest, words: &str) -> Result<(), PluginStoreError> {
        let before = self.vouched(digest)?.unwrap_or_default();
        if before.contains(words) {
            return Ok(());
        }
        let path = self.voucher(digest);
        let before = if before.len() + words.len() > VOUCHED_BYTES { "" } else { before.as_str() };
        let parts = [before.as_bytes(), words.as_bytes()];
        write_atomically(&self.directory, (&path, Later::Perhaps), &parts)
            .map_err(|source| PluginStoreError::Io { path, source })
    }

    /// All that vouched for a component; nothing where it is somebody's own.
    pub fn vouched(&self, digest: &Digest) -> Result<Option<String>, PluginStoreError> {
        let path = self.voucher(digest);
        match std::fs::read_to_string(&path) {
            Ok(words) => Ok(Some(words)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PluginStoreError::Io { path, source }),
        }
    }

    /// The bytes with this digest, verified.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, PluginStoreError> {
        let path = self.path(digest);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.directory.clone();
                return Err(PluginStoreError::Missing { digest: digest.clone(), directory });
            }
            Err(source) => return Err(PluginStoreError::Io { path, source }),
        };
        if digest_of(&bytes) == *digest { Ok(bytes) } else { Err(PluginStoreError::Damaged { path }) }
    }

    /// Everything that is kept, in no order. What is no component of the store is left out.
    pub fn list(&self) -> Result<Vec<StoredComponent>, PluginStoreError> {
        let failed = |source| PluginStoreError::Io { path: self.directory.clone(), source };
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut stored = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let hex = name.to_str().and_then(|name| name.strip_suffix(".wasm"));
            let digest = hex.and_then(|hex| Digest::parse(&format!("sha256:{hex}")).ok());
            // What is gone by now is not there.
            if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                stored.push(StoredComponent { digest, bytes: metadata.len(), modified });
            }
        }
        Ok(stored)
    }

    /// Forgets a component; says whether it was there.
    pub fn remove(&self, digest: &Digest) -> Result<bool, PluginStoreError> {
        let path = self.path(digest);
        // What vouches goes last: without it the component would count as somebody's own.
        match std::fs::remove_file(&path) {
            Ok(()) => {
                let _ = std::fs::remove_file(self.voucher(digest));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(PluginStoreError::Io { path, source }),
        }
    }

    fn voucher(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.vouched", digest.hex()))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.wasm", digest.hex()))
    }
}

/// Whether two files hold the same bytes. They are compared as they are read, since a start does this for each plugin.
fn are_equal(one: impl Read, other: impl Read) -> bool {
    let mut one = BufReader::with_capacity(COMPARED_BYTES, one);
    let mut other = BufReader::with_capacity(COMPARED_BYTES, other);
    loop {
        let (Ok(left), Ok(right)) = (one.fill_buf(), other.fill_buf()) else { return false };
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return false;
        }
        if length == 0 {
            return left.is_empty() && right.is_empty();
        }
        one.consume(length);
        other.consume(length);
    }
}

/// SHA-256 of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}

/// Writes the parts to a temporary file in `directory`, which is made if need be, and renames it to `path`.
pub(crate) fn write_atomically(directory: &Path, (path, later): (&Path, Later), parts: &[&[u8]]) -> io::Result<()> {
    make_private_directory(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    for part in parts {
        file.write_all(part)?;
    }
    if later == Later::Never {
        let mut permissions = file.as_file().metadata()?.permissions();
        permissions.set_readonly(true);
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether a file may be written to again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// By its owner.
    Perhaps,
    /// It is only ever replaced.
    Never,
}

/// Makes a directory that only this user can read or write.
pub(crate) fn make_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P10: the store keeps components by digest and says when one is gone or damaged.
    #[test]
    fn components_come_back_verified() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = PluginStore::new(directory.path().join("plugins"));
        let digest = digest_of(b"component");
        assert!(matches!(store.get(&digest), Err(PluginStoreError::Missing { .. })));
        store.put(&digest, b"component").expect("stored");
        assert_eq!(store.get(&digest).expect("there"), b"component");
        std::fs::write(store.path(&digest), b"componenz").expect("damaged");
        assert!(matches!(store.get(&digest), Err(PluginStoreError::Damaged { .. })));
        store.put(&digest, b"component").expect("stored again");
        assert_eq!(store.get(&digest).expect("healed"), b"component");
        std::fs::write(directory.path().join("plugins/notes.txt"), b"nothing of ours").expect("written");
        let listed = store.list().expect("listed");
        assert_eq!(listed.iter().map(|stored| (&stored.digest, stored.bytes)).collect::<Vec<_>>(), [(&digest, 9)]);
        for words in ["by one\n", "by another\n", "by one\n"] {
            store.vouch(&digest, words).expect("kept");
        }
        assert_eq!(store.vouched(&digest).expect("read").as_deref(), Some("by one\nby another\n"));
        assert_eq!(store.list().expect("listed").len(), 1);
        assert!(store.remove(&digest).expect("removed") && !store.remove(&digest).expect("gone"));
        assert_eq!(store.list().expect("listed"), []);
        assert_eq!(store.vouched(&digest).expect("read"), None);
    }
}
