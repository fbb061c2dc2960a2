//! One process compiles a component at a time: others that have the same cache wait, and find its code there.

use crate::cache::CompiledCache;
use agent_core::message::Digest;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long another process is waited for. It may have been stopped: then this one compiles, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The right to compile one component. Others wait until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    /// Locked for as long as it is open.
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whoever waits has it open and is given the lock; whoever comes later finds the code.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until nobody else compiles the component. None: there is no cache in which others could leave it, or it takes too long.
pub(super) async fn claim(cache: Option<&CompiledCache>, component: &Digest) -> Option<Claim> {
    claim_within(cache, component, PATIENCE).await
}

async fn claim_within(cache: Option<&CompiledCache>, component: &Digest, patience: Duration) -> Option<Claim> {
    let path = cache?.claim_path(component);
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) => {
            tracing::debug!(%component, %error, "the component is compiled without a lock");
            return None;
        }
    };
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Some(Claim { path, _file: file }),
            Err(TryLockError::WouldBlock) if begun.elapsed() < patience => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::WouldBlock) => {
                tracing::info!(%component, "another process compiles the component, and takes long; this one does, too");
                return None;
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%component, %error, "the component is compiled without a lock");
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

    // P15: who comes second waits for the first, and not for ever.
    #[tokio::test]
    async fn p15_a_component_is_claimed_by_one_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache =
            CompiledCache::open(folder.path(), blake3::hash(b"engine"), 1 << 20).expect("opened").expect("a cache");
        let (one, other) = (crate::digest_of(b"one"), crate::digest_of(b"other"));
        let first = claim(Some(&cache), &one).await.expect("nobody has it");
        let short = Duration::from_millis(50);
        assert!(claim_within(Some(&cache), &one, short).await.is_none(), "it is taken");
        assert!(claim_within(Some(&cache), &other, short).await.is_some(), "another component is not");
        let (waiting, letting_go) = (claim(Some(&cache), &one), async { drop(first) });
        assert!(tokio::join!(waiting, letting_go).0.is_some(), "it is free again");
        assert!(claim(None, &one).await.is_none());
    }
}
