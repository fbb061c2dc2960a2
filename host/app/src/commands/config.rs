//! `config init|show|schema|check|list`: writes, shows, describes, checks and lists agent files.

mod show;

use super::starting_agent;
use crate::arguments::ConfigCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, RED, Terminal, YELLOW, text};
use agent_config::agent_file::{MAX_BYTES, json_schema, read_bounded, starter, template, with_line};
use agent_config::settings::{AGENT_FILE, Helpers, agent_lookup};
use agent_config::trust::AgentAuthority;
use agent_config::{
    AgentOptions, ConfigError, DataDirectory, DataLocation, Problems, Settings, UserFile, assembly, protection,
};
use agent_mcp::{ServerConfig, Transport};
use agent_plugins::{Access, Generation, Grants, Sandbox, TreeGrant};
use agent_runtime::{Agent, Delegate};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// File name that means stdout.
const STDOUT: &str = "-";

/// Whether an existing file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    /// The existing file is not replaced, and the command fails.
    Keep,
    /// An existing file is replaced.
    Replace,
}

/// Runs a subcommand of `config`.
pub(crate) async fn run(command: ConfigCommand, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Init { full, output, force } => {
            let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let text = if full { template() } else { starter(folder, user_plugins().as_deref()) };
            write(&output, &text, existing(force), terminal)?;
            if output != Path::new(STDOUT) {
                let path = output.display();
                trust_own(&output, data);
                terminal.note(format!(
                    "wrote {path}: remove the `#` from the settings that you want, then run `agent-host config check {path}`"
                ));
            }
        }
        ConfigCommand::Schema { output, force } => {
            let schema = serde_json::to_string_pretty(&json_schema()).map_err(Failure::failed)?;
            write(&output, &format!("{schema}\n"), existing(force), terminal)?;
        }
        ConfigCommand::Check { agent, named } => check(named_or_used(agent.or(named)), data, terminal).await?,
        ConfigCommand::Show { agent, named } => show::show(named_or_used(agent.or(named)), data, terminal)?,
        ConfigCommand::List => list(terminal)?,
    }
    Ok(Exit::Done)
}

/// Returns the absolute path of the plugin folder that `agent-host` uses in folders without an agent.toml.
fn user_plugins() -> Option<PathBuf> {
    let environment = environment::host();
    let folder = match starting_agent::user_file(&environment) {
        Some(path) => {
            let options = AgentOptions { user_file: Some(UserFile::Agent(path)), ..AgentOptions::default() };
            Settings::examine(&options, &environment).ok()?.0.plugins
        }
        None => environment.installed_plugins(),
    };
    std::path::absolute(folder?).ok().filter(|folder| folder.is_dir())
}

fn existing(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Keep }
}

fn write(path: &Path, text: &str, existing: Existing, terminal: &Terminal) -> Result<(), Failure> {
    if path == Path::new(STDOUT) {
        return print(terminal, text.trim_end());
    }
    let mut options = OpenOptions::new();
    match existing {
        Existing::Keep => options.write(true).create_new(true),
        Existing::Replace => options.write(true).create(true).truncate(true),
    };
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::refused(format!(
            "`{}` already exists: --force replaces it, --output FILE writes to another file",
            path.display()
        )),
        _ => Failure::refused(format!("`{}` cannot be written: {error}", path.display())),
    })
}

/// Trusts a file that the user has just created with this program.
fn trust_own(path: &Path, data: DataLocation<'_>) {
    let trusted = AgentAuthority::of(path).and_then(|authority| {
        let store = DataDirectory::open(data, &environment::host())?.trust();
        store.trust(&authority).map_err(ConfigError::settings)
    });
    if let Err(error) = trusted {
        tracing::info!(%error, "the trust in the new file could not be stored, so the first start asks");
    }
}

/// Returns the options for the agent that the command line names. If it names none, returns the options for the agent.toml
/// in the current folder, or for the user-wide file if there is no agent.toml.
fn named_or_used(agent: Option<PathBuf>) -> AgentOptions {
    let environment = environment::host();
    let user_file = starting_agent::user_file(&environment);
    match (agent.or_else(|| starting_agent::file_of_folder(&environment)), user_file) {
        (None, Some(path)) => AgentOptions { user_file: Some(UserFile::Agent(path)), ..AgentOptions::default() },
        (agent, user_file) => {
            let agent = Some(agent.unwrap_or_else(|| AGENT_FILE.into()));
            AgentOptions { agent, user_file: user_file.map(UserFile::DefaultModel), ..AgentOptions::default() }
        }
    }
}

