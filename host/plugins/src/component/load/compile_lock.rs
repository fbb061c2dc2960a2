//! A lock that lets only one process compile a component at a time. Other processes that use the same cache wait, and
//! then find the compiled code in the cache.

use crate::component::code_cache::CompiledCache;
use agent_core::message::Digest;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum time to wait for another process, because that process may hang. After this time, the waiting process
/// compiles the component even if the other process is still compiling it.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Time between two attempts to acquire the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The lock for compiling one component. Other processes that compile the same component wait until the
/// lock is dropped.
#[derive(Debug)]
pub(super) struct CompileLock {
    path: PathBuf,
    /// The lock file, which remains locked while it is open.
    _file: File,
}

impl Drop for CompileLock {
    fn drop(&mut self) {
        // Removing the lock file is safe: a waiting process has the file open and still gets the lock, and a process
        // that starts later finds the compiled code in the cache.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until no other process compiles the component, and returns the lock. Returns None if there is no cache, if the
/// lock file cannot be used, or if the wait takes too long.
pub(super) async fn acquire(cache: Option<&CompiledCache>, component: &Digest) -> Option<CompileLock> {
    acquire_within(cache, component, MAX_WAIT).await
}

async fn acquire_within(cache: Option<&CompiledCache>, component: &Digest, max_wait: Duration) -> Option<CompileLock> {
    let path = cache?.lock_path(component);
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) => {
            tracing::debug!(%component, %error, "cannot lock the component; it is compiled without a lock");
            return None;
        }
    };
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Some(CompileLock { path, _file: file }),
            Err(TryLockError::WouldBlock) if started.elapsed() < max_wait => tokio::time::sleep(POLL_INTERVAL).await,
            Err(TryLockError::WouldBlock) => {
                tracing::info!(%component, "another process takes very long to compile the component; this process now compiles it too");
                return None;
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%component, %error, "cannot lock the component; it is compiled without a lock");
                return None;
            }
        }
    }
}

fn open(path: &std::path::Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P15: a second process waits for the process that compiles the component, but only for a limited time.
    #[tokio::test]
    async fn p15_compile_lock_is_held_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache =
            CompiledCache::open(folder.path(), blake3::hash(b"engine"), 1 << 20).expect("opened").expect("a cache");
        let (component, other_component) = (crate::digest_of(b"one"), crate::digest_of(b"other"));
        let first = acquire(Some(&cache), &component).await.expect("the lock is free");
        let short = Duration::from_millis(50);
        assert!(acquire_within(Some(&cache), &component, short).await.is_none(), "the lock is taken");
        assert!(
            acquire_within(Some(&cache), &other_component, short).await.is_some(),
            "another component has its own lock"
        );
        let (waiting, releasing) = (acquire(Some(&cache), &component), async { drop(first) });
        assert!(tokio::join!(waiting, releasing).0.is_some(), "the lock is free again");
        assert!(acquire(None, &component).await.is_none());
    }
}
