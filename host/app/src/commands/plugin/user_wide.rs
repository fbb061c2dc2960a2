//! The user-wide plugins, which commands on plugins use if the command line names neither a folder nor an agent, and the
//! current folder has no plugins and no agent of its own.

use super::plugin_names::PLUGIN_FOLDER;
use crate::arguments::AgentArguments;
use crate::commands::starting_agent;
use crate::environment;
use crate::terminal::{DIM, Terminal, YELLOW, text};
use agent_config::{AgentOptions, Settings, UserFile};
use std::path::Path;

/// Returns the options for the user-wide configuration, or for the installed plugins if there is no such configuration.
/// Returns `None` if the arguments name an agent or a plugin folder, or if the current folder has a folder `plugins` or an
/// `agent.toml`.
pub(super) fn options(arguments: &AgentArguments) -> Option<AgentOptions> {
    let environment = environment::host();
    let is_named = arguments.agent.is_some() || arguments.plugins.is_some();
    if is_named || Path::new(PLUGIN_FOLDER).is_dir() || starting_agent::file_of_folder(&environment).is_some() {
        return None;
    }
    let options = arguments.options();
    match starting_agent::user_file(&environment) {
        Some(file) => Some(AgentOptions { user_file: Some(UserFile::Agent(file)), ..options }),
        None => environment.installed_plugins().map(|folder| AgentOptions { plugins: Some(folder), ..options }),
    }
}

/// Shows that the folder `plugins` below the current folder is used.
pub(super) fn announce_local_folder(terminal: &Terminal) {
    terminal.note(format!("{DIM}using the folder `{PLUGIN_FOLDER}`{DIM:#}"));
}

/// Shows which folder is used, and which grants of the user-wide configuration do not apply in the current folder.
pub(super) fn announce(settings: &Settings, terminal: &Terminal) {
    if let Some(folder) = &settings.plugins {
        let (folder, file) = (folder.display(), settings.path.clone().unwrap_or_default());
        let used = match settings.is_user_wide() {
            true => format!("using the plugin folder `{folder}` of the user-wide configuration `{}`", file.display()),
            false => format!("using the installed plugins in `{folder}`"),
        };
        terminal.note(format!("{DIM}{}{DIM:#}", text::harmless(&used)));
    }
    for note in &settings.unapplied_grants {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(note)));
    }
}
