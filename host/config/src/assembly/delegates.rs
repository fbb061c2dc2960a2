//! Loads the delegates of an agent. Each delegate is built from its own file, and inherits nothing from the agent that
//! delegates work to it (L16).

use super::agent::make_agent;
use super::plugins::{load_plugins, refuse_unusable_plugins, warn_of_no_plugins};
use super::sandbox::vetted_sandbox;
use crate::agent_file::AgentTable;
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::protection;
use crate::report::{Reporter, Warning};
use crate::settings::{AgentOptions, Chain, Settings};
use agent_mcp::ServerConfig;
use agent_plugins::Sandbox;
use agent_runtime::{Delegate, LiveAgent};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;

/// Maximum number of delegates that are loaded for one agent.
const MAX_AGENTS: usize = 64;

/// Reads the settings of delegates. The implementation for [`HostEnvironment`] reads each delegate's own file.
#[async_trait]
pub trait DelegateReader: Send + Sync {
    /// Reads the settings of a delegate from its file. Command-line options do not apply to delegates.
    fn settings(&self, path: &Path) -> Result<Settings, ConfigError>;

    /// Returns the MCP servers of a delegate.
    fn servers(&self, settings: &Settings) -> Result<Vec<ServerConfig>, ConfigError> {
        settings.servers()
    }

    /// Prepares a plugin directory. The host calls this function once for each plugin directory, before it loads the
    /// plugins in the directory. An implementation can build plugin projects here.
    async fn prepare_plugins(&self, folder: &Path) -> Result<(), ConfigError> {
        let _ = folder;
        Ok(())
    }
}

impl DelegateReader for HostEnvironment {
    fn settings(&self, path: &Path) -> Result<Settings, ConfigError> {
        Settings::read(&AgentOptions { agent: Some(path.to_owned()), ..AgentOptions::default() }, self)
    }
}

/// Loads all delegates of an agent, including the delegates of delegates. If several agents delegate to the same agent,
/// that agent is loaded only once. If the delegates form a cycle, returns an error that names the agents of the cycle.
pub async fn load_delegates(
    settings: &Settings,
    sandbox: &Sandbox,
    reader: &dyn DelegateReader,
    reporter: &dyn Reporter,
) -> Result<Delegates, ConfigError> {
    let mut loader = Loader {
        sandbox,
        reporter,
        reader,
        prepared: settings.plugins.as_deref().and_then(canonical).into_iter().collect(),
        loaded: BTreeMap::new(),
        files: BTreeMap::new(),
        all: Vec::new(),
    };
    let file = settings.path.as_deref().and_then(canonical).unwrap_or_default();
    loader.files.insert(settings.name.clone(), file.clone());
    let by_tool = loader.load_delegates_of(settings, &[Ancestor { file, name: settings.name.clone() }]).await?;
    Ok(Delegates { by_tool, all: loader.all })
}

/// The delegates of an agent.
pub struct Delegates {
    /// The agents that the agent delegates to directly, by the name of the tool that delegates.
    pub by_tool: BTreeMap<String, Delegate>,
    /// All delegates, including the delegates of delegates.
    pub all: Vec<AssembledAgent>,
}

/// A running agent, and the settings from which the agent was built.
#[derive(Clone)]
pub struct AssembledAgent {
    /// The running agent, whose configuration may change while the agent runs.
    pub live: LiveAgent,
    /// The settings that the agent was built from.
    pub settings: Settings,
}

/// An agent that delegates, directly or through other agents, to the agent that is being loaded.
#[derive(Clone)]
struct Ancestor {
    file: PathBuf,
    name: String,
}

struct Loader<'l> {
    sandbox: &'l Sandbox,
    reporter: &'l dyn Reporter,
    reader: &'l dyn DelegateReader,
    /// Plugin directories for which `prepare_plugins` has been called.
    prepared: BTreeSet<PathBuf>,
    /// The loaded delegates, by the canonical path of their files.
    loaded: BTreeMap<PathBuf, LiveAgent>,
    /// Canonical paths of the files of all agents, by the agent's name.
    files: BTreeMap<String, PathBuf>,
    all: Vec<AssembledAgent>,
}

type LoadingDelegates<'f> = Pin<Box<dyn Future<Output = Result<BTreeMap<String, Delegate>, ConfigError>> + Send + 'f>>;

