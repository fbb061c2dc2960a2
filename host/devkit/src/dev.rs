//! Watches the sources of plugins and builds the plugins in the background after each change. A change during a build
//! stops this build and starts a new build (S5).
//!
//! The sources are polled, because polling works in the same way on every file system, and because comparing two
//! states of the sources shows whether all writes are finished.

use crate::build::{BuildError, BuildProgress, BuiltPlugin, Toolchain, build_directory, sources};
use crate::source_files::{SourceFiles, collect};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Interval between two checks of the sources.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A build starts when no file has changed for this time, because editors write files in several steps.
const QUIET_TIME: Duration = Duration::from_millis(300);
/// An event of the watcher.
#[derive(Debug)]
pub enum DevEvent {
    /// A build has started.
    Building {
        /// The first changed file, which caused the build. `None` means that the build is the first build.
        changed: Option<PathBuf>,
    },
    /// The build was stopped because a source changed again.
    Superseded,
    /// All components have been built. Components that did not change were not written.
    Built(Vec<BuiltPlugin>),
    /// The build failed. The component files of the previous build were not changed.
    Failed(BuildError),
}

/// Plugin projects that are built again when their sources change.
#[derive(Clone, Debug)]
pub struct SourceWatcher {
    /// The programs that build the projects, for all languages.
    pub toolchain: Toolchain,
    /// The folder of a project, or a folder that contains the folders of several projects.
    pub sources: PathBuf,
    /// The folder to which the components are written.
    pub out: PathBuf,
}

impl SourceWatcher {
    /// Builds the projects, and builds them again whenever a source changes, until `cancel` is cancelled. Waits while
    /// the channel for events is full. Sends events of the toolchain to `progress`.
    pub async fn run(&self, events: Sender<DevEvent>, progress: &BuildProgress<'_>, cancel: CancellationToken) {
        let watch = async {
            let mut changed = None;
            loop {
                // The sources are determined before each build, because a change can add dependencies on other sources.
                let watched = WatchedPaths { paths: sources(&self.toolchain, &self.sources).await.into() };
                let seen = watched.read().await;
                if events.send(DevEvent::Building { changed }).await.is_err() {
                    return;
                }
                let outcome = tokio::select! {
                    built = build_directory(&self.toolchain, &self.sources, &self.out, progress) => match built {
                        Ok(built) => DevEvent::Built(built),
                        Err(error) => DevEvent::Failed(error),
                    },
                    () = watched.until_different(&seen) => DevEvent::Superseded,
                };
                if events.send(outcome).await.is_err() {
                    return;
                }
                changed = watched.until_settled(seen).await;
            }
        };
        tokio::select! {
            () = watch => {}
            () = cancel.cancelled() => {}
        }
    }
}

/// The files and folders that the projects are built from.
struct WatchedPaths {
    paths: Arc<[PathBuf]>,
}

impl WatchedPaths {
    /// Waits until a file differs from its state in `seen`.
    async fn until_different(&self, seen: &SourceFiles) {
        while self.read().await == *seen {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a file differs from its state in `before` and no file has changed for [`QUIET_TIME`]. Returns the
    /// first changed file.
    async fn until_settled(&self, before: SourceFiles) -> Option<PathBuf> {
        let (mut seen, mut since) = (self.read().await, Instant::now());
        loop {
            if seen != before && since.elapsed() >= QUIET_TIME {
                return first_change(&before, &seen).cloned();
            }
            sleep(POLL_INTERVAL).await;
            let now = self.read().await;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// Reads the state of all files on a blocking thread, because a large tree or a network file system takes time.
    async fn read(&self) -> SourceFiles {
        let paths = self.paths.clone();
        let files = tokio::task::spawn_blocking(move || {
            let mut sources = SourceFiles::new();
            paths.iter().for_each(|path| collect(path, &mut sources));
            sources
        });
        files.await.unwrap_or_default()
    }
}

fn first_change<'s>(before: &'s SourceFiles, now: &'s SourceFiles) -> Option<&'s PathBuf> {
    let is_new = |(path, stamp): &(&'s PathBuf, &(SystemTime, u64))| before.get(*path) != Some(*stamp);
    let removed = || before.keys().find(|path| !now.contains_key(*path));
    now.iter().find(is_new).map(|(path, _)| path).or_else(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_first_changed_file() {
        let sources = |files: &[(&str, u64)]| -> SourceFiles {
            files.iter().map(|(path, size)| (PathBuf::from(path), (SystemTime::UNIX_EPOCH, *size))).collect()
        };
        let before = sources(&[("a", 1), ("b", 1)]);
        let named = |now: &[(&str, u64)]| {
            first_change(&before, &sources(now)).and_then(|path| path.to_str().map(str::to_owned))
        };
        assert_eq!(named(&[("a", 1), ("b", 1)]), None);
        assert_eq!(named(&[("a", 1), ("b", 2)]).as_deref(), Some("b"));
        assert_eq!(named(&[("a", 1), ("b", 1), ("c", 0)]).as_deref(), Some("c"));
        assert_eq!(named(&[("b", 1)]).as_deref(), Some("a"));
    }
}
