//! The plugin store: stores components by digest, so that a suspended turn can continue with its original generation
//! (P10).

use super::atomic_write::{Mutability, write_atomically};
use agent_core::message::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::SystemTime;

/// Size of the buffers for comparing two files, in bytes.
const COMPARED_BYTES: usize = 64 * 1024;

/// Maximum total size of the vouching statements for a component, in bytes.
const MAX_STATEMENT_BYTES: usize = 64 * 1024;

/// The directory in which the plugin store keeps components. Each component is a file whose name is the digest of
/// its bytes.
#[derive(Clone, Debug)]
pub struct PluginStore {
    directory: PathBuf,
}

/// The reason why the store cannot read or store a component.
#[derive(Debug, thiserror::Error)]
pub enum PluginStoreError {
    /// The component was never stored, or it was deleted.
    #[error("{digest} is not in the plugin store {}", directory.display())]
    Missing {
        /// Digest of the component.
        digest: Digest,
        /// Directory of the plugin store.
        directory: PathBuf,
    },
    /// The bytes of the component have changed on disk.
    #[error("{} is damaged: its bytes no longer match the digest in its name; delete the file and load the plugin again",
       path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
    },
    /// A file or directory of the store cannot be read or written.
    #[error("the plugin store cannot use {}: {source}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A component in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredComponent {
    /// Digest of the component.
    pub digest: Digest,
    /// Size of the component in bytes.
    pub bytes: u64,
    /// Time at which the component was stored.
    pub modified: SystemTime,
}

impl PluginStore {
    /// Creates a store in this directory. The directory is created when the first component is stored.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Stores these bytes under their digest. If the store already contains the same bytes, does nothing. If the store
    /// contains a damaged copy, replaces the copy.
    pub fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), PluginStoreError> {
        let path = self.path(digest);
        if File::open(&path).is_ok_and(|stored| are_equal(stored, bytes)) {
            return Ok(());
        }
        write_atomically(&self.directory, (&path, Mutability::Writable), &[bytes])
            .map_err(|source| PluginStoreError::Io { path, source })
    }

    /// Whether the store contains the bytes of this file under this digest.
    pub(crate) fn contains(&self, digest: &Digest, file: File) -> bool {
        File::open(self.path(digest)).is_ok_and(|stored| are_equal(stored, file))
    }

    /// Stores a statement that vouches for a component, in addition to the component's statements that are
    /// already stored.
    pub fn vouch(&self, digest: &Digest, statement: &str) -> Result<(), PluginStoreError> {
        let stored = self.vouched(digest)?.unwrap_or_default();
        if stored.contains(statement) {
            return Ok(());
        }
        let path = self.vouched_path(digest);
        let stored = if stored.len() + statement.len() > MAX_STATEMENT_BYTES { "" } else { stored.as_str() };
        let parts = [stored.as_bytes(), statement.as_bytes()];
        write_atomically(&self.directory, (&path, Mutability::Writable), &parts)
            .map_err(|source| PluginStoreError::Io { path, source })
    }

    /// The stored statements that vouch for a component. Returns None if no statement is stored for the component,
    /// which is the case for the user's own plugins.
    pub fn vouched(&self, digest: &Digest) -> Result<Option<String>, PluginStoreError> {
        let path = self.vouched_path(digest);
        match std::fs::read_to_string(&path) {
            Ok(statements) => Ok(Some(statements)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PluginStoreError::Io { path, source }),
        }
    }

    /// Reads the component with this digest, and checks that its bytes have this digest.
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

    /// Lists all stored components in no particular order. Files in the directory that are not components are ignored.
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
            // A file that was deleted after the directory was listed is skipped.
            if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                stored.push(StoredComponent { digest, bytes: metadata.len(), modified });
            }
        }
        Ok(stored)
    }

    /// Deletes a component from the store. Returns false if the component was not stored.
    pub fn remove(&self, digest: &Digest) -> Result<bool, PluginStoreError> {
        let path = self.path(digest);
        // The statements are deleted last, because a component without statements counts as the user's own plugin.
        match std::fs::remove_file(&path) {
            Ok(()) => {
                let _ = std::fs::remove_file(self.vouched_path(digest));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(PluginStoreError::Io { path, source }),
        }
    }

    fn vouched_path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.vouched", digest.hex()))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.wasm", digest.hex()))
    }
}

/// Whether two files have the same content. The files are compared in chunks instead of being read into memory, because
/// the host makes such a comparison for each plugin when it starts.
fn are_equal(left: impl Read, right: impl Read) -> bool {
    let mut left_reader = BufReader::with_capacity(COMPARED_BYTES, left);
    let mut right_reader = BufReader::with_capacity(COMPARED_BYTES, right);
    loop {
        let (Ok(left), Ok(right)) = (left_reader.fill_buf(), right_reader.fill_buf()) else { return false };
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return false;
        }
        if length == 0 {
            return left.is_empty() && right.is_empty();
        }
        left_reader.consume(length);
        right_reader.consume(length);
    }
}

/// Computes the SHA-256 digest of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // P10: if a stored component is damaged, the component is replaced when it is stored again.
    #[test]
    fn p10_missing_and_damaged_components_are_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = PluginStore::new(directory.path().join("plugins"));
        let digest = digest_of(b"component");
        assert!(matches!(store.get(&digest), Err(PluginStoreError::Missing { .. })));
        store.put(&digest, b"component").expect("stored");
        assert_eq!(store.get(&digest).expect("the component is stored"), b"component");
        std::fs::write(store.path(&digest), b"componenz").expect("damaged");
        assert!(matches!(store.get(&digest), Err(PluginStoreError::Damaged { .. })));
        store.put(&digest, b"component").expect("stored again");
        assert_eq!(store.get(&digest).expect("replaced"), b"component");
        std::fs::write(directory.path().join("plugins/notes.txt"), b"nothing of ours").expect("written");
        let listed = store.list().expect("listed");
        assert_eq!(listed.iter().map(|stored| (&stored.digest, stored.bytes)).collect::<Vec<_>>(), [(&digest, 9)]);
        for statement in ["by one\n", "by another\n", "by one\n"] {
            store.vouch(&digest, statement).expect("stored");
        }
        assert_eq!(store.vouched(&digest).expect("read").as_deref(), Some("by one\nby another\n"));
        assert_eq!(store.list().expect("listed").len(), 1);
        assert!(
            store.remove(&digest).expect("removed")
                && !store.remove(&digest).expect("removing an absent component succeeds")
        );
        assert_eq!(store.list().expect("listed"), []);
        assert_eq!(store.vouched(&digest).expect("read"), None);
    }
}
