//! The `plugin` subcommands, which create, build, check, list, explain, call and share plugins outside of any session.

mod call;
mod check;
mod compile;
mod describe;
mod explain;
mod index;
mod manifest_file;
mod media;
mod new;
mod plugin_names;
mod quarantine;
mod renew;
mod sharing;
mod unset_secrets;
mod user_wide;
mod versions;

pub(super) use index::{installed as installed_index, lines as index_lines};
pub(super) use sharing::{component_cache, registry};

use crate::arguments::{AgentArguments, PluginCommand};
use crate::commands::agent_settings;
use crate::commands::build_projects;
use crate::commands::starting_agent;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{Terminal, YELLOW, built, show_load, text};
use agent_config::grants::{self, Grant};
use agent_config::settings::AGENT_FILE;
use agent_config::{DataDirectory, DataLocation, Settings, assembly, protection};
use agent_mcp::McpServers;
use agent_plugins::{CallLimits, Grants, KnownSecrets, LoadError, LoadedPlugin, Sandbox};
use agent_registry::LOCK_FILE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs a subcommand of `plugin`.
pub(crate) async fn run(command: PluginCommand, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        PluginCommand::New(arguments) => new::new(arguments, terminal)?,
        PluginCommand::Check { path, json } => {
            let format = if json { call::Format::Json } else { call::Format::Text };
            return check::check(&path, format, &DataDirectory::open(data, &environment::host())?, terminal).await;
        }
        PluginCommand::Build { directory } => return build(&directory, terminal).await,
        PluginCommand::Compile(arguments) => compile::compile(arguments, terminal).await?,
        PluginCommand::Renew { directory } => renew::renew(&directory, terminal)?,
        PluginCommand::History(arguments) => versions::history(arguments, data, terminal).await?,
        PluginCommand::Rollback(arguments) => versions::rollback(arguments, data, terminal).await?,
        PluginCommand::Prune => versions::prune_components(data, terminal).await?,
        PluginCommand::Quarantine(arguments) => {
            quarantine::quarantine(&arguments, &DataDirectory::open(data, &environment::host())?, terminal)?
        }
        PluginCommand::Push(arguments) => sharing::push(arguments, data, terminal).await?,
        PluginCommand::Sign(arguments) => sharing::sign(arguments, data, terminal).await?,
        PluginCommand::Add(arguments) => {
            return keeping_trust(data, sharing::add(arguments, data, terminal)).await;
        }
        PluginCommand::Update(arguments) if arguments.check => return sharing::update(arguments, data, terminal).await,
        PluginCommand::Update(arguments) => {
            return keeping_trust(data, sharing::update(arguments, data, terminal)).await;
        }
        PluginCommand::Remove(arguments) => keeping_trust(data, sharing::remove(arguments, data, terminal)).await?,
        PluginCommand::Verify(arguments) => return sharing::verify(arguments, terminal).await,
        PluginCommand::Search(arguments) => sharing::search(arguments, terminal).await?,
        PluginCommand::Index(arguments) => index::write_index(&arguments, terminal)?,
        PluginCommand::List { directory, agent } => list(directory, agent, data, terminal).await?,
        PluginCommand::Describe(arguments) => {
            let data = DataDirectory::open(data, &environment::host())?;
            let sandbox = assembly::open_default_sandbox(&data, &environment::host())?;
            manifest_file::describe(arguments, &sandbox, terminal).await?;
        }
        PluginCommand::Inspect { file, agent, json } => {
            let arguments = AgentArguments { agent, ..AgentArguments::default() };
            let grant_source = GrantSource::read(arguments, &file, Secrets::NotNeeded, terminal)?;
            let file = grant_source.file_of(file, None)?;
            let sandbox = grant_source.sandbox(&DataDirectory::open(data, &environment::host())?)?;
            let plugin = grant_source.load(&sandbox, &file, terminal).await?;
            let exports = &plugin.interfaces().exports;
            let shown = match json {
                true => describe::json(&plugin, (&file, exports)).to_string(),
                false => describe::full(&plugin, (&file, exports)),
            };
            print(terminal, shown)?;
        }
        PluginCommand::Explain { file, agent } => {
            let folder = agent.plugins.clone();
            let grant_source = GrantSource::read(agent, &file, Secrets::NotNeeded, terminal)?;
            let file = grant_source.file_of(file, folder.as_deref())?;
            let plugin = grant_source
                .load(&grant_source.sandbox(&DataDirectory::open(data, &environment::host())?)?, &file, terminal)
                .await?;
            let (grants, _) = grant_source.allowed(plugin.name())?;
            print(terminal, explain::explained(&plugin, &file, grants))?;
        }
        PluginCommand::Call { file, tool, arguments, agent, grant, json } => {
            let options = AgentArguments { agent, grant, ..AgentArguments::default() };
            let grant_source = GrantSource::read(options, &file, Secrets::Needed, terminal)?;
            let file = grant_source.file_of(file, None)?;
            let data = DataDirectory::open(data, &environment::host())?;
            let sandbox = grant_source.sandbox(&data)?;
            let plugin = grant_source.load(&sandbox, &file, terminal).await?;
            grant_source.open_trees(&sandbox)?;
            let format = if json { call::Format::Json } else { call::Format::Text };
            let options = call::CallOptions { tool, arguments, grant_source, format, data };
            return call::call(&sandbox, plugin, options, terminal).await;
        }
    }
    Ok(Exit::Done)
}

