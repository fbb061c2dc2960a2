//! Converts settings to the configuration that the runtime uses.

use super::sandbox::vetting;
use crate::agent_file::ServiceTable;
use crate::settings::Settings;
use agent_core::prompt::PromptParts;
use agent_core::run::LoopConfig;
use agent_plugins::limits::CALL_LIMITS;
use agent_plugins::{CallLimits, ComponentSource};
use agent_runtime::{AgentConfig, AnnouncedEvents, AskPolicy, Emission, OutboxConfig, PluginAllowance, ServiceConfig};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Returns the source of the components that the agent's plugin folder once contained.
fn component_source(settings: &Settings) -> Option<Arc<dyn ComponentSource>> {
    let sources = settings.environment.component_sources.as_ref()?;
    Some(sources.of_folder(settings.plugins.as_deref()?))
}

/// Returns the configuration of the agent that the settings describe. Delegates and MCP servers are added later.
pub(super) fn agent_config(settings: &Settings) -> AgentConfig {
    let file = &settings.file;
    let defaults = AgentConfig::new(&settings.name);
    AgentConfig {
        file: settings.path.as_deref().map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        rule_binding: settings.rule_binding,
        vetting: Some(vetting(settings)),
        components: component_source(settings),
        user: settings.user.clone().or_else(|| settings.environment.user.clone()),
        project: settings.environment.project.clone(),
        bounds: loop_config(settings),
        prompt: PromptParts {
            instructions: file.instructions.clone(),
            chain_of_thought: file.chain_of_thought.clone(),
            tool_rules: file.tool_rules.clone(),
        },
        reply_tokens: file.reply_tokens.unwrap_or(defaults.reply_tokens),
        summary: file.summary.unwrap_or(defaults.summary),
        tool_dialect: file.tool_dialect.unwrap_or(defaults.tool_dialect),
        offered_tools: file.offered_tools.unwrap_or(defaults.offered_tools),
        command_tools: file.command_tools.unwrap_or(defaults.command_tools),
        memory: file.memory.unwrap_or(defaults.memory),
        include_history: file.include_history.unwrap_or(defaults.include_history),
        output_schema: file.output_schema.clone(),
        limits: call_limits(settings),
        plugins: plugin_names(settings).map(|name| (name.to_owned(), allowance(settings, name))).collect(),
        host_trees: settings.grants.host.clone(),
        context_builder: file.context_builder.clone(),
        validators: file.validators.clone().unwrap_or_default(),
        media_policies: file.media_policies.clone(),
        approvals: file.approvals.clone().unwrap_or_default(),
        services: file.services.iter().filter_map(|(name, table)| Some((name.clone(), service(table)?))).collect(),
        outbox: OutboxConfig {
            directory: file.outbox.directory.as_ref().map(|located| file.folder.join(&located.value)),
            server: settings.events.server.clone(),
            subject: file.outbox.subject.as_deref().map(Into::into),
            announced: AnnouncedEvents {
                completions: emission(file.outbox.completions),
                approvals: emission(file.outbox.approvals),
            },
        },
        schedules: settings.events.schedules.clone(),
        webhooks: settings.events.webhooks.clone(),
        events: settings.events.events.clone(),
        ..defaults
    }
}

fn emission(enabled: Option<bool>) -> Emission {
    match enabled {
        Some(true) => Emission::Emitted,
        Some(false) | None => Emission::Silent,
    }
}

fn service(table: &ServiceTable) -> Option<ServiceConfig> {
    // Every table has a valid type, because the check of the file has rejected all services without a valid type.
    let defaults = ServiceConfig::new(table.event_type.clone()?);
    Some(ServiceConfig {
        description: table.description.clone().unwrap_or(defaults.description),
        accepts: table.accepts.clone().unwrap_or(defaults.accepts),
        emits: table.emits.clone(),
        domain: table.domain.clone(),
        answer_within: table.answer_within_ms.map(milliseconds),
        priority: table.priority.unwrap_or(defaults.priority),
        event_type: defaults.event_type,
    })
}

fn loop_config(settings: &Settings) -> LoopConfig {
    let (file, defaults) = (&settings.file, LoopConfig::default());
    LoopConfig {
        max_interactions: file.max_interactions.unwrap_or(defaults.max_interactions),
        at_limit: file.at_limit.unwrap_or(defaults.at_limit),
        max_corrections: file.max_corrections.unwrap_or(defaults.max_corrections),
        parallel_calls: file.parallel_calls.unwrap_or(defaults.parallel_calls),
        result_characters: file.result_characters.unwrap_or(defaults.result_characters),
        minimum_remaining: file.minimum_remaining.unwrap_or(defaults.minimum_remaining),
        evict_at: file.evict_at.unwrap_or(defaults.evict_at),
        evict_to: file.evict_to.unwrap_or(defaults.evict_to),
        max_depth: file.max_depth.unwrap_or(defaults.max_depth),
        finish: file.finish.unwrap_or(defaults.finish),
        persistence: file.persistence.unwrap_or(defaults.persistence),
        answer_within_ms: file.answer_within_ms.map(u64::from),
        approval_within_ms: file.approval_within_ms.map(u64::from),
        execution_units: file.execution_units,
        budgets: file.budgets.clone(),
        ..defaults
    }
}

/// Returns the sorted names of all plugins that occur in the agent's file or in the agent's grants.
pub fn plugin_names(settings: &Settings) -> impl Iterator<Item = &str> {
    let file = &settings.file;
    // A plugin counts as mentioned even if its table is empty.
    let names = settings
        .grants
        .plugins
        .keys()
        .chain(file.limits.keys())
        .chain(&file.never_ask)
        .chain(file.plugin_tables.keys());
    names.map(String::as_str).collect::<BTreeSet<_>>().into_iter()
}

/// Returns the grants and the limits of one plugin, and whether the user is asked for missing grants.
pub fn allowance(settings: &Settings, plugin: &str) -> PluginAllowance {
    let grants = settings.grants.plugins.get(plugin).cloned().unwrap_or_default();
    let mut limits = call_limits(settings);
    if let Some(plugin_limits) = settings.file.limits.get(plugin) {
        plugin_limits.set(&CALL_LIMITS, &mut limits);
    }
    let asking = if settings.file.never_ask.contains(plugin) { AskPolicy::Never } else { AskPolicy::AtFirstUse };
    PluginAllowance { grants, limits, asking, ..PluginAllowance::default() }
}

/// Returns the limits that the file sets for the calls of all plugins. Limits that the file does not set have
/// their defaults.
fn call_limits(settings: &Settings) -> CallLimits {
    let mut limits = CallLimits::default();
    settings.file.call_limits.set(&CALL_LIMITS, &mut limits);
    limits
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(u64::from(number))
}
