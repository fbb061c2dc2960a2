//! `plugin new|renew|check|list|inspect|explain|call|build|history|rollback|prune|quarantine`, and those that share: plugins outside of any session.

mod call;
mod check;
mod describe;
mod explain;
mod media;
mod new;
mod quarantine;
mod renew;
mod sharing;
mod versions;

use crate::arguments::{AgentArguments, PluginCommand};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::grants::Grant;
use crate::interrupt::{Doing, Interrupts};
use crate::settings::Settings;
use crate::terminal::{Terminal, YELLOW, built, show_load};
use crate::{environment, grants, protection, setup};
use agent_mcp::McpServers;
use agent_plugins::{CallLimits, Grants, KnownSecrets, LoadError, LoadedPlugin, Sandbox};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs one of the commands.
pub(crate) async fn run(command: PluginCommand, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        PluginCommand::New(asked) => new::new(asked, terminal)?,
        PluginCommand::Check { path, json } => {
            let format = if json { call::Format::Json } else { call::Format::People };
            return check::check(&path, format, &DataDirectory::open(data)?, terminal).await;
        }
        PluginCommand::Build { directory } => return build(&directory, terminal).await,
        PluginCommand::Renew { directory } => renew::renew(&directory, terminal)?,
        PluginCommand::History(asked) => versions::history(asked, data, terminal).await?,
        PluginCommand::Rollback(asked) => versions::rollback(asked, data, terminal).await?,
        PluginCommand::Prune => versions::forget(data, terminal).await?,
        PluginCommand::Quarantine(asked) => quarantine::quarantine(&asked, &DataDirectory::open(data)?, terminal)?,
        PluginCommand::Push(asked) => sharing::push(asked, data, terminal).await?,
        PluginCommand::Sign(asked) => sharing::sign(asked, data, terminal).await?,
        PluginCommand::Add(asked) => return sharing::add(asked, data, terminal).await,
        PluginCommand::Update(asked) => return sharing::update(asked, data, terminal).await,
        PluginCommand::Remove(asked) => sharing::remove(asked, data, terminal).await?,
        PluginCommand::Verify(asked) => return sharing::verify(asked, terminal).await,
        PluginCommand::Search(asked) => sharing::search(asked, data, terminal).await?,
        PluginCommand::List { directory, agent } => list(directory, agent, data, terminal).await?,
        PluginCommand::Inspect { file, agent, json } => {
            let whose = Whose::read(AgentArguments { agent, ..AgentArguments::default() })?;
            let sandbox = whose.sandbox(&DataDirectory::open(data)?)?;
            let plugin = whose.load(&sandbox, &file, terminal).await?;
            let exports = &plugin.interfaces().exports;
            let shown = match json {
                true => describe::json(&plugin, exports).to_string(),
                false => describe::whole(&plugin, (&file, exports)),
            };
            print(terminal, shown)?;
        }
        PluginCommand::Explain { file, agent } => {
            let whose = Whose::read(agent)?;
            let plugin = whose.load(&whose.sandbox(&DataDirectory::open(data)?)?, &file, terminal).await?;
            let (grants, _) = whose.allowed(plugin.name())?;
            print(terminal, explain::explained(&plugin, grants))?;
        }
        PluginCommand::Call { file, tool, arguments, agent, grant, json } => {
            let whose = Whose::read(AgentArguments { agent, grant, ..AgentArguments::default() })?;
            let data = DataDirectory::open(data)?;
            let sandbox = whose.sandbox(&data)?;
            let plugin = whose.load(&sandbox, &file, terminal).await?;
            whose.hold_trees(&sandbox)?;
            let format = if json { call::Format::Json } else { call::Format::People };
            let asked = call::Asked { tool, arguments, whose, format, data };
            return call::call(&sandbox, plugin, asked, terminal).await;
        }
    }
    Ok(Exit::Done)
}

