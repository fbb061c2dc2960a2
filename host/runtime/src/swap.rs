//! Hot swap: a directory of plugins is watched, and what becomes of it is published to its agents, whole or not at all
//! (P10).

mod ledger;
mod prune;

use crate::live::{LiveAgent, Standing};
use agent_core::message::Digest;
use agent_memory::{Deed, Rollback, Store, StoreError, VersionEnd};
use agent_plugins::{Generation, GenerationError, LoadedPlugin, Look, PluginDirectory, Sandbox, Seen, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

pub use ledger::{begin, directory_name, serving, write_down_grants};
pub use prune::{KEPT_VERSIONS, Pruned, prune};

/// Between two looks at a directory in which nothing happens.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// The same while something is changing.
const WHILE_RESTLESS: Duration = Duration::from_millis(50);
/// Looks between which what another process has rolled back is read again.
const LOOKS_PER_READING: u32 = 4;

/// Something that a person should know at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another version serves from now on; turns that are open keep theirs.
    Swapped {
        /// The plugin's name.
        plugin: String,
        /// What served before.
        from: Option<Digest>,
        /// What serves now.
        to: Option<Digest>,
    },
    /// A version was taken back.
    RolledBack {
        /// The plugin's name.
        plugin: String,
        /// What was taken back.
        from: Digest,
        /// What serves instead.
        to: Digest,
        /// Why.
        because: String,
    },
    /// What was there before goes on serving.
    Refused {
        /// A file, an agent, or the directory.
        subject: String,
        /// Why.
        reason: String,
    },
}

/// Watches one directory for the agents that have their plugins from it.
pub struct PluginKeeper {
    store: Arc<dyn Store>,
    sandbox: Sandbox,
    directory: PluginDirectory,
    /// As it stands in the store.
    name: String,
    agents: Vec<LiveAgent>,
    notices: Sender<Notice>,
    /// What passed its canary, by file.
    accepted: BTreeMap<PathBuf, Arc<LoadedPlugin>>,
    /// What did not, or has another one's name: told already.
    refused: BTreeMap<PathBuf, Digest>,
    rollbacks: Vec<Rollback>,
    /// What serves, by plugin.
    serving: BTreeMap<String, Chosen>,
    /// What no agent could work with: not tried again before something changes.
    in_vain: Option<BTreeMap<String, Chosen>>,
    /// Versions on trial with what served before them, by plugin.
    trials: BTreeMap<String, OnTrial>,
    failed: Arc<Notify>,
    /// The last failure of the watch itself: told once.
    trouble: String,
}

/// A plugin as it shall serve.
#[derive(Clone)]
struct Chosen {
    path: PathBuf,
    plugin: Arc<LoadedPlugin>,
    instead_of: Option<Digest>,
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        (self.plugin.digest(), &self.instead_of) == (other.plugin.digest(), &other.instead_of)
    }
}

struct OnTrial {
    trial: Arc<Trial>,
    before: Digest,
    digest: Digest,
}

