//! Finds all problems of an agent at once, for `config check`.

use super::agent::{agent_error, refuse_unknown_plugins};
use super::agent_config::agent_config;
use super::approval_rules::refuse_unmatched_rules;
use super::models::models;
use crate::error::ConfigError;
use crate::settings::{Problems, Settings};
use agent_models::{Provider, Providers};
use agent_plugins::Generation;
use agent_runtime::{Agent, AgentConfig, AgentError, Delegate, Models, RegistryError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Collects all problems that prevent the agent from being built. After a problem is found, the cause of the problem is
/// removed from the configuration, so that further problems can be found.
pub fn examine(
    settings: &Settings,
    generation: Generation,
    delegates: BTreeMap<String, Delegate>,
    problems: &mut Problems,
) {
    problems.collect(refuse_unknown_plugins(settings, &generation));
    let models = problems.collect(models(settings));
    let Some(mut models) = models.or_else(|| Some(Models::new(problems.collect(offline_model())?, []))) else { return };
    models.fallback_text = settings.file.fallback_text.clone();
    let mcp = problems.collect(settings.servers()).unwrap_or_default();
    let mut config = AgentConfig { delegates, mcp, ..agent_config(settings) };
    loop {
        match Agent::new(config.clone(), models.clone(), generation.clone()) {
            Ok(agent) => {
                problems.collect(refuse_unmatched_rules(settings, &agent));
                return;
            }
            Err(error) => {
                problems.add(&agent_error(settings, &error));
                if !remove_cause(&mut config, &mut models, &error) {
                    return;
                }
            }
        }
    }
}

/// Returns the built-in `offline` model, which replaces models that cannot be used.
fn offline_model() -> Result<Arc<dyn Provider>, ConfigError> {
    Providers::new(Vec::new()).model("offline", Path::new("")).map_err(ConfigError::settings)
}

/// Removes the cause of an error from the configuration. Returns true if the configuration was changed.
fn remove_cause(config: &mut AgentConfig, models: &mut Models, error: &AgentError) -> bool {
    match error {
        AgentError::NoPlugin { key, plugin, .. } | AgentError::WrongKind { key, plugin, .. } => {
            let is_cause = |name: &String| plugin.split('@').next() == Some(name.as_str());
            let named_plugins = |config: &AgentConfig| {
                config.context_builder.iter().len() + config.validators.len() + config.media_policies.len()
            };
            let count_before = named_plugins(config);
            match *key {
                "context_builder" => config.context_builder = None,
                "validators" => config.validators.retain(|name| !is_cause(name)),
                _ => config.media_policies.retain(|_, name| !is_cause(name)),
            }
            named_plugins(config) < count_before
        }
        AgentError::OutputSchema(_) => config.output_schema.take().is_some(),
        AgentError::FallbackText(_) => models.fallback_text.take().is_some(),
        AgentError::Mcp(_) => !std::mem::take(&mut config.mcp).is_empty(),
        AgentError::Service { name, .. } => config.services.remove(name).is_some(),
        AgentError::Registry(RegistryError::Duplicate { name, .. } | RegistryError::Schema { name, .. }) => {
            config.services.remove(name).is_some() || config.delegates.remove(name).is_some()
        }
        AgentError::ClientTools(_) => !std::mem::take(&mut config.client_tools).is_empty(),
    }
}
