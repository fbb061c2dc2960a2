//! Hot swap: watches a directory of plugins and publishes changes to the agents that use the directory. All changes
//! that a scan finds take effect for an agent at the same time (P10).

mod prune;
mod publish;
mod rollback;
mod trials;
mod version_log;

use crate::agent::{Agent, LiveAgent, PluginVersions, VersionTrial};
use agent_core::message::Digest;
use agent_plugins::{DirectoryContents, DirectoryScan, LoadedPlugin, PluginDirectory, Sandbox, Trial, TrialCounts};
use agent_store::{AuditAction, Rollback, Store, StoreError};
use publish::{DeclinedPlugin, differences};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

pub use prune::{KEPT_VERSIONS, Pruned, prune};
pub use rollback::{RollbackError, RollbackRequest, RolledBack, roll_back, undo_rollback};
pub use trials::finish_trials;
pub use version_log::{BeginError, begin_serving, directory_name, record_grants, serving_versions};

/// Time between two scans of the plugin directory while no file changes.
const SETTLED_SCAN_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two scans of the plugin directory while a file is being written.
const CHANGING_SCAN_INTERVAL: Duration = Duration::from_millis(50);
/// The watcher reads the rollbacks of other processes from the store at every scan whose number is a multiple of this.
const SCANS_PER_ROLLBACK_READ: u32 = 4;

/// An event that users should be informed about immediately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A plugin has changed: from now on, new turns use another version. Open turns keep the version that they
    /// started with.
    Swapped {
        /// Name of the plugin whose version has changed.
        plugin: String,
        /// Version that was in use before the change, or `None` if the plugin is new.
        from: Option<Digest>,
        /// Version that is in use after the change, or `None` if the plugin was removed.
        to: Option<Digest>,
    },
    /// A plugin was rolled back to an earlier version.
    RolledBack {
        /// Name of the plugin whose version has changed.
        plugin: String,
        /// Version that was rolled back and is no longer in use.
        from: Digest,
        /// Version that is in use from now on.
        to: Digest,
        /// Reason for the rollback, as a text for users.
        because: String,
    },
    /// A change to the plugins was refused. The versions that were in use before the change stay in use.
    Refused {
        /// The file, agent or directory that the notice is about.
        subject: String,
        /// Reason for the refusal, as a text for users.
        reason: String,
    },
}

/// Watches one directory for all agents that load their plugins from it.
pub struct PluginWatcher {
    store: Arc<dyn Store>,
    sandbox: Sandbox,
    directory: PluginDirectory,
    /// Name under which the store knows the directory.
    name: String,
    agents: Vec<LiveAgent>,
    notices: Sender<Notice>,
    /// Plugins that passed their canary call. The key of each entry is the path of the plugin's file.
    accepted: BTreeMap<PathBuf, Arc<LoadedPlugin>>,
    /// Versions that failed their canary call or have the name of another plugin. The key of each entry is the path of
    /// the plugin's file. Users have already been notified about every version in this map.
    refused: BTreeMap<PathBuf, Digest>,
    rollbacks: Vec<Rollback>,
    /// Versions that are in use now, by the name of the plugin.
    serving: BTreeMap<String, ChosenVersion>,
    /// The selection of plugin versions that was offered last, if it contains a change that all agents declined. The
    /// agents are not offered the same selection twice in succession.
    declined_selection: Option<BTreeMap<String, ChosenVersion>>,
    /// The changes that an agent declined and of which the users have already been notified: the agent, the plugin and
    /// the version of each change. The version is `None` if the plugin's file was removed.
    declined: BTreeSet<(String, String, Option<Digest>)>,
    /// Versions on trial, by the name of the plugin.
    trials: BTreeMap<String, VersionTrial>,
    /// Wakes the watcher after a trap in a plugin call that runs a version on trial.
    trapped: Arc<Notify>,
    /// The current problems. The key of each problem is the file, agent or directory that has the problem. Each problem
    /// is reported only once while it exists.
    reported_problems: BTreeMap<String, String>,
}

/// Key in `reported_problems` under which a failed scan of the directory is reported.
const SCAN_PROBLEM: &str = "the directory";
/// Key in `reported_problems` under which a failure of the store is reported.
const STORE_PROBLEM: &str = "the store";

