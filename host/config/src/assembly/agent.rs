//! Builds an agent from its settings, its plugins and its delegates, and applies changed settings to a running agent.

use super::agent_config::agent_config;
use super::approval_rules::{refuse_unmatched_rules, warn_of_unmatched_rules};
use super::models::models;
use super::plugins::warn_of_unused_grants;
use crate::error::ConfigError;
use crate::report::{Reporter, Warning};
use crate::settings::Settings;
use agent_core::tool::ToolSource;
use agent_mcp::ServerConfig;
use agent_plugins::Generation;
use agent_runtime::{Agent, AgentConfig, AgentError, Delegate, LiveAgent, Models, RegistryError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Builds the agent that the settings describe, with the given plugins, delegates and MCP servers.
pub fn make_agent(
    settings: &Settings,
    (generation, delegates): (Generation, BTreeMap<String, Delegate>),
    mcp: Vec<ServerConfig>,
    reporter: &dyn Reporter,
) -> Result<Arc<Agent>, ConfigError> {
    refuse_unknown_plugins(settings, &generation)?;
    let models = models(settings)?;
    let config = AgentConfig { delegates, mcp, ..agent_config(settings) };
    let agent = agent_without_duplicates((config, models, generation), reporter);
    let agent = agent.map(Arc::new).map_err(|error| agent_error(settings, &error))?;
    reporter.keep_secret(agent.redaction());
    for plugin in agent.generation().plugins() {
        warn_of_unused_grants(plugin, settings.grants.plugins.get(plugin.name()), reporter);
    }
    refuse_unmatched_rules(settings, &agent)?;
    warn_of_unmatched_rules(settings, &agent, reporter);
    Ok(agent)
}

/// Builds the agent. If another tool already has the name of a plugin's tool, the agent is built without this plugin,
/// and a warning is reported (row 55). The tools of the host and of the agent's file take precedence, then the tools of
/// plugins that the file mentions, then the tools of all other plugins in the order of the plugins' names.
fn agent_without_duplicates(
    (config, models, mut generation): (AgentConfig, Models, Generation),
    reporter: &dyn Reporter,
) -> Result<Agent, AgentError> {
    loop {
        let error = match Agent::new(config.clone(), models.clone(), generation.clone()) {
            Err(AgentError::Registry(error)) => error,
            result => return result,
        };
        let RegistryError::Duplicate { first, second, .. } = &error else { return Err(error.into()) };
        let plugin = |source: &ToolSource| match source {
            ToolSource::Plugin { plugin, .. } => Some((!config.mentions(plugin), plugin.clone())),
            _ => None,
        };
        let Some((_, duplicate)) = plugin(first).into_iter().chain(plugin(second)).max() else {
            return Err(error.into());
        };
        reporter.warn(&Warning::PluginLeftOut { plugin: duplicate.clone(), reason: error.to_string() });
        generation = generation.without(&duplicate);
    }
}

/// Builds the agent for a test, with the given models and without MCP servers. Returns an error if two tools have the
/// same name.
pub fn make_test_agent(
    settings: &Settings,
    (generation, delegates): (Generation, BTreeMap<String, Delegate>),
    models: Models,
) -> Result<Arc<Agent>, ConfigError> {
    let config = AgentConfig { delegates, ..agent_config(settings) };
    let agent = Agent::new(config, models, generation).map(Arc::new).map_err(|error| agent_error(settings, &error))?;
    refuse_unmatched_rules(settings, &agent)?;
    Ok(agent)
}

/// Whether the models of an agent are rebuilt when its file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelRebuild {
    /// The models are rebuilt from the changed file.
    Rebuild,
    /// The agent keeps its models, including a model that was chosen during a session.
    Keep,
}

/// Whether a change to an agent's file has changed the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconfigured {
    /// The agent has changed, and uses the changed configuration from the next turn on.
    Changed,
    /// The agent has not changed, because the change to the file affects only comments, layout, or text that the host
    /// itself has written.
    Unchanged,
}

/// Applies changed settings to a running agent. If the settings cannot be applied, nothing is changed. The agent keeps
/// its name and its plugins.
pub fn reconfigure(live: &LiveAgent, settings: &Settings, rebuild: ModelRebuild) -> Result<Reconfigured, ConfigError> {
    let agent = live.current();
    refuse_unknown_plugins(settings, agent.generation())?;
    let (name, rule_binding) = (agent.config().name.clone(), agent.config().rule_binding);
    let config = AgentConfig { name, rule_binding, ..agent_config(settings) };
    let models = match rebuild {
        ModelRebuild::Rebuild => models(settings)?,
        ModelRebuild::Keep => agent.models().clone(),
    };
    let next = agent.reconfigured(config.clone(), models.clone()).map_err(|error| agent_error(settings, &error))?;
    refuse_unmatched_rules(settings, &next)?;
    if rebuild == ModelRebuild::Keep && next.fingerprint() == agent.fingerprint() {
        return Ok(Reconfigured::Unchanged);
    }
    live.change(|agent| agent.reconfigured(config, models)).map_err(|error| agent_error(settings, &error))?;
    Ok(Reconfigured::Changed)
}

/// Converts an error about an agent to the error type of this crate, and adds the location of the key that caused
/// the error.
pub(super) fn agent_error(settings: &Settings, error: &AgentError) -> ConfigError {
    match error {
        AgentError::Registry(RegistryError::Duplicate { name, .. } | RegistryError::Schema { name, .. }) => {
            let agent_location = settings.file.agents.get(name).map(|table| &table.location);
            let location = agent_location.or_else(|| settings.file.services.get(name).map(|table| &table.location));
            ConfigError::settings(location.map_or_else(|| error.to_string(), |location| format!("{location}: {error}")))
        }
        AgentError::NoPlugin { key, .. } | AgentError::WrongKind { key, .. } => settings.problem(key, error),
        AgentError::OutputSchema(_) => settings.problem("output_schema", error),
        AgentError::FallbackText(_) => settings.problem("fallback_text", error),
        AgentError::Mcp(_) => settings.problem("mcp", error),
        AgentError::Service { name, .. } => match settings.file.services.get(name) {
            Some(table) => ConfigError::settings(format!("{}: {error}", table.location)),
            None => ConfigError::settings(error),
        },
        // An agent file contains no tools of clients.
        AgentError::ClientTools(error) => ConfigError::settings(error),
    }
}

/// Rejects settings for plugins that are not loaded, because such settings would have no effect.
pub fn refuse_unknown_plugins(settings: &Settings, generation: &Generation) -> Result<(), ConfigError> {
    let unknown = settings.unknown_plugins(&|name| generation.plugin(name).is_some());
    if unknown.is_empty() {
        return Ok(());
    }
    if let Some(advice) = settings.advice_without_plugin_folder() {
        return Err(ConfigError::settings(format!("{}; {advice}", unknown.join("\n"))));
    }
    let loaded: Vec<_> = generation.plugins().map(|plugin| plugin.name()).collect();
    let loaded = if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") };
    Err(ConfigError::settings(format!("{}; loaded plugins: {loaded}", unknown.join("\n"))))
}
