//! What is written down of versions: at the start and at each swap, never at a call (P10, O3).

use super::{Chosen, Notice, PluginKeeper, instead};
use crate::agent::AgentError;
use crate::live::{LiveAgent, Standing};
use agent_core::message::Digest;
use agent_memory::{Deed, Rollback, ServedPlugin, Store, StoreError, VersionEnd};
use agent_plugins::{Generation, GenerationError, Grants, Sandbox};
use std::collections::BTreeMap;
use std::path::Path;

/// What hinders plugins from serving as they were left.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A version that was rolled back to is gone.
    #[error("{0}; `agent-host plugin rollback NAME --undo` lets its file serve")]
    Generation(#[from] GenerationError),
    /// The agent cannot work with a version that was rolled back to.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// A directory's name in the store: its whole path.
pub fn directory_name(directory: &Path) -> String {
    let whole = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    whole.to_string_lossy().into_owned()
}

/// An agent that was made of a directory's files takes the versions that serve instead of those that were taken back, and
/// it is written down which versions serve it with which grants.
pub async fn begin(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    agent: &LiveAgent,
) -> Result<(), BeginError> {
    let name = directory_name(directory);
    let rollbacks = store.rollbacks(&name).await?;
    let mut agent_now = agent.current();
    let (generation, standing) = standing_in(&rollbacks, sandbox, agent_now.generation()).await?;
    if !standing.rolled_back.is_empty() {
        agent_now = agent.change(|agent| agent.with_plugins(generation, standing))?;
    }
    let serving = agent_now.generation().plugins().map(|plugin| ServedPlugin {
        plugin: plugin.name().to_owned(),
        digest: plugin.digest().clone(),
        origin: origin(
            agent_now.generation().origin(plugin.name()),
            agent_now.standing().rolled_back.contains_key(plugin.name()),
        ),
        instead: why(&rollbacks, agent_now.standing().rolled_back.get(plugin.name())),
    });
    store.serve(&name, serving.collect()).await?;
    Ok(write_down_grants(store, agent).await?)
}

/// What would serve of a directory's files: the same, with the versions that serve instead of those that were taken back.
/// Nothing is written down.
pub async fn serving(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    generation: &Generation,
) -> Result<(Generation, Standing), BeginError> {
    let rollbacks = store.rollbacks(&directory_name(directory)).await?;
    standing_in(&rollbacks, sandbox, generation).await
}

async fn standing_in(
    rollbacks: &[Rollback],
    sandbox: &Sandbox,
    generation: &Generation,
) -> Result<(Generation, Standing), BeginError> {
    let (mut plugins, mut standing) = (Vec::new(), Standing::default());
    for plugin in generation.plugins() {
        let path = generation.origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        match instead(sandbox, plugin, rollbacks).await? {
            None => plugins.push((path, plugin.clone())),
            Some(other) => {
                standing.rolled_back.insert(plugin.name().to_owned(), plugin.digest().clone());
                plugins.push((path, other));
            }
        }
    }
    Ok((Generation::of_files(plugins), standing))
}

/// Writes down which plugins of an agent have which grants now, where that differs from what was written last (O3).
pub async fn write_down_grants(store: &dyn Store, agent: &LiveAgent) -> Result<(), StoreError> {
    store.audit(grants(agent)).await
}

impl PluginKeeper {
    /// Writes down what serves now and did not before, and says it.
    pub(super) async fn tell(&mut self, before: &BTreeMap<String, Chosen>) {
        let (mut deeds, mut notices) = (Vec::new(), Vec::new());
        let names = before.keys().chain(self.serving.keys().filter(|name| !before.contains_key(*name)));
        for plugin in names.cloned() {
            let (was, is) = (before.get(&plugin), self.serving.get(&plugin));
            if was == is {
                continue;
            }
            let digest = |chosen: Option<&Chosen>| chosen.map(|chosen| chosen.plugin.digest().clone());
            let (from, to, directory) = (digest(was), digest(is), self.name.clone());
            match is.and_then(|is| Some((is.instead_of.clone()?, is.plugin.digest().clone()))) {
                Some((from, to)) => {
                    let because = self.because(&plugin).to_owned();
                    let (was, is, why) = (from.clone(), to.clone(), because.clone());
                    notices.push(Notice::RolledBack { plugin: plugin.clone(), from, to, because });
                    // What somebody asks for is written down with the asking.
                    if self.has_trapped(&plugin) {
                        deeds.push(Deed::RolledBack { directory, plugin, from: was, to: is, because: why });
                    }
                }
                None => {
                    notices.push(Notice::Swapped { plugin: plugin.clone(), from: from.clone(), to: to.clone() });
                    deeds.push(Deed::Swapped { directory, plugin, from, to });
                }
            }
        }
        deeds.extend(self.agents.iter().flat_map(grants));
        let serving: Vec<ServedPlugin> = self.serving.iter().map(|(name, chosen)| self.served(name, chosen)).collect();
        let mut stored = self.store.serve(&self.name, serving).await;
        if stored.is_ok() {
            stored = self.store.audit(deeds).await;
        }
        self.stored(stored);
        for notice in notices {
            self.notice(notice);
        }
    }

    fn served(&self, name: &str, chosen: &Chosen) -> ServedPlugin {
        ServedPlugin {
            plugin: name.to_owned(),
            digest: chosen.plugin.digest().clone(),
            origin: origin(Some(&chosen.path), chosen.instead_of.is_some()),
            instead: why(&self.rollbacks, chosen.instead_of.as_ref()),
        }
    }

    fn has_trapped(&self, plugin: &str) -> bool {
        let of = |rollback: &&Rollback| rollback.plugin == plugin && rollback.why == VersionEnd::Trapped;
        self.rollbacks.iter().any(|rollback| of(&rollback))
    }

    fn because(&self, plugin: &str) -> &'static str {
        match self.has_trapped(plugin) {
            true => "it crashed in 3 of its first 10 calls",
            false => "somebody asked for it",
        }
    }
}