/// The version of a plugin that is selected for use.
#[derive(Clone)]
struct ChosenVersion {
    path: PathBuf,
    plugin: Arc<LoadedPlugin>,
    /// Digest of the rolled-back version that the plugin's file contains. `None` if the file contains the
    /// selected version.
    instead_of: Option<Digest>,
}

impl PartialEq for ChosenVersion {
    fn eq(&self, other: &Self) -> bool {
        (self.plugin.digest(), &self.instead_of) == (other.plugin.digest(), &other.instead_of)
    }
}

impl PluginWatcher {
    /// Creates a watcher for agents that [`begin_serving`] has prepared. Notices are dropped while the channel is full.
    pub fn new(
        (store, sandbox): (Arc<dyn Store>, Sandbox),
        directory: &Path,
        agents: Vec<LiveAgent>,
        notices: Sender<Notice>,
    ) -> Self {
        let first = agents.first().map(LiveAgent::current);
        let versions = first.as_ref().map(|agent| agent.versions().clone()).unwrap_or_default();
        let serving = first.map(|agent| versions_of(&agent)).unwrap_or_default();
        share_trials(&agents, &versions);
        Self {
            store,
            directory: PluginDirectory::new(sandbox.clone(), directory.to_owned()),
            sandbox,
            name: directory_name(directory),
            agents,
            notices,
            // If a file is invalid at the first scan, the version of the plugin that was in use before the scan
            // remains accepted.
            accepted: serving.values().map(|chosen| (chosen.path.clone(), chosen.plugin.clone())).collect(),
            refused: versions.refused,
            rollbacks: Vec::new(),
            serving,
            declined_selection: None,
            declined: BTreeSet::new(),
            trials: versions.trials,
            trapped: Arc::default(),
            reported_problems: BTreeMap::new(),
        }
    }

