//! Sources that are watched: each change is built in the background, and a newer change takes a build's place (S5).
//!
//! They are polled, as plugins are: that is the same on every file system, and quiet can only be seen by looking twice.

use crate::build::{BuildError, BuildEvent, BuiltPlugin, Toolchain, build_directory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// How long nothing may change before it is built: editors write in several steps.
const QUIET: Duration = Duration::from_millis(300);
/// Most files that are watched.
const FILES: usize = 20_000;
/// Levels of folders that are looked into.
const DEPTH: usize = 12;
/// Folders in which nothing is written by hand.
const NOT_SOURCES: [&str; 6] = ["target", "node_modules", "build", "__pycache__", "dist", "venv"];

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
    /// Builds now, and then whenever a source has changed, until it is cancelled. News that nobody takes make it wait.
    pub async fn keep_built(&self, news: Sender<News>, cancel: CancellationToken) {
        let keeping = async {
            let mut changed = None;
            let mut seen = self.look();
            loop {
                if news.send(News::Building { changed }).await.is_err() {
                    return;
                }
                let silent = |_: BuildEvent<'_>| {};
                let told = tokio::select! {
                    built = build_directory(&self.toolchain, &self.sources, &self.out, &silent) => match built {
                        Ok(built) => News::Built(built),
                        Err(error) => News::Failed(error),
                    },
                    () = self.differs(&seen) => News::Superseded,
                };
                if news.send(told).await.is_err() {
                    return;
                }
                (seen, changed) = self.changed(seen).await;
            }
        };
        tokio::select! {
            () = keeping => {}
            () = cancel.cancelled() => {}
        }
    }

    /// Waits until something is otherwise than it was seen.
    async fn differs(&self, seen: &Sources) {
        while self.look() == *seen {
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Waits until something is otherwise than it was seen, and has been left alone for a while; says what.
    async fn changed(&self, before: Sources) -> (Sources, Option<PathBuf>) {
        let (mut seen, mut since) = (self.look(), Instant::now());
        loop {
            if seen != before && since.elapsed() >= QUIET {
                let path = difference(&before, &seen).cloned();
                return (seen, path);
            }
            sleep(BETWEEN_LOOKS).await;
            let now = self.look();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    fn look(&self) -> Sources {
        let mut sources = Sources::new();
        gather(&self.sources, 0, &mut sources);
        sources
    }
}

/// Files by what shows a change without reading them.
type Sources = BTreeMap<PathBuf, (SystemTime, u64)>;

fn gather(folder: &Path, depth: usize, sources: &mut Sources) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if sources.len() >= FILES {
            return;
        }
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links are not followed: they may lead in circles.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if depth < DEPTH && !name.starts_with('.') && !NOT_SOURCES.contains(&&*name) {
                gather(&path, depth + 1, sources);
            }
        } else if is_source(&name) {
            sources.insert(path, (metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len()));
        }
    }
}

/// Neither what a build writes, nor what editors leave behind for a moment.
fn is_source(name: &str) -> bool {
    let is_made = name.ends_with(".wasm") || matches!(name, "Cargo.lock" | "package-lock.json");
    let is_passing = name.starts_with('.')
        || name.starts_with('#')
        || name.ends_with('~')
        || name.ends_with(".swp")
        || name == "4913";
    !is_made && !is_passing
}

fn difference<'s>(before: &'s Sources, now: &'s Sources) -> Option<&'s PathBuf> {
    let is_new = |(path, stamp): &(&'s PathBuf, &(SystemTime, u64))| before.get(*path) != Some(*stamp);
    let gone = || before.keys().find(|path| !now.contains_key(*path));
    now.iter().find(is_new).map(|(path, _)| path).or_else(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S5: what a build writes itself, and what editors leave behind, begins no build.
    #[test]
    fn only_sources_are_watched() {
        let top = tempfile::tempdir().expect("a temporary folder");
        let add = |path: &str| {
            let path = top.path().join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
            std::fs::write(path, "").expect("written");
        };
        let sources = ["plugin.toml", "src/lib.rs", "src/deep/er/one.rs", "app.js", "wit/world.wit", "Cargo.toml"];
        let others = [
            "target/debug/a.rs",
            "node_modules/a/a.js",
            ".venv/lib/a.py",
            "build/bindings/plugin.h",
            "one.wasm",
            ".one.wasm.7.unfinished",
            "Cargo.lock",
            "package-lock.json",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "src/#lib.rs#",
            "src/4913",
            "__pycache__/a.pyc",
            ".git/HEAD",
        ];
        sources.iter().chain(&others).for_each(|path| add(path));
        let mut found = Sources::new();
        gather(top.path(), 0, &mut found);
        let mut expected: Vec<_> = sources.iter().map(|path| top.path().join(path)).collect();
        expected.sort();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), expected);
    }

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
