//! A watched plugin directory. The plugins of the directory are reported only while no file in the directory is
//! changing (P10).
//!
//! The host finds changes by polling: it scans the directory at short intervals. Polling works on every file system,
//! and the host must in any case scan a directory twice to find out whether a file is still changing.

use super::generation::load_and_store;
use crate::component::load::stored::GenerationError;
use crate::component::load_error::LoadError;
use crate::component::manifest_file::existing_manifest_file;
use crate::component::plugin::LoadedPlugin;
use crate::component::sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Time for which a file must remain unchanged before it is read.
const QUIET_PERIOD: Duration = Duration::from_millis(250);
/// Time for which a file that cannot be loaded must remain unchanged before it is reported, because a program may still
/// be writing the file.
const FAILURE_DELAY: Duration = Duration::from_secs(2);

/// A watched plugin directory.
pub struct PluginDirectory {
    sandbox: Sandbox,
    path: PathBuf,
    files: BTreeMap<PathBuf, WatchedFile>,
    /// Metadata of the lock file at the last scan. The lock file lists the plugins that may be used.
    lock: Option<FileStamp>,
}

/// The result of one scan of the directory.
#[derive(Debug)]
pub enum DirectoryScan {
    /// At least one file is changing, so the directory must be scanned again soon.
    Changing,
    /// Every file is either loaded or has failed to load, and no file is changing.
    Settled(DirectoryContents),
}

/// The files of a directory in which no file is changing.
#[derive(Debug, Default)]
pub struct DirectoryContents {
    /// All component files, including the files that cannot be loaded.
    pub files: BTreeSet<PathBuf>,
    /// The loaded plugins and the files from which they were loaded.
    pub plugins: Vec<(PathBuf, Arc<LoadedPlugin>)>,
    /// The files that cannot be loaded and were not reported before. A file is reported again only after it
    /// has changed.
    pub problems: Vec<(PathBuf, LoadError)>,
}

/// A component file and the result of loading it.
struct WatchedFile {
    stamp: ComponentStamp,
    /// Time at which the host last noticed a change that concerns this file.
    since: Instant,
    status: FileStatus,
}

enum FileStatus {
    Unread,
    Loaded(Arc<LoadedPlugin>),
    /// The file cannot be loaded, perhaps because it is still being written.
    Unconfirmed(LoadError),
    /// The file cannot be loaded, and the host has already reported the failure.
    Failed,
    Deleted,
}

/// The metadata of a component, and of the manifest file beside it if there is one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ComponentStamp {
    component: FileStamp,
    manifest: Option<FileStamp>,
}

/// Metadata from which the host can tell whether a file has changed. If the metadata has not changed, the host assumes
/// that the file has not changed and does not read it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    length: u64,
    modified: Option<SystemTime>,
    /// The inode number, and the time of the last status change in seconds and nanoseconds. On systems without
    /// inode numbers and status changes, all three numbers are zero.
    node: (u64, i64, i64),
}

impl PluginDirectory {
    /// Starts to watch the directory at `path`. No file is read before the first call of [`PluginDirectory::scan`].
    pub fn new(sandbox: Sandbox, path: PathBuf) -> Self {
        Self { sandbox, path, files: BTreeMap::new(), lock: None }
    }

    /// Path of the watched directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Scans the directory once and loads each new or changed file that has stopped changing. Files that have not
    /// changed are not loaded again.
    pub async fn scan(&mut self) -> Result<DirectoryScan, GenerationError> {
        self.refresh_stamps().await?;
        let now = Instant::now();
        for (path, file) in &mut self.files {
            if matches!(file.status, FileStatus::Unread) && now.duration_since(file.since) >= QUIET_PERIOD {
                let loaded = load_and_store(&self.sandbox, path, &|_| {}).await;
                // If the file was replaced while it was being read, a later scan reads it again.
                let read = path.clone();
                let stamp = tokio::task::spawn_blocking(move || ComponentStamp::read(&read)).await;
                match stamp.ok().flatten() {
                    Some(stamp) if stamp == file.stamp => match loaded {
                        Ok(plugin) => file.status = FileStatus::Loaded(plugin),
                        Err(error) => file.status = FileStatus::Unconfirmed(error),
                    },
                    Some(stamp) => (file.stamp, file.since) = (stamp, Instant::now()),
                    None => (file.status, file.since) = (FileStatus::Deleted, Instant::now()),
                }
            }
        }
        Ok(self.settle())
    }

