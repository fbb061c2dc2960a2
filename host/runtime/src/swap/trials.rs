//! Trials over processes: what calls of a new version come to is written down at traps and when a process ends, never at
//! a call (P10).

use super::ledger::directory_name;
use crate::live::{LiveAgent, OnTrial};
use agent_plugins::TrialCounts;
use agent_store::{CountedTrial, Deed, Rollback, Store, StoreError, VersionEnd};
use std::path::Path;

/// Why a version that fails its trial is taken back.
pub(super) const TRAPPED: &str = "it crashed in 3 of its first 10 calls";

/// Writes down what the trials of an agent's plugins have come to, before its process ends. What has failed is taken back
/// for the next one; these are returned.
pub async fn finish(store: &dyn Store, directory: &Path, agent: &LiveAgent) -> Result<Vec<Rollback>, StoreError> {
    let (directory, agent) = (directory_name(directory), agent.current());
    let mut taken_back = Vec::new();
    for (plugin, on_trial) in &agent.standing().trials {
        taken_back.extend(count(store, &directory, plugin, on_trial).await?);
    }
    Ok(taken_back)
}

/// Adds what is new of a trial to what all processes have counted. A trial that fails takes its version back.
pub(super) async fn count(
    store: &dyn Store,
    directory: &str,
    plugin: &str,
    on_trial: &OnTrial,
) -> Result<Option<Rollback>, StoreError> {
    let new = on_trial.trial.take_unwritten();
    if new == TrialCounts::default() {
        return Ok(None);
    }
    let counted = CountedTrial {
        directory: directory.to_owned(),
        plugin: plugin.to_owned(),
        digest: on_trial.digest.clone(),
        calls: new.calls,
        traps: new.traps,
    };
    let stored = match store.count_trial(counted).await {
        Ok(stored) => stored,
        Err(error) => {
            on_trial.trial.give_back(new);
            return Err(error);
        }
    };
    let Some(stored) = stored else { return Ok(None) };
    let counts = TrialCounts { calls: stored.calls, traps: stored.traps };
    let rollback = counts.is_failed().then(|| rollback_of(directory, plugin, on_trial));
    if let Some(rollback) = &rollback {
        store.roll_back(rollback.clone()).await?;
        store.audit(vec![deed_of(rollback)]).await?;
    }
    if counts.is_over() {
        store.end_trial(directory, plugin).await?;
    }
    Ok(rollback)
}

/// What a failed trial comes to.
pub(super) fn rollback_of(directory: &str, plugin: &str, on_trial: &OnTrial) -> Rollback {
    Rollback {
        directory: directory.to_owned(),
        plugin: plugin.to_owned(),
        from: on_trial.digest.clone(),
        to: on_trial.before.clone(),
        why: VersionEnd::Trapped,
    }
}

fn deed_of(rollback: &Rollback) -> Deed {
    let Rollback { directory, plugin, from, to, .. } = rollback.clone();
    Deed::RolledBack { directory, plugin, from, to, because: TRAPPED.to_owned() }
}
