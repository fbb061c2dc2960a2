//! Creates the agents of a scenario. The scenario sets the folders, the variables and the keys of `agent.toml` for
//! these agents (S4).

use super::components::Components;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::Terminal;
use agent_config::agent_file::BUILT_IN;
use agent_config::assembly::{
    AssembledAgent, DelegateReader, load_delegates, make_test_agent, models, refuse_unknown_plugins,
    refuse_unusable_plugins, retry_policy,
};
use agent_config::grants::Kind;
use agent_config::settings::{NamedModel, provider_of};
use agent_config::{AgentFile, AgentOptions, ConfigError, HostEnvironment, Settings};
use agent_core::approval::ApprovalRules;
use agent_devkit::scenario::{AgentFactory, AgentSetup, AgentSource, Scenario, ScenarioAgent};
use agent_mcp::ServerConfig;
use agent_models::Provider;
use agent_plugins::{Generation, Sandbox};
use agent_runtime::{Models, PlanningModels};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Name of an agent whose file contains no name.
const DEFAULT_NAME: &str = "test";
/// Time between a failed call to a scripted model and its retry. The time is short, because retries of a scripted model
/// do not burden a server.
const RETRY_WAIT: Duration = Duration::from_millis(1);

/// Creates the agents of scenarios.
pub(super) struct ScenarioAgents {
    /// Sandbox in which the plugins run.
    pub(super) sandbox: Sandbox,
    /// Finds the components of the plugins.
    pub(super) components: Components,
    /// Terminal that shows the warnings about delegates.
    pub(super) terminal: Terminal,
}

#[async_trait]
impl AgentFactory for ScenarioAgents {
    async fn agent(&self, scenario: &Scenario, setup: &AgentSetup) -> Result<ScenarioAgent, String> {
        self.create_agent(scenario, setup).await.map_err(|failure| failure.message)
    }
}

impl ScenarioAgents {
    async fn create_agent(&self, scenario: &Scenario, setup: &AgentSetup) -> Result<ScenarioAgent, Failure> {
        let reader = ScenarioReader::new(scenario, setup);
        let settings = reader.first_agent()?;
        let generation = self.generation(scenario, &settings).await?;
        refuse_unknown_plugins(&settings, &generation)?;
        let delegates = load_delegates(&settings, &self.sandbox, &reader, &self.terminal).await?;
        let models = match &setup.model {
            Some(model) => scripted(model, &settings),
            None => {
                refuse_remote_models(&settings)?;
                models(&settings)?
            }
        };
        let servers = settings.file.mcp.keys().cloned().collect();
        let servers_of = |AssembledAgent { settings, .. }: &AssembledAgent| {
            let agent = settings.name.clone();
            settings.file.mcp.keys().map(move |server| format!("{server} of {agent}")).collect::<Vec<_>>()
        };
        let delegate_servers = delegates.all.iter().flat_map(servers_of).collect();
        // Scenarios use no MCP servers, because a server runs outside the sandbox or is reached over the network.
        let agent = make_test_agent(&settings, (generation, delegates.by_tool), models)?;
        Ok(ScenarioAgent { agent, servers, delegate_servers })
    }

    /// Loads the plugins that the scenario names. If the scenario does not name a plugin, loads the plugin of the
    /// project that contains the scenario. If the scenario uses an agent file, or if no project contains the scenario,
    /// loads the plugins in the agent's plugin folder instead of the project's plugin.
    async fn generation(&self, scenario: &Scenario, settings: &Settings) -> Result<Generation, Failure> {
        let components = self.components.of(scenario)?;
        if let (true, Some(folder)) = (components.is_empty(), settings.plugins.as_deref()) {
            let folder = self.components.component_folder().unwrap_or(folder);
            let loaded = Generation::load(&self.sandbox, folder, &|_| {}).await;
            let (generation, problems) = loaded.map_err(Failure::refused)?;
            refuse_unusable_plugins(&problems)?;
            return Ok(generation);
        }
        let mut plugins = Vec::with_capacity(components.len());
        for path in components {
            let plugin = self.sandbox.load_file(&path).await;
            let plugin = plugin.map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?;
            plugins.push((path, plugin));
        }
        Ok(Generation::of_files(plugins))
    }
}

/// Reads agent files for a scenario. The reader uses the variables of the scenario, and ignores MCP servers. All grants
/// for files are inside the scenario's folder.
struct ScenarioReader<'s> {
    scenario: &'s Scenario,
    setup: &'s AgentSetup,
    /// Environment of the host, extended by the variables of the scenario.
    environment: HostEnvironment,
    /// Unmodified environment of the host.
    host: HostEnvironment,
}