    async fn refresh_stamps(&mut self) -> Result<(), GenerationError> {
        let path = self.path.clone();
        let found = tokio::task::spawn_blocking(move || stamps_in(&path)).await;
        let found = found.map_err(std::io::Error::other).flatten();
        let found = found.map_err(|source| GenerationError::Directory { path: self.path.clone(), source })?;
        let now = Instant::now();
        self.retry_after_lock_change(now).await;
        for (path, file) in &mut self.files {
            if !found.contains_key(path) && !matches!(file.status, FileStatus::Deleted) {
                (file.status, file.since) = (FileStatus::Deleted, now);
            }
        }
        for (path, stamp) in found {
            let new = WatchedFile { stamp, since: now, status: FileStatus::Unread };
            let file = self.files.entry(path).or_insert(new);
            if file.stamp != stamp || matches!(file.status, FileStatus::Deleted) {
                (file.stamp, file.since, file.status) = (stamp, now, FileStatus::Unread);
            }
        }
        Ok(())
    }

    /// If the lock file has changed, tries again to load all files that could not be loaded, because the new lock file
    /// may allow them.
    async fn retry_after_lock_change(&mut self, now: Instant) {
        let Some(verifier) = &self.sandbox.verifier else { return };
        let path = self.path.join(verifier.lock_file());
        let lock = tokio::fs::metadata(path).await.ok().as_ref().map(FileStamp::of);
        if std::mem::replace(&mut self.lock, lock) == lock {
            return;
        }
        for file in self.files.values_mut() {
            if matches!(file.status, FileStatus::Failed | FileStatus::Unconfirmed(_)) {
                (file.since, file.status) = (now, FileStatus::Unread);
            }
        }
    }

    fn settle(&mut self) -> DirectoryScan {
        let is_changing = |file: &WatchedFile| match file.status {
            FileStatus::Unread => true,
            FileStatus::Deleted => file.since.elapsed() < QUIET_PERIOD,
            FileStatus::Unconfirmed(_) => file.since.elapsed() < FAILURE_DELAY,
            FileStatus::Loaded(_) | FileStatus::Failed => false,
        };
        if self.files.values().any(is_changing) {
            return DirectoryScan::Changing;
        }
        self.files.retain(|_, file| !matches!(file.status, FileStatus::Deleted));
        let mut contents = DirectoryContents::default();
        for (path, file) in &mut self.files {
            contents.files.insert(path.clone());
            match &file.status {
                FileStatus::Loaded(plugin) => contents.plugins.push((path.clone(), plugin.clone())),
                FileStatus::Unconfirmed(_) => {
                    if let FileStatus::Unconfirmed(error) = std::mem::replace(&mut file.status, FileStatus::Failed) {
                        contents.problems.push((path.clone(), error));
                    }
                }
                FileStatus::Unread | FileStatus::Failed | FileStatus::Deleted => {}
            }
        }
        DirectoryScan::Settled(contents)
    }
}

/// The stamps of the component files in a directory. [`crate::Generation::load`] uses this function to find the files
/// to load.
fn stamps_in(directory: &Path) -> std::io::Result<BTreeMap<PathBuf, ComponentStamp>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm")
            && let Some(stamp) = ComponentStamp::read(&path)
        {
            found.insert(path, stamp);
        }
    }
    Ok(found)
}

impl ComponentStamp {
    /// Reads the metadata of the component at this path. Returns None if the component does not exist.
    fn read(path: &Path) -> Option<Self> {
        let component = FileStamp::of(&std::fs::metadata(path).ok()?);
        // The metadata of a link itself is used if its target is missing, because such a manifest file is refused.
        let of_manifest = |file: PathBuf| file.metadata().or_else(|_| file.symlink_metadata()).ok();
        let manifest = existing_manifest_file(path).and_then(of_manifest);
        Some(Self { component, manifest: manifest.as_ref().map(FileStamp::of) })
    }
}

impl FileStamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self { length: metadata.len(), modified: metadata.modified().ok(), node: node(metadata) }
    }
}

#[cfg(unix)]
fn node(metadata: &std::fs::Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn node(_: &std::fs::Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}