    /// Scans the directory and publishes changes until `cancel` is cancelled.
    pub async fn watch(mut self, cancel: CancellationToken) {
        let (mut scans, mut files, mut wait) = (0_u32, None, CHANGING_SCAN_INTERVAL);
        let trapped = self.trapped.clone();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = trapped.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            if scans.is_multiple_of(SCANS_PER_ROLLBACK_READ) {
                self.read_rollbacks().await;
            }
            scans = scans.wrapping_add(1);
            self.count_trials().await;
            wait = match self.directory.scan().await {
                Ok(DirectoryScan::Changing) => CHANGING_SCAN_INTERVAL,
                Ok(DirectoryScan::Settled(contents)) => {
                    self.reported_problems.remove(SCAN_PROBLEM);
                    files = Some(self.run_canaries(contents).await);
                    SETTLED_SCAN_INTERVAL
                }
                Err(error) => {
                    self.report_problem(SCAN_PROBLEM, error.to_string());
                    SETTLED_SCAN_INTERVAL
                }
            };
            if let Some(files) = &files {
                self.publish_changes(files).await;
            }
        }
    }

    /// Runs the canary call of each new version once. Returns the paths of all plugin files in the directory.
    async fn run_canaries(&mut self, contents: DirectoryContents) -> BTreeSet<PathBuf> {
        for (path, error) in contents.problems {
            self.report_refused(path.display().to_string(), error.to_string()).await;
        }
        let files = contents.files;
        for (path, plugin) in contents.plugins {
            let digest = plugin.digest();
            let is_known = self.accepted.get(&path).is_some_and(|accepted| accepted.digest() == digest)
                || self.refused.get(&path) == Some(digest);
            if is_known {
                continue;
            }
            let serving = self.serving.get(plugin.name());
            let is_serving = serving.is_some_and(|chosen| chosen.plugin.digest() == digest);
            match if is_serving { Ok(()) } else { self.canary(&plugin).await } {
                Ok(()) => {
                    self.refused.remove(&path);
                    self.accepted.insert(path, plugin);
                }
                Err(reason) => {
                    self.refused.insert(path.clone(), digest.clone());
                    self.report_refused(path.display().to_string(), reason).await;
                }
            }
        }
        self.accepted.retain(|path, _| files.contains(path));
        self.refused.retain(|path, _| files.contains(path));
        files
    }

    /// Runs the canary call of a new version with the limits that the agents configure. If the agents have different
    /// limits, the call is repeated with the limits of the next agent until it succeeds. One successful call is
    /// sufficient, because the trial of the version counts the calls of all agents.
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

    /// Selects the version of each plugin from the files and the rollbacks. If the selected versions differ from the
    /// versions in use, offers the selected versions to the agents.
    async fn publish_changes(&mut self, present: &BTreeSet<PathBuf>) {
        let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in present {
            if let Some(plugin) = self.accepted.get(path) {
                files.entry(plugin.name().to_owned()).or_default().push(path.clone());
            }
        }
        let mut chosen: BTreeMap<String, ChosenVersion> = BTreeMap::new();
        for (name, paths) in files {
            let owner = self.owning_file(&name, &paths);
            for path in paths.iter().filter(|path| Some(*path) != owner.as_ref()) {
                self.refuse_duplicate_name(&name, path, (owner.as_deref(), &paths)).await;
            }
            let Some(path) = owner else { continue };
            let Some(plugin) = self.accepted.get(&path).cloned() else { continue };
            // Remove the entry about the duplicate name, so that users are notified again about a new conflict.
            if self.refused.get(&path) == Some(plugin.digest()) {
                self.refused.remove(&path);
            }
            let choice = self.choose_version(&path, plugin).await;
            chosen.insert(name, choice);
        }
        if chosen != self.serving && self.declined_selection.as_ref() != Some(&chosen) {
            self.publish(chosen).await;
        }
    }

    /// Returns the file whose plugin may use this plugin name, and therefore has the grants that are configured for the
    /// name. If a plugin with this name is in use and the plugin's file still exists, the result is that file.
    /// Otherwise, the result is `None` if several files contain a plugin with this name. When a host starts, it decides
    /// about duplicate plugin names in the same way as this function.
    fn owning_file(&self, name: &str, paths: &[PathBuf]) -> Option<PathBuf> {
        let serving = self.serving.get(name).map(|chosen| &chosen.path);
        match (serving.filter(|path| paths.contains(path)), paths) {
            (Some(path), _) => Some(path.clone()),
            (None, [only]) => Some(only.clone()),
            (None, _) => None,
        }
    }

    async fn refuse_duplicate_name(&mut self, name: &str, path: &Path, (owner, paths): (Option<&Path>, &[PathBuf])) {
        let Some(plugin) = self.accepted.get(path).cloned() else { return };
        if self.refused.get(path) == Some(plugin.digest()) {
            return;
        }
        self.refused.insert(path.to_owned(), plugin.digest().clone());
        let conflict = match owner {
            Some(owner) => format!("its name belongs to {}, which is in use now", owner.display()),
            None => {
                let others = paths.iter().filter(|other| *other != path).map(|other| other.display().to_string());
                format!("{} has the same name `{name}`", others.collect::<Vec<_>>().join(", "))
            }
        };
        let reason =
            format!("{} is not used: {conflict}; rename one of the plugins in its plugin.toml", plugin.identity());
        self.report_refused(path.display().to_string(), reason).await;
    }

    /// Returns the version in the file or, if that version is rolled back, the version that is used instead of it.
    async fn choose_version(&mut self, path: &Path, plugin: Arc<LoadedPlugin>) -> ChosenVersion {
        let name = plugin.name().to_owned();
        let from_file = ChosenVersion { path: path.to_owned(), plugin, instead_of: None };
        let Some(rollback) = self.rollbacks.iter().find(|rollback| rollback.plugin == name).cloned() else {
            return from_file;
        };
        if rollback.from != *from_file.plugin.digest() && !self.is_declined(&from_file) {
            self.rollbacks.retain(|rollback| rollback.plugin != name);
            let undone = self.store.undo_rollback(&self.name, &name).await;
            self.check_stored(undone.map(drop));
            return from_file;
        }
        if let Some(serving) = self.serving.get(&name).filter(|chosen| *chosen.plugin.digest() == rollback.to) {
            return ChosenVersion { instead_of: Some(rollback.from), ..serving.clone() };
        }
        match self.sandbox.load_stored(&name, &rollback.to).await {
            Ok(plugin) => {
                self.reported_problems.remove(&name);
                ChosenVersion { plugin, instead_of: Some(rollback.from), ..from_file }
            }
            Err(error) => {
                self.report_problem(&name, format!("`{name}` cannot be rolled back: {error}"));
                self.serving.get(&name).cloned().unwrap_or(from_file)
            }
        }
    }

    /// Returns whether an agent has declined the version in this file. A new version in a file ends a rollback only if
    /// no agent has declined that version.
    fn is_declined(&self, file: &ChosenVersion) -> bool {
        let is_file = |(_, plugin, digest): &(String, String, Option<Digest>)| {
            plugin == file.plugin.name() && digest.as_ref() == Some(file.plugin.digest())
        };
        self.declined.iter().any(is_file)
    }

    /// Offers the complete new selection to each agent in one step. If no agent can use the new version of a plugin,
    /// the agents keep the plugin's previous version, but all other changes are published.
    async fn publish(&mut self, chosen: BTreeMap<String, ChosenVersion>) {
        let trials = self.trials_with(&chosen);
        let declined: Vec<DeclinedPlugin> =
            self.agents.iter().flat_map(|agent| publish::offer(agent, &chosen, &trials)).collect();
        let declined_by_all = |plugin: &String| {
            let count = declined.iter().filter(|declined| declined.plugin == *plugin).count();
            count > 0 && count == self.agents.len()
        };
        let changes = differences(&self.serving, &chosen);
        let (rejected, accepted): (Vec<_>, Vec<_>) = changes.into_iter().partition(declined_by_all);
        let previous = self.serving.clone();
        for plugin in accepted {
            match chosen.get(&plugin) {
                Some(chosen) => self.serving.insert(plugin, chosen.clone()),
                None => self.serving.remove(&plugin),
            };
        }
        let serving = &self.serving;
        let is_still_on_trial = |name: &String, on_trial: &mut VersionTrial| {
            let from_file = serving.get(name).filter(|chosen| chosen.instead_of.is_none());
            from_file.is_some_and(|chosen| *chosen.plugin.digest() == on_trial.digest)
        };
        // If all agents declined the version that would replace a version on trial, the trial continues.
        self.trials.extend(trials.into_iter().filter(|(name, _)| !rejected.contains(name)));
        self.trials.retain(is_still_on_trial);
        self.report_declined(&chosen, declined, &rejected).await;
        self.declined_selection = (self.serving != chosen).then_some(chosen);
        if self.serving != previous {
            self.report_changes(&previous).await;
        }
    }

    /// Notifies users about files that agents cannot use. For each agent and file, users are notified only once while
    /// the agent cannot use the file.
    async fn report_declined(
        &mut self,
        chosen: &BTreeMap<String, ChosenVersion>,
        declined: Vec<DeclinedPlugin>,
        declined_by_all: &[String],
    ) {
        let reported = std::mem::take(&mut self.declined);
        // If an earlier version was offered instead of a version that an agent has declined, the declined version stays
        // in `declined`.
        let is_still_declined = |(_, plugin, digest): &&(String, String, Option<Digest>)| {
            let matches = |file: &Arc<LoadedPlugin>| file.name() == plugin && Some(file.digest()) == digest.as_ref();
            let is_offered = chosen.get(plugin).is_some_and(|chosen| matches(&chosen.plugin));
            !is_offered && self.accepted.values().any(matches)
        };
        self.declined = reported.iter().filter(is_still_declined).cloned().collect();
        let mut files = BTreeSet::new();
        for DeclinedPlugin { agent, plugin, error } in declined {
            let file = chosen.get(&plugin);
            let key = (agent.clone(), plugin.clone(), file.map(|chosen| chosen.plugin.digest().clone()));
            let is_reported = reported.contains(&key);
            self.declined.insert(key);
            let (subject, reason) = match file {
                Some(file) if declined_by_all.contains(&plugin) => {
                    if !files.insert(plugin) {
                        continue;
                    }
                    (file.path.display().to_string(), format!("{} is not used: {error}", file.plugin.identity()))
                }
                Some(file) => {
                    let problem = format!("{} of {} is not used", file.plugin.identity(), file.path.display());
                    (format!("the agent `{agent}`"), format!("{problem}: {error}"))
                }
                None => (
                    format!("the agent `{agent}`"),
                    format!("`{plugin}` stays in use although its file was removed: {error}"),
                ),
            };
            if !is_reported {
                self.report_refused(subject, reason).await;
            }
        }
    }

    /// Returns the trials that this selection of versions needs: every version that replaces another version is
    /// on trial.
    fn trials_with(&self, chosen: &BTreeMap<String, ChosenVersion>) -> BTreeMap<String, VersionTrial> {
        let mut trials = BTreeMap::new();
        for (name, next) in chosen.iter().filter(|(_, next)| next.instead_of.is_none()) {
            let digest = next.plugin.digest().clone();
            let running = self.trials.get(name).filter(|on_trial| on_trial.digest == digest);
            let before = self.serving.get(name).map(|before| before.plugin.digest().clone());
            if let Some(running) = running {
                trials.insert(name.clone(), running.clone());
            } else if let Some(before) = before.filter(|before| *before != digest) {
                let calls = Arc::new(Trial::new(TrialCounts::default(), self.trapped.clone()));
                trials.insert(name.clone(), VersionTrial { digest, before, calls });
            }
        }
        trials
    }

    /// Stores the counts of each trial that is over or in which a call has trapped, and rolls back versions that failed
    /// their trial.
    async fn count_trials(&mut self) {
        let needs_storing = |on_trial: &VersionTrial| {
            let unwritten = on_trial.calls.unwritten();
            unwritten.traps > 0 || unwritten.calls > 0 && on_trial.calls.counts().is_over()
        };
        let to_store = self.trials.iter().filter(|(_, on_trial)| needs_storing(on_trial));
        let to_store: Vec<(String, VersionTrial)> =
            to_store.map(|(name, on_trial)| (name.clone(), on_trial.clone())).collect();
        for (plugin, on_trial) in to_store {
            let failed = on_trial.calls.counts().is_failed();
            let counted = trials::count(&*self.store, &self.name, &plugin, &on_trial).await;
            let rollback = match counted {
                Ok(rollback) => rollback,
                // A version that crashes is rolled back even if the rollback cannot be stored.
                Err(error) => {
                    self.check_stored(Err(error));
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
            Err(error) => self.check_stored(Err(error)),
        }
    }

    async fn report_refused(&mut self, subject: String, reason: String) {
        // Users are informed by a notice in addition to this log message, so `info` is sufficient as the log level.
        tracing::info!(subject, reason, "a change to the plugins was refused; the previous version stays in use");
        let entry =
            AuditAction::Refused { directory: self.name.clone(), subject: subject.clone(), reason: reason.clone() };
        let stored = self.store.audit(vec![entry]).await;
        self.check_stored(stored);
        self.send_notice(Notice::Refused { subject, reason });
    }

    fn send_notice(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            tracing::debug!("a notice about plugins was dropped because its receiver is busy or gone");
        }
    }

    fn check_stored(&mut self, result: Result<(), StoreError>) {
        match result {
            Ok(()) => drop(self.reported_problems.remove(STORE_PROBLEM)),
            Err(error) => {
                self.report_problem(STORE_PROBLEM, format!("the state of the plugins cannot be stored: {error}"))
            }
        }
    }

    /// Notifies users about a problem with this subject. If a problem is reported several times before it is
    /// solved, users are notified only once.
    fn report_problem(&mut self, subject: &str, reason: String) {
        if self.reported_problems.get(subject) != Some(&reason) {
            tracing::info!(directory = self.name, "{reason}");
            self.send_notice(Notice::Refused { subject: self.name.clone(), reason: reason.clone() });
            self.reported_problems.insert(subject.to_owned(), reason);
        }
    }
}

/// Makes all agents that use one plugin directory share the same trials, so that the calls of all agents are
/// counted together.
fn share_trials(agents: &[LiveAgent], versions: &PluginVersions) {
    for agent in agents.iter().skip(1) {
        let shared = |agent: &Agent| {
            let versions = PluginVersions { trials: versions.trials.clone(), ..agent.versions().clone() };
            agent.with_plugins(agent.generation().clone(), versions)
        };
        if !versions.trials.is_empty()
            && let Err(error) = agent.change(shared)
        {
            tracing::warn!(%error, "an agent could not join the shared trials, so its calls are counted separately");
        }
    }
}

/// Returns the plugin versions that an agent uses now.
fn versions_of(agent: &Agent) -> BTreeMap<String, ChosenVersion> {
    let plugins = agent.generation().plugins().map(|plugin| {
        let path = agent.generation().origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let instead_of = agent.versions().rolled_back.get(plugin.name()).cloned();
        (plugin.name().to_owned(), ChosenVersion { path, plugin: plugin.clone(), instead_of })
    });
    plugins.collect()
}
