//! Builds an agent and all its delegates from settings, in one call.

use super::agent::make_agent;
use super::delegates::{AssembledAgent, DelegateReader, load_delegates};
use super::plugins::{load_plugins, refuse_unusable_plugins, warn_of_no_plugins};
use super::sandbox::vetted_sandbox;
use crate::error::ConfigError;
use crate::protection;
use crate::report::{Reporter, Warning};
use crate::settings::Settings;
use agent_mcp::McpServers;
use agent_plugins::Sandbox;
use agent_runtime::{LiveAgent, Notice, swap};
use agent_store::{Rollback, Store};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What happens if a file in the plugin directory cannot be loaded: an error or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusablePlugins {
    /// A file that cannot be loaded is an error, so the agent is not built.
    Refuse,
    /// A file that cannot be loaded causes only a warning, and the agent is built without that plugin.
    Report,
}

/// Builds the agents of a host, with all their plugins, models and delegates.
#[derive(Clone, Copy)]
pub struct Assembler<'a> {
    /// Store that records which plugin versions were used.
    pub store: &'a dyn Store,
    /// Sandbox of the host, opened with `open_sandbox` for the same settings.
    pub sandbox: &'a Sandbox,
    /// Reads the settings of each delegate from its file.
    pub delegates: &'a dyn DelegateReader,
    /// What happens if a plugin file cannot be loaded. In the plugin directory of a delegate, a file that cannot be
    /// loaded is always an error.
    pub unusable_plugins: UnusablePlugins,
    /// Receives progress and warnings while agents are built.
    pub reporter: &'a dyn Reporter,
}

impl Assembler<'_> {
    /// Loads the plugins, and builds the agent and its delegates. Granted folders are opened before a plugin runs,
    /// because a plugin could replace a folder with a link to another folder. Plugin versions that were rolled back are
    /// replaced with earlier versions.
    pub async fn assemble(&self, settings: &Settings) -> Result<AssembledAgents, ConfigError> {
        let Self { store, sandbox, reporter, .. } = *self;
        let (generation, problems) = load_plugins(settings, sandbox, reporter).await?;
        match (refuse_unusable_plugins(&problems), self.unusable_plugins) {
            (refused, UnusablePlugins::Refuse) => refused?,
            (Ok(()), UnusablePlugins::Report) => {}
            (Err(problems), UnusablePlugins::Report) => {
                reporter.warn(&Warning::UnusablePlugins { problems: problems.to_string() });
            }
        }
        warn_of_no_plugins(settings, &generation, reporter);
        let delegates = load_delegates(settings, sandbox, self.delegates, reporter).await?;
        let servers = settings.servers()?;
        let agent = LiveAgent::new(make_agent(settings, (generation, delegates.by_tool), servers, reporter)?);
        let mut agents = delegates.all;
        agents.push(AssembledAgent { live: agent.clone(), settings: settings.clone() });
        protection::open_granted_trees(sandbox, agents.iter().map(|agent| &agent.settings))?;
        for AssembledAgent { live, settings } in &agents {
            let Some(folder) = &settings.plugins else { continue };
            for notice in swap::begin_serving(store, &vetted_sandbox(sandbox, settings), folder, live).await? {
                if let Notice::Refused { subject, reason } = notice {
                    reporter.warn(&Warning::VersionRefused { subject, reason });
                }
            }
        }
        Ok(AssembledAgents { agent, all: agents })
    }
}

/// An agent and all its delegates.
#[derive(Clone)]
pub struct AssembledAgents {
    /// The agent that the settings describe.
    pub agent: LiveAgent,
    /// The agent and all its delegates, including the delegates of delegates.
    pub all: Vec<AssembledAgent>,
}

impl AssembledAgents {
    /// Returns the MCP servers of all agents.
    pub fn servers(&self) -> Vec<McpServers> {
        self.all.iter().map(|agent| agent.live.current().servers().clone()).collect()
    }

    /// Returns the path of each agent's configuration file, by the agent's name. Agents without a configuration file
    /// are left out. The user-wide file is left out as well, because an answer that is given in one folder must not grant
    /// anything in other folders.
    pub fn files(&self) -> BTreeMap<String, PathBuf> {
        let file = |agent: &AssembledAgent| Some((agent.settings.name.clone(), agent.settings.path.clone()?));
        self.all.iter().filter(|agent| !agent.settings.is_user_wide()).filter_map(file).collect()
    }

    /// Stores the trial results of new plugin versions, so that the next process continues the trials (P10). Call this
    /// method after the last turn has ended.
    pub async fn record_trials(&self, store: &dyn Store, reporter: &dyn Reporter) {
        for AssembledAgent { live, settings } in &self.all {
            let Some(folder) = &settings.plugins else { continue };
            match swap::finish_trials(store, folder, live).await {
                Ok(rollbacks) => rollbacks.into_iter().for_each(|Rollback { plugin, from, to, .. }| {
                    reporter.warn(&Warning::CrashedTooOften { plugin, from, to });
                }),
                Err(error) => reporter.warn(&Warning::TrialsNotCounted { reason: error.to_string() }),
            }
        }
    }
}
