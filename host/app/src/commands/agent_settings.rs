//! Reads the settings of the agent that is selected on the command line, chooses a model, and builds plugin projects
//! for `--build`.

use super::build_projects::build;
use super::starting_agent::{self, StartingAgent};
use super::user_presence::UserPresence;
use crate::arguments::AgentArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::assembly::DelegateReader;
use agent_config::settings::build_directory;
use agent_config::{ConfigError, DataLocation, HostEnvironment, Settings, choose_model};
use async_trait::async_trait;
use std::path::Path;

/// Reads the settings of the agent that these arguments select, or of the agent in the current folder or the user-wide
/// file if they select none. If no model is configured, the user at the terminal may choose a model. With `--build`, also
/// builds the projects in the plugin folder. `data` is the data folder that the command line names.
pub(crate) async fn settings(
    arguments: &AgentArguments,
    data: DataLocation<'_>,
    user: UserPresence,
    terminal: &Terminal,
) -> Result<Settings, Failure> {
    let StartingAgent { options, environment } = starting_agent::find(arguments, data, user, terminal).await?;
    let mut settings = Settings::read(&options, &environment)?;
    for note in &settings.unapplied_grants {
        let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(note));
        terminal.note(text::wrapped(&line, terminal.width()));
    }
    choose_model(&mut settings, terminal, terminal).await?;
    build_if_requested(&settings, arguments, terminal).await?;
    Ok(settings)
}

/// Reads the settings from the agent's file and the command line, without choosing a model or building plugins.
pub(crate) fn read(arguments: &AgentArguments) -> Result<Settings, Failure> {
    Ok(Settings::read(&arguments.options(), &environment::host())?)
}

/// With `--build`, builds the projects in the plugin folder.
pub(crate) async fn build_if_requested(
    settings: &Settings,
    arguments: &AgentArguments,
    terminal: &Terminal,
) -> Result<(), Failure> {
    if arguments.build {
        build(build_directory(settings)?, terminal).await?;
    }
    Ok(())
}

/// Reads the settings of delegates from their own files, and builds their plugin projects.
pub(crate) struct BuildingReader<'t> {
    /// Terminal that shows the progress of the builds.
    pub(crate) terminal: &'t Terminal,
    /// Environment whose variables the delegates' files can use.
    pub(crate) environment: HostEnvironment,
}

#[async_trait]
impl DelegateReader for BuildingReader<'_> {
    fn settings(&self, path: &Path) -> Result<Settings, ConfigError> {
        self.environment.settings(path)
    }

    async fn prepare_plugins(&self, folder: &Path) -> Result<(), ConfigError> {
        let built = build(folder, self.terminal).await;
        built.map(drop).map_err(|Failure { exit, message }| match exit {
            Exit::Failed => ConfigError::BuildFailed(message),
            _ => ConfigError::BuildRefused(message),
        })
    }
}
