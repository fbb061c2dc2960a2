//! Finds approval rules that match no tool. If the name of a tool is misspelled, the tool would run without an approval (L17).

use crate::agent_file::nearest;
use crate::error::ConfigError;
use crate::report::{Reporter, Warning};
use crate::settings::Settings;
use agent_core::approval::rule_source;
use agent_runtime::Agent;
use std::collections::BTreeSet;

/// Rejects rules whose tool does not exist although its plugin, server or other source does.
pub(super) fn refuse_unmatched_rules(settings: &Settings, agent: &Agent) -> Result<(), ConfigError> {
    let (tools, sources) = (tools(agent), sources(agent));
    let problem = |rule: &str| {
        let of_source = rule_source(rule).filter(|source| sources.contains(source));
        let meant = nearest(&rule.replace('*', ""), candidates(&tools, of_source));
        // A rule without a source is for a tool of the host, a service or an agent. It is rejected only if it is similar to
        // one.
        if of_source.is_none() && (rule.contains(['.', '*']) || meant.is_none()) {
            return None;
        }
        let place = place(settings, rule);
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        let available: Vec<&str> = candidates(&tools, of_source).collect();
        let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
        let owner = of_source.map_or_else(|| "available tools".to_owned(), |source| format!("tools of `{source}`"));
        Some(format!(
            "{place}: there is no tool `{rule}`, so this rule would have no effect; {meant}{owner}: {available}"
        ))
    };
    let problems: Vec<_> = unmatched(settings, &tools).filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::Settings(problems.join("\n"))) }
}

/// Warns of the other rules that match no tool. Rules for tools of MCP servers are not checked, because these tools are
/// known only when the servers have started.
pub(super) fn warn_of_unmatched_rules(settings: &Settings, agent: &Agent, reporter: &dyn Reporter) {
    let tools = tools(agent);
    let of_server = |rule: &str| rule_source(rule).is_some_and(|server| settings.file.mcp.contains_key(server));
    for rule in unmatched(settings, &tools).filter(|rule| !of_server(rule)) {
        let place = place(settings, rule).to_owned();
        reporter.warn(&Warning::UnmatchedApprovalRule { place, rule: rule.to_owned() });
    }
}

fn unmatched<'s>(settings: &'s Settings, tools: &[&str]) -> impl Iterator<Item = &'s str> {
    settings.file.approvals.unmatched_patterns(tools).into_iter()
}

fn place<'s>(settings: &'s Settings, rule: &str) -> &'s str {
    settings.file.approval_places.get(rule).map_or("approval", String::as_str)
}

fn tools(agent: &Agent) -> Vec<&str> {
    agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect()
}

/// The tools of a source. Without a source, the tools whose names have none.
fn candidates<'t>(tools: &[&'t str], source: Option<&str>) -> impl Iterator<Item = &'t str> {
    tools.iter().copied().filter(move |tool| rule_source(tool) == source)
}

/// The sources of all tools, and all loaded plugins.
fn sources(agent: &Agent) -> BTreeSet<&str> {
    let plugins = agent.generation().plugins().map(|plugin| plugin.name());
    plugins.chain(agent.registry().tools().filter_map(|tool| rule_source(&tool.definition.name))).collect()
}
