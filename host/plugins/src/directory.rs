//! A directory of plugins that is looked at again and again: what is in it once every file is whole and quiet (P10).
//!
//! It is polled: that is the same on every file system, and quiet can only be seen by looking twice.

use crate::generation::{GenerationError, load_and_keep};
use crate::load::LoadError;
use crate::plugin::LoadedPlugin;
use crate::sandbox::Sandbox;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long nothing about a file may change before it is read.
const QUIET: Duration = Duration::from_millis(250);
/// A file that cannot be loaded may be half of one that is still being written: it is called bad only after this.
const PATIENCE: Duration = Duration::from_secs(2);

/// A directory of plugins over time.
pub struct PluginDirectory {
    sandbox: Sandbox,
    path: PathBuf,
    files: BTreeMap<PathBuf, Watched>,
    /// Of the file that says which plugins may serve.
    lock: Option<Stamp>,
}

/// What was seen in the directory.
#[derive(Debug)]
pub enum Look {
    /// Something is changing: look again soon.
    Restless,
    /// Every file is whole and quiet, or bad for good.
    Quiet(Seen),
}

/// The files of a quiet directory.
#[derive(Debug, Default)]
pub struct Seen {
    /// All files that are there, also those that cannot be loaded.
    pub files: BTreeSet<PathBuf>,
    /// What can be loaded, by file.
    pub plugins: Vec<(PathBuf, Arc<LoadedPlugin>)>,
    /// Files that cannot be loaded, each told once as long as it does not change.
    pub problems: Vec<(PathBuf, LoadError)>,
}

/// One file.
struct Watched {
    stamp: Stamp,
    /// Since when it is as it is.
    since: Instant,
    content: Content,
}

enum Content {
    Unread,
    Good(Arc<LoadedPlugin>),
    /// Perhaps not whole yet.
    Doubtful(LoadError),
    Bad,
    Gone,
}

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    /// Inode and time of the last change of any kind, where there are such things.
    node: (u64, i64, i64),
}

impl PluginDirectory {
    /// Nothing of it is known before the first look.
    pub fn new(sandbox: Sandbox, path: PathBuf) -> Self {
        Self { sandbox, path, files: BTreeMap::new(), lock: None }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks once, and reads what has become quiet. Plugins of files that have not changed are the same ones as before.
    pub async fn look(&mut self) -> Result<Look, GenerationError> {
        self.take_stamps().await?;
        let now = Instant::now();
        for (path, file) in &mut self.files {
            if matches!(file.content, Content::Unread) && now.duration_since(file.since) >= QUIET {
                let read = load_and_keep(&self.sandbox, path, &|_| {}).await;
                // What was replaced while it was read is read again.
                match tokio::fs::metadata(path).await.ok().as_ref().map(Stamp::of) {
                    Some(stamp) if stamp == file.stamp => match read {
                        Ok(plugin) => file.content = Content::Good(plugin),
                        Err(error) => file.content = Content::Doubtful(error),
                    },
                    Some(stamp) => (file.stamp, file.since) = (stamp, Instant::now()),
                    None => (file.content, file.since) = (Content::Gone, Instant::now()),
                }
            }
        }
        Ok(self.settle())
    }

    async fn take_stamps(&mut self) -> Result<(), GenerationError> {
        let path = self.path.clone();
        let found = tokio::task::spawn_blocking(move || stamps_in(&path)).await;
        let found = found.map_err(std::io::Error::other).flatten();
        let found = found.map_err(|source| GenerationError::Directory { path: self.path.clone(), source })?;
        let now = Instant::now();
        self.read_again_after_a_change_of_the_lock(now).await;
        for (path, file) in &mut self.files {
            if !found.contains_key(path) && !matches!(file.content, Content::Gone) {
                (file.content, file.since) = (Content::Gone, now);
            }
        }
        for (path, stamp) in found {
            let new = Watched { stamp, since: now, content: Content::Unread };
            let file = self.files.entry(path).or_insert(new);
            if file.stamp != stamp || matches!(file.content, Content::Gone) {
                (file.stamp, file.since, file.content) = (stamp, now, Content::Unread);
            }
        }
        Ok(())
    }

    /// What the lock kept from serving may serve by its new word.
    async fn read_again_after_a_change_of_the_lock(&mut self, now: Instant) {
        let Some(vetting) = &self.sandbox.vetting else { return };
        let path = self.path.join(vetting.lock_file());
        let lock = tokio::fs::metadata(path).await.ok().as_ref().map(Stamp::of);
        if std::mem::replace(&mut self.lock, lock) == lock {
            return;
        }
        for file in self.files.values_mut() {
            if matches!(file.content, Content::Bad | Content::Doubtful(_)) {
                (file.since, file.content) = (now, Content::Unread);
            }
        }
    }

    fn settle(&mut self) -> Look {
        let is_restless = |file: &Watched| match file.content {
            Content::Unread => true,
            Content::Gone => file.since.elapsed() < QUIET,
            Content::Doubtful(_) => file.since.elapsed() < PATIENCE,
            Content::Good(_) | Content::Bad => false,
        };
        if self.files.values().any(is_restless) {
            return Look::Restless;
        }
        self.files.retain(|_, file| !matches!(file.content, Content::Gone));
        let mut seen = Seen::default();
        for (path, file) in &mut self.files {
            seen.files.insert(path.clone());
            match &file.content {
                Content::Good(plugin) => seen.plugins.push((path.clone(), plugin.clone())),
                Content::Doubtful(_) => {
                    if let Content::Doubtful(error) = std::mem::replace(&mut file.content, Content::Bad) {
                        seen.problems.push((path.clone(), error));
                    }
                }
                Content::Unread | Content::Bad | Content::Gone => {}
            }
        }
        Look::Quiet(seen)
    }
}

/// The components of a directory, as [`crate::Generation::load`] finds them.
fn stamps_in(directory: &Path) -> std::io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm")
            && let Ok(metadata) = std::fs::metadata(&path)
        {
            found.insert(path, Stamp::of(&metadata));
        }
    }
    Ok(found)
}

impl Stamp {
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