/// Builds the plugin projects in a folder. If the user cancels, the build processes end and the existing components are
/// not changed.
async fn build(directory: &Path, terminal: &Terminal) -> Result<Exit, Failure> {
    let cancel = Interrupts::listen(terminal.clone()).begin(Activity::Turn);
    let built_plugins = tokio::select! {
        built = build_projects::build(directory, terminal) => built?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    for plugin in built_plugins {
        print(terminal, built(&plugin))?;
    }
    Ok(Exit::Done)
}

/// Runs a command that changes `plugins.lock` on behalf of the user. If the user has trusted the `agent.toml` of the current
/// folder, the trust is kept.
async fn keeping_trust<T>(data: DataLocation<'_>, change: impl Future<Output = T>) -> T {
    let environment = environment::host();
    let store = starting_agent::trust_store(data, &environment);
    let file = starting_agent::file_of_folder(&environment);
    let before = store.as_ref().zip(file).and_then(|(store, file)| store.trusted(&file));
    let changed = change.await;
    if let Some(store) = &store {
        store.keep(before, &|path| path.ends_with(LOCK_FILE));
    }
    changed
}

/// Whether a command uses the values of the agent's secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrets {
    /// The command fails if the variable of a secret is not set.
    Needed,
    /// The command only shows which secrets there are.
    NotNeeded,
}

/// Where the grants and limits of a plugin come from.
enum GrantSource {
    /// The grants and limits come from the agent that the command line names, and the command line contains
    /// further grants.
    Agent(Box<Settings>, Vec<Grant>),
    /// The grants come only from the command line, and the default limits apply.
    CommandLine(Vec<Grant>),
}

impl GrantSource {
    /// Reads the agent that the arguments name. If they name none, and `named` is the name of a plugin and not a file,
    /// uses the user-wide configuration, whose plugin folder then contains the plugin.
    fn read(arguments: AgentArguments, named: &Path, secrets: Secrets, terminal: &Terminal) -> Result<Self, Failure> {
        let user_wide = user_wide::options(&arguments).filter(|_| plugin_names::is_name(named));
        let is_user_wide = user_wide.is_some();
        let options = match user_wide {
            Some(options) => options,
            None if arguments.agent.is_some() => arguments.options(),
            None => return Ok(Self::CommandLine(arguments.grant)),
        };
        let settings = match secrets {
            Secrets::Needed => Settings::read(&options, &environment::host())?,
            Secrets::NotNeeded => unset_secrets::read(&options, terminal)?,
        };
        if is_user_wide {
            user_wide::announce(&settings, terminal);
        }
        Ok(Self::Agent(Box::new(settings), arguments.grant))
    }

    /// Returns the component file that the command line names: a path, or the name of a plugin in `folder`, in the agent's
    /// plugin folder, in the folder `plugins` below the current folder, or in the folder of the installed plugins.
    fn file_of(&self, named: PathBuf, folder: Option<&Path>) -> Result<PathBuf, Failure> {
        if !plugin_names::is_name(&named) {
            return Ok(named);
        }
        let of_agent = match self {
            Self::Agent(settings, _) if settings.is_user_wide() && settings.plugins.is_none() => {
                return Err(no_user_wide_folder(&named, settings));
            }
            Self::Agent(settings, _) => settings.plugins.as_deref(),
            Self::CommandLine(_) => None,
        };
        let folder_here = Path::new(plugin_names::PLUGIN_FOLDER);
        let installed = environment::host().installed_plugins().filter(|_| !folder_here.is_dir());
        let folder = folder.or(of_agent).or(installed.as_deref()).unwrap_or(folder_here);
        plugin_names::find(folder, &named.to_string_lossy()).map_err(Failure::refused)
    }

