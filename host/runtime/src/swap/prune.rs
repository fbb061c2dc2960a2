//! Prunes the plugin store: removes components that are not needed for an open turn or a recent version (P10).

use agent_core::message::Digest;
use agent_core::run::{RestoreError, Run};
use agent_plugins::{PluginStore, PluginStoreError};
use agent_store::{MAX_PAGE, Store, StoreError};
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// Number of versions of a plugin that are kept for a rollback, in addition to the version in use.
pub const KEPT_VERSIONS: u32 = 5;
/// Minimum age of a component that may be removed. A newer component may belong to a turn that is just starting.
const MIN_AGE: Duration = Duration::from_secs(3_600);

/// Result of pruning the plugin store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Digests of the removed components.
    pub removed: Vec<Digest>,
    /// Total size of the removed components in bytes.
    pub bytes: u64,
    /// Number of components that were not removed.
    pub kept: usize,
}

/// The reason why the plugin store cannot be pruned. The components that the host had
/// not removed when the error occurred remain intact.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The session store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The plugin store failed.
    #[error(transparent)]
    Plugins(#[from] PluginStoreError),
    /// A session's snapshot cannot be read, so the plugins that the session needs are unknown.
    #[error("session `{session}` cannot be read, so the plugins that it needs are unknown: {error}")]
    Session {
        /// Id (subject) of the session whose snapshot cannot be read.
        session: String,
        /// The reason why the snapshot cannot be read.
        error: RestoreError,
    },
}

/// Removes components that are not needed and that are older than one hour at the time `now`. A component is needed if
/// it is in use, if an open turn or a rollback refers to it, or if it is one of the last five versions of its plugin.
pub async fn prune(store: &dyn Store, plugins: &PluginStore, now: SystemTime) -> Result<Pruned, PruneError> {
    let mut needed: HashSet<Digest> = store.needed_versions(KEPT_VERSIONS).await?.into_iter().collect();
    needed.extend(digests_of_open_turns(store).await?);
    let plugins = plugins.clone();
    let work = tokio::task::spawn_blocking(move || {
        let mut pruned = Pruned::default();
        for stored in plugins.list()? {
            let is_young = now.duration_since(stored.modified).is_ok_and(|age| age < MIN_AGE);
            if needed.contains(&stored.digest) || is_young || now < stored.modified {
                pruned.kept += 1;
            } else if plugins.remove(&stored.digest)? {
                pruned.bytes += stored.bytes;
                pruned.removed.push(stored.digest);
            }
        }
        pruned.removed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        Ok::<_, PluginStoreError>(pruned)
    });
    let task_failed = |error: tokio::task::JoinError| StoreError::Invalid {
        what: "the plugin store".to_owned(),
        problem: error.to_string(),
    };
    Ok(work.await.map_err(task_failed)??)
}

async fn digests_of_open_turns(store: &dyn Store) -> Result<HashSet<Digest>, PruneError> {
    let (mut needed, mut after) = (HashSet::new(), String::new());
    loop {
        let page = store.unfinished(&after, MAX_PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(needed) };
        after = last.clone();
        for (session, snapshot) in page {
            let run = Run::restore(Some(&snapshot)).map_err(|error| PruneError::Session { session, error })?;
            needed.extend(run.turn.iter().flat_map(|turn| turn.plugins.iter().map(|pin| pin.digest.clone())));
        }
    }
}