impl<'s> ScenarioReader<'s> {
    fn new(scenario: &'s Scenario, setup: &'s AgentSetup) -> Self {
        let (variables, host) = (scenario.clone(), environment::host());
        let environment = host.clone().with_variables(move |name| variables.variable(name).map(str::to_owned));
        Self { scenario, setup, environment, host }
    }

    /// Reads the settings of the agent that gets the prompts.
    fn first_agent(&self) -> Result<Settings, ConfigError> {
        let (scenario, setup) = (self.scenario, self.setup);
        let (path, mut file) = match scenario.agent() {
            AgentSource::File(path) => {
                let file = AgentFile::read(&path)?;
                (Some(path), file)
            }
            AgentSource::Below => {
                let file = AgentFile::parse_below("agent", &scenario.text, &scenario.path)?;
                (Some(scenario.path.clone()), file)
            }
            AgentSource::Nothing => (None, AgentFile { folder: scenario.folder().to_owned(), ..AgentFile::default() }),
        };
        if !matches!(scenario.agent(), AgentSource::File(_)) {
            // A scenario of a plugin checks what its tools do. Questions are part of it only if the scenario sets rules.
            file.approvals.get_or_insert_with(ApprovalRules::none);
        }
        file.name.get_or_insert_with(|| DEFAULT_NAME.to_owned());
        if setup.model.is_some() {
            (file.model, file.summary_model, file.embedding_model) = (None, None, None);
            file.fallback_models.clear();
        }
        self.settings_of_file(path, file)
    }

    /// Converts an agent file to settings, and removes the settings that would have effects outside the scenario.
    fn settings_of_file(&self, path: Option<PathBuf>, mut file: AgentFile) -> Result<Settings, ConfigError> {
        file.outbox.directory = None;
        move_trees(&mut file, &self.setup.folder)?;
        let file_path = path.clone();
        let (mut settings, problems) = Settings::of_file((path, file), &AgentOptions::default(), &self.environment)?;
        problems.into_result(file_path.as_deref())?;
        settings.user = Some(self.scenario.user().to_owned());
        // The environment of the scenario is no longer needed, because grants and secrets are already resolved. The
        // host's `PATH` determines which of the host's programs are protected.
        settings.environment = self.host.clone();
        Ok(settings)
    }
}

impl DelegateReader for ScenarioReader<'_> {
    fn settings(&self, path: &Path) -> Result<Settings, ConfigError> {
        let settings = self.settings_of_file(Some(path.to_owned()), AgentFile::read(path)?)?;
        refuse_remote_models(&settings)?;
        Ok(settings)
    }

    fn servers(&self, _: &Settings) -> Result<Vec<ServerConfig>, ConfigError> {
        Ok(Vec::new())
    }
}

/// Resolves the relative paths of granted folders in the scenario's own folder, and creates the folders that
/// are missing.
fn move_trees(file: &mut AgentFile, folder: &Path) -> Result<(), ConfigError> {
    for grant in file.grants.iter_mut().filter(|grant| matches!(grant.kind, Kind::Read | Kind::Write)) {
        if Path::new(&grant.value).is_absolute() {
            return Err(ConfigError::settings(format!(
                "{}: a scenario can read and write only in its own folder: write a relative path, and put the files that it \
                 needs there with `files`",
                grant.origin
            )));
        }
        grant.base = folder.to_owned();
        // A path that contains `..` is refused later, together with other invalid paths.
        let tree = folder.join(&grant.value);
        if !grant.value.split('/').any(|step| step == "..") && !tree.exists() {
            std::fs::create_dir_all(tree)
                .map_err(|error| ConfigError::settings(format!("{}: {error}", grant.origin)))?;
        }
    }
    Ok(())
}

/// Creates an agent's models, whose replies come from the scenario.
fn scripted(model: &Arc<dyn Provider>, settings: &Settings) -> Models {
    let mut models = Models::new(model.clone(), []);
    models.retry = retry_policy(settings);
    if settings.file.retry.first_wait_ms.is_none() {
        models.retry.initial_wait = RETRY_WAIT;
    }
    models.fallback_text = settings.file.fallback_text.clone();
    let is_planned = settings.file.planner.is_some();
    models.planning = is_planned.then(|| PlanningModels { planner: model.clone(), executor: model.clone() });
    models
}

/// Refuses models that would be called over the network.
fn refuse_remote_models(settings: &Settings) -> Result<(), ConfigError> {
    let is_built_in =
        |model: &NamedModel| provider_of(&model.name).is_some_and(|provider| BUILT_IN.contains(&provider));
    match settings.models.all_named().iter().find(|model| !is_built_in(model)) {
        None => Ok(()),
        Some(model) => Err(ConfigError::settings(format!(
            "{}: `{}` would be called over the network, but scenarios cannot use the network: give the scenario's \
             turns `replies`, or name a file with replies, `scripted:FILE`",
            model.place, model.name
        ))),
    }
}
