//! Rules about approvals that fit no tool: behind a slip in its name, a tool would run unasked (L17).

use crate::configuration::nearest;
use crate::exit::Failure;
use crate::settings::Settings;
use crate::terminal::{Terminal, YELLOW};
use agent_core::approval::{fits, source_of};
use agent_runtime::Agent;
use std::collections::BTreeSet;

/// Refuses rules for tools of sources that are there and have no such tool.
pub(super) fn refuse_idle(settings: &Settings, agent: &Agent) -> Result<(), Failure> {
    let (tools, sources) = (tools(agent), sources(agent));
    let problem = |rule: &str| {
        let of_source = source_of(rule).filter(|source| sources.contains(source));
        let meant = nearest(&rule.replace('*', ""), candidates(&tools, of_source));
        // Without a source it is a tool of the host, a service or an agent that is meant, where one is near.
        if of_source.is_none() && (rule.contains(['.', '*']) || meant.is_none()) {
            return None;
        }
        let place = place(settings, rule);
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        let there: Vec<&str> = candidates(&tools, of_source).collect();
        let there = if there.is_empty() { "no tools".to_owned() } else { there.join(", ") };
        let whose = of_source.map_or_else(|| "there are".to_owned(), |source| format!("`{source}` has"));
        Some(format!("{place}: there is no tool `{rule}`, so that this rule would do nothing: {meant}{whose}: {there}"))
    };
    let problems: Vec<_> = idle(settings, &tools).filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::refused(problems.join("\n"))) }
}

/// Says which other rules fit no tool. What MCP servers have is said when they have been met.
pub(super) fn note_idle(settings: &Settings, agent: &Agent, terminal: &Terminal) {
    let tools = tools(agent);
    let of_server = |rule: &str| source_of(rule).is_some_and(|server| settings.file.mcp.contains_key(server));
    for rule in idle(settings, &tools).filter(|rule| !of_server(rule)) {
        let place = place(settings, rule);
        terminal.note(format!("{YELLOW}!{YELLOW:#} {place}: there is no tool `{rule}`, so this rule does nothing"));
    }
}

/// Says which patterns of `--yes` fit no tool: whoever counts on them would wait in vain.
pub(crate) fn note_idle_yes(settings: &Settings, agent: &Agent, yes: &[String], terminal: &Terminal) {
    // It holds for the agents below, too, whose tools are others.
    if !settings.file.agents.is_empty() {
        return;
    }
    let tools = tools(agent);
    let of_server = |rule: &str| source_of(rule).is_some_and(|server| settings.file.mcp.contains_key(server));
    for pattern in yes.iter().filter(|pattern| !of_server(pattern) && !tools.iter().any(|tool| fits(pattern, tool))) {
        let meant = nearest(&pattern.replace('*', ""), tools.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        terminal.note(format!("{YELLOW}!{YELLOW:#} --yes {pattern}: there is no such tool{meant}"));
    }
}

fn idle<'s>(settings: &'s Settings, tools: &[&str]) -> impl Iterator<Item = &'s str> {
    settings.file.approvals.idle(tools).into_iter()
}

fn place<'s>(settings: &'s Settings, rule: &str) -> &'s str {
    settings.file.approval_places.get(rule).map_or("approval", String::as_str)
}

fn tools(agent: &Agent) -> Vec<&str> {
    agent.registry().tools().map(|tool| tool.definition.name.as_str()).collect()
}

/// Those of the source; without one, those whose names have none.
fn candidates<'t>(tools: &[&'t str], source: Option<&str>) -> impl Iterator<Item = &'t str> {
    tools.iter().copied().filter(move |tool| source_of(tool) == source)
}

/// What the names of tools that are there begin with, and the plugins that are loaded.
fn sources(agent: &Agent) -> BTreeSet<&str> {
    let plugins = agent.generation().plugins().map(|plugin| plugin.name());
    plugins.chain(agent.registry().tools().filter_map(|tool| source_of(&tool.definition.name))).collect()
}