/// Builds, until it is done or somebody stops it: what was begun ends with all its processes, and what was there stays.
async fn build(directory: &Path, terminal: &Terminal) -> Result<Exit, Failure> {
    let cancel = Interrupts::listen(terminal.clone()).begin(Doing::Turn);
    let built_plugins = tokio::select! {
        built = setup::build(directory, terminal) => built?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    for plugin in built_plugins {
        print(terminal, built(&plugin))?;
    }
    Ok(Exit::Done)
}

/// For whom a single plugin is looked at or called.
enum Whose {
    /// The agent that is named, with what the command line grants beside its file.
    Agent(Box<Settings>, Vec<Grant>),
    /// Nobody: the command line's grants, and the limits that hold by default.
    Nobody(Vec<Grant>),
}

impl Whose {
    fn read(arguments: AgentArguments) -> Result<Self, Failure> {
        if arguments.agent.is_none() {
            return Ok(Self::Nobody(arguments.grant));
        }
        let settings = Settings::read(&arguments, &environment::variable)?;
        Ok(Self::Agent(Box::new(settings), arguments.grant))
    }

    fn sandbox(&self, data: &DataDirectory) -> Result<Sandbox, Failure> {
        match self {
            Self::Agent(settings, _) => setup::sandbox_of(settings, data),
            Self::Nobody(_) => setup::sandbox(data),
        }
    }

    /// The file's plugin; for an agent only what may serve it.
    async fn load(&self, sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
        let progress = |event| show_load(terminal, &event);
        let loaded = match self {
            Self::Agent(..) => sandbox.load_serving_file_with(file, &progress).await,
            Self::Nobody(_) => return load(sandbox, file, terminal).await,
        };
        terminal.idle();
        unusable(loaded, file)
    }

    /// Opens the trees of the whole agent before a call could change where their paths lead.
    fn hold_trees(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        match self {
            Self::Agent(settings, _) => protection::hold_trees(sandbox, [&**settings]),
            Self::Nobody(_) => Ok(()),
        }
    }

    /// The secrets of all plugins of the agent: what one of them says may hold another one's.
    fn secrets(&self, own: &Grants) -> KnownSecrets {
        let of_agent = match self {
            Self::Agent(settings, _) => {
                KnownSecrets::new(settings.grants.plugins.values().flat_map(|grants| &grants.secrets))
            }
            Self::Nobody(_) => KnownSecrets::default(),
        };
        KnownSecrets::new(&own.secrets).and(&of_agent)
    }

    /// The grants of the command line.
    fn typed(&self) -> &[Grant] {
        let (Self::Agent(_, grants) | Self::Nobody(grants)) = self;
        grants
    }

    /// Grants and limits of one plugin.
    fn allowed(&self, plugin: &str) -> Result<(Grants, CallLimits), Failure> {
        match self {
            Self::Agent(settings, _) => {
                let allowance = setup::allowance(settings, plugin);
                Ok((allowance.grants, allowance.limits))
            }
            Self::Nobody(grants) => {
                let resolved = grants::resolve(grants, &environment::variable);
                let mut resolved = resolved.map_err(|problems| Failure::refused(problems.join("\n")))?;
                Ok((resolved.plugins.remove(plugin).unwrap_or_default(), CallLimits::default()))
            }
        }
    }
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
    let interrupts = Interrupts::listen(terminal.clone());
    interrupts.end_with_us([servers.clone()]);
    let cancel = interrupts.begin(Doing::Turn);
    let held = tokio::select! {
        held = servers.acquire() => held,
        () = cancel.cancelled() => {
            servers.hurry();
            servers.shutdown().await;
            return Err(Failure { exit: Exit::Cancelled, ..Failure::failed("cancelled") });
        }
    };
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

async fn load(sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
    let loaded = sandbox.load_file_with(file, &|event| show_load(terminal, &event)).await;
    terminal.idle();
    unusable(loaded, file)
}

fn unusable(loaded: Result<Arc<LoadedPlugin>, LoadError>, file: &Path) -> Result<Arc<LoadedPlugin>, Failure> {
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
