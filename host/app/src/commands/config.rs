//! `config init|schema|check|list`: agents' configurations.

use crate::arguments::{AgentArguments, ConfigCommand};
use crate::configuration::{MOST_BYTES, json_schema, read_bounded, template, with_line};
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::protection;
use crate::settings::{Helpers, Problems, Settings, agents};
use crate::setup;
use crate::setup::agents::{Projects, ReadFor};
use crate::terminal::{BOLD, DIM, RED, Terminal, YELLOW, text};
use agent_mcp::{ServerConfig, Transport};
use agent_plugins::{Access, Generation, Grants, Sandbox, TreeGrant};
use agent_runtime::{Agent, Delegate};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What stands for stdout where a file's name is asked for.
const STDOUT: &str = "-";

/// Whether a file that is there may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Keep,
    Replace,
}

/// Runs one of the commands.
pub(crate) async fn run(command: ConfigCommand, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Init { output, force } => {
            write(&output, &template(), existing(force), terminal)?;
            if output != Path::new(STDOUT) {
                let path = output.display();
                terminal.note(format!(
                    "wrote {path}: take the `#` from what you want, then `agent-host config check {path}`"
                ));
            }
        }
        ConfigCommand::Schema { output, force } => {
            let schema = serde_json::to_string_pretty(&json_schema()).map_err(Failure::failed)?;
            write(&output, &format!("{schema}\n"), existing(force), terminal)?;
        }
        ConfigCommand::Check { agent } => check(agent, data, terminal).await?,
        ConfigCommand::List => list(terminal)?,
    }
    Ok(Exit::Done)
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
            "`{}` is there already: --force replaces it, --output FILE writes another",
            path.display()
        )),
        _ => Failure::refused(format!("`{}` cannot be written: {error}", path.display())),
    })
}

async fn check(agent: PathBuf, data: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
    let path = agents::find(&agent, Path::new("."))?;
    let arguments = AgentArguments { agent: Some(path.clone()), ..AgentArguments::default() };
    let (settings, mut problems) = Settings::examine(&arguments, &environment::variable)?;
    let data = DataDirectory::open(data)?;
    let sandbox = setup::sandbox_of(&settings, &data)?;
    let loaded = problems.take(setup::plugins(&settings, &sandbox, terminal).await);
    let (generation, broken) = loaded.unwrap_or_else(|| (Generation::new([]), Vec::new()));
    problems.take(setup::refuse(&broken));
    let served = setup::serving(&settings, (&data, &sandbox), generation.clone(), terminal).await;
    let generation = problems.take(served).unwrap_or(generation);
    let delegates = setup::agents::delegates(&settings, &sandbox, (Projects::Leave, ReadFor::Host), terminal).await;
    let delegates = problems.take(delegates).map(|delegates| delegates.below).unwrap_or_default();
    setup::examine(&settings, generation.clone(), delegates.clone(), &mut problems);
    problems.take(protection::hold_trees(&sandbox, [&settings]));
    if !problems.is_empty() {
        return Err(all_of(problems, &path));
    }
    let models = models(&settings)?;
    setup::note_no_plugins(&settings, &generation, terminal);
    let (plugins, below) = (plugins(&settings, &generation), below(&delegates));
    let mcp = settings.servers(&environment::variable)?;
    let agent = setup::agent(&settings, (generation, delegates), mcp, terminal)?;
    print(terminal, &format!("{BOLD}{}{BOLD:#}: ok", path.display()))?;
    row("agent", std::slice::from_ref(&settings.name), terminal)?;
    row("model", &models, terminal)?;
    row("plugins", &plugins, terminal)?;
    row("agents", &below, terminal)?;
    row("grants", &grants(&settings), terminal)?;
    row("excluded", &excluded(&settings, &sandbox), terminal)?;
    row("mcp", &servers(&agent.config().mcp), terminal)?;
    row("services", &services(&settings), terminal)?;
    let overlaps = protection::overlaps(&protection::trees(&settings));
    let exposed = protection::exposed_servers(&settings);
    let missing = missing_programs(&settings, &agent.config().mcp);
    for problem in missing.into_iter().chain(too_deep(&agent)).chain(overlaps).chain(exposed) {
        terminal.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&problem)));
    }
    Ok(())
}

/// All problems with the lines that they are about, as the reader of the file shows its own.
fn all_of(problems: Problems, path: &Path) -> Failure {
    let text = read_bounded(path, MOST_BYTES).unwrap_or_default();
    let shown = problems.in_order(Some(path)).into_iter().map(|(line, problem)| match line {
        Some(line) => with_line(path, &text, (line, &problem)),
        None => problem,
    });
    Failure::refused(shown.collect::<Vec<_>>().join("\n\n"))
}

/// MCP servers that could not be started now. They may be installed later, so that this is no error.
fn missing_programs(settings: &Settings, servers: &[ServerConfig]) -> Vec<String> {
    let problem = |server: &ServerConfig| {
        let Transport::Stdio(child) = &server.transport else { return None };
        let folders = child.env.get("PATH").map(String::as_str).unwrap_or_default();
        if environment::program_in(&child.command, folders.as_ref()).is_some() {
            return None;
        }
        let place = settings.file.mcp.get(&server.name).and_then(|table| table.command.as_ref());
        let place = place.map(|placed| format!("{}: ", placed.place)).unwrap_or_default();
        let looked = if child.command.contains(std::path::is_separator) { "there" } else { "on its PATH" };
        Some(format!("{place}there is no program `{}` {looked}: install it, or name another", child.command))
    };
    servers.iter().filter_map(problem).collect()
}

