//! What is written down of versions: at the start and at each swap, never at a call (P10, O3).

use super::trials::TRAPPED;
use super::{Chosen, Notice, PluginKeeper};
use crate::agent::AgentError;
use crate::live::{LiveAgent, OnTrial, Standing};
use agent_core::message::Digest;
use agent_plugins::{
    CallLimits, Generation, GenerationError, Grants, LoadedPlugin, Sandbox, TreeGrant, Trial, TrialCounts,
};
use agent_store::{Deed, Rollback, STORED, ServedPlugin, Store, StoreError, StoredTrial, VersionEnd};
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// A version that has not served before is refused, and there is none to serve instead.
    #[error("{}: {reason}; mend it, or take it out of the folder", path.display())]
    Canary {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A directory's name in the store: its whole path.
pub fn directory_name(directory: &Path) -> String {
    let whole = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    whole.to_string_lossy().into_owned()
}

/// An agent that was made of a directory's files takes the versions that serve: not those that were taken back, and a new
/// one only after its canary, on trial in place of the one that served last (P10). It is written down which versions serve
/// it with which grants. Returns what a person should know.
pub async fn begin(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    agent: &LiveAgent,
) -> Result<Vec<Notice>, BeginError> {
    let name = directory_name(directory);
    let rollbacks = store.rollbacks(&name).await?;
    let served: BTreeMap<String, Digest> = store.served(&name).await?.into_iter().collect();
    let mut beginning = Beginning {
        sandbox,
        rollbacks: &rollbacks,
        served: &served,
        trials: store.trials(&name).await?,
        standing: Standing::default(),
        begun: BTreeMap::new(),
        refused: Vec::new(),
    };
    let mut agent_now = agent.current();
    let (mut plugins, mut is_other) = (Vec::new(), false);
    for plugin in agent_now.generation().plugins() {
        let path = agent_now.generation().origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let limits = agent_now.config().allowance(plugin.name()).limits;
        let serves = beginning.choose(&path, plugin, limits).await?;
        is_other |= serves.digest() != plugin.digest();
        plugins.push((path, serves));
    }
    let Beginning { standing, begun, refused, .. } = beginning;
    if is_other || !standing.trials.is_empty() {
        let generation = Generation::of_files(plugins);
        agent_now = agent.change(|agent| agent.with_plugins(generation, standing))?;
    }
    let rolled_back = &agent_now.standing().rolled_back;
    let serving = agent_now.generation().plugins().map(|plugin| {
        let path = agent_now.generation().origin(plugin.name());
        let is_stored = rolled_back.contains_key(plugin.name())
            || path.is_some_and(|path| agent_now.standing().refused.contains_key(path));
        ServedPlugin {
            plugin: plugin.name().to_owned(),
            digest: plugin.digest().clone(),
            origin: origin(path, is_stored),
            instead: why(&rollbacks, rolled_back.get(plugin.name())),
            trial: begun.get(plugin.name()).cloned(),
        }
    });
    let changed = store.serve(&name, serving.collect()).await?;
    // The first versions of all replace nothing; what was taken back was written down with that.
    let swaps = changed.into_iter().filter(|change| !served.is_empty() && !rolled_back.contains_key(&change.plugin));
    let swaps = swaps.map(|change| Deed::Swapped {
        directory: name.clone(),
        plugin: change.plugin,
        from: change.from,
        to: change.to,
    });
    let refusals = refused.iter().map(|(subject, reason)| Deed::Refused {
        directory: name.clone(),
        subject: subject.clone(),
        reason: reason.clone(),
    });
    store.audit(swaps.chain(refusals).chain(grants(agent)).collect()).await?;
    Ok(refused.into_iter().map(|(subject, reason)| Notice::Refused { subject, reason }).collect())
}

/// What would serve of a directory's files: the same, with the versions that serve instead of those that were taken back.
/// Nothing is written down, and nothing is tried.
pub async fn serving(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    generation: &Generation,
) -> Result<(Generation, Standing), BeginError> {
    let rollbacks = store.rollbacks(&directory_name(directory)).await?;
    let (mut plugins, mut standing) = (Vec::new(), Standing::default());
    for plugin in generation.plugins() {
        let path = generation.origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let holds = |rollback: &&Rollback| rollback.plugin == plugin.name() && rollback.from == *plugin.digest();
        let serves = match rollbacks.iter().find(holds) {
            None => plugin.clone(),
            Some(rollback) => {
                standing.rolled_back.insert(plugin.name().to_owned(), plugin.digest().clone());
                sandbox.load_stored(plugin.name(), &rollback.to).await?
            }
        };
        plugins.push((path, serves));
    }
    Ok((Generation::of_files(plugins), standing))
}

/// Writes down which plugins of an agent have which grants now, where that differs from what was written last (O3).
pub async fn write_down_grants(store: &dyn Store, agent: &LiveAgent) -> Result<(), StoreError> {
    store.audit(grants(agent)).await
}

/// How the plugins of a process that begins stand beside those that served last.
struct Beginning<'b> {
    sandbox: &'b Sandbox,
    rollbacks: &'b [Rollback],
    served: &'b BTreeMap<String, Digest>,
    trials: Vec<StoredTrial>,
    standing: Standing,
    /// Versions whose trial begins, with what served before them.
    begun: BTreeMap<String, Digest>,
    /// Files that were not taken, with the reasons.
    refused: Vec<(String, String)>,
}

