//! Slash commands, which the editor offers and the host runs without the model.

use crate::shared::Shared;
use crate::text::{code, plain};
use agent_client_protocol::v1::schema::{AvailableCommand, AvailableCommandsUpdate, SessionUpdate};
use agent_core::approval::ApprovalPolicy;
use agent_runtime::registry::Availability;
use agent_runtime::{Access, Agent, SessionRequest};

/// Maximum number of characters of a tool's description in a list.
const DESCRIPTION_CHARACTERS: usize = 100;

/// The names and descriptions of the commands.
const COMMANDS: [(Command, &str, &str); 6] = [
    (Command::Plugins, "plugins", "List the plugins with their versions, and what each plugin may do"),
    (Command::Grants, "grants", "List what the plugins request but may not do, and how to allow it"),
    (Command::Tools, "tools", "List the tools that the model may call"),
    (Command::Session, "session", "Show the id and the state of this session"),
    (Command::Continue, "continue", "Ask again for what a waiting turn needs"),
    (Command::Undo, "undo", "Undo the last turn: the model no longer sees it"),
];

/// A slash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Plugins,
    Grants,
    Tools,
    Session,
    Continue,
    Undo,
}

impl Command {
    /// Parses a prompt. Returns `None` if it is a prompt for the model.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let name = text.trim().strip_prefix('/')?;
        COMMANDS.iter().find(|(_, known, _)| *known == name).map(|(command, _, _)| *command)
    }
}

/// Returns the update that tells the editor about the commands.
pub(crate) fn available() -> SessionUpdate {
    let commands = COMMANDS.iter().map(|(_, name, description)| AvailableCommand::new(*name, *description));
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.collect()))
}

/// Returns the list of plugins with their grants, as Markdown.
pub(crate) fn plugins(agent: &Agent) -> String {
    let plugins = agent.setups().values().map(|setup| {
        let plugin = setup.plugin();
        let version = plugin.manifest().map(|manifest| plain(&manifest.version)).unwrap_or_default();
        let kinds = plugin.kind_labels().join(", ");
        let mut lines = format!("- {} {version} ({kinds}), {}", code(plugin.name()), plugin.digest().short());
        for tree in &setup.grants().trees {
            let access = if tree.access == Access::Read { "read" } else { "read and write" };
            lines.push_str(&format!("\n  - may {access} {}", code(&tree.guest)));
        }
        for name in setup.grants().env.keys() {
            lines.push_str(&format!("\n  - may see the variable {}", code(name)));
        }
        for pattern in &setup.grants().http {
            lines.push_str(&format!("\n  - may send requests: {}", code(&pattern.to_string())));
        }
        lines
    });
    listed(plugins.collect(), "The agent has no plugins.")
}

/// Returns the list of requests of plugins that are not granted, as Markdown.
pub(crate) fn grants(agent: &Agent) -> String {
    let lacking = agent.setups().values().flat_map(|setup| {
        let name = code(setup.plugin().name());
        setup.unmet().iter().map(move |unmet| {
            let advice = unmet.advice.short();
            format!("- {name} may not use {}; to allow it: {}", plain(&unmet.thing), code(&advice.to_string()))
        })
    });
    listed(lacking.collect(), "The plugins have everything that they request.")
}

/// Returns the list of tools, as Markdown.
pub(crate) fn tools(agent: &Agent) -> String {
    let tools = agent.registry().tools().map(|tool| {
        let name = code(&tool.definition.name);
        match &tool.availability {
            Availability::Offered | Availability::RunByName => {
                let first = tool.definition.description.lines().next().unwrap_or_default();
                let cut: String = first.chars().take(DESCRIPTION_CHARACTERS).collect();
                let ruling = agent.config().approvals.ruling(&tool.definition, &tool.source);
                let by_name = if tool.availability == Availability::RunByName { " (by `run_command`)" } else { "" };
                let asks = if ruling.policy == ApprovalPolicy::Ask { " (asks first)" } else { "" };
                format!("- {name}{by_name}{asks}: {}", plain(&cut))
            }
            Availability::Withheld { message, .. } | Availability::Renewed { message, .. } => {
                format!("- {name} is not offered: {}", plain(message))
            }
        }
    });
    listed(tools.collect(), "The agent has no tools.")
}

/// Returns the id and the state of a session, as Markdown.
pub(crate) async fn session(shared: &Shared, session: &str) -> String {
    match shared.own_session(session).await {
        Ok(summary) => {
            let usage = summary.usage.model_calls;
            format!("{}: {} turns, {usage} model calls, state {}", code(session), summary.turns, summary.state.as_str())
        }
        Err(_) => format!("{}: no turn has begun", code(session)),
    }
}

/// Undoes the last turn, and returns what happened, as Markdown.
pub(crate) async fn undo(shared: &Shared, session: &str) -> String {
    match shared.supervisor().send(session, SessionRequest::Undo).await {
        Ok(_) => {
            "The last turn was undone: the model no longer sees it. Changes that tools made are not undone.".to_owned()
        }
        Err(error) => format!("Nothing was undone: {}.", plain(&error.message)),
    }
}

fn listed(lines: Vec<String>, empty: &str) -> String {
    if lines.is_empty() { empty.to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I7: only the exact names are commands, so that other prompts that begin with `/` reach the model.
    #[test]
    fn i7_only_exact_names_are_commands() {
        assert_eq!(Command::parse("/undo"), Some(Command::Undo));
        assert_eq!(Command::parse(" /plugins\n"), Some(Command::Plugins));
        for text in ["undo", "/undo 2", "/etc/hosts", "/", "", "//undo", "/Undo"] {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }
}
