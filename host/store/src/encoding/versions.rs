//! Differences between stored and served versions of plugins.

use super::values::Unreadable;
use crate::{ServedPlugin, VersionChange, VersionEndReason};
use agent_core::message::Digest;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// Differences between the versions that are in use according to the table and the versions that should be in use.
pub(crate) struct ServingChanges<'s> {
    pub(crate) ended: Vec<EndedVersion>,
    pub(crate) started: Vec<&'s ServedPlugin>,
}

/// A version that is no longer in use.
pub(crate) struct EndedVersion {
    pub(crate) number: i64,
    pub(crate) plugin: String,
    pub(crate) digest: Digest,
    pub(crate) why: VersionEndReason,
}

impl<'s> ServingChanges<'s> {
    /// Compares the rows of the versions in use, each with its number, plugin and digest, with the versions that should
    /// be in use.
    pub(crate) fn of(serving_rows: &[(i64, String, Digest)], serving: &'s [ServedPlugin]) -> Self {
        let already_serves = |served: &ServedPlugin| {
            serving_rows.iter().any(|(_, plugin, digest)| *plugin == served.plugin && *digest == served.digest)
        };
        let started = serving.iter().filter(|served| !already_serves(served)).collect();
        let ended = serving_rows.iter().filter_map(|(number, plugin, digest)| {
            let why = match serving.iter().find(|served| served.plugin == *plugin) {
                None => VersionEndReason::Removed,
                Some(served) if served.digest != *digest => served.instead,
                Some(_) => return None,
            };
            Some(EndedVersion { number: *number, plugin: plugin.clone(), digest: digest.clone(), why })
        });
        Self { ended: ended.collect(), started }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.started.is_empty()
    }

    pub(crate) fn version_changes(&self) -> Vec<VersionChange> {
        let removed =
            self.ended.iter().filter(|ended| self.started.iter().all(|started| started.plugin != ended.plugin));
        let removed = removed.map(|ended| (&ended.plugin, None));
        let started = self.started.iter().map(|started| (&started.plugin, Some(started.digest.clone())));
        let from =
            |plugin: &str| self.ended.iter().find(|ended| ended.plugin == plugin).map(|ended| ended.digest.clone());
        let changed = removed.chain(started);
        changed.map(|(plugin, to)| VersionChange { plugin: plugin.clone(), from: from(plugin), to }).collect()
    }
}

/// Parses the word that [`VersionEndReason::as_str`] returns.
pub(crate) fn parse_version_end(word: &str) -> Result<VersionEndReason, Unreadable> {
    let reasons =
        [VersionEndReason::Replaced, VersionEndReason::Removed, VersionEndReason::Trapped, VersionEndReason::Requested];
    let found = reasons.into_iter().find(|end| end.as_str() == word);
    found.ok_or_else(|| Unreadable(format!("the use of a plugin version ended for the unknown reason `{word}`")))
}

/// Maximum number of agents whose components are cached. When this number is reached, the cache is cleared, and
/// components are read from the database again.
const MAX_CACHED_AGENTS: usize = 1_000;

/// For each agent, the components that the agent used when one of its turns started. The cache contains only components
/// that this process has written to the database or read from it.
#[derive(Debug, Default)]
pub(crate) struct TurnPluginCache(Mutex<HashMap<String, HashSet<(String, Digest)>>>);

impl TurnPluginCache {
    /// Removes the components that are in the cache.
    pub(crate) fn retain_uncached(&self, agent: &str, plugins: &mut Vec<(String, Digest)>) {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(agent) {
            plugins.retain(|component| !known.contains(component));
        }
    }

    pub(crate) fn add(&self, agent: &str, plugins: Vec<(String, Digest)>) {
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if agents.len() >= MAX_CACHED_AGENTS && !agents.contains_key(agent) {
            agents.clear();
        }
        agents.entry(agent.to_owned()).or_default().extend(plugins);
    }
}
