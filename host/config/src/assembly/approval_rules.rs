//! Finds approval rules that match no tool. A rule with a misspelled name would let the tool run without an approval
//! (L17).

use crate::agent_file::nearest;
use crate::error::ConfigError;
use crate::report::{Reporter, Warning};
use crate::settings::Settings;
use agent_core::approval::rule_source;
use agent_runtime::Agent;
use std::collections::BTreeSet;

/// Rejects each rule that does not match any tool if the rule names an existing source, or if the rule is similar to
/// the name of an existing tool.
pub(super) fn refuse_unmatched_rules(settings: &Settings, agent: &Agent) -> Result<(), ConfigError> {
    let (tools, sources) = (tools(agent), sources(agent));
    let problem = |rule: &str| {
        let source = rule_source(rule).filter(|name| sources.contains(name));
        let suggestion = nearest(&rule.replace('*', ""), candidates(&tools, source));
        // A rule without a source applies to tools of the host, to services and to agents. A rule without a source is
        // rejected only if its name is similar to the name of an existing tool.
        if source.is_none() && (rule.contains(['.', '*']) || suggestion.is_none()) {
            return None;
        }
        let location = location(settings, rule);
        let suggestion = suggestion.map(|suggestion| format!("did you mean `{suggestion}`? ")).unwrap_or_default();
        let available: Vec<&str> = candidates(&tools, source).collect();
        let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
        let heading = source.map_or_else(|| "available tools".to_owned(), |name| format!("tools of `{name}`"));
        Some(format!(
            "{location}: there is no tool `{rule}`, so this rule would have no effect; {suggestion}{heading}: {available}"
        ))
    };
    let problems: Vec<_> = unmatched_rules(settings, &tools).filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::Settings(problems.join("\n"))) }
}

/// Reports a warning for each rule that matches no tool. Rules for tools of MCP servers are not checked, because these
/// tools are known only after the servers have started.
pub(super) fn warn_of_unmatched_rules(settings: &Settings, agent: &Agent, reporter: &dyn Reporter) {
    let tools = tools(agent);
    let is_for_server = |rule: &str| rule_source(rule).is_some_and(|server| settings.file.mcp.contains_key(server));
    for rule in unmatched_rules(settings, &tools).filter(|rule| !is_for_server(rule)) {
        let location = location(settings, rule).to_owned();
        reporter.warn(&Warning::UnmatchedApprovalRule { location, rule: rule.to_owned() });
    }
}

fn unmatched_rules<'s>(settings: &'s Settings, tools: &[&str]) -> impl Iterator<Item = &'s str> {
    settings.file.approvals.iter().flat_map(|rules| rules.unmatched_patterns(tools))
}

fn location<'s>(settings: &'s Settings, rule: &str) -> &'s str {
    settings.file.approval_locations.get(rule).map_or("approval", String::as_str)
}

fn tools(agent: &Agent) -> Vec<&str> {
    agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect()
}

/// Returns the tools that belong to `source`. If `source` is None, returns the tools without a source in their names.
fn candidates<'t>(tools: &[&'t str], source: Option<&str>) -> impl Iterator<Item = &'t str> {
    tools.iter().copied().filter(move |tool| rule_source(tool) == source)
}

/// Returns the sources of all tools, and the names of all loaded plugins.
fn sources(agent: &Agent) -> BTreeSet<&str> {
    let plugins = agent.generation().plugins().map(|plugin| plugin.name());
    plugins.chain(agent.registry().tools().filter_map(|tool| rule_source(&tool.definition.name))).collect()
}
