//! The quarantine: components that crashed the compiler process and are therefore not compiled again at every start. An
//! entry is valid only while the component's bytes, the host's version, the host's engine and the limits are unchanged.
//! If one of them changes, the host compiles the component again.

use super::atomic_write::{Mutability, make_private_directory, write_atomically};
use crate::limits::HostLimits;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the quarantine's directory inside the directory for compiled code.
const DIRECTORY_NAME: &str = "quarantine";
/// Maximum size of the file of an entry, in bytes. Larger files are not read.
const ENTRY_BYTES: u64 = 16 * 1024;
/// Maximum number of entries in the quarantine. When the limit is reached, the oldest entry is deleted, so that its
/// component is compiled again.
const MAX_ENTRIES: usize = 1_000;

/// The quarantine whose entries are stored in one directory for compiled code.
#[derive(Clone, Debug)]
pub struct Quarantine {
    directory: PathBuf,
}

/// One component in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// SHA-256 digest of the component.
    pub digest: Digest,
    /// Name that the component's manifest claims, or the name of its file.
    pub name: String,
    /// The error that caused the host to put the component in quarantine.
    pub reason: String,
    /// Time at which the component was put in quarantine, in seconds since 1970.
    pub since: u64,
    /// Identifies the host version, the engine and the limits to which the entry applies.
    #[serde(rename = "judge")]
    examiner: String,
}

/// Identifies the host version, the engine and the limits with which a component was examined.
#[derive(Clone, Debug)]
pub(crate) struct ExaminerId(String);

impl ExaminerId {
    pub(crate) fn new(engine: &blake3::Hash, limits: &HostLimits) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes()).update(engine.as_bytes());
        let compile_limits = (limits.compile_time, limits.structure(), limits.compiled_ratio, limits.compiled);
        hasher.update(format!("{compile_limits:?}").as_bytes());
        Self(hasher.finalize().to_hex().to_string())
    }
}

impl Quarantine {
    /// Opens the quarantine. The directory of the quarantine is inside `cache`, the directory for compiled code, and is
    /// created with the first entry.
    pub fn new(cache: &Path) -> Self {
        Self { directory: cache.join(DIRECTORY_NAME) }
    }

    /// Returns the component's entry if it applies to this host version and these limits.
    pub(crate) fn find(&self, digest: &Digest, examiner: &ExaminerId) -> Option<QuarantineEntry> {
        read(&self.path(digest)).filter(|entry| entry.digest == *digest && entry.examiner == examiner.0)
    }

    /// Puts a component in quarantine.
    pub(crate) fn put(&self, digest: &Digest, name: &str, reason: &str, examiner: &ExaminerId) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (name, reason) = (name.to_owned(), reason.to_owned());
        let entry = QuarantineEntry { digest: digest.clone(), name, reason, since, examiner: examiner.0.clone() };
        let text = serde_json::to_vec(&entry).map_err(io::Error::other)?;
        make_private_directory(&self.directory)?;
        self.free_space();
        write_atomically(&self.directory, (&self.path(digest), Mutability::Writable), &[&text])
    }

    /// Returns all entries, including the entries of other host versions, newest first.
    pub fn list(&self) -> Vec<QuarantineEntry> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries.filter_map(|entry| read(&entry.path())).take(2 * MAX_ENTRIES).collect();
        found.sort_by(|left, right| right.since.cmp(&left.since).then_with(|| left.digest.cmp(&right.digest)));
        found
    }

    /// Removes a component from quarantine, so that the host compiles it again. Returns false if the component was not
    /// in quarantine.
    pub fn release(&self, digest: &Digest) -> io::Result<bool> {
        match std::fs::remove_file(self.path(digest)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn free_space(&self) {
        let entries = self.list();
        for oldest in entries.iter().skip(MAX_ENTRIES - 1) {
            let _ = self.release(&oldest.digest);
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.json", digest.hex()))
    }
}

fn read(path: &Path) -> Option<QuarantineEntry> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > ENTRY_BYTES {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(ENTRY_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::plugin_store::digest_of;
    use std::time::Duration;

    fn examiner(engine: &[u8], limits: &HostLimits) -> ExaminerId {
        ExaminerId::new(&blake3::hash(engine), limits)
    }

    // Row 36: if the component, the engine or the limits change, an entry in the quarantine no longer applies.
    #[test]
    fn row_36_entry_applies_until_component_engine_or_limits_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let quarantine = Quarantine::new(directory.path());
        let (limits, digest) = (HostLimits::default(), digest_of(b"bomb"));
        let this = examiner(b"one", &limits);
        assert_eq!(quarantine.find(&digest, &this), None);
        quarantine.put(&digest, "bomb", "it was stopped", &this).expect("stored");
        let found = quarantine.find(&digest, &this).expect("the component is in quarantine");
        assert_eq!((found.name.as_str(), found.reason.as_str()), ("bomb", "it was stopped"));
        assert_eq!(quarantine.find(&digest_of(b"changed"), &this), None);
        assert_eq!(quarantine.find(&digest, &examiner(b"another", &limits)), None);
        let patient = HostLimits { compile_time: Duration::from_secs(60), ..limits };
        assert_eq!(quarantine.find(&digest, &examiner(b"one", &patient)), None);
        assert_eq!(quarantine.list(), [found]);
        assert!(
            quarantine.release(&digest).expect("removed")
                && !quarantine.release(&digest).expect("releasing an absent component succeeds")
        );
        assert_eq!(quarantine.find(&digest, &this), None);
    }

    #[test]
    fn entries_that_are_too_large_or_for_another_digest_are_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        let quarantine = Quarantine::new(directory.path());
        let this = examiner(b"one", &HostLimits::default());
        quarantine.put(&digest_of(b"bomb"), "bomb", "stopped", &this).expect("stored");
        let copied = quarantine.path(&digest_of(b"calc"));
        std::fs::copy(quarantine.path(&digest_of(b"bomb")), &copied).expect("copied");
        assert_eq!(quarantine.find(&digest_of(b"calc"), &this), None);
        std::fs::write(&copied, vec![b' '; ENTRY_BYTES as usize + 1]).expect("written");
        assert_eq!(quarantine.find(&digest_of(b"calc"), &this), None);
    }
}
