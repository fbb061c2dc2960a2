//! Sources that are watched: each change is built in the background, and a newer change takes a build's place (S5).
//!
//! They are polled, as plugins are: that is the same on every file system, and quiet can only be seen by looking twice.

use crate::build::{BuildError, BuildProgress, BuiltPlugin, Toolchain, build_directory, sources};
use crate::written::{Sources, look_at};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// How long nothing may change before it is built: editors write in several steps.
const QUIET: Duration = Duration::from_millis(300);
/// What becomes of a change.
#[derive(Debug)]
pub enum News {
    /// A build has begun.
    Building {
        /// A file that has changed, of several the first; none: it is the first build.
        changed: Option<PathBuf>,
    },
    /// It is given up, since something has changed again.
    Superseded,
    /// Components are in place. Those that are as they were have not been written.
    Built(Vec<BuiltPlugin>),
    /// What was built before stays.
    Failed(BuildError),
}

/// What is built, and where to.
#[derive(Clone, Debug)]
pub struct Workshop {
    /// Whatever the projects need.
    pub toolchain: Toolchain,
    /// A project, or a folder of projects.
    pub sources: PathBuf,
    /// Where the components are written.
    pub out: PathBuf,
}

impl Workshop {
    /// Builds now, and then whenever a source has changed, until it is cancelled. News that nobody takes make it wait; what a
    /// toolchain says meanwhile goes to `progress`.
    pub async fn keep_built(&self, news: Sender<News>, progress: &BuildProgress<'_>, cancel: CancellationToken) {
        let keeping = async {
            let mut changed = None;
            loop {
                // What it is built of may change with each build.
                let watched = Watched { places: sources(&self.toolchain, &self.sources).await.into() };
                let seen = watched.look().await;
                if news.send(News::Building { changed }).await.is_err() {
                    return;
                }
                let told = tokio::select! {
                    built = build_directory(&self.toolchain, &self.sources, &self.out, progress) => match built {
                        Ok(built) => News::Built(built),
                        Err(error) => News::Failed(error),
                    },
                    () = watched.differs(&seen) => News::Superseded,
                };
                if news.send(told).await.is_err() {
                    return;
                }
                changed = watched.changed(seen).await;
            }
        };
        tokio::select! {
            () = keeping => {}
            () = cancel.cancelled() => {}
        }
    }
}

/// Folders and files that are looked at.
struct Watched {
    places: Arc<[PathBuf]>,
}

impl Watched {
    /// Waits until something is otherwise than it was seen.
    async fn differs(&self, seen: &Sources) {
        while self.look().await == *seen {
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Waits until something is otherwise than it was seen, and has been left alone for a while; says what.
    async fn changed(&self, before: Sources) -> Option<PathBuf> {
        let (mut seen, mut since) = (self.look().await, Instant::now());
        loop {
            if seen != before && since.elapsed() >= QUIET {
                return difference(&before, &seen).cloned();
            }
            sleep(BETWEEN_LOOKS).await;
            let now = self.look().await;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// On a thread that may wait: a large tree, or one on a network, takes its time.
    async fn look(&self) -> Sources {
        let places = self.places.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let mut sources = Sources::new();
            places.iter().for_each(|place| look_at(place, &mut sources));
            sources
        });
        looked.await.unwrap_or_default()
    }
}

fn difference<'s>(before: &'s Sources, now: &'s Sources) -> Option<&'s PathBuf> {
    let is_new = |(path, stamp): &(&'s PathBuf, &(SystemTime, u64))| before.get(*path) != Some(*stamp);
    let gone = || before.keys().find(|path| !now.contains_key(*path));
    now.iter().find(is_new).map(|(path, _)| path).or_else(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named() {
        let sources = |files: &[(&str, u64)]| -> Sources {
            files.iter().map(|(path, size)| (PathBuf::from(path), (SystemTime::UNIX_EPOCH, *size))).collect()
        };
        let before = sources(&[("a", 1), ("b", 1)]);
        let named =
            |now: &[(&str, u64)]| difference(&before, &sources(now)).and_then(|path| path.to_str().map(str::to_owned));
        assert_eq!(named(&[("a", 1), ("b", 1)]), None);
        assert_eq!(named(&[("a", 1), ("b", 2)]).as_deref(), Some("b"));
        assert_eq!(named(&[("a", 1), ("b", 1), ("c", 0)]).as_deref(), Some("c"));
        assert_eq!(named(&[("b", 1)]).as_deref(), Some("a"));
    }
}
