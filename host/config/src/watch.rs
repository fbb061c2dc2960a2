//! Watches the plugin directories (P10) and the configuration files of running agents.

pub(crate) mod agent_files;

use crate::assembly::{AssembledAgent, vetted_sandbox};
use crate::settings::Settings;
use agent_plugins::Sandbox;
use agent_runtime::{Host, LiveAgent, Notice, PluginWatcher};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum number of events that are queued in the channel for plugin events, and in the channel for file events.
const CHANNEL_CAPACITY: usize = 64;

/// A change to a plugin or a configuration file that was applied, or that could not be applied.
#[derive(Debug)]
pub enum WatchEvent {
    /// A plugin in a watched plugin directory changed.
    Plugins(Notice),
    /// An agent's file was changed, and the changed settings apply from the next turn on.
    Configured {
        /// Path of the agent's file.
        path: PathBuf,
        /// The new settings of the agent.
        settings: Box<Settings>,
        /// Names of the changed keys whose new values apply only after the host is restarted.
        later: Vec<&'static str>,
    },
    /// An agent's changed file cannot be used, so the previous settings stay in effect.
    Misconfigured {
        /// The problem in the changed file, with the file, line and key.
        reason: String,
    },
}

/// Watches the agents' files and plugin directories, and applies changes, until this value is dropped.
pub struct AgentWatch {
    notices: Option<Receiver<Notice>>,
    files: Receiver<WatchEvent>,
    _stop_on_drop: DropGuard,
}

impl AgentWatch {
    /// Starts to watch the plugin directories and the files of all agents. If several agents use the same directory,
    /// the directory is watched only once.
    pub fn begin(host: &Host, agents: &[AssembledAgent]) -> Self {
        let (sender, notices) = channel(CHANNEL_CAPACITY);
        let stop = CancellationToken::new();
        let mut folders: BTreeMap<PathBuf, (PathBuf, Vec<LiveAgent>, Sandbox)> = BTreeMap::new();
        for AssembledAgent { live, settings } in agents {
            let Some(folder) = settings.plugins.clone() else { continue };
            let canonical = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
            let (_, live_agents, sandbox) =
                folders.entry(canonical).or_insert_with(|| (folder, Vec::new(), host.sandbox.clone()));
            live_agents.push(live.clone());
            // If the signature rules of one agent reject a component, the component is not used by any agent that uses
            // the directory.
            *sandbox = vetted_sandbox(sandbox, settings);
        }
        for (folder, agents, sandbox) in folders.into_values() {
            let store_and_sandbox = (host.store.clone(), sandbox);
            let watcher = PluginWatcher::new(store_and_sandbox, &folder, agents, sender.clone());
            tokio::spawn(watcher.watch(stop.clone()));
        }
        let files = watch_files(host, agents, &stop);
        Self { notices: Some(notices), files, _stop_on_drop: stop.drop_guard() }
    }

    /// Starts to watch only the agents' files, for a host that runs a single turn. Grants that are removed from the
    /// files are revoked immediately. Other changes have no effect, because the host does not run another turn.
    pub fn revocations(host: &Host, agents: &[AssembledAgent]) -> Self {
        let stop = CancellationToken::new();
        let files = watch_files(host, agents, &stop);
        Self { notices: None, files, _stop_on_drop: stop.drop_guard() }
    }

    /// Returns the next event without waiting, or None if there is no event yet.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        let notice = self.notices.as_mut().and_then(|notices| notices.try_recv().ok()).map(WatchEvent::Plugins);
        notice.or_else(|| self.files.try_recv().ok())
    }
}

fn watch_files(host: &Host, agents: &[AssembledAgent], stop: &CancellationToken) -> Receiver<WatchEvent> {
    let (sender, events) = channel(CHANNEL_CAPACITY);
    let store_and_sandbox = (host.store.clone(), host.sandbox.clone());
    tokio::spawn(agent_files::watch(agents.to_vec(), store_and_sandbox, sender, stop.clone()));
    events
}