async fn check(options: AgentOptions, data: DataLocation<'_>, terminal: &Terminal) -> Result<(), Failure> {
    let environment = environment::host();
    let (settings, mut problems) = Settings::examine(&options, &environment)?;
    let path = settings.path.clone().unwrap_or_default();
    let data = DataDirectory::open(data, &environment)?;
    let sandbox = assembly::open_sandbox(&settings, &data)?;
    let loaded = problems.collect(assembly::load_plugins(&settings, &sandbox, terminal).await);
    let (generation, broken) = loaded.unwrap_or_else(|| (Generation::new([]), Vec::new()));
    problems.collect(assembly::refuse_unusable_plugins(&broken));
    let served = assembly::serving_plugins(&settings, (&data, &sandbox), generation.clone(), terminal).await;
    let generation = problems.collect(served).unwrap_or(generation);
    let delegates = assembly::load_delegates(&settings, &sandbox, &environment, terminal).await;
    let delegates = problems.collect(delegates).map(|delegates| delegates.by_tool).unwrap_or_default();
    assembly::examine(&settings, generation.clone(), delegates.clone(), &mut problems);
    problems.collect(protection::open_granted_trees(&sandbox, [&settings]));
    if !problems.is_empty() {
        return Err(all_problems(problems, &path));
    }
    let models = models(&settings)?;
    assembly::warn_of_no_plugins(&settings, &generation, terminal);
    let (plugins, agents) = (plugins(&settings, &generation), delegate_lines(&delegates));
    let mcp = settings.servers()?;
    let agent = assembly::make_agent(&settings, (generation, delegates), mcp, terminal)?;
    let what = if settings.is_user_wide() { " (the user-wide configuration)" } else { "" };
    print(terminal, &format!("{BOLD}{}{BOLD:#}: ok{what}", path.display()))?;
    print_row("agent", std::slice::from_ref(&settings.name), terminal)?;
    print_row("model", &models, terminal)?;
    print_row("plugins", &plugins, terminal)?;
    print_row("agents", &agents, terminal)?;
    print_row("grants", &grants(&settings), terminal)?;
    print_row("excluded", &excluded(&settings, &sandbox), terminal)?;
    print_row("mcp", &servers(&agent.config().mcp), terminal)?;
    print_row("services", &services(&settings), terminal)?;
    let overlaps = protection::overlapping_trees(&protection::granted_trees(&settings));
    let exposed = protection::exposed_servers(&settings);
    let missing = missing_programs(&settings, &agent.config().mcp);
    let unapplied = settings.unapplied_grants.iter().cloned();
    for problem in unapplied.chain(missing).chain(depth_warning(&agent)).chain(overlaps).chain(exposed) {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&problem)));
    }
    Ok(())
}

/// Combines all problems of an agent file into one failure. If a problem belongs to a line of the file, the failure
/// shows the line with the problem, in the same format as a syntax error.
fn all_problems(problems: Problems, path: &Path) -> Failure {
    let text = read_bounded(path, MAX_BYTES).unwrap_or_default();
    let shown = problems.in_order(Some(path)).into_iter().map(|(line, problem)| match line {
        Some(line) => with_line(path, &text, (line, &problem)),
        None => problem,
    });
    Failure::refused(shown.collect::<Vec<_>>().join("\n\n"))
}

/// Returns a warning for each MCP server whose program is missing. A missing program is not an error, because it may be
/// installed later.
fn missing_programs(settings: &Settings, servers: &[ServerConfig]) -> Vec<String> {
    let problem = |server: &ServerConfig| {
        let Transport::Stdio(child) = &server.transport else { return None };
        let folders = child.env.get("PATH").map(String::as_str).unwrap_or_default();
        if environment::program_in(&child.command, folders.as_ref()).is_some() {
            return None;
        }
        let location = settings.file.mcp.get(&server.name).and_then(|table| table.command.as_ref());
        let location = location.map(|placed| format!("{}: ", placed.location)).unwrap_or_default();
        let searched = if child.command.contains(std::path::is_separator) { "at this path" } else { "on its PATH" };
        Some(format!(
            "{location}there is no program `{}` {searched}: install it, or name another program",
            child.command
        ))
    };
    servers.iter().filter_map(problem).collect()
}