    fn sandbox(&self, data: &DataDirectory) -> Result<Sandbox, Failure> {
        match self {
            Self::Agent(settings, _) => Ok(assembly::open_sandbox(settings, data)?),
            Self::CommandLine(_) => Ok(assembly::open_default_sandbox(data, &environment::host())?),
        }
    }

    /// Loads the plugin from the file. If the command line names an agent, refuses a file that the agent may not use.
    async fn load(&self, sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
        let progress = |event| show_load(terminal, &event);
        let loaded = match self {
            Self::Agent(..) => sandbox.load_verified_file_with(file, &progress).await,
            Self::CommandLine(_) => return load(sandbox, file, terminal).await,
        };
        terminal.idle();
        explain_load_error(loaded, file)
    }

    /// Opens all folders that are granted to the agent's plugins. Call this function before a plugin runs, because a
    /// running plugin could replace a folder with a link.
    fn open_trees(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        match self {
            Self::Agent(settings, _) => Ok(protection::open_granted_trees(sandbox, [&**settings])?),
            Self::CommandLine(_) => Ok(()),
        }
    }

    /// Returns the secrets of all the agent's plugins, because the output of one plugin may contain a secret of
    /// another plugin.
    fn secrets(&self, own: &Grants) -> KnownSecrets {
        let agent_secrets = match self {
            Self::Agent(settings, _) => {
                KnownSecrets::new(settings.grants.plugins.values().flat_map(|grants| &grants.secrets))
            }
            Self::CommandLine(_) => KnownSecrets::default(),
        };
        KnownSecrets::new(&own.secrets).and(&agent_secrets)
    }

    /// Returns the grants that the command line contains.
    fn command_line_grants(&self) -> &[Grant] {
        let (Self::Agent(_, grants) | Self::CommandLine(grants)) = self;
        grants
    }

    /// Returns the grants and limits of one plugin.
    fn allowed(&self, plugin: &str) -> Result<(Grants, CallLimits), Failure> {
        match self {
            Self::Agent(settings, _) => {
                let allowance = assembly::allowance(settings, plugin);
                Ok((allowance.grants, allowance.limits))
            }
            Self::CommandLine(grants) => {
                let resolved = grants::resolve(grants, environment::host().variables());
                let mut resolved = resolved.map_err(|problems| Failure::refused(problems.join("\n")))?;
                Ok((resolved.plugins.remove(plugin).unwrap_or_default(), CallLimits::default()))
            }
        }
    }
}

/// Returns the error for the name of a plugin if the user-wide configuration names no plugin folder.
fn no_user_wide_folder(named: &Path, settings: &Settings) -> Failure {
    let (named, file) = (text::one_line(&named.to_string_lossy(), 200), settings.path.clone().unwrap_or_default());
    Failure::refused(format!(
        "there is no file `{named}`, and the user-wide configuration `{}` names no `plugin_directory`: name a component file, \
         pass --agent FILE, or choose plugins with `agent-host setup`",
        file.display()
    ))
}