/// Agents that the one that is asked can never reach, since work is handed down only so many times (L16).
fn too_deep(agent: &Agent) -> Option<String> {
    let most = agent.config().bounds.max_depth;
    let mut chain = vec![agent.config().name.clone()];
    let mut below = deepest(&agent.config().delegates);
    let depth = u32::try_from(below.len()).unwrap_or(u32::MAX);
    chain.append(&mut below);
    let last = chain.last().cloned().unwrap_or_default();
    let names = chain.join(" → ");
    (depth > most).then(|| {
        format!(
            "work is handed down at most {most} times (`max_depth`), so that `{last}` is out of reach this way: {names}"
        )
    })
}

/// The longest way down, by the agents' names. Circles were refused when they were loaded.
fn deepest(delegates: &BTreeMap<String, Delegate>) -> Vec<String> {
    let ways = delegates.values().map(|delegate| {
        let agent = delegate.agent.current();
        let mut way = vec![agent.config().name.clone()];
        way.extend(deepest(&agent.config().delegates));
        way
    });
    ways.max_by_key(Vec::len).unwrap_or_default()
}

fn row(name: &str, values: &[String], terminal: &Terminal) -> Result<(), Failure> {
    for (index, value) in values.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        print(terminal, &format!("  {DIM}{name:<9}{DIM:#}{}", text::harmless(value)))?;
    }
    Ok(())
}

/// The models in the order in which they are asked, each with its address. Of keys it is said only whether they are there.
fn models(settings: &Settings) -> Result<Vec<String>, Failure> {
    let (chain, providers) = settings.models(&environment::variable)?;
    let mut lines = Vec::new();
    for (index, model) in chain.iter().enumerate() {
        let provider = model.name.split_once('/').map(|(provider, _)| provider);
        let provider = providers.iter().find(|known| Some(known.name.as_str()) == provider);
        let where_it_is = provider.map(|provider| {
            let key = if provider.key.is_some() { "with a key" } else { "without a key" };
            format!(" at {}, {key}", provider.base_url)
        });
        let before = if index == 0 { "" } else { "then " };
        lines.push(format!("{before}{}{}", model.name, where_it_is.unwrap_or_default()));
    }
    lines
        .extend(settings.file.fallback_text.as_ref().map(|text| format!("then the text {}", text::one_line(text, 60))));
    let Helpers { planner, executor, embedding } = &settings.models.helpers;
    for (what, named) in [("plans", planner), ("carries plans out", executor), ("chooses tools", embedding)] {
        lines.extend(named.as_ref().map(|named| format!("{} {what}", named.name)));
    }
    Ok(lines)
}

/// The agents that it may delegate to, each with those below it.
fn below(delegates: &BTreeMap<String, Delegate>) -> Vec<String> {
    let mut lines = Vec::new();
    for (tool, delegate) in delegates {
        let agent = delegate.agent.current();
        let config = agent.config();
        lines.push(format!("{tool}: the agent {}", config.name));
        lines.extend(below(&config.delegates).into_iter().map(|line| format!("  {line}")));
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

/// What would be started or reached; nothing is. Values may be secret, so that only programs and addresses are shown.
fn servers(servers: &[ServerConfig]) -> Vec<String> {
    let line = |server: &ServerConfig| match &server.transport {
        Transport::Stdio(child) => format!("{}: {} {}", server.name, child.command, child.args.join(" ")),
        Transport::Http(address) => format!("{}: {}", server.name, address.url),
    };
    servers.iter().map(line).collect()
}

fn grants(settings: &Settings) -> Vec<String> {
    let plugins = settings.grants.plugins.iter().map(|(name, grants)| format!("{name}: {}", granted(grants)));
    let host = Some(&settings.grants.host).filter(|trees| !trees.is_empty());
    let host = host.map(|trees| format!("host: {}", trees.iter().map(tree).collect::<Vec<_>>().join(", ")));
    let lines: Vec<_> = plugins.chain(host).collect();
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}

/// What no grant for writing covers, by tree; nothing where no tree may be written.
fn excluded(settings: &Settings, sandbox: &Sandbox) -> Vec<String> {
    let protected = sandbox.protected();
    let trees = protection::trees(settings).into_iter().filter(|(_, tree)| tree.access == Access::ReadWrite);
    let lines = trees.filter_map(|(plugin, tree)| {
        let excluded = protection::excluded(&protected, &tree.host);
        let list = excluded.join(", ");
        (!list.is_empty()).then(|| format!("{plugin}: write {} without {list}", tree.guest))
    });
    lines.collect()
}

/// Nothing where there are none: few agents have any.
fn services(settings: &Settings) -> Vec<String> {
    let services = settings.file.services.iter();
    let services = services.map(|(name, table)| {
        format!("{name}: {}", table.event_type.as_ref().map_or(name.as_str(), |event_type| event_type.as_str()))
    });
    let outbox = settings.file.outbox.directory.as_ref().map(|directory| format!("events go to {}", directory.value));
    services.chain(outbox).collect()
}

/// Names only: values may be secret.
fn granted(grants: &Grants) -> String {
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
    let all = agents::all(Path::new("."));
    if all.is_empty() {
        terminal.note("there is no agent in this folder; `agent-host config init` writes an agent.toml");
    }
    for agent in all {
        let (name, path) = (&agent.name, agent.path.display());
        let line = match &agent.file {
            Ok(file) => file.model.as_ref().map_or("offline", |model| &model.value).to_owned(),
            Err(_) => format!("{RED}cannot be used{RED:#}: `agent-host config check {path}` says why"),
        };
        print(terminal, &format!("{BOLD}{}{BOLD:#}  {path}  {DIM}{line}{DIM:#}", text::one_line(name, 64)))?;
    }
    Ok(())
}

fn print(terminal: &Terminal, text: &str) -> Result<(), Failure> {
    terminal.print(text).map_err(Failure::output)
}
