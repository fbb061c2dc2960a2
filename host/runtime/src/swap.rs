//! Hot swap: a directory of plugins is watched, and what becomes of it is published to its agents, whole or not at all
//! (P10).

mod ledger;
mod offer;
mod prune;
mod trials;

use crate::agent::Agent;
use crate::live::{LiveAgent, OnTrial, Standing};
use agent_core::message::Digest;
use agent_plugins::{LoadedPlugin, Look, PluginDirectory, Sandbox, Seen, Trial, TrialCounts};
use agent_store::{Deed, Rollback, Store, StoreError};
use offer::{Declined, differences};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

pub use ledger::{BeginError, begin, directory_name, serving, write_down_grants};
pub use prune::{KEPT_VERSIONS, Pruned, prune};
pub use trials::finish;

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
    /// What some agents could not work with: not offered again before something changes.
    in_vain: Option<BTreeMap<String, Chosen>>,
    /// Which agent has declined which version of which plugin: told already.
    declined: BTreeSet<(String, String, Option<Digest>)>,
    /// Versions on trial, by plugin.
    trials: BTreeMap<String, OnTrial>,
    trapped: Arc<Notify>,
    /// What keeps failing, by what it is about: told once.
    troubles: BTreeMap<String, String>,
}

/// What the watch itself may fail at.
const LOOKING: &str = "the directory";
const STORING: &str = "the store";

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

