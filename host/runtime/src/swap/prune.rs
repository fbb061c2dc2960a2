//! The plugin store does not grow for ever: what no open turn and no recent version needs is forgotten (P10).

use agent_core::message::Digest;
use agent_core::run::{RestoreError, Run};
use agent_plugins::{PluginStore, PluginStoreError};
use agent_store::{MAX_PAGE, Store, StoreError};
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// Versions of a plugin that are kept for a rollback, beside the one that serves.
pub const KEPT_VERSIONS: u32 = 5;
/// What was stored a moment ago may be a turn's that begins just now.
const YOUNG: Duration = Duration::from_secs(3_600);

/// What was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Components.
    pub removed: Vec<Digest>,
    /// Their bytes.
    pub bytes: u64,
    /// Components that stay.
    pub kept: usize,
}

/// A store of plugins that cannot be pruned. What was not removed stays whole.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The plugin store failed.
    #[error(transparent)]
    Plugins(#[from] PluginStoreError),
    /// It cannot be known what this session needs.
    #[error("session `{session}` cannot be read, so it is not known which plugins it needs: {error}")]
    Session {
        /// Its subject.
        session: String,
        /// What is wrong.
        error: RestoreError,
    },
}

/// Forgets the components that are older than an hour at `now` and that nobody needs: no open turn, no version that serves
/// or was among the last five of its plugin, and no rollback.
pub async fn prune(store: &dyn Store, plugins: &PluginStore, now: SystemTime) -> Result<Pruned, PruneError> {
    let mut needed: HashSet<Digest> = store.needed_versions(KEPT_VERSIONS).await?.into_iter().collect();
    needed.extend(of_open_turns(store).await?);
    let plugins = plugins.clone();
    let work = tokio::task::spawn_blocking(move || {
        let mut pruned = Pruned::default();
        for stored in plugins.list()? {
            let is_young = now.duration_since(stored.modified).is_ok_and(|age| age < YOUNG);
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
    let stopped = |error: tokio::task::JoinError| StoreError::Invalid {
        what: "the plugin store".to_owned(),
        problem: error.to_string(),
    };
    Ok(work.await.map_err(stopped)??)
}

async fn of_open_turns(store: &dyn Store) -> Result<HashSet<Digest>, PruneError> {
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
