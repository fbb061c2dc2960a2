//! Stores the plugin versions that are in use (P10, O3). The versions are stored when the host starts and when plugins
//! are swapped, but never during a call.

use super::{ChosenVersion, Notice, PluginWatcher};
use crate::agent::{AgentError, LiveAgent, PluginVersions, VersionTrial};
use agent_core::message::Digest;
use agent_plugins::{
    CallLimits, Generation, GenerationError, Grants, LoadedPlugin, PluginIdentity, Sandbox, TreeGrant, Trial,
    TrialCounts,
};
use agent_store::{
    AuditAction, PLUGIN_STORE_ORIGIN, PluginSource, Rollback, ServedPlugin, Store, StoreError, StoredTrial,
    VersionEndReason,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

/// Reason that is recorded in the audit log when a version is rolled back because it failed its trial.
pub(super) const TRAPPED: &str = "it crashed in 3 of its first 10 calls";

/// The reason why an agent cannot start with the plugin versions that were in use last.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The session store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A version is rolled back, but the earlier version that must be used instead cannot be loaded.
    #[error("{0}; run `agent-host plugin rollback NAME --undo` to use the version in the file")]
    Generation(#[from] GenerationError),
    /// A version is rolled back, but the agent cannot use the earlier version that must be used instead.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A new version failed its canary call, and there is no other version that can be used instead.
    #[error("{}: {reason}; fix the file, or remove it from the directory", path.display())]
    Canary {
        /// Path of the plugin file.
        path: PathBuf,
        /// The reason why the canary call failed.
        reason: String,
    },
}

/// Returns the name under which the store knows a plugin directory, which is the directory's canonical path.
pub fn directory_name(directory: &Path) -> String {
    let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    path.to_string_lossy().into_owned()
}

/// Selects the plugin versions for an agent whose plugins were loaded from a directory (P10). Versions that were rolled
/// back are not used. A new version must pass its canary call. A new version that passes its canary call replaces the
/// version that was in use last, and is then on trial. The selected versions and their grants are stored. Returns the
/// notices about the selected versions that users must receive.
pub async fn begin_serving(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    agent: &LiveAgent,
) -> Result<Vec<Notice>, BeginError> {
    let name = directory_name(directory);
    let rollbacks = store.rollbacks(&name).await?;
    let served: BTreeMap<String, Digest> = store.serving(&name).await?.into_iter().collect();
    let mut starting = StartingVersions {
        sandbox,
        rollbacks: &rollbacks,
        served: &served,
        trials: store.trials(&name).await?,
        versions: PluginVersions::default(),
        new_trials: BTreeMap::new(),
        refused: Vec::new(),
    };
    let mut agent_now = agent.current();
    let (mut plugins, mut has_other_versions) = (Vec::new(), false);
    for plugin in agent_now.generation().plugins() {
        let path = agent_now.generation().origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let limits = agent_now.config().allowance(plugin.name()).limits;
        let chosen = starting.choose_version(&path, plugin, limits).await?;
        has_other_versions |= chosen.digest() != plugin.digest();
        plugins.push((path, chosen));
    }
    let StartingVersions { versions, new_trials, refused, .. } = starting;
    if has_other_versions || !versions.trials.is_empty() {
        let generation = Generation::of_files(plugins);
        agent_now = agent.change(|agent| agent.with_plugins(generation, versions))?;
    }
    let rolled_back = &agent_now.versions().rolled_back;
    let serving = agent_now.generation().plugins().map(|plugin| {
        let path = agent_now.generation().origin(plugin.name());
        let is_stored = rolled_back.contains_key(plugin.name())
            || path.is_some_and(|path| agent_now.versions().refused.contains_key(path));
        ServedPlugin {
            plugin: plugin.name().to_owned(),
            digest: plugin.digest().clone(),
            origin: origin(path, is_stored),
            instead: version_end(&rollbacks, rolled_back.get(plugin.name())),
            trial: new_trials.get(plugin.name()).cloned(),
        }
    });
    let changed = store.set_serving(&name, serving.collect()).await?;
    let identities = agent_now.generation().plugins().map(|plugin| plugin.identity().clone()).collect();
    record_sources(store, sandbox, identities).await?;
    // The audit log receives no entries about the first versions in a directory, because the first versions do not
    // replace other versions. No entries about rollbacks are added here, because the audit log already contains
    // the rollbacks.
    let swaps = changed.into_iter().filter(|change| !served.is_empty() && !rolled_back.contains_key(&change.plugin));
    let swaps = swaps.map(|change| AuditAction::Swapped {
        directory: name.clone(),
        plugin: change.plugin,
        from: change.from,
        to: change.to,
    });
    let refusals = refused.iter().map(|(subject, reason)| AuditAction::Refused {
        directory: name.clone(),
        subject: subject.clone(),
        reason: reason.clone(),
    });
    store.audit(swaps.chain(refusals).chain(granted_entries(agent)).collect()).await?;
    Ok(refused.into_iter().map(|(subject, reason)| Notice::Refused { subject, reason }).collect())
}

/// Stores where these versions come from, so that another machine of a fleet can fetch them. Nothing is stored for the user's
/// own plugins.
async fn record_sources(store: &dyn Store, sandbox: &Sandbox, plugins: Vec<PluginIdentity>) -> Result<(), StoreError> {
    let sandbox = sandbox.clone();
    let read = move |PluginIdentity { name, digest }| match sandbox.shared_statements(&digest) {
        Ok(statements) => Some(PluginSource { plugin: name, digest, statements: statements? }),
        Err(error) => {
            tracing::warn!(%name, %error, "other machines cannot fetch this plugin");
            None
        }
    };
    let sources = tokio::task::spawn_blocking(move || plugins.into_iter().filter_map(read).collect()).await;
    store.record_plugin_sources(sources.unwrap_or_default()).await
}

/// Returns the plugin versions that a host would use for the files in a directory: the version in each file, or an
/// earlier version if the version in the file is rolled back. Does not store anything and does not make canary calls.
pub async fn serving_versions(
    store: &dyn Store,
    sandbox: &Sandbox,
    directory: &Path,
    generation: &Generation,
) -> Result<(Generation, PluginVersions), BeginError> {
    let rollbacks = store.rollbacks(&directory_name(directory)).await?;
    let (mut plugins, mut versions) = (Vec::new(), PluginVersions::default());
    for plugin in generation.plugins() {
        let path = generation.origin(plugin.name()).map(Path::to_owned).unwrap_or_default();
        let applies = |rollback: &&Rollback| rollback.plugin == plugin.name() && rollback.from == *plugin.digest();
        let version = match rollbacks.iter().find(applies) {
            None => plugin.clone(),
            Some(rollback) => {
                versions.rolled_back.insert(plugin.name().to_owned(), plugin.digest().clone());
                sandbox.load_stored(plugin.name(), &rollback.to).await?
            }
        };
        plugins.push((path, version));
    }
    Ok((Generation::of_files(plugins), versions))
}

/// Stores the current grants of an agent's plugins in the audit log if these grants differ from the grants that were
/// stored last (O3).
pub async fn record_grants(store: &dyn Store, agent: &LiveAgent) -> Result<(), StoreError> {
    store.audit(granted_entries(agent)).await
}

/// Selects the plugin versions that a process uses when it starts. The versions in the files are compared with the
/// versions that were most recently in use.
struct StartingVersions<'b> {
    sandbox: &'b Sandbox,
    rollbacks: &'b [Rollback],
    served: &'b BTreeMap<String, Digest>,
    trials: Vec<StoredTrial>,
    versions: PluginVersions,
    /// Names of plugins with a new version whose trial starts now, each with the digest of the version that was in
    /// use before.
    new_trials: BTreeMap<String, Digest>,
    /// Files that were refused, each with the reason.
    refused: Vec<(String, String)>,
}