impl PluginKeeper {
    /// Watches a directory for these agents, which have [begun](begin) already. Notices that nobody takes are dropped.
    pub fn new(
        (store, sandbox): (Arc<dyn Store>, Sandbox),
        directory: &Path,
        agents: Vec<LiveAgent>,
        notices: Sender<Notice>,
    ) -> Self {
        let first = agents.first().map(LiveAgent::current);
        let standing = first.as_ref().map(|agent| agent.standing().clone()).unwrap_or_default();
        let serving = first.map(|agent| serving_of(&agent)).unwrap_or_default();
        share(&agents, &standing);
        Self {
            store,
            directory: PluginDirectory::new(sandbox.clone(), directory.to_owned()),
            sandbox,
            name: directory_name(directory),
            agents,
            notices,
            // A file that is bad from the first look on leaves what it held before.
            accepted: serving.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone())).collect(),
            refused: standing.refused,
            rollbacks: Vec::new(),
            serving,
            in_vain: None,
            declined: BTreeSet::new(),
            trials: standing.trials,
            trapped: Arc::default(),
            troubles: BTreeMap::new(),
        }
    }

    /// Looks, and publishes, until it is cancelled.
    pub async fn keep(mut self, cancel: CancellationToken) {
        let (mut looks, mut seen, mut wait) = (0_u32, None, WHILE_RESTLESS);
        let trapped = self.trapped.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = trapped.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            if looks.is_multiple_of(LOOKS_PER_READING) {
                self.read_rollbacks().await;
            }
            looks = looks.wrapping_add(1);
            self.count_trials().await;
            wait = match self.directory.look().await {
                Ok(Look::Restless) => WHILE_RESTLESS,
                Ok(Look::Quiet(found)) => {
                    self.troubles.remove(LOOKING);
                    seen = Some(self.accept(found).await);
                    BETWEEN_LOOKS
                }
                Err(error) => {
                    self.trouble(LOOKING, error.to_string());
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
            match if serves { Ok(()) } else { self.canary(&plugin).await } {
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

    /// With the limits that the agents' calls have. Where those differ, it must succeed with some of them: the others' calls
    /// count for its trial.
    async fn canary(&self, plugin: &Arc<LoadedPlugin>) -> Result<(), String> {
        let mut tried = Vec::new();
        let mut outcome = Ok(());
        for agent in &self.agents {
            let limits = agent.current().config().allowance(plugin.name()).limits;
            if tried.contains(&limits) {
                continue;
            }
            outcome = self.sandbox.canary(plugin, limits).await;
            if outcome.is_ok() {
                break;
            }
            tried.push(limits);
        }
        outcome
    }

    /// Publishes what the files and the rollbacks come to, if it is not what serves.
    async fn settle(&mut self, there: &BTreeSet<PathBuf>) {
        let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in there {
            if let Some(plugin) = self.accepted.get(path) {
                files.entry(plugin.name().to_owned()).or_default().push(path.clone());
            }
        }
        let mut chosen: BTreeMap<String, Chosen> = BTreeMap::new();
        for (name, paths) in files {
            let owner = self.owner(&name, &paths);
            for path in paths.iter().filter(|path| Some(*path) != owner.as_ref()) {
                self.refuse_name(&name, path, (owner.as_deref(), &paths)).await;
            }
            let Some(path) = owner else { continue };
            let Some(plugin) = self.accepted.get(&path).cloned() else { continue };
            // What was refused for its name is told again if it loses it again.
            if self.refused.get(&path) == Some(plugin.digest()) {
                self.refused.remove(&path);
            }
            let choice = self.choose(&path, plugin).await;
            chosen.insert(name, choice);
        }
        if chosen != self.serving && self.in_vain.as_ref() != Some(&chosen) {
            self.publish(chosen).await;
        }
    }

    /// A name belongs to the file that serves under it, with what it is granted. Where none does, one file may have it, and
    /// of several none: as little as when a host starts.
    fn owner(&self, name: &str, paths: &[PathBuf]) -> Option<PathBuf> {
        let serves = self.serving.get(name).map(|chosen| &chosen.path);
        match (serves.filter(|path| paths.contains(path)), paths) {
            (Some(path), _) => Some(path.clone()),
            (None, [only]) => Some(only.clone()),
            (None, _) => None,
        }
    }

    async fn refuse_name(&mut self, name: &str, path: &Path, (owner, paths): (Option<&Path>, &[PathBuf])) {
        let Some(plugin) = self.accepted.get(path).cloned() else { return };
        if self.refused.get(path) == Some(plugin.digest()) {
            return;
        }
        self.refused.insert(path.to_owned(), plugin.digest().clone());
        let whose = match owner {
            Some(owner) => format!("its name belongs to {}, which serves", owner.display()),
            None => {
                let others = paths.iter().filter(|other| *other != path).map(|other| other.display().to_string());
                format!("{} has the same name `{name}`", others.collect::<Vec<_>>().join(", "))
            }
        };
        let reason = format!("{} is not taken: {whose}; rename one of them in its plugin.toml", plugin.identity());
        self.refuse(path.display().to_string(), reason).await;
    }

    /// The file's version, or the one that serves as long as that is taken back.
    async fn choose(&mut self, path: &Path, plugin: Arc<LoadedPlugin>) -> Chosen {
        let name = plugin.name().to_owned();
        let as_it_is = Chosen { path: path.to_owned(), plugin, instead_of: None };
        let Some(rollback) = self.rollbacks.iter().find(|rollback| rollback.plugin == name).cloned() else {
            return as_it_is;
        };
        if rollback.from != *as_it_is.plugin.digest() && !self.is_declined(&as_it_is) {
            self.rollbacks.retain(|rollback| rollback.plugin != name);
            let undone = self.store.undo_rollback(&self.name, &name).await;
            self.stored(undone.map(drop));
            return as_it_is;
        }
        if let Some(serving) = self.serving.get(&name).filter(|chosen| *chosen.plugin.digest() == rollback.to) {
            return Chosen { instead_of: Some(rollback.from), ..serving.clone() };
        }
        match self.sandbox.load_stored(&name, &rollback.to).await {
            Ok(plugin) => {
                self.troubles.remove(&name);
                Chosen { plugin, instead_of: Some(rollback.from), ..as_it_is }
            }
            Err(error) => {
                self.trouble(&name, format!("`{name}` cannot be rolled back: {error}"));
                self.serving.get(&name).cloned().unwrap_or(as_it_is)
            }
        }
    }

    /// Whether an agent cannot work with the file's version: then it is not what a rollback has to give way to.
    fn is_declined(&self, file: &Chosen) -> bool {
        let is_it = |(_, plugin, digest): &(String, String, Option<Digest>)| {
            plugin == file.plugin.name() && digest.as_ref() == Some(file.plugin.digest())
        };
        self.declined.iter().any(is_it)
    }

    /// Offers each agent the new generation, all of it at once for those who take it next. What no agent can work with stays
    /// as it was, and the rest is taken.
    async fn publish(&mut self, chosen: BTreeMap<String, Chosen>) {
        let trials = self.trials_with(&chosen);
        let declined: Vec<Declined> =
            self.agents.iter().flat_map(|agent| offer::offer(agent, &chosen, &trials)).collect();
        let by_all = |plugin: &String| {
            let count = declined.iter().filter(|declined| declined.plugin == *plugin).count();
            count > 0 && count == self.agents.len()
        };
        let changes = differences(&self.serving, &chosen);
        let (left, taken): (Vec<_>, Vec<_>) = changes.into_iter().partition(by_all);
        let before = self.serving.clone();
        for plugin in taken {
            match chosen.get(&plugin) {
                Some(chosen) => self.serving.insert(plugin, chosen.clone()),
                None => self.serving.remove(&plugin),
            };
        }
        let serving = &self.serving;
        let goes_on = |name: &String, on_trial: &mut OnTrial| {
            let serves = serving.get(name).filter(|chosen| chosen.instead_of.is_none());
            serves.is_some_and(|chosen| *chosen.plugin.digest() == on_trial.digest)
        };
        // One whose successor was declined goes on.
        self.trials.extend(trials.into_iter().filter(|(name, _)| !left.contains(name)));
        self.trials.retain(goes_on);
        self.tell_declined(&chosen, declined, &left).await;
        self.in_vain = (self.serving != chosen).then_some(chosen);
        if self.serving != before {
            self.tell(&before).await;
        }
    }

    /// Which agent cannot work with which file, each told once as long as that is so.
    async fn tell_declined(&mut self, chosen: &BTreeMap<String, Chosen>, declined: Vec<Declined>, by_all: &[String]) {
        let told = std::mem::take(&mut self.declined);
        // What was not offered this time, since an earlier version serves instead, is declined still.
        let is_held = |(_, plugin, digest): &&(String, String, Option<Digest>)| {
            let holds = |file: &Arc<LoadedPlugin>| file.name() == plugin && Some(file.digest()) == digest.as_ref();
            let is_offered = chosen.get(plugin).is_some_and(|chosen| holds(&chosen.plugin));
            !is_offered && self.accepted.values().any(holds)
        };
        self.declined = told.iter().filter(is_held).cloned().collect();
        let mut files = BTreeSet::new();
        for Declined { agent, plugin, error } in declined {
            let file = chosen.get(&plugin);
            let key = (agent.clone(), plugin.clone(), file.map(|chosen| chosen.plugin.digest().clone()));
            let is_told = told.contains(&key);
            self.declined.insert(key);
            let (subject, reason) = match file {
                Some(file) if by_all.contains(&plugin) => {
                    if !files.insert(plugin) {
                        continue;
                    }
                    (file.path.display().to_string(), format!("{} is not taken: {error}", file.plugin.identity()))
                }
                Some(file) => {
                    let what = format!("{} of {} is not taken", file.plugin.identity(), file.path.display());
                    (format!("the agent `{agent}`"), format!("{what}: {error}"))
                }
                None => (format!("the agent `{agent}`"), format!("`{plugin}`, whose file is gone, stays: {error}")),
            };
            if !is_told {
                self.refuse(subject, reason).await;
            }
        }
    }

    /// The trials as they will be with these plugins: a version that replaces another one is on trial.
    fn trials_with(&self, chosen: &BTreeMap<String, Chosen>) -> BTreeMap<String, OnTrial> {
        let mut trials = BTreeMap::new();
        for (name, now) in chosen.iter().filter(|(_, now)| now.instead_of.is_none()) {
            let digest = now.plugin.digest().clone();
            let known = self.trials.get(name).filter(|on_trial| on_trial.digest == digest);
            let before = self.serving.get(name).map(|before| before.plugin.digest().clone());
            if let Some(known) = known {
                trials.insert(name.clone(), known.clone());
            } else if let Some(before) = before.filter(|before| *before != digest) {
                let trial = Arc::new(Trial::new(TrialCounts::default(), self.trapped.clone()));
                trials.insert(name.clone(), OnTrial { digest, before, trial });
            }
        }
        trials
    }

    /// Writes down traps and what is over, and takes back what has failed its trial.
    async fn count_trials(&mut self) {
        let is_worth_it = |on_trial: &OnTrial| {
            let unwritten = on_trial.trial.unwritten();
            unwritten.traps > 0 || unwritten.calls > 0 && on_trial.trial.counts().is_over()
        };
        let worth_it = self.trials.iter().filter(|(_, on_trial)| is_worth_it(on_trial));
        let worth_it: Vec<(String, OnTrial)> =
            worth_it.map(|(name, on_trial)| (name.clone(), on_trial.clone())).collect();
        for (plugin, on_trial) in worth_it {
            let failed = on_trial.trial.counts().is_failed();
            let counted = trials::count(&*self.store, &self.name, &plugin, &on_trial).await;
            let rollback = match counted {
                Ok(rollback) => rollback,
                // A version that crashes is taken back also where that cannot be written down.
                Err(error) => {
                    self.stored(Err(error));
                    failed.then(|| trials::rollback_of(&self.name, &plugin, &on_trial))
                }
            };
            if let Some(rollback) = rollback {
                self.trials.remove(&plugin);
                self.rollbacks.retain(|other| other.plugin != rollback.plugin);
                self.rollbacks.push(rollback);
            }
        }
    }

    async fn read_rollbacks(&mut self) {
        match self.store.rollbacks(&self.name).await {
            Ok(rollbacks) => self.rollbacks = rollbacks,
            Err(error) => self.stored(Err(error)),
        }
    }

    async fn refuse(&mut self, subject: String, reason: String) {
        // Told to people as a notice.
        tracing::info!(subject, reason, "a change of the plugins was not taken; what was there before serves");
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
        match result {
            Ok(()) => drop(self.troubles.remove(STORING)),
            Err(error) => self.trouble(STORING, format!("what became of the plugins cannot be stored: {error}")),
        }
    }

    /// Said once until it is over, or something else goes wrong there.
    fn trouble(&mut self, about: &str, reason: String) {
        if self.troubles.get(about) != Some(&reason) {
            tracing::info!(directory = self.name, "{reason}");
            self.notice(Notice::Refused { subject: self.name.clone(), reason: reason.clone() });
            self.troubles.insert(about.to_owned(), reason);
        }
    }
}

/// The agents of one directory count for the same trials.
fn share(agents: &[LiveAgent], standing: &Standing) {
    for agent in agents.iter().skip(1) {
        let shared = |agent: &Agent| {
            let standing = Standing { trials: standing.trials.clone(), ..agent.standing().clone() };
            agent.with_plugins(agent.generation().clone(), standing)
        };
        if !standing.trials.is_empty()
            && let Err(error) = agent.change(shared)
        {
            tracing::warn!(%error, "an agent counts for a trial of its own");
        }
    }
}

/// What an agent has, as its keeper knows it.
fn serving_of(agent: &Agent) -> BTreeMap<String, Chosen> {
    let plugins = agent.generation().plugins().map(|plugin| {
        let path = agent.generation().origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let instead_of = agent.standing().rolled_back.get(plugin.name()).cloned();
        (plugin.name().to_owned(), Chosen { path, plugin: plugin.clone(), instead_of })
    });
    plugins.collect()
}
