//! The agents of commands that run until the process is told to stop, such as `serve` and `acp`.

use super::chat::build_news;
use super::fetched_plugins::FetchedPlugins;
use super::monitoring::Monitoring;
use super::open_session::checkpoint;
use crate::arguments::sharing::RegistryAccess;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::assembly::{AssembledAgents, Assembler, DelegateReader, UnusablePlugins, open_sandbox, open_store};
use agent_config::{AgentOptions, AgentWatch, DataDirectory, HostEnvironment, Settings, WatchEvent, choose_model};
use agent_fleet::{Nats, NatsAddress};
use agent_mcp::McpServers;
use agent_runtime::{Fleet, Host, LiveAgent, Notice};
use agent_store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time between two checks for changes of the agents' files and plugins that are shown.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How a process works together with others.
#[derive(Clone, Copy, Default)]
pub(super) struct Cooperation<'a> {
    /// NATS servers that announce work to other processes.
    pub(super) nats: Option<&'a NatsAddress>,
    /// Options of the connections to registries, from which missing plugins are fetched. `None` if no plugins are fetched.
    pub(super) registries: Option<&'a RegistryAccess>,
}

/// The agents that a process runs until it is told to stop.
pub(super) struct ServedAgents {
    /// The services that all sessions share.
    pub(super) host: Host,
    /// The agents that the command line names, each with its delegates.
    pub(super) agents: Vec<AssembledAgents>,
    watches: Vec<AgentWatch>,
    pub(super) monitoring: Monitoring,
    /// Stops the tasks of this value when it is dropped.
    _stop_on_drop: DropGuard,
}

impl ServedAgents {
    /// Builds the agents. The limits of the sandbox come from the first agent's file. With NATS servers, the process joins a
    /// fleet. `prepare` changes the services that all sessions share.
    pub(super) async fn assemble(
        options: Vec<AgentOptions>,
        (data, environment): (&DataDirectory, &HostEnvironment),
        (Cooperation { nats, registries }, prepare): (Cooperation<'_>, impl FnOnce(Host) -> Host),
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let mut all_settings = read_settings(options, (data, environment), terminal).await?;
        let first = all_settings.first().ok_or_else(|| Failure::refused("there is no agent to serve"))?;
        let (store, sandbox) = (open_store(data).await?, open_sandbox(first, data)?);
        let stop = CancellationToken::new();
        let fetched = registries
            .map(|registries| FetchedPlugins::new(registries, (data, first), store.clone(), (terminal, stop.clone())));
        let (fetched, here) = (fetched.transpose()?, first.environment.clone());
        let stop_on_drop = stop.drop_guard();
        if let Some(fetched) = &fetched {
            for settings in &mut all_settings {
                settings.environment.component_sources = Some(fetched.sources());
                if let Some(folder) = &settings.plugins {
                    fetched.prepare(folder).await?;
                }
            }
        }
        let assembler = Assembler {
            store: &*store,
            sandbox: &sandbox,
            delegates: fetched.as_ref().map_or(&here as &dyn DelegateReader, |fetched| fetched as &dyn DelegateReader),
            unusable_plugins: UnusablePlugins::Report,
            reporter: terminal,
        };
        let mut agents: Vec<AssembledAgents> = Vec::new();
        for settings in &all_settings {
            agents.push(assembler.assemble(settings).await?);
        }
        refuse_shared_names(&agents)?;
        let monitoring = Monitoring::start(&store, &sandbox, &agents.iter().collect::<Vec<_>>()).await;
        let fleet = match nats {
            Some(address) => Some(join_fleet(&*store, address).await?),
            None => None,
        };
        let host = Host {
            fleet,
            checkpoint: checkpoint(),
            observer: Some(monitoring.observer()),
            leaving: CancellationToken::new(),
            ..Host::new(store.clone(), sandbox.clone())
        };
        let host = prepare(host);
        let watches = agents.iter().map(|agents| AgentWatch::begin(&host, &agents.all)).collect();
        Ok(Self { host, agents, watches, monitoring, _stop_on_drop: stop_on_drop })
    }

    /// Begins to send the metrics to the collectors that ask for them.
    pub(super) fn export_metrics(&mut self) {
        self.monitoring.export_metrics(&self.agents);
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

    /// Returns the settings of the agents and their delegates, by name.
    pub(super) fn settings(&self) -> BTreeMap<String, Settings> {
        let all = self.agents.iter().flat_map(|agents| &agents.all);
        all.map(|agent| (agent.live.current().config().name.clone(), agent.settings.clone())).collect()
    }

    pub(super) fn servers(&self) -> Vec<McpServers> {
        self.agents.iter().flat_map(AssembledAgents::servers).collect()
    }

    /// Shows changes of the agents' files and plugins until the server must stop.
    pub(super) async fn show_changes(&mut self, stop: &CancellationToken, terminal: &Terminal) {
        while !stop.is_cancelled() {
            for watch in &mut self.watches {
                while let Some(event) = watch.try_next() {
                    self.monitoring.changed(&event);
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

    /// Stores the results of trials, stops the MCP servers, and sends the latest traces.
    pub(super) async fn close(self, terminal: &Terminal) {
        drop(self.watches);
        for agents in &self.agents {
            agents.record_trials(&*self.host.store, terminal).await;
            agents.agent.current().servers().shutdown().await;
        }
        self.monitoring.finish(terminal).await;
    }
}

/// Reads the settings of the agents that the command line names, and lets the user choose a model if none is named.
async fn read_settings(
    options: Vec<AgentOptions>,
    (data, environment): (&DataDirectory, &HostEnvironment),
    terminal: &Terminal,
) -> Result<Vec<Settings>, Failure> {
    let mut all = Vec::new();
    for options in options {
        let mut settings = Settings::read(&options, environment)?;
        for note in &settings.unapplied_grants {
            let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(note));
            terminal.note(text::wrapped(&line, terminal.width()));
        }
        choose_model(&mut settings, terminal, terminal).await?;
        settings.user = data.user();
        all.push(settings);
    }
    Ok(all)
}

/// Connects to NATS in the background, and joins the fleet of the processes that share the store.
async fn join_fleet(store: &dyn Store, address: &NatsAddress) -> Result<Fleet, Failure> {
    let nats = Nats::connect(address).await.map_err(Failure::refused)?;
    Fleet::join(store, nats, environment::process_name()).await.map_err(Failure::refused)
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