/// Returns a warning if the longest chain of delegates is longer than `max_depth`, because the last agents of such a
/// chain can never be reached (L16).
fn depth_warning(agent: &Agent) -> Option<String> {
    let max_depth = agent.config().bounds.max_depth;
    let mut chain = vec![agent.config().name.clone()];
    let mut delegates = longest_chain(&agent.config().delegates);
    let depth = u32::try_from(delegates.len()).unwrap_or(u32::MAX);
    chain.append(&mut delegates);
    let last = chain.last().cloned().unwrap_or_default();
    let names = chain.join(" → ");
    (depth > max_depth).then(|| {
        format!(
            "work can be delegated at most {max_depth} levels deep (`max_depth`), so `{last}` cannot be reached through: {names}"
        )
    })
}

/// Returns the agents' names along the longest chain of delegates. The recursion ends, because the host refuses to load
/// agents whose delegates form a cycle.
fn longest_chain(delegates: &BTreeMap<String, Delegate>) -> Vec<String> {
    let chains = delegates.values().map(|delegate| {
        let agent = delegate.agent.current();
        let mut chain = vec![agent.config().name.clone()];
        chain.extend(longest_chain(&agent.config().delegates));
        chain
    });
    chains.max_by_key(Vec::len).unwrap_or_default()
}

fn print_row(name: &str, values: &[String], terminal: &Terminal) -> Result<(), Failure> {
    for (index, value) in values.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        print(terminal, &format!("  {DIM}{name:<9}{DIM:#}{}", text::harmless(value)))?;
    }
    Ok(())
}

/// Lists the models in the order in which they are called. Each line shows the model's address and whether the host has
/// a key for the model. Keys are not shown.
fn models(settings: &Settings) -> Result<Vec<String>, Failure> {
    let (chain, providers) = settings.models()?;
    let mut lines = Vec::new();
    for (index, model) in chain.iter().enumerate() {
        let provider = model.name.split_once('/').map(|(provider, _)| provider);
        let provider = providers.iter().find(|known| Some(known.name.as_str()) == provider);
        let address = provider.map(|provider| {
            let key = if provider.key.is_some() { "with a key" } else { "without a key" };
            format!(" at {}, {key}", provider.base_url)
        });
        let prefix = if index == 0 { "" } else { "then " };
        let origin = show::origin_of_model(settings, model);
        lines.push(format!("{prefix}{}{}{origin}", model.name, address.unwrap_or_default()));
    }
    let fallback_text = settings.file.fallback_text.as_ref();
    lines.extend(fallback_text.map(|text| format!("then the fallback text {}", text::one_line(text, 60))));
    let Helpers { planner, executor, embedding } = &settings.models.helpers;
    for (what, named) in [("plans", planner), ("executes plans", executor), ("chooses tools", embedding)] {
        lines.extend(named.as_ref().map(|named| format!("{} {what}", named.name)));
    }
    Ok(lines)
}

