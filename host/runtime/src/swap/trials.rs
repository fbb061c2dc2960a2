//! Trials of new plugin versions. If a process ends before a trial does, the next process continues the trial. For this
//! purpose, the host stores how often a new version was called and how often it trapped: after each trap and when the
//! process ends, but never during a call (P10).

use super::version_log::{TRAPPED, directory_name};
use crate::agent::{LiveAgent, VersionTrial};
use agent_plugins::TrialCounts;
use agent_store::{AuditAction, Rollback, Store, StoreError, TrialCalls, VersionEndReason};
use std::path::Path;

/// Stores the trial counts of an agent's plugins before the process ends. Versions that failed their trial are rolled
/// back, so that the next process does not use them. Returns the rollbacks of the versions that failed.
pub async fn finish_trials(
    store: &dyn Store,
    directory: &Path,
    agent: &LiveAgent,
) -> Result<Vec<Rollback>, StoreError> {
    let (directory, agent) = (directory_name(directory), agent.current());
    let mut rollbacks = Vec::new();
    for (plugin, on_trial) in &agent.versions().trials {
        rollbacks.extend(count(store, &directory, plugin, on_trial).await?);
    }
    Ok(rollbacks)
}

/// Updates the stored numbers of calls and traps in a trial: adds the numbers that this process has counted. The stored
/// numbers also include the counts of other processes. A version that fails its trial is rolled back.
pub(super) async fn count(
    store: &dyn Store,
    directory: &str,
    plugin: &str,
    on_trial: &VersionTrial,
) -> Result<Option<Rollback>, StoreError> {
    let new = on_trial.calls.take_unwritten();
    if new == TrialCounts::default() {
        return Ok(None);
    }
    let counted = TrialCalls {
        directory: directory.to_owned(),
        plugin: plugin.to_owned(),
        digest: on_trial.digest.clone(),
        calls: new.calls,
        traps: new.traps,
    };
    let stored = match store.add_trial_calls(counted).await {
        Ok(stored) => stored,
        Err(error) => {
            on_trial.calls.give_back(new);
            return Err(error);
        }
    };
    let Some(stored) = stored else { return Ok(None) };
    let counts = TrialCounts { calls: stored.calls, traps: stored.traps };
    let rollback = counts.is_failed().then(|| rollback_of(directory, plugin, on_trial));
    if let Some(rollback) = &rollback {
        store.roll_back(rollback.clone()).await?;
        store.audit(vec![rollback_entry(rollback)]).await?;
    }
    if counts.is_over() {
        store.end_trial(directory, plugin).await?;
    }
    Ok(rollback)
}

/// Builds the rollback of a version that failed its trial.
pub(super) fn rollback_of(directory: &str, plugin: &str, on_trial: &VersionTrial) -> Rollback {
    Rollback {
        directory: directory.to_owned(),
        plugin: plugin.to_owned(),
        from: on_trial.digest.clone(),
        to: on_trial.before.clone(),
        why: VersionEndReason::Trapped,
    }
}

fn rollback_entry(rollback: &Rollback) -> AuditAction {
    let Rollback { directory, plugin, from, to, .. } = rollback.clone();
    AuditAction::RolledBack { directory, plugin, from, to, because: TRAPPED.to_owned() }
}
