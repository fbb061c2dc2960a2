//! `plugin list|inspect|explain|call|build|history|rollback|prune`: plugins outside of any session.

mod call;
mod describe;
mod explain;
mod media;
mod versions;

use crate::arguments::{AgentArguments, PluginCommand};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::terminal::{Terminal, YELLOW, built, show_load};
use crate::{environment, grants, setup};
use agent_mcp::McpServers;
use agent_plugins::{Grants, LoadedPlugin, Sandbox};
use std::collections::BTreeMap;
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
        PluginCommand::History(asked) => versions::history(asked, data, terminal).await?,
        PluginCommand::Rollback(asked) => versions::rollback(asked, data, terminal).await?,
        PluginCommand::Prune => versions::forget(data, terminal).await?,
        PluginCommand::List { directory, agent } => list(directory, agent, data, terminal).await?,
        PluginCommand::Inspect { file, json } => {
            let sandbox = sandbox(data)?;
            let plugin = load(&sandbox, &file, terminal).await?;
            let shown = if json { describe::json(&plugin).to_string() } else { describe::whole(&plugin, &file) };
            print(terminal, shown)?;
        }
        PluginCommand::Explain { file, agent } => {
            let plugin = load(&sandbox(data)?, &file, terminal).await?;
            let grants = grants_of(&agent, plugin.name())?;
            print(terminal, explain::explained(&plugin, grants))?;
        }
        PluginCommand::Call { file, tool, arguments, grant, json } => {
            let sandbox = sandbox(data)?;
            let plugin = load(&sandbox, &file, terminal).await?;
            let format = if json { call::Format::Json } else { call::Format::People };
            let data = DataDirectory::open(data)?;
            let asked = call::Asked { tool, arguments, grants: grant, format, data };
            return call::call(&sandbox, plugin, asked, terminal).await;
        }
    }
    Ok(Exit::Done)
}

/// What the agent's file and the command line grant to one plugin. Without an agent, the command line alone.
fn grants_of(agent: &AgentArguments, plugin: &str) -> Result<Grants, Failure> {
    let mut resolved = if agent.agent.is_some() {
        Settings::read(agent, &environment::variable)?.grants
    } else {
        let resolved = grants::resolve(&agent.grant, &environment::variable);
        resolved.map_err(|problems| Failure::refused(problems.join("\n")))?
    };
    Ok(resolved.plugins.remove(plugin).unwrap_or_default())
}

async fn list(
    directory: Option<PathBuf>,
    mut agent: AgentArguments,
    data: Option<&Path>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    agent.plugins = directory.or(agent.plugins);
    let settings = setup::settings_without_model(&agent, terminal).await?;
    let data = DataDirectory::open(data)?;
    let sandbox = setup::sandbox_of(&settings, &data)?;
    let (generation, problems) = setup::plugins(&settings, &sandbox, terminal).await?;
    let generation = setup::serving(&settings, (&data, &sandbox), generation, terminal).await?;
    if problems.is_empty() {
        setup::note_no_plugins(&settings, &generation, terminal);
        if settings.plugins.is_none() && settings.file.mcp.is_empty() {
            terminal.note(
                "this agent has no plugins: `plugin_directory` in its file, or --plugins DIR, names their folder",
            );
        }
    }
    for plugin in generation.plugins() {
        let grants = settings.grants.plugins.get(plugin.name()).cloned().unwrap_or_default();
        print(terminal, describe::listed(plugin, &grants))?;
    }
    servers(&settings, terminal).await?;
    setup::refuse(&problems)?;
    let tools = generation
        .plugins()
        .flat_map(|plugin| plugin.tools().iter().map(move |tool| (tool.name.as_str(), plugin.identity().to_string())));
    match same_names(tools).as_slice() {
        [] => Ok(()),
        same => Err(Failure::refused(same.join("\n"))),
    }
}

/// The MCP servers of the agent with their tools, as a turn would find them.
async fn servers(settings: &Settings, terminal: &Terminal) -> Result<(), Failure> {
    let servers = McpServers::new(settings.servers(&environment::variable)?).map_err(Failure::refused)?;
    let held = servers.acquire().await;
    let catalogue = held.catalogue();
    for name in servers.names() {
        let tools: Vec<_> = catalogue.tools().filter(|tool| tool.server == name).collect();
        if !tools.is_empty() {
            print(terminal, describe::server(name, &tools))?;
        }
    }
    for problem in catalogue.problems() {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {problem}"));
    }
    held.release().await;
    servers.shutdown().await;
    Ok(())
}

/// A turn refuses tools of one name, so a list says so, too.
fn same_names<'t>(tools: impl Iterator<Item = (&'t str, String)>) -> Vec<String> {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    let mut same = Vec::new();
    for (name, plugin) in tools {
        match seen.get(name) {
            Some(first) => same.push(format!(
                "two tools are named `{name}`: one of {first}, one of {plugin}; rename one or leave one of them out"
            )),
            None => {
                seen.insert(name, plugin);
            }
        }
    }
    same
}

fn sandbox(data: Option<&Path>) -> Result<Sandbox, Failure> {
    setup::sandbox(&DataDirectory::open(data)?)
}

async fn load(sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
    let loaded = sandbox.load_file_with(file, &|event| show_load(terminal, &event)).await;
    terminal.idle();
    loaded.map_err(|error| Failure::refused(format!("`{}`: {error}", file.display())))
}

fn print(terminal: &Terminal, text: String) -> Result<(), Failure> {
    terminal.print(text).map_err(Failure::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L14: one name space for all tools.
    #[test]
    fn tools_of_one_name_are_a_problem_that_names_both() {
        let tools = |names: &[(&'static str, &str)]| {
            let owned: Vec<_> = names.iter().map(|(name, plugin)| (*name, (*plugin).to_owned())).collect();
            same_names(owned.into_iter())
        };
        assert!(tools(&[("a", "one@1"), ("b", "two@2")]).is_empty());
        let same = tools(&[("a", "one@1"), ("b", "two@2"), ("a", "two@2")]);
        let expected = "two tools are named `a`: one of one@1, one of two@2; rename one or leave one of them out";
        assert_eq!(same, [expected]);
    }
}
