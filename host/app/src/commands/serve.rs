//! `serve`: runs agents behind an HTTP API until the process is told to stop (I3, I9).

use super::chat::build_news;
use super::open_session::checkpoint;
use crate::arguments::serve::ServeArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, Terminal, YELLOW, text};
use agent_config::assembly::{AssembledAgents, Assembler, UnusablePlugins, open_sandbox, open_store};
use agent_config::{AgentOptions, AgentWatch, DataDirectory, Settings, WatchEvent, choose_model};
use agent_mcp::McpServers;
use agent_runtime::{Host, LiveAgent, Notice, Supervisor, SupervisorOptions};
use agent_serve::{AllowedOrigins, Endpoint, Server, ServerOptions, TokenFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two checks for changes of the agents' files and plugins that are shown.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs `serve`.
pub(crate) async fn run(arguments: ServeArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let interrupts = Interrupts::listen(terminal.clone());
    let stop = interrupts.begin(Activity::Serve);
    let endpoint = arguments.endpoint().map_err(Failure::refused)?;
    let data = DataDirectory::open(data, &environment::host())?;
    let tokens = token_file(&data);
    let mut served = tokio::select! {
        served = assemble(&arguments, &data, terminal) => served?,
        () = stop.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.kill_servers_on_exit(served.servers());
    let agents = served.agents();
    let names: Vec<_> = agents.keys().cloned().collect();
    create_first_token(&data, terminal)?;
    let supervisor = Supervisor::start(served.host.clone(), agents, SupervisorOptions::default());
    let origins = AllowedOrigins { hosts: arguments.host_name, origins: arguments.origin };
    let options = ServerOptions { endpoint, origins, ..ServerOptions::new(arguments.listen, tokens.clone()) };
    let server = match Server::start(supervisor.clone(), options).await {
        Ok(server) => server,
        Err(error) => {
            supervisor.shutdown().await;
            return Err(Failure::refused(error));
        }
    };
    let place = match server.endpoint() {
        Endpoint::Tcp(address) => format!("http://{address}"),
        Endpoint::Tls(address, _) => format!("https://{address}"),
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
    };
    terminal.note(format!("listening on {BOLD}{place}{BOLD:#} with {}", names.join(", ")));
    served.show_changes(&stop, terminal).await;
    terminal.note("shutting down: open turns continue at the next start");
    server.shutdown().await;
    supervisor.shutdown().await;
    served.close(terminal).await;
    Ok(Exit::Done)
}

/// Name of the file that contains the first token, in the data folder.
const FIRST_TOKEN_FILE: &str = "server-token";

/// Creates a token with all rights if there is no token.
pub(super) fn create_first_token(data: &DataDirectory, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(token) = token_file(data).create_first().map_err(Failure::refused)? {
        let path = data.root().join(FIRST_TOKEN_FILE);
        TokenFile::write_private(&path, &token).map_err(Failure::refused)?;
        terminal.note(format!("created a token with all rights, in {}", path.display()));
    }
    Ok(())
}

/// Returns the file with the digests of the server's tokens.
pub(super) fn token_file(data: &DataDirectory) -> TokenFile {
    TokenFile::new(data.root().join("server-tokens.json"))
}

/// The agents that a server runs.
pub(super) struct Served {
    host: Host,
    agents: Vec<AssembledAgents>,
    watches: Vec<AgentWatch>,
}

/// Builds the agents. The limits of the sandbox come from the first agent's file.
pub(super) async fn assemble(
    arguments: &ServeArguments,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Served, Failure> {
    let mut all_settings = Vec::new();
    for options in agent_options(arguments) {
        let mut settings = Settings::read(&options, &environment::host())?;
        choose_model(&mut settings, terminal, terminal).await?;
        settings.user = data.user();
        all_settings.push(settings);
    }
    let first = all_settings.first().ok_or_else(|| Failure::refused("there is no agent to serve"))?;
    let (store, sandbox) = (open_store(data)?, open_sandbox(first, data)?);
    let delegates = first.environment.clone();
    let assembler = Assembler {
        store: &*store,
        sandbox: &sandbox,
        delegates: &delegates,
        unusable_plugins: UnusablePlugins::Report,
        reporter: terminal,
    };
    let mut agents: Vec<AssembledAgents> = Vec::new();
    for settings in &all_settings {
        agents.push(assembler.assemble(settings).await?);
    }
    refuse_shared_names(&agents)?;
    let host = Host {
        checkpoint: checkpoint(),
        leaving: CancellationToken::new(),
        ..Host::new(store.clone(), sandbox.clone())
    };
    let watches = agents.iter().map(|agents| AgentWatch::begin(&host, &agents.all)).collect();
    Ok(Served { host, agents, watches })
}

/// Refuses agents of different files with the same name. Sessions belong to a name, so a session of one file could continue
/// with the grants of the other file.
fn refuse_shared_names(agents: &[AssembledAgents]) -> Result<(), Failure> {
    let mut files: BTreeMap<String, Option<PathBuf>> = BTreeMap::new();
    for agent in agents.iter().flat_map(|agents| &agents.all) {
        let (name, path) = (agent.settings.name.clone(), agent.settings.path.clone());
        let file = path.map(|path| path.canonicalize().unwrap_or(path));
        let shown =
            |file: &Option<PathBuf>| file.as_ref().map_or("no file".to_owned(), |file| file.display().to_string());
        match files.get(&name) {
            Some(other) if *other != file => {
                return Err(Failure::refused(format!(
                    "two agents have the name `{name}` ({} and {}): sessions belong to a name, so give one of them another \
                     `name`",
                    shown(other),
                    shown(&file)
                )));
            }
            _ => files.insert(name, file),
        };
    }
    Ok(())
}

/// Returns the options of each agent that is served.
fn agent_options(arguments: &ServeArguments) -> Vec<AgentOptions> {
    let ServeArguments { agent, plugins, model, grant, .. } = arguments;
    let options = AgentOptions { model: model.clone(), ..AgentOptions::default() };
    match agent.as_slice() {
        [] => vec![AgentOptions { plugins: plugins.clone(), grants: grant.clone(), ..options }],
        agents => agents.iter().map(|agent| AgentOptions { agent: Some(agent.clone()), ..options.clone() }).collect(),
    }
}

impl Served {
    /// Returns the services that the sessions share.
    pub(super) fn host(&self) -> Host {
        self.host.clone()
    }

    /// Returns the name of the first agent of the command line.
    pub(super) fn first_agent(&self) -> Result<String, Failure> {
        let first = self.agents.first().ok_or_else(|| Failure::refused("there is no agent to serve"))?;
        Ok(first.agent.current().config().name.clone())
    }

    /// Returns the agents and their delegates, by name.
    pub(super) fn agents(&self) -> BTreeMap<String, LiveAgent> {
        // The agents of the command line come last, so that a changed file is applied to the agent that is used.
        let delegates = self.agents.iter().flat_map(|agents| agents.all.iter().map(|agent| &agent.live));
        let served = self.agents.iter().map(|agents| &agents.agent);
        delegates.chain(served).map(|live| (live.current().config().name.clone(), live.clone())).collect()
    }

    pub(super) fn servers(&self) -> Vec<McpServers> {
        self.agents.iter().flat_map(AssembledAgents::servers).collect()
    }

    /// Shows changes of the agents' files and plugins until the server must stop.
    pub(super) async fn show_changes(&mut self, stop: &CancellationToken, terminal: &Terminal) {
        while !stop.is_cancelled() {
            for watch in &mut self.watches {
                while let Some(event) = watch.try_next() {
                    if let Some(text) = describe(&event) {
                        terminal.note(text);
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Stores the results of trials, and stops the MCP servers.
    pub(super) async fn close(self, terminal: &Terminal) {
        drop(self.watches);
        for agents in &self.agents {
            agents.record_trials(&*self.host.store, terminal).await;
            agents.agent.current().servers().shutdown().await;
        }
    }
}

/// Describes a change. Returns `None` if users need not see it.
fn describe(event: &WatchEvent) -> Option<String> {
    Some(match event {
        WatchEvent::Plugins(Notice::Refused { subject, reason }) => {
            let text = format!("{subject}: {reason}; the previous version stays in use");
            format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&text))
        }
        WatchEvent::Plugins(notice) => return build_news::describe_version_change(notice),
        WatchEvent::Configured { path, later, .. } => {
            let later =
                if later.is_empty() { String::new() } else { format!("; after a restart: {}", later.join(", ")) };
            format!("{} has changed: the next turns use it{later}", path.display())
        }
        WatchEvent::Misconfigured { reason } => {
            let text = format!("{reason}; the previous configuration stays in effect");
            format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&text))
        }
    })
}
