//! Components that have ended the process that examines them: they are not tried again at every start. An entry is for exactly
//! these bytes, this host and these limits; a changed file, another version or other limits are tried.

use crate::limits::HostLimits;
use crate::store::{Later, make_private_directory, write_atomically};
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder's name in the folder for compiled code.
const FOLDER: &str = "quarantine";
/// Largest entry that is read.
const ENTRY_BYTES: u64 = 16 * 1024;
/// Entries that are kept. Behind them the oldest is forgotten, and its component tried again.
const ENTRIES: usize = 1_000;

/// The components in quarantine.
#[derive(Clone, Debug)]
pub struct Quarantine {
    directory: PathBuf,
}

/// One component in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// What it called itself.
    pub name: String,
    /// What it did, as its error says.
    pub reason: String,
    /// When, in seconds since 1970.
    pub since: u64,
    /// The version of the host with its limits.
    judge: String,
}

/// Identifies what a component was examined by.
#[derive(Clone, Debug)]
pub(crate) struct Judge(String);

impl Judge {
    pub(crate) fn new(engine: &blake3::Hash, limits: &HostLimits) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes()).update(engine.as_bytes());
        let examining = (limits.compile_time, limits.structure(), limits.compiled_ratio, limits.compiled);
        hasher.update(format!("{examining:?}").as_bytes());
        Self(hasher.finalize().to_hex().to_string())
    }
}

impl Quarantine {
    /// In this folder for compiled code. It is made with its first entry.
    pub fn new(cache: &Path) -> Self {
        Self { directory: cache.join(FOLDER) }
    }

    /// The component's entry, if this host with these limits made it.
    pub(crate) fn find(&self, digest: &Digest, judge: &Judge) -> Option<Quarantined> {
        read(&self.path(digest)).filter(|entry| entry.digest == *digest && entry.judge == judge.0)
    }

    /// Puts a component in quarantine.
    pub(crate) fn put(&self, digest: &Digest, name: &str, reason: &str, judge: &Judge) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (name, reason) = (name.to_owned(), reason.to_owned());
        let entry = Quarantined { digest: digest.clone(), name, reason, since, judge: judge.0.clone() };
        let text = serde_json::to_vec(&entry).map_err(io::Error::other)?;
        make_private_directory(&self.directory)?;
        self.make_room();
        write_atomically(&self.directory, (&self.path(digest), Later::Perhaps), &[&text])
    }

    /// All entries, also those of other versions, the latest first.
    pub fn list(&self) -> Vec<Quarantined> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries.filter_map(|entry| read(&entry.path())).take(2 * ENTRIES).collect();
        found.sort_by(|left, right| right.since.cmp(&left.since).then_with(|| left.digest.cmp(&right.digest)));
        found
    }

    /// Takes a component out of quarantine, so that it is tried again; says whether it was there.
    pub fn release(&self, digest: &Digest) -> io::Result<bool> {
        match std::fs::remove_file(self.path(digest)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn make_room(&self) {
        let entries = self.list();
        for oldest in entries.iter().skip(ENTRIES - 1) {
            let _ = self.release(&oldest.digest);
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.json", digest.hex()))
    }
}

fn read(path: &Path) -> Option<Quarantined> {
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
    use crate::store::digest_of;
    use std::time::Duration;

    fn judge(engine: &[u8], limits: &HostLimits) -> Judge {
        Judge::new(&blake3::hash(engine), limits)
    }

    // Row 36: what ended the child is not tried again by the same host, and is by another one or with other limits.
    #[test]
    fn a_component_stays_until_something_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let quarantine = Quarantine::new(directory.path());
        let (limits, digest) = (HostLimits::default(), digest_of(b"bomb"));
        let this = judge(b"one", &limits);
        assert_eq!(quarantine.find(&digest, &this), None);
        quarantine.put(&digest, "bomb", "it was stopped", &this).expect("kept");
        let found = quarantine.find(&digest, &this).expect("there");
        assert_eq!((found.name.as_str(), found.reason.as_str()), ("bomb", "it was stopped"));
        assert_eq!(quarantine.find(&digest_of(b"changed"), &this), None);
        assert_eq!(quarantine.find(&digest, &judge(b"another", &limits)), None);
        let patient = HostLimits { compile_time: Duration::from_secs(60), ..limits };
        assert_eq!(quarantine.find(&digest, &judge(b"one", &patient)), None);
        assert_eq!(quarantine.list(), [found]);
        assert!(quarantine.release(&digest).expect("removed") && !quarantine.release(&digest).expect("gone"));
        assert_eq!(quarantine.find(&digest, &this), None);
    }

    #[test]
    fn entries_of_others_are_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let quarantine = Quarantine::new(directory.path());
        let this = judge(b"one", &HostLimits::default());
        quarantine.put(&digest_of(b"bomb"), "bomb", "stopped", &this).expect("kept");
        let copied = quarantine.path(&digest_of(b"calc"));
        std::fs::copy(quarantine.path(&digest_of(b"bomb")), &copied).expect("copied");
        assert_eq!(quarantine.find(&digest_of(b"calc"), &this), None);
        std::fs::write(&copied, vec![b' '; ENTRY_BYTES as usize + 1]).expect("written");
        assert_eq!(quarantine.find(&digest_of(b"calc"), &this), None);
    }
}