/// Why the version before a rollback ends, and else.
fn why(rollbacks: &[Rollback], rolled_back: Option<&Digest>) -> VersionEnd {
    let rollback = rollbacks.iter().find(|rollback| Some(&rollback.from) == rolled_back);
    rollback.map_or(VersionEnd::Replaced, |rollback| rollback.why)
}

fn origin(path: Option<&Path>, is_rolled_back: bool) -> String {
    match (is_rolled_back, path) {
        (true, _) => "plugin store".to_owned(),
        (false, Some(path)) => path.display().to_string(),
        (false, None) => String::new(),
    }
}

/// What each plugin of an agent really gets.
fn grants(agent: &LiveAgent) -> Vec<Deed> {
    let agent = agent.current();
    let granted = agent.setups().values().map(|setup| Deed::Granted {
        agent: agent.config().name.clone(),
        plugin: setup.plugin().name().to_owned(),
        digest: setup.plugin().digest().clone(),
        grants: in_words(setup.grants()),
    });
    granted.collect()
}

/// Values of variables and settings may be secrets, so only their names are kept.
fn in_words(grants: &Grants) -> Vec<String> {
    let trees = grants.trees.iter().map(|tree| match tree.access {
        agent_plugins::Access::Read => format!("read {}", directory_name(&tree.host)),
        agent_plugins::Access::ReadWrite => format!("read and write {}", directory_name(&tree.host)),
    });
    let variables = grants.env.keys().map(|name| format!("env {name}"));
    let settings = grants.config.keys().map(|key| format!("config {key}"));
    let requests = grants.http.iter().map(|pattern| format!("http {pattern}"));
    let secrets = grants.secrets.iter().map(|secret| format!("secret {}", secret.name()));
    let values = grants.key_value.map(|bytes| format!("key_value_mib {}", bytes >> 20));
    trees.chain(variables).chain(settings).chain(requests).chain(secrets).chain(values).collect()
}