impl PluginKeeper {
    /// Watches a directory for these agents, which have [begun](begin) already. Notices that nobody takes are dropped.
    pub fn new(
        (store, sandbox): (Arc<dyn Store>, Sandbox),
        directory: &Path,
        agents: Vec<LiveAgent>,
        notices: Sender<Notice>,
    ) -> Self {
        let serving = agents.first().map(serving_of).unwrap_or_default();
        Self {
            store,
            directory: PluginDirectory::new(sandbox.clone(), directory.to_owned()),
            sandbox,
            name: directory_name(directory),
            agents,
            notices,
            // A file that is bad from the first look on leaves what it held before.
            accepted: serving.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone())).collect(),
            refused: BTreeMap::new(),
            rollbacks: Vec::new(),
            serving,
            in_vain: None,
            trials: BTreeMap::new(),
            failed: Arc::default(),
            trouble: String::new(),
        }
    }

    /// Looks, and publishes, until it is cancelled.
    pub async fn keep(mut self, cancel: CancellationToken) {
        let (mut looks, mut seen, mut wait) = (0_u32, None, WHILE_RESTLESS);
        let failed = self.failed.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = failed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            if looks.is_multiple_of(LOOKS_PER_READING) {
                self.read_rollbacks().await;
            }
            looks = looks.wrapping_add(1);
            self.end_trials().await;
            wait = match self.directory.look().await {
                Ok(Look::Restless) => WHILE_RESTLESS,
                Ok(Look::Quiet(found)) => {
                    self.trouble.clear();
                    seen = Some(self.accept(found).await);
                    BETWEEN_LOOKS
                }
                Err(error) => {
                    self.trouble(error.to_string());
                    BETWEEN_LOOKS
                }
            };
            if let Some(seen) = &seen {
                self.settle(seen).await;
            }
        }
    }

    /// Lets new versions make their canary call, once each; says which files are there.
    async fn accept(&mut self, seen: Seen) -> BTreeSet<PathBuf> {
        for (path, error) in seen.problems {
            self.refuse(path.display().to_string(), error.to_string()).await;
        }
        let there = seen.files;
        for (path, plugin) in seen.plugins {
            let digest = plugin.digest();
            let is_known = self.accepted.get(&path).is_some_and(|accepted| accepted.digest() == digest)
                || self.refused.get(&path) == Some(digest);
            if is_known {
                continue;
            }
            let serves = self.serving.get(plugin.name());
            let serves = serves.is_some_and(|chosen| chosen.plugin.digest() == digest);
            match if serves { Ok(()) } else { self.sandbox.canary(&plugin).await } {
                Ok(()) => {
                    self.refused.remove(&path);
                    self.accepted.insert(path, plugin);
                }
                Err(reason) => {
                    self.refused.insert(path.clone(), digest.clone());
                    self.refuse(path.display().to_string(), reason).await;
                }
            }
        }
        self.accepted.retain(|path, _| there.contains(path));
        self.refused.retain(|path, _| there.contains(path));
        there
    }

    /// Publishes what the files and the rollbacks come to, if it is not what serves.
    async fn settle(&mut self, there: &BTreeSet<PathBuf>) {
        let mut chosen: BTreeMap<String, Chosen> = BTreeMap::new();
        for path in there {
            let Some(plugin) = self.accepted.get(path).cloned() else { continue };
            if let Some(other) = chosen.get(plugin.name()) {
                let reason = format!("its name `{}` is taken by {}", plugin.name(), other.path.display());
                if self.refused.insert(path.clone(), plugin.digest().clone()).as_ref() != Some(plugin.digest()) {
                    self.refuse(path.display().to_string(), reason).await;
                }
                continue;
            }
            let choice = self.choose(path, plugin).await;
            chosen.insert(choice.plugin.name().to_owned(), choice);
        }
        if chosen != self.serving && self.in_vain.as_ref() != Some(&chosen) {
            self.publish(chosen).await;
        }
    }

    /// The file's version, or the one that serves as long as that is taken back.
    async fn choose(&mut self, path: &Path, plugin: Arc<LoadedPlugin>) -> Chosen {
        let name = plugin.name().to_owned();
        let as_it_is = Chosen { path: path.to_owned(), plugin, instead_of: None };
        let Some(rollback) = self.rollbacks.iter().find(|rollback| rollback.plugin == name).cloned() else {
            return as_it_is;
        };
        if rollback.from != *as_it_is.plugin.digest() {
            self.rollbacks.retain(|rollback| rollback.plugin != name);
            let undone = self.store.undo_rollback(&self.name, &name).await;
            self.stored(undone.map(drop));
            return as_it_is;
        }
        if let Some(serving) = self.serving.get(&name).filter(|chosen| *chosen.plugin.digest() == rollback.to) {
            return Chosen { instead_of: Some(rollback.from), ..serving.clone() };
        }
        match self.sandbox.load_stored(&name, &rollback.to).await {
            Ok(plugin) => Chosen { plugin, instead_of: Some(rollback.from), ..as_it_is },
            Err(error) => {
                self.trouble(format!("`{name}` cannot be rolled back: {error}"));
                self.serving.get(&name).cloned().unwrap_or(as_it_is)
            }
        }
    }

    /// Gives each agent the new generation, all at once for those who take it next. An agent that cannot work with it
    /// keeps what it has.
    async fn publish(&mut self, chosen: BTreeMap<String, Chosen>) {
        let before = std::mem::take(&mut self.serving);
        self.begin_trials(&before, &chosen);
        let plugins = chosen.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone()));
        let generation = Generation::of_files(plugins);
        let rolled_back = chosen.iter().filter_map(|(name, chosen)| Some((name.clone(), chosen.instead_of.clone()?)));
        let trials = self.trials.iter().map(|(name, on_trial)| (name.clone(), on_trial.trial.clone()));
        let standing = Standing { rolled_back: rolled_back.collect(), trials: trials.collect() };
        let mut taken = self.agents.is_empty();
        for agent in self.agents.clone() {
            match agent.change(|agent| agent.with_plugins(generation.clone(), standing.clone())) {
                Ok(_) => taken = true,
                Err(error) => {
                    let subject = format!("the agent `{}`", agent.current().config().name);
                    self.refuse(subject, error.to_string()).await;
                }
            }
        }
        if !taken {
            (self.serving, self.in_vain) = (before, Some(chosen));
            return;
        }
        self.in_vain = None;
        self.serving = chosen;
        self.tell(&before).await;
    }

    /// A version that replaces another one is on trial.
    fn begin_trials(&mut self, before: &BTreeMap<String, Chosen>, chosen: &BTreeMap<String, Chosen>) {
        self.trials.retain(|name, on_trial| {
            chosen.get(name).is_some_and(|now| now.instead_of.is_none() && *now.plugin.digest() == on_trial.digest)
        });
        for (name, now) in chosen.iter().filter(|(_, now)| now.instead_of.is_none()) {
            if let Some(before) = before.get(name).filter(|before| before.plugin.digest() != now.plugin.digest()) {
                let trial = Arc::new(Trial::new(self.failed.clone()));
                let (before, digest) = (before.plugin.digest().clone(), now.plugin.digest().clone());
                self.trials.insert(name.clone(), OnTrial { trial, before, digest });
            }
        }
    }

    /// Takes back what has failed its trial.
    async fn end_trials(&mut self) {
        let failed: Vec<String> = self
            .trials
            .iter()
            .filter(|(_, on_trial)| on_trial.trial.is_failed())
            .map(|(name, _)| name.clone())
            .collect();
        for plugin in failed {
            let Some(OnTrial { before, digest, .. }) = self.trials.remove(&plugin) else { continue };
            let directory = self.name.clone();
            let rollback = Rollback { directory, plugin, from: digest, to: before, why: VersionEnd::Trapped };
            self.rollbacks.retain(|other| other.plugin != rollback.plugin);
            self.rollbacks.push(rollback.clone());
            let stored = self.store.roll_back(rollback).await;
            self.stored(stored);
        }
    }

    async fn read_rollbacks(&mut self) {
        match self.store.rollbacks(&self.name).await {
            Ok(rollbacks) => self.rollbacks = rollbacks,
            Err(error) => self.stored(Err(error)),
        }
    }

    async fn refuse(&mut self, subject: String, reason: String) {
        tracing::warn!(subject, reason, "a change of the plugins was not taken; what was there before serves");
        let deed = Deed::Refused { directory: self.name.clone(), subject: subject.clone(), reason: reason.clone() };
        let stored = self.store.audit(vec![deed]).await;
        self.stored(stored);
        self.notice(Notice::Refused { subject, reason });
    }

    fn notice(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            tracing::debug!("nobody takes what there is to say of the plugins");
        }
    }

    fn stored(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.trouble(format!("what became of the plugins cannot be stored: {error}"));
        }
    }

    /// Said once until something else goes wrong, or nothing.
    fn trouble(&mut self, reason: String) {
        if self.trouble != reason {
            tracing::warn!(directory = self.name, "{reason}");
            self.notice(Notice::Refused { subject: self.name.clone(), reason: reason.clone() });
            self.trouble = reason;
        }
    }
}

/// What an agent has, as its keeper knows it.
fn serving_of(agent: &LiveAgent) -> BTreeMap<String, Chosen> {
    let agent = agent.current();
    let plugins = agent.generation().plugins().map(|plugin| {
        let path = agent.generation().origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let instead_of = agent.standing().rolled_back.get(plugin.name()).cloned();
        (plugin.name().to_owned(), Chosen { path, plugin: plugin.clone(), instead_of })
    });
    plugins.collect()
}

/// A plugin from the store in place of one that was taken back.
async fn instead(
    sandbox: &Sandbox,
    plugin: &Arc<LoadedPlugin>,
    rollbacks: &[Rollback],
) -> Result<Option<Arc<LoadedPlugin>>, GenerationError> {
    let holds = |rollback: &&Rollback| rollback.plugin == plugin.name() && rollback.from == *plugin.digest();
    match rollbacks.iter().find(holds) {
        Some(rollback) => sandbox.load_stored(plugin.name(), &rollback.to).await.map(Some),
        None => Ok(None),
    }
}
