//! A directory's new plugins are offered to an agent: all at once, and where it cannot work with all of them, those that it
//! can work with (P10).

use super::{Chosen, serving_of};
use crate::agent::{Agent, AgentError};
use crate::live::{LiveAgent, OnTrial, Standing};
use agent_plugins::Generation;
use std::collections::{BTreeMap, BTreeSet};

/// A plugin that an agent cannot work with as it is now; none of its version has become the agent's.
pub(super) struct Declined {
    /// The agent's name.
    pub(super) agent: String,
    /// The plugin's.
    pub(super) plugin: String,
    /// Why.
    pub(super) error: AgentError,
}

/// Makes the plugins the agent's, whole, for the turns that begin from then on. What it declines it keeps as it was.
pub(super) fn offer(
    agent: &LiveAgent,
    chosen: &BTreeMap<String, Chosen>,
    trials: &BTreeMap<String, OnTrial>,
) -> Vec<Declined> {
    let has = serving_of(&agent.current());
    let changes = differences(&has, chosen);
    let mut declined = Vec::new();
    if changes.is_empty() {
        return declined;
    }
    // Nothing is published where nothing can be taken, and what could not be taken is told by name.
    let _ = agent.change(|now| {
        let whole = match with(now, chosen, trials) {
            Ok(agent) => return Ok(agent),
            Err(error) => error,
        };
        let (taken, left) = one_by_one(now, (has, chosen, changes), trials);
        let name = now.config().name.clone();
        declined.extend(left.into_iter().map(|(plugin, error)| Declined { agent: name.clone(), plugin, error }));
        taken.ok_or(whole)
    });
    declined
}

/// Names of plugins that differ.
pub(super) fn differences(one: &BTreeMap<String, Chosen>, other: &BTreeMap<String, Chosen>) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// One change after the other, and again while that helps: a plugin may only have room where another one has gone.
fn one_by_one(
    now: &Agent,
    (mut has, chosen, mut changes): (BTreeMap<String, Chosen>, &BTreeMap<String, Chosen>, Vec<String>),
    trials: &BTreeMap<String, OnTrial>,
) -> (Option<Agent>, Vec<(String, AgentError)>) {
    let mut taken = None;
    loop {
        let (tried, mut left) = (changes.len(), Vec::new());
        for plugin in changes {
            let mut next = has.clone();
            match chosen.get(&plugin) {
                Some(chosen) => next.insert(plugin.clone(), chosen.clone()),
                None => next.remove(&plugin),
            };
            match with(now, &next, trials) {
                Ok(agent) => (taken, has) = (Some(agent), next),
                Err(error) => left.push((plugin, error)),
            }
        }
        if left.is_empty() || left.len() == tried {
            return (taken, left);
        }
        changes = left.into_iter().map(|(plugin, _)| plugin).collect();
    }
}

fn with(
    now: &Agent,
    plugins: &BTreeMap<String, Chosen>,
    trials: &BTreeMap<String, OnTrial>,
) -> Result<Agent, AgentError> {
    let files = plugins.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone()));
    let rolled_back = plugins.iter().filter_map(|(name, chosen)| Some((name.clone(), chosen.instead_of.clone()?)));
    // What the agent keeps goes on with its own trial.
    let of = |name: &String, chosen: &Chosen| {
        let known = [trials.get(name), now.standing().trials.get(name)].into_iter().flatten();
        let mut known =
            known.filter(|on_trial| chosen.instead_of.is_none() && on_trial.digest == *chosen.plugin.digest());
        Some((name.clone(), known.next()?.clone()))
    };
    let standing = Standing {
        rolled_back: rolled_back.collect(),
        trials: plugins.iter().filter_map(|(name, chosen)| of(name, chosen)).collect(),
        refused: BTreeMap::new(),
    };
    now.with_plugins(Generation::of_files(files), standing)
}
