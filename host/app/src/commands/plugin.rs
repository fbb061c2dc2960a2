//! `plugin list|inspect|call|build`: plugins outside of any session.

mod call;
mod describe;
mod media;

use crate::arguments::{AgentArguments, PluginCommand};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{Terminal, built};
use agent_plugins::{LoadedPlugin, Sandbox};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs one of the commands.
pub(crate) async fn run(command: PluginCommand, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        PluginCommand::Build { directory } => {
            for plugin in setup::build(&directory, terminal).await? {
                print(terminal, built(&plugin))?;
            }
        }
        PluginCommand::List { directory, agent } => list(directory, agent, data, terminal).await?,
        PluginCommand::Inspect { file, json } => {
            let sandbox = sandbox(data)?;
            let plugin = load(&sandbox, &file, terminal).await?;
            let shown = if json { describe::json(&plugin).to_string() } else { describe::whole(&plugin, &file) };
            print(terminal, shown)?;
        }
        PluginCommand::Call { file, tool, arguments, grant, json } => {
            let sandbox = sandbox(data)?;
            let plugin = load(&sandbox, &file, terminal).await?;
            let format = if json { call::Format::Json } else { call::Format::People };
            let asked = call::Asked { tool, arguments, grants: grant, format };
            return call::call(&sandbox, plugin, asked, terminal).await;
        }
    }
    Ok(Exit::Done)
}

async fn list(
    directory: Option<PathBuf>,
    mut agent: AgentArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    agent.plugins = directory.or(agent.plugins);
    let settings = setup::settings(&agent, terminal).await?;
    let (generation, problems) = setup::plugins(&settings, &sandbox(data)?, terminal).await?;
    if generation.plugins().len() == 0 && problems.is_empty() {
        terminal.note("there are no plugins (*.wasm) there; --build builds the projects of the folder");
    }
    for plugin in generation.plugins() {
        let grants = settings.grants.plugins.get(plugin.name()).cloned().unwrap_or_default();
        print(terminal, describe::listed(plugin, &grants))?;
    }
    setup::refuse(&problems)
}

fn sandbox(data: Option<&Path>) -> Result<Sandbox, Failure> {
    setup::sandbox(&DataDirectory::open(data)?)
}

async fn load(sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
    terminal.busy(format!("loading {}", file.display()));
    let loaded = sandbox.load_file(file).await;
    terminal.idle();
    loaded.map_err(|error| Failure::refused(format!("{}: {error}", file.display())))
}

fn print(terminal: &Terminal, text: String) -> Result<(), Failure> {
    terminal.print(text).map_err(Failure::output)
}