async fn list(
    directory: Option<PathBuf>,
    mut agent: AgentArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    agent.plugins = directory.or(agent.plugins);
    let user_wide = user_wide::options(&agent);
    let is_user_wide = user_wide.is_some();
    let has_folder = agent.agent.is_some() || agent.plugins.is_some() || Path::new(AGENT_FILE).is_file();
    if !is_user_wide && !has_folder && Path::new(plugin_names::PLUGIN_FOLDER).is_dir() {
        agent.plugins = Some(plugin_names::PLUGIN_FOLDER.into());
        user_wide::announce_local_folder(terminal);
    }
    let options = user_wide.unwrap_or_else(|| agent.options());
    let settings = unset_secrets::read(&options, terminal)?;
    agent_settings::build_if_requested(&settings, &agent, terminal).await?;
    if is_user_wide {
        user_wide::announce(&settings, terminal);
    }
    let data = DataDirectory::open(data, &environment::host())?;
    let sandbox = assembly::open_sandbox(&settings, &data)?;
    let (generation, problems) = assembly::load_plugins(&settings, &sandbox, terminal).await?;
    let generation = assembly::serving_plugins(&settings, (&data, &sandbox), generation, terminal).await?;
    if problems.is_empty() {
        assembly::warn_of_no_plugins(&settings, &generation, terminal);
        if settings.plugins.is_none() && settings.file.mcp.is_empty() {
            terminal.note(
                "this agent has no plugins: name a folder with `plugin_directory` in its file, or with --plugins DIR",
            );
        }
    }
    for plugin in generation.plugins() {
        let grants = settings.grants.plugins.get(plugin.name()).cloned().unwrap_or_default();
        print(terminal, describe::list_entry(plugin, &grants))?;
    }
    list_servers(&settings, terminal).await?;
    assembly::refuse_unusable_plugins(&problems)?;
    let tools = generation
        .plugins()
        .flat_map(|plugin| plugin.tools().iter().map(move |tool| (tool.name.as_str(), plugin.identity().to_string())));
    match duplicate_names(tools).as_slice() {
        [] => Ok(()),
        duplicates => Err(Failure::refused(duplicates.join("\n"))),
    }
}

/// Starts the MCP servers of the agent, and lists each server with the tools that it would provide to a turn.
async fn list_servers(settings: &Settings, terminal: &Terminal) -> Result<(), Failure> {
    let servers = McpServers::new(settings.servers()?).map_err(Failure::refused)?;
    let interrupts = Interrupts::listen(terminal.clone());
    interrupts.kill_servers_on_exit([servers.clone()]);
    let cancel = interrupts.begin(Activity::Turn);
    let lease = tokio::select! {
        lease = servers.acquire() => lease,
        () = cancel.cancelled() => {
            servers.shorten_grace_periods();
            servers.shutdown().await;
            return Err(Failure { exit: Exit::Cancelled, ..Failure::failed("cancelled") });
        }
    };
    let catalogue = lease.catalogue();
    for name in servers.names() {
        let tools: Vec<_> = catalogue.tools().filter(|tool| tool.server == name).collect();
        if !tools.is_empty() {
            print(terminal, describe::server(name, &tools))?;
        }
    }
    for problem in catalogue.problems() {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {problem}"));
    }
    lease.release().await;
    servers.shutdown().await;
    Ok(())
}

/// Returns a message for each pair of tools with the same name. A turn refuses tools that have the same name, so
/// `plugin list` reports each pair as an error.
fn duplicate_names<'t>(tools: impl Iterator<Item = (&'t str, String)>) -> Vec<String> {
    let mut plugins: BTreeMap<&str, String> = BTreeMap::new();
    let mut duplicates = Vec::new();
    for (name, plugin) in tools {
        match plugins.get(name) {
            Some(first) => duplicates.push(format!(
                "two tools are named `{name}`, one in {first} and one in {plugin}: rename one of them, or remove one plugin"
            )),
            None => {
                plugins.insert(name, plugin);
            }
        }
    }
    duplicates
}

async fn load(sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> Result<Arc<LoadedPlugin>, Failure> {
    let loaded = sandbox.load_file_with(file, &|event| show_load(terminal, &event)).await;
    terminal.idle();
    explain_load_error(loaded, file)
}

fn explain_load_error(loaded: Result<Arc<LoadedPlugin>, LoadError>, file: &Path) -> Result<Arc<LoadedPlugin>, Failure> {
    loaded.map_err(|error| Failure::refused(format!("`{}`: {error}", file.display())))
}

fn print(terminal: &Terminal, text: String) -> Result<(), Failure> {
    terminal.print(text).map_err(Failure::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L14: all tools share one namespace.
    #[test]
    fn l14_reports_both_plugins_that_have_the_same_name() {
        let tools = |names: &[(&'static str, &str)]| {
            let owned: Vec<_> = names.iter().map(|(name, plugin)| (*name, (*plugin).to_owned())).collect();
            duplicate_names(owned.into_iter())
        };
        assert!(tools(&[("a", "one@1"), ("b", "two@2")]).is_empty());
        let duplicates = tools(&[("a", "one@1"), ("b", "two@2"), ("a", "two@2")]);
        let expected =
            "two tools are named `a`, one in one@1 and one in two@2: rename one of them, or remove one plugin";
        assert_eq!(duplicates, [expected]);
    }
}