/// Lists the delegates; each delegate is followed by the delegates to which it can delegate work.
fn delegate_lines(delegates: &BTreeMap<String, Delegate>) -> Vec<String> {
    let mut lines = Vec::new();
    for (tool, delegate) in delegates {
        let agent = delegate.agent.current();
        let config = agent.config();
        lines.push(format!("{tool}: the agent {}", config.name));
        lines.extend(delegate_lines(&config.delegates).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn plugins(settings: &Settings, generation: &Generation) -> Vec<String> {
    let names: Vec<_> = generation.plugins().map(|plugin| plugin.name()).collect();
    match &settings.plugins {
        Some(folder) if !names.is_empty() => vec![format!("{} (in {})", names.join(", "), folder.display())],
        _ => vec!["none".to_owned()],
    }
}

/// Lists the MCP servers without starting or contacting them. Only programs and addresses are shown, because the
/// servers' variables and headers may be secret.
fn servers(servers: &[ServerConfig]) -> Vec<String> {
    let line = |server: &ServerConfig| match &server.transport {
        Transport::Stdio(child) => format!("{}: {} {}", server.name, child.command, child.args.join(" ")),
        Transport::Http(address) => format!("{}: {}", server.name, address.url),
    };
    servers.iter().map(line).collect()
}

fn grants(settings: &Settings) -> Vec<String> {
    let plugins = settings.grants.plugins.iter().map(|(name, grants)| format!("{name}: {}", grant_names(grants)));
    let host = Some(&settings.grants.host).filter(|trees| !trees.is_empty());
    let host = host.map(|trees| format!("host: {}", trees.iter().map(tree).collect::<Vec<_>>().join(", ")));
    let lines: Vec<_> = plugins.chain(host).collect();
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}

/// Lists the paths that plugins must not change, although the paths are in folders that plugins may write to. The list
/// is grouped by folder.
fn excluded(settings: &Settings, sandbox: &Sandbox) -> Vec<String> {
    let protected = sandbox.protected();
    let trees = protection::granted_trees(settings).into_iter().filter(|(_, tree)| tree.access == Access::ReadWrite);
    let lines = trees.filter_map(|(plugin, tree)| {
        let excluded = protection::excluded_from_writing(&protected, &tree.host);
        let paths = excluded.join(", ");
        (!paths.is_empty()).then(|| format!("{plugin}: write {} except {paths}", tree.guest))
    });
    lines.collect()
}

/// Lists the services and the outbox directory. The list is empty for most agents, because few agents use services.
fn services(settings: &Settings) -> Vec<String> {
    let services = settings.file.services.iter();
    let services = services.map(|(name, table)| {
        format!("{name}: {}", table.event_type.as_ref().map_or(name.as_str(), |event_type| event_type.as_str()))
    });
    let outbox = settings.file.outbox.directory.as_ref().map(|directory| format!("events go to {}", directory.value));
    services.chain(outbox).collect()
}

/// Lists the names of one plugin's grants. The values of variables and settings are not shown, because they may
/// be secret.
fn grant_names(grants: &Grants) -> String {
    let env = grants.env.keys().map(|name| format!("env {name}"));
    let config = grants.config.keys().map(|key| format!("config {key}"));
    let http = grants.http.iter().map(|pattern| format!("http {pattern}"));
    let secrets = grants.secrets.iter().map(|secret| format!("secret {}", secret.name()));
    let key_value = grants.key_value.map(|bytes| format!("key_value_mib {}", bytes >> 20));
    let model = grants.model_tokens.map(|tokens| format!("model_tokens {tokens}"));
    let events = grants.events.iter().map(|event_type| format!("events {event_type}"));
    let media = grants.media.then(|| "media".to_owned());
    let others = http.chain(secrets).chain(key_value).chain(model).chain(events).chain(media);
    grants.trees.iter().map(tree).chain(env).chain(config).chain(others).collect::<Vec<_>>().join(", ")
}

fn tree(tree: &TreeGrant) -> String {
    let access = if tree.access == Access::ReadWrite { "write" } else { "read" };
    format!("{access} {}", tree.guest)
}

fn list(terminal: &Terminal) -> Result<(), Failure> {
    let agents = agent_lookup::list_agents(Path::new("."));
    if agents.is_empty() {
        terminal.note("there is no agent in this folder; `agent-host config init` creates an agent.toml");
    }
    for agent in agents {
        let (name, path) = (&agent.name, agent.path.display());
        let line = match &agent.file {
            Ok(file) => file.model.as_ref().map_or("offline", |model| &model.value).to_owned(),
            Err(_) => format!("{RED}cannot be used{RED:#}: `agent-host config check {path}` shows why"),
        };
        print(terminal, &format!("{BOLD}{}{BOLD:#}  {path}  {DIM}{line}{DIM:#}", text::one_line(name, 64)))?;
    }
    Ok(())
}

fn print(terminal: &Terminal, text: &str) -> Result<(), Failure> {
    terminal.print(text).map_err(Failure::output)
}
