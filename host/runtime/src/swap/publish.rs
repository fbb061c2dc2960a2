//! Offers the plugins that have changed in a directory to an agent (P10). An agent that cannot use some of the changed
//! plugins receives only those that it can use.

use super::{ChosenVersion, versions_of};
use crate::agent::{Agent, AgentError, LiveAgent, PluginVersions, VersionTrial};
use agent_plugins::Generation;
use std::collections::{BTreeMap, BTreeSet};

/// A change to a plugin that one agent declined, because the agent cannot use the changed plugin. The agent keeps the
/// previous version of the plugin.
pub(super) struct DeclinedPlugin {
    /// Name of the agent that declined the change.
    pub(super) agent: String,
    /// Name of the plugin whose change was declined.
    pub(super) plugin: String,
    /// The reason why the agent cannot use the plugin with this change.
    pub(super) error: AgentError,
}

/// Changes the plugins of an agent in one step. Only turns that start after the change use the changed plugins. Returns
/// the changes that the agent cannot use and therefore declined. If a change was declined, the agent keeps the previous
/// version of the plugin.
pub(super) fn offer(
    agent: &LiveAgent,
    chosen: &BTreeMap<String, ChosenVersion>,
    trials: &BTreeMap<String, VersionTrial>,
) -> Vec<DeclinedPlugin> {
    let current = versions_of(&agent.current());
    let changes = differences(&current, chosen);
    let mut declined = Vec::new();
    if changes.is_empty() {
        return declined;
    }
    // An error means that no change was published. The error is ignored here, because `declined` contains the error
    // of each change that the agent declined.
    let _ = agent.change(|agent| {
        let error_of_all = match agent_with(agent, chosen, trials) {
            Ok(agent) => return Ok(agent),
            Err(error) => error,
        };
        let (accepted, rejected) = apply_one_by_one(agent, (current, chosen, changes), trials);
        let name = agent.config().name.clone();
        declined.extend(rejected.into_iter().map(|(plugin, error)| DeclinedPlugin {
            agent: name.clone(),
            plugin,
            error,
        }));
        accepted.ok_or(error_of_all)
    });
    declined
}

/// Returns the names of those plugins whose versions in the two selections differ.
pub(super) fn differences(old: &BTreeMap<String, ChosenVersion>, new: &BTreeMap<String, ChosenVersion>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter(|name| old.get(*name) != new.get(*name)).cloned().collect()
}

/// Applies the changes one after another. Whenever a change is accepted, the rejected changes are tried again, because
/// a plugin may become usable only after another plugin was removed.
fn apply_one_by_one(
    agent: &Agent,
    (mut current, chosen, mut changes): (
        BTreeMap<String, ChosenVersion>,
        &BTreeMap<String, ChosenVersion>,
        Vec<String>,
    ),
    trials: &BTreeMap<String, VersionTrial>,
) -> (Option<Agent>, Vec<(String, AgentError)>) {
    let mut accepted = None;
    loop {
        let (tried, mut rejected) = (changes.len(), Vec::new());
        for plugin in changes {
            let mut next = current.clone();
            match chosen.get(&plugin) {
                Some(chosen) => next.insert(plugin.clone(), chosen.clone()),
                None => next.remove(&plugin),
            };
            match agent_with(agent, &next, trials) {
                Ok(agent) => (accepted, current) = (Some(agent), next),
                Err(error) => rejected.push((plugin, error)),
            }
        }
        if rejected.is_empty() || rejected.len() == tried {
            return (accepted, rejected);
        }
        changes = rejected.into_iter().map(|(plugin, _)| plugin).collect();
    }
}

fn agent_with(
    agent: &Agent,
    plugins: &BTreeMap<String, ChosenVersion>,
    trials: &BTreeMap<String, VersionTrial>,
) -> Result<Agent, AgentError> {
    let files = plugins.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone()));
    let rolled_back = plugins.iter().filter_map(|(name, chosen)| Some((name.clone(), chosen.instead_of.clone()?)));
    // If the agent keeps a version that is on trial, this trial continues.
    let trial_of = |name: &String, chosen: &ChosenVersion| {
        let known = [trials.get(name), agent.versions().trials.get(name)].into_iter().flatten();
        let mut known =
            known.filter(|on_trial| chosen.instead_of.is_none() && on_trial.digest == *chosen.plugin.digest());
        Some((name.clone(), known.next()?.clone()))
    };
    let versions = PluginVersions {
        rolled_back: rolled_back.collect(),
        trials: plugins.iter().filter_map(|(name, chosen)| trial_of(name, chosen)).collect(),
        refused: BTreeMap::new(),
    };
    agent.with_plugins(Generation::of_files(files), versions)
}
