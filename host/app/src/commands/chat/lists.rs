//! Formats the output of the slash commands `/help`, `/tools`, `/plugins` and `/model`.

use super::slash::COMMANDS;
use crate::terminal::{BOLD, DIM, GREEN, YELLOW, text};
use agent_core::approval::ApprovalPolicy;
use agent_models::KNOWN_PROVIDERS;
use agent_plugins::{Access, Grants};
use agent_runtime::Agent;
use agent_runtime::registry::Availability;

/// The built-in model, which is always available.
const OFFLINE: &str = "offline/router";
/// Width, in characters, of the part of a line that shows a command and its arguments.
const COMMAND_WIDTH: usize = 26;

/// Lists all slash commands and some keyboard shortcuts.
pub(super) fn help(width: usize) -> String {
    let mut lines: Vec<_> = COMMANDS
        .iter()
        .map(|command| {
            let name = format!("{} {}", command.name, command.arguments);
            // On a narrow terminal, or after a long command, the description is on a separate line.
            if name.len() < COMMAND_WIDTH && width >= 60 {
                let description = text::wrapped(command.description, width - COMMAND_WIDTH);
                let description = description.replace('\n', &format!("\n{:COMMAND_WIDTH$}", ""));
                format!("{name:COMMAND_WIDTH$}{DIM}{description}{DIM:#}")
            } else {
                let description = text::wrapped(&format!("  {DIM}{}{DIM:#}", command.description), width);
                format!("{}\n{description}", text::wrapped_entry(&name, width))
            }
        })
        .collect();
    let keys = "Alt-Enter, or \\ and Enter, begins a new line. Ctrl-R searches the history, Tab completes names, and paths after @. \
                @PATH attaches a file, a picture or the listing of a folder. \
                A line that begins with a space is not saved in the history.";
    lines.push(text::wrapped(&format!("{DIM}{keys}{DIM:#}"), width));
    lines.join("\n")
}

/// Lists the tools that the model may call. Also lists the tools that the host withholds from the model, each with
/// the reason.
pub(super) fn tools(agent: &Agent, width: usize) -> String {
    let mut tools: Vec<_> = agent.registry().tools().collect();
    tools.sort_by(|left, right| left.definition.name.cmp(&right.definition.name));
    let lines = tools.iter().map(|tool| {
        let name = text::one_line(&tool.definition.name, 100);
        let available = width.saturating_sub(name.len() + 2);
        match &tool.availability {
            Availability::Offered | Availability::RunByName => {
                let description = tool.definition.description.lines().next().unwrap_or_default();
                let ruling = agent.config().approvals.ruling(&tool.definition, &tool.source);
                let by_name = if tool.availability == Availability::RunByName { "run_command: " } else { "" };
                let asks = if ruling.policy == ApprovalPolicy::Ask { "asks first: " } else { "" };
                let asks = format!("{by_name}{asks}");
                let description = text::cut(description, available.saturating_sub(asks.len()));
                format!("{BOLD}{name}{BOLD:#}  {YELLOW}{asks}{YELLOW:#}{DIM}{description}{DIM:#}")
            }
            Availability::Withheld { message, .. } | Availability::Renewed { message, .. } => {
                format!("{YELLOW}{name}{YELLOW:#}  {}", text::cut(message, available))
            }
        }
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { "there are no tools".to_owned() } else { lines.join("\n") }
}

/// Lists the plugins with name, version, kinds, digest, grants and missing grants.
pub(super) fn plugins(agent: &Agent, width: usize) -> String {
    let lines = agent.setups().values().map(|setup| {
        let plugin = setup.plugin();
        let version = plugin.manifest().map(|manifest| text::one_line(&manifest.version, 40)).unwrap_or_default();
        let digest = plugin.digest().short();
        let mut line = format!(
            "{BOLD}{}{BOLD:#} {version}  {} {DIM}{digest}{DIM:#}",
            plugin.name(),
            plugin.kind_labels().join(", ")
        );
        for grant in grants(setup.grants()) {
            line.push_str(&format!("\n  {GREEN}may{GREEN:#} {}", text::cut(&grant, width.saturating_sub(6))));
        }
        for unmet in setup.unmet() {
            let permission = text::one_line(&unmet.thing, 100);
            let advice = unmet.advice.short();
            line.push_str(&format!("\n  {YELLOW}asks for{YELLOW:#} {permission}, not granted: {advice}"));
        }
        line
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { "there are no plugins".to_owned() } else { lines.join("\n") }
}

/// Describes the grants in words. Only the names of variables and settings are shown, because their values may
/// be secrets.
fn grants(grants: &Grants) -> Vec<String> {
    let trees = grants.trees.iter().map(|tree| match tree.access {
        Access::Read => format!("read {}", tree.guest),
        Access::ReadWrite => format!("read and write {}", tree.guest),
    });
    let variables = grants.env.keys().map(|name| format!("see the variable {name}"));
    let settings = grants.config.keys().map(|key| format!("get the setting {key}"));
    trees.chain(variables).chain(settings).collect()
}

/// Returns the names that `/model` completes: the agent's models, the built-in model, and the prefixes of
/// known providers.
pub(super) fn models(agent: &Agent) -> Vec<String> {
    let mut names = own_models(agent);
    names.extend(KNOWN_PROVIDERS.iter().map(|provider| format!("{}/", provider.name)));
    names
}

/// Returns the names of the agent's models and of the built-in model.
pub(super) fn own_models(agent: &Agent) -> Vec<String> {
    let mut names: Vec<_> = agent.models().chain().iter().map(|model| model.info().model.to_string()).collect();
    if !names.iter().any(|name| name == OFFLINE) {
        names.push(OFFLINE.to_owned());
    }
    names
}

/// Lists the models, and marks the current model.
pub(super) fn marked_models(agent: &Agent) -> String {
    let current = agent.models().first().info().model.to_string();
    let mut lines: Vec<_> = own_models(agent)
        .into_iter()
        .enumerate()
        .map(|(index, name)| {
            let mark = if name == current { format!("{GREEN}●{GREEN:#}") } else { " ".to_owned() };
            format!("{mark} {DIM}{}{DIM:#} {}", index + 1, text::one_line(&name, 200))
        })
        .collect();
    let providers: Vec<_> = KNOWN_PROVIDERS.iter().map(|provider| provider.name).collect();
    lines.push(format!("{DIM}/model NAME switches to another model; known providers: {}{DIM:#}", providers.join(", ")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: on a terminal of any usual width, no line of `/help` is longer than the terminal, and the continued lines of a command
    /// are indented.
    #[test]
    fn i1_help_fits_the_terminal() {
        for width in [40, 60, 80, 120] {
            let shown = anstream::adapter::strip_str(&help(width)).to_string();
            let (commands, _) = shown.split_once("Alt-Enter").expect("the keys are last");
            for line in commands.lines() {
                assert!(line.len() <= width, "{width}: {line}");
                assert!(line.starts_with('/') || line.starts_with("  "), "{width}: {line}");
            }
            let begins = commands.lines().filter(|line| line.starts_with('/')).count();
            assert_eq!(begins, COMMANDS.len(), "{width}: {shown}");
        }
    }
}
