//! Warns about `--yes` patterns that match no tool.

use crate::terminal::{Terminal, YELLOW};
use agent_config::Settings;
use agent_config::agent_file::nearest;
use agent_core::approval::{matches_pattern, rule_source};
use agent_runtime::Agent;

/// Warns about each `--yes` pattern that matches no tool. If a pattern contains a typo, the calls that the user wanted
/// to approve would wait for an approval.
pub(super) fn warn_of_unmatched_patterns(settings: &Settings, agent: &Agent, yes: &[String], terminal: &Terminal) {
    // The patterns also apply to delegates, which have different tools, so an agent with delegates gets no warning.
    if !settings.file.agents.is_empty() {
        return;
    }
    let tools: Vec<&str> = agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect();
    let names_server = |rule: &str| rule_source(rule).is_some_and(|server| settings.file.mcp.contains_key(server));
    for pattern in
        yes.iter().filter(|pattern| !names_server(pattern) && !tools.iter().any(|tool| matches_pattern(pattern, tool)))
    {
        let similar = nearest(&pattern.replace('*', ""), tools.iter().copied());
        let hint = similar.map(|tool| format!("; did you mean `{tool}`?")).unwrap_or_default();
        terminal.note(format!("{YELLOW}!{YELLOW:#} --yes {pattern}: there is no such tool{hint}"));
    }
}
