//! `trust [add]|list|remove`: decides which `agent.toml` files are used in their folders without being named.

use super::starting_agent::trust_store;
use super::user_presence::UserPresence;
use crate::arguments::trust::{AddTrustArguments, TrustArguments, TrustCommand};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, TypedLine, YELLOW, text};
use agent_config::settings::agent_lookup;
use agent_config::trust::{AgentAuthority, TrustChange, TrustRecord, TrustState, TrustStore};
use agent_config::{DataDirectory, DataLocation};
use serde_json::json;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Runs `trust` and its subcommands.
pub(crate) async fn run(
    arguments: TrustArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let environment = environment::host();
    match arguments.command {
        None => add(&arguments.add, data, terminal).await,
        Some(TrustCommand::Add(options)) => add(&options, data, terminal).await,
        Some(TrustCommand::List { json }) => {
            let store = trust_store(data, &environment);
            let records =
                store.as_ref().map(TrustStore::list).transpose().map_err(Failure::failed)?.unwrap_or_default();
            if records.is_empty() && !json {
                terminal.note("no agent's file is trusted yet; `agent-host trust FILE` trusts one");
            }
            for record in records {
                let state = store.as_ref().map_or("changed", |store| state_of(&record, store));
                let line = match json {
                    true => json!({"path": record.path, "state": state, "trusted_at": record.trusted_at}).to_string(),
                    false => describe(&record, state),
                };
                terminal.print(line).map_err(Failure::output)?;
            }
            Ok(Exit::Done)
        }
        Some(TrustCommand::Remove { file }) => {
            let store = trust_store(data, &environment);
            let removed = store.map(|store| store.forget(&file)).transpose().map_err(Failure::failed)?;
            let shown = file.display();
            if removed != Some(true) {
                return Err(Failure::refused(format!(
                    "`{shown}` is not trusted; `agent-host trust list` lists trusted files"
                )));
            }
            terminal.note(format!("{shown} is no longer trusted"));
            Ok(Exit::Done)
        }
    }
}

async fn add(options: &AddTrustArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    let path = agent_lookup::find_agent(&options.file, Path::new("."))?;
    let authority = AgentAuthority::of(&path)?;
    let store = DataDirectory::open(data, &environment::host())?.trust();
    let state = store.state(&authority);
    let shown = text::harmless(&authority.path.display().to_string()).into_owned();
    if state == TrustState::Trusted {
        terminal.note(format!("{shown} is already trusted as it is now"));
        return Ok(Exit::Done);
    }
    terminal.note(format!("{BOLD}{shown}{BOLD:#}"));
    show(&authority, &state, terminal);
    if !options.yes && UserPresence::of(terminal) == UserPresence::AtTerminal {
        let line = terminal.question("Trust this file? [y/N] ", &CancellationToken::new()).await;
        let is_yes =
            matches!(line, Ok(TypedLine::Text(line)) if ["y", "yes"].contains(&line.trim().to_lowercase().as_str()));
        if !is_yes {
            terminal.note("nothing was changed");
            return Ok(Exit::Cancelled);
        }
    }
    store.trust(&authority).map_err(|error| Failure::failed(format!("the trust cannot be stored: {error}")))?;
    terminal.note(format!("{GREEN}✓{GREEN:#} {shown} is trusted until it changes"));
    Ok(Exit::Done)
}

/// Shows what an agent's file allows. If the user has trusted an earlier version, shows only what has changed.
pub(crate) fn show(authority: &AgentAuthority, state: &TrustState, terminal: &Terminal) {
    let lines = match state {
        TrustState::Changed(change) => changes(change),
        _ => allowed(authority),
    };
    for line in lines {
        terminal.note(text::wrapped(&line, terminal.width()));
    }
}

/// Lists what an agent's file allows, for the terminal. The permissions with the greatest effect come first.
pub(crate) fn allowed(authority: &AgentAuthority) -> Vec<String> {
    if authority.permissions.is_empty() {
        return vec![format!("  {DIM}it allows nothing: it names no plugins, servers or models{DIM:#}")];
    }
    let mut permissions: Vec<&String> = authority.permissions.iter().collect();
    permissions.sort_by_key(|line| rank(line));
    permissions.into_iter().map(|line| format!("  {}", harmless_line(line))).collect()
}

/// Returns the position of a permission in the list. Code outside the sandbox comes first, then access to other folders,
/// secrets and servers.
fn rank(permission: &str) -> usize {
    let first = ["MCP server ", "(outside the folder", "secret for ", "provider ", "events: ", "grant for "];
    first.iter().position(|part| permission.contains(part)).unwrap_or(first.len())
}

fn changes(change: &TrustChange) -> Vec<String> {
    let added = change.added.iter().map(|line| format!("  {RED}+{RED:#} {}", harmless_line(line)));
    let removed = change.removed.iter().map(|line| format!("  {GREEN}-{GREEN:#} {}", harmless_line(line)));
    let mut lines: Vec<String> = added.chain(removed).collect();
    if lines.is_empty() {
        lines.push("  its permissions are the same as before".to_owned());
    }
    let files = change.files.iter().map(|file| harmless_line(&file.display().to_string()));
    let files: Vec<String> = files.collect();
    if !files.is_empty() {
        lines.push(format!("  {DIM}changed: {}{DIM:#}", files.join(", ")));
    }
    lines
}

/// Escapes a permission, which contains text from the file, so that it stays on one line and cannot hide other lines.
fn harmless_line(line: &str) -> String {
    text::harmless(line).replace('\n', "\\n").replace('\t', "\\t")
}

fn state_of(record: &TrustRecord, store: &TrustStore) -> &'static str {
    match AgentAuthority::of(&record.path).map(|authority| store.state(&authority)) {
        Ok(TrustState::Trusted) => "trusted",
        Ok(_) => "changed",
        Err(_) if record.path.exists() => "invalid",
        Err(_) => "missing",
    }
}

fn describe(record: &TrustRecord, state: &str) -> String {
    let path = text::harmless(&record.path.display().to_string()).into_owned();
    match state {
        "trusted" => path,
        "changed" => format!("{path}  {YELLOW}has changed; the next start asks again{YELLOW:#}"),
        "invalid" => format!("{path}  {YELLOW}is not valid{YELLOW:#}"),
        _ => format!("{path}  {DIM}does not exist{DIM:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 49: text of a foreign file cannot add lines to the question, and the greatest permissions come first.
    #[test]
    fn row_49_permissions_are_harmless_and_sorted() {
        let permissions =
            ["model: offline", "grant for files: read .", "grant for files: write / (outside the folder of the file)"];
        let mut authority = AgentAuthority {
            path: "a".into(),
            files: Default::default(),
            permissions: permissions.map(str::to_owned).into(),
        };
        authority.permissions.push("MCP server x: starts `a\nmodel: offline\u{1b}[2J` outside the sandbox".to_owned());
        let shown = allowed(&authority);
        assert_eq!(shown.len(), 4);
        assert!(shown[0].contains("MCP server x") && shown[1].contains("write /") && shown[2].contains("read ."));
        assert!(!shown.concat().contains(['\n', '\u{1b}']), "{shown:?}");
    }
}