impl Loader<'_> {
    /// Loads the delegates of one agent. The future is boxed, because the method is recursive.
    fn load_delegates_of<'f>(&'f mut self, settings: &'f Settings, ancestors: &'f [Ancestor]) -> LoadingDelegates<'f> {
        Box::pin(async move {
            let mut delegates = BTreeMap::new();
            for (tool, table) in &settings.file.agents {
                let agent = self.load_agent(&settings.file.folder.join(&table.agent.value), table, ancestors).await;
                let agent = agent.map_err(|error| with_delegate_location(&table.agent.location, error))?;
                let (description, input_schema) = (table.description.clone(), table.input_schema.clone());
                delegates.insert(tool.clone(), Delegate { agent, description, input_schema });
            }
            Ok(delegates)
        })
    }

    async fn load_agent(
        &mut self,
        path: &Path,
        table: &AgentTable,
        ancestors: &[Ancestor],
    ) -> Result<LiveAgent, ConfigError> {
        let location = &table.agent.location;
        let file = std::fs::canonicalize(path)
            .map_err(|error| ConfigError::settings(format!("{location}: {}", unreadable_file_message(path, &error))))?;
        refuse_cycle(&file, ancestors, location)?;
        if let Some(agent) = self.loaded.get(&file) {
            return Ok(agent.clone());
        }
        if self.loaded.len() == MAX_AGENTS {
            return Err(ConfigError::settings(format!(
                "{location}: an agent can have at most {MAX_AGENTS} delegates, including delegates of delegates; remove some"
            )));
        }
        let settings = self.read_settings(path).await?;
        self.sandbox.protect(protection::paths_of_agent(&settings));
        if let Some(other_file) = self.files.get(&settings.name) {
            return Err(ConfigError::settings(format!(
                "{location}: `{}` and `{}` both define an agent named `{}`; give one of them another `name`",
                other_file.display(),
                file.display(),
                settings.name
            )));
        }
        self.files.insert(settings.name.clone(), file.clone());
        let sandbox = vetted_sandbox(self.sandbox, &settings);
        let (generation, problems) = load_plugins(&settings, &sandbox, self.reporter).await?;
        refuse_unusable_plugins(&problems)?;
        warn_of_no_plugins(&settings, &generation, self.reporter);
        let chain = [ancestors, &[Ancestor { file: file.clone(), name: settings.name.clone() }]].concat();
        let delegates = self.load_delegates_of(&settings, &chain).await?;
        let servers = self.reader.servers(&settings)?;
        let agent = LiveAgent::new(make_agent(&settings, (generation, delegates), servers, self.reporter)?);
        self.all.push(AssembledAgent { live: agent.clone(), settings });
        self.loaded.insert(file, agent.clone());
        Ok(agent)
    }

    async fn read_settings(&mut self, path: &Path) -> Result<Settings, ConfigError> {
        let settings = self.reader.settings(path)?.of_delegate();
        if settings.models.chain == Chain::Unnamed {
            self.reporter.warn(&Warning::DelegateWithoutModel { path: path.to_owned() });
        }
        if let Some(location) = settings.file.locations.get("host.limits") {
            self.reporter.warn(&Warning::HostLimitsOfDelegate { location: location.clone() });
        }
        if let Some(folder) = &settings.plugins
            && canonical(folder).is_some_and(|folder| self.prepared.insert(folder))
        {
            self.reader.prepare_plugins(folder).await?;
        }
        Ok(settings)
    }
}

/// Converts an error in a delegate's file: adds the location of the key that names the delegate.
fn with_delegate_location(location: &str, error: ConfigError) -> ConfigError {
    if error.to_string().starts_with(location) {
        return error;
    }
    ConfigError::Delegate { location: location.to_owned(), source: Box::new(error) }
}

fn unreadable_file_message(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!("there is no file `{path}`; `agent-host config init --output {path}` writes one")
        }
        _ => format!("`{path}` cannot be read: {error}"),
    }
}

/// Rejects a delegate that delegates to itself, directly or through other agents, because such an agent would wait
/// for itself.
fn refuse_cycle(file: &Path, ancestors: &[Ancestor], location: &str) -> Result<(), ConfigError> {
    let Some(first) = ancestors.iter().position(|agent| agent.file == file) else { return Ok(()) };
    let names: Vec<_> = ancestors[first..].iter().chain([&ancestors[first]]).map(|agent| agent.name.as_str()).collect();
    Err(ConfigError::settings(format!(
        "{location}: these agents delegate to one another in a cycle: {}; remove one of the [agents] tables",
        names.join(" → ")
    )))
}

fn canonical(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}