impl StartingVersions<'_> {
    /// Selects the version that is used for a plugin file. `limits` are the limits that the agent sets for calls to
    /// the plugin.
    async fn choose_version(
        &mut self,
        path: &Path,
        plugin: &Arc<LoadedPlugin>,
        limits: CallLimits,
    ) -> Result<Arc<LoadedPlugin>, BeginError> {
        let (name, digest) = (plugin.name(), plugin.digest());
        let applies = |rollback: &&Rollback| rollback.plugin == name && rollback.from == *digest;
        if let Some(rollback) = self.rollbacks.iter().find(applies) {
            let stored = self.sandbox.load_stored(name, &rollback.to).await?;
            self.versions.rolled_back.insert(name.to_owned(), digest.clone());
            return Ok(stored);
        }
        let before = self.served.get(name);
        if before == Some(digest) {
            self.resume_trial(name, digest);
            return Ok(plugin.clone());
        }
        match (self.sandbox.canary(plugin, limits).await, before) {
            (Ok(()), None) => Ok(plugin.clone()),
            (Ok(()), Some(before)) => {
                self.new_trials.insert(name.to_owned(), before.clone());
                self.add_trial(name, (digest, before), TrialCounts::default());
                Ok(plugin.clone())
            }
            (Err(reason), Some(before)) => {
                let problem = |_| BeginError::Canary { path: path.to_owned(), reason: reason.clone() };
                let stored = self.sandbox.load_stored(name, before).await.map_err(problem)?;
                self.versions.refused.insert(path.to_owned(), digest.clone());
                self.refused.push((path.display().to_string(), reason));
                self.resume_trial(name, before);
                Ok(stored)
            }
            (Err(reason), None) => Err(BeginError::Canary { path: path.to_owned(), reason }),
        }
    }

    /// Continues the trial of this version, if an earlier process began the trial and did not finish it.
    fn resume_trial(&mut self, name: &str, digest: &Digest) {
        let stored = self.trials.iter().find(|trial| trial.plugin == name && trial.digest == *digest).cloned();
        if let Some(StoredTrial { before, calls, traps, .. }) = stored {
            self.add_trial(name, (digest, &before), TrialCounts { calls, traps });
        }
    }

    fn add_trial(&mut self, name: &str, (digest, before): (&Digest, &Digest), counts: TrialCounts) {
        let calls = Arc::new(Trial::new(counts, Arc::default()));
        let on_trial = VersionTrial { digest: digest.clone(), before: before.clone(), calls };
        self.versions.trials.insert(name.to_owned(), on_trial);
    }
}