impl Beginning<'_> {
    /// What serves of a file, for an agent whose calls of it have these limits.
    async fn choose(
        &mut self,
        path: &Path,
        plugin: &Arc<LoadedPlugin>,
        limits: CallLimits,
    ) -> Result<Arc<LoadedPlugin>, BeginError> {
        let (name, digest) = (plugin.name(), plugin.digest());
        let holds = |rollback: &&Rollback| rollback.plugin == name && rollback.from == *digest;
        if let Some(rollback) = self.rollbacks.iter().find(holds) {
            let other = self.sandbox.load_stored(name, &rollback.to).await?;
            self.standing.rolled_back.insert(name.to_owned(), digest.clone());
            return Ok(other);
        }
        let before = self.served.get(name);
        if before == Some(digest) {
            self.go_on(name, digest);
            return Ok(plugin.clone());
        }
        match (self.sandbox.canary(plugin, limits).await, before) {
            (Ok(()), None) => Ok(plugin.clone()),
            (Ok(()), Some(before)) => {
                self.begun.insert(name.to_owned(), before.clone());
                self.on_trial(name, (digest, before), TrialCounts::default());
                Ok(plugin.clone())
            }
            (Err(reason), Some(before)) => {
                let problem = |_| BeginError::Canary { path: path.to_owned(), reason: reason.clone() };
                let other = self.sandbox.load_stored(name, before).await.map_err(problem)?;
                self.standing.refused.insert(path.to_owned(), digest.clone());
                self.refused.push((path.display().to_string(), reason));
                self.go_on(name, before);
                Ok(other)
            }
            (Err(reason), None) => Err(BeginError::Canary { path: path.to_owned(), reason }),
        }
    }

    /// A trial that another process has not finished.
    fn go_on(&mut self, name: &str, digest: &Digest) {
        let stored = self.trials.iter().find(|trial| trial.plugin == name && trial.digest == *digest).cloned();
        if let Some(StoredTrial { before, calls, traps, .. }) = stored {
            self.on_trial(name, (digest, &before), TrialCounts { calls, traps });
        }
    }

    fn on_trial(&mut self, name: &str, (digest, before): (&Digest, &Digest), counts: TrialCounts) {
        let trial = Arc::new(Trial::new(counts, Arc::default()));
        let on_trial = OnTrial { digest: digest.clone(), before: before.clone(), trial };
        self.standing.trials.insert(name.to_owned(), on_trial);
    }
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
                    // It is written down where it is decided: by somebody, or by a trial.
                    notices.push(Notice::RolledBack { plugin, from, to, because });
                }
                None => {
                    notices.push(Notice::Swapped { plugin: plugin.clone(), from: from.clone(), to: to.clone() });
                    deeds.push(Deed::Swapped { directory, plugin, from, to });
                }
            }
        }
        deeds.extend(self.agents.iter().flat_map(grants));
        let serving: Vec<ServedPlugin> = self.serving.iter().map(|(name, chosen)| self.served(name, chosen)).collect();
        let mut stored = self.store.serve(&self.name, serving).await.map(drop);
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
            trial: self.trials.get(name).map(|on_trial| on_trial.before.clone()),
        }
    }

    fn has_trapped(&self, plugin: &str) -> bool {
        let of = |rollback: &&Rollback| rollback.plugin == plugin && rollback.why == VersionEnd::Trapped;
        self.rollbacks.iter().any(|rollback| of(&rollback))
    }

    fn because(&self, plugin: &str) -> &'static str {
        match self.has_trapped(plugin) {
            true => TRAPPED,
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
        (true, _) => STORED.to_owned(),
        (false, Some(path)) => path.display().to_string(),
        (false, None) => String::new(),
    }
}

/// What each plugin of an agent really gets, and the host's own tools.
fn grants(agent: &LiveAgent) -> Vec<Deed> {
    let agent = agent.current();
    let name = || agent.config().name.clone();
    let granted = agent.setups().values().map(|setup| Deed::Granted {
        agent: name(),
        plugin: setup.plugin().name().to_owned(),
        digest: setup.plugin().digest().clone(),
        grants: in_words(setup.grants()),
    });
    let host = agent.config().host_trees.iter().map(tree_in_words).collect();
    granted.chain([Deed::HostGranted { agent: name(), grants: host }]).collect()
}

/// Values of variables, settings and secrets are not told, only their names.
fn in_words(grants: &Grants) -> Vec<String> {
    let trees = grants.trees.iter().map(tree_in_words);
    let variables = grants.env.keys().map(|name| format!("env {name}"));
    let settings = grants.config.keys().map(|key| format!("config {key}"));
    let requests = grants.http.iter().map(|pattern| format!("http {pattern}"));
    let secrets = grants.secrets.iter().map(|secret| {
        let hosts: Vec<String> = secret.hosts().iter().map(ToString::to_string).collect();
        format!("secret {} to {}", secret.name(), hosts.join(" and "))
    });
    let values = grants.key_value.map(|bytes| format!("key_value_mib {}", bytes >> 20));
    let model = grants.model_tokens.map(|tokens| format!("model_tokens {tokens}"));
    let events = grants.events.iter().map(|event_type| format!("events {event_type}"));
    let media = grants.media.then(|| "media".to_owned());
    let lists = trees.chain(variables).chain(settings).chain(requests).chain(secrets);
    lists.chain(values).chain(model).chain(events).chain(media).collect()
}

fn tree_in_words(tree: &TreeGrant) -> String {
    let whole = directory_name(&tree.host);
    match tree.access {
        agent_plugins::Access::Read => format!("read {whole}"),
        agent_plugins::Access::ReadWrite => format!("read and write {whole}"),
    }
}