impl PluginWatcher {
    /// Stores which version of each plugin is in use now, and sends a notice about each plugin whose version
    /// has changed.
    pub(super) async fn report_changes(&mut self, before: &BTreeMap<String, ChosenVersion>) {
        let (mut entries, mut notices) = (Vec::new(), Vec::new());
        let names = before.keys().chain(self.serving.keys().filter(|name| !before.contains_key(*name)));
        for plugin in names.cloned() {
            let (old, new) = (before.get(&plugin), self.serving.get(&plugin));
            if old == new {
                continue;
            }
            let digest = |chosen: Option<&ChosenVersion>| chosen.map(|chosen| chosen.plugin.digest().clone());
            let (from, to, directory) = (digest(old), digest(new), self.name.clone());
            match new.and_then(|new| Some((new.instead_of.clone()?, new.plugin.digest().clone()))) {
                Some((from, to)) => {
                    let because = self.rollback_reason(&plugin).to_owned();
                    // The rollback itself was already stored, either by a user's command or by the trial.
                    notices.push(Notice::RolledBack { plugin, from, to, because });
                }
                None => {
                    notices.push(Notice::Swapped { plugin: plugin.clone(), from: from.clone(), to: to.clone() });
                    entries.push(AuditAction::Swapped { directory, plugin, from, to });
                }
            }
        }
        entries.extend(self.agents.iter().flat_map(granted_entries));
        let serving: Vec<ServedPlugin> = self.serving.iter().map(|(name, chosen)| self.served(name, chosen)).collect();
        let mut stored = self.store.set_serving(&self.name, serving).await.map(drop);
        if stored.is_ok() {
            stored = self.store.audit(entries).await;
        }
        if stored.is_ok() {
            let identities = self.serving.values().map(|chosen| chosen.plugin.identity().clone()).collect();
            stored = record_sources(&*self.store, &self.sandbox, identities).await;
        }
        self.check_stored(stored);
        for notice in notices {
            self.send_notice(notice);
        }
    }

    fn served(&self, name: &str, chosen: &ChosenVersion) -> ServedPlugin {
        ServedPlugin {
            plugin: name.to_owned(),
            digest: chosen.plugin.digest().clone(),
            origin: origin(Some(&chosen.path), chosen.instead_of.is_some()),
            instead: version_end(&self.rollbacks, chosen.instead_of.as_ref()),
            trial: self.trials.get(name).map(|on_trial| on_trial.before.clone()),
        }
    }

    fn has_trapped(&self, plugin: &str) -> bool {
        let is_trap = |rollback: &&Rollback| rollback.plugin == plugin && rollback.why == VersionEndReason::Trapped;
        self.rollbacks.iter().any(|rollback| is_trap(&rollback))
    }

    fn rollback_reason(&self, plugin: &str) -> &'static str {
        match self.has_trapped(plugin) {
            true => TRAPPED,
            false => "a user requested it",
        }
    }
}

/// Returns the reason why the previous version is no longer in use. If the previous version was rolled back, the result
/// is the reason for the rollback, and otherwise `Replaced`.
fn version_end(rollbacks: &[Rollback], rolled_back: Option<&Digest>) -> VersionEndReason {
    let rollback = rollbacks.iter().find(|rollback| Some(&rollback.from) == rolled_back);
    rollback.map_or(VersionEndReason::Replaced, |rollback| rollback.why)
}

fn origin(path: Option<&Path>, is_rolled_back: bool) -> String {
    match (is_rolled_back, path) {
        (true, _) => PLUGIN_STORE_ORIGIN.to_owned(),
        (false, Some(path)) => path.display().to_string(),
        (false, None) => String::new(),
    }
}

/// Builds the audit entries for the effective grants of an agent's plugins and of the host's own tools.
fn granted_entries(agent: &LiveAgent) -> Vec<AuditAction> {
    let agent = agent.current();
    let name = || agent.config().name.clone();
    let granted = agent.setups().values().map(|setup| AuditAction::Granted {
        agent: name(),
        plugin: setup.plugin().name().to_owned(),
        digest: setup.plugin().digest().clone(),
        grants: describe_grants(setup.grants()),
    });
    let host = agent.config().host_trees.iter().map(describe_tree).collect();
    granted.chain([AuditAction::HostGranted { agent: name(), grants: host }]).collect()
}

/// Returns descriptions of the grants for the audit log. The descriptions contain the names of variables, settings and
/// secrets, but not their values.
fn describe_grants(grants: &Grants) -> Vec<String> {
    let trees = grants.trees.iter().map(describe_tree);
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
    let named = trees.chain(variables).chain(settings).chain(requests).chain(secrets);
    named.chain(values).chain(model).chain(events).chain(media).collect()
}

fn describe_tree(tree: &TreeGrant) -> String {
    let path = directory_name(&tree.host);
    match tree.access {
        agent_plugins::Access::Read => format!("read {path}"),
        agent_plugins::Access::ReadWrite => format!("read and write {path}"),
    }
}
