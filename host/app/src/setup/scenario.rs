//! The agents of scenarios: their keys are those of agent.toml, their folders and variables those of the scenario (S4).

use super::{agents, configuration, models, placed, refuse_unknown, retry, rules};
use crate::arguments::AgentArguments;
use crate::commands::test::components::Components;
use crate::configuration::{AgentFile, BUILT_IN};
use crate::exit::Failure;
use crate::grants::Kind;
use crate::settings::{NamedModel, Settings, provider_of};
use crate::terminal::Terminal;
use agent_devkit::scenario::{AgentSource, Casting, Made, Scenario, Setting};
use agent_models::Provider;
use agent_plugins::{Generation, Sandbox};
use agent_runtime::{Agent, AgentConfig, Models, PlanningModels};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of an agent that gives itself none.
const NAME: &str = "test";
/// Before a scripted model is asked again: nobody is there to be spared.
const NEXT_TRY: Duration = Duration::from_millis(1);

/// Makes the agents of scenarios.
pub(crate) struct Cast {
    /// Where plugins run.
    pub(crate) sandbox: Sandbox,
    /// Where they are.
    pub(crate) components: Components,
    /// Is told what agents below lack.
    pub(crate) terminal: Terminal,
}

#[async_trait]
impl Casting for Cast {
    async fn agent(&self, scenario: &Scenario, setting: &Setting) -> Result<Made, String> {
        self.make(scenario, setting).await.map_err(|failure| failure.message)
    }
}

impl Cast {
    async fn make(&self, scenario: &Scenario, setting: &Setting) -> Result<Made, Failure> {
        let stage = Stage { scenario, setting };
        let settings = stage.top()?;
        let generation = self.generation(scenario, &settings).await?;
        refuse_unknown(&settings, &generation)?;
        let below = (agents::Projects::Leave, agents::ReadFor::Stage(&stage));
        let delegates = agents::delegates(&settings, &self.sandbox, below, &self.terminal).await?;
        let models = match &setting.model {
            Some(model) => scripted(model, &settings),
            None => {
                refuse_far(&settings)?;
                models(&settings)?
            }
        };
        let servers = settings.file.mcp.keys().cloned().collect();
        let of_delegate = |made: &agents::MadeAgent| {
            let agent = made.settings.name.clone();
            made.settings.file.mcp.keys().map(move |server| format!("{server} of {agent}")).collect::<Vec<_>>()
        };
        let servers_below = delegates.made.iter().flat_map(of_delegate).collect();
        // No MCP server is started: it would be a program that nothing holds, or an address in the network.
        let config = AgentConfig { delegates: delegates.below, ..configuration(&settings) };
        let agent = Agent::new(config, models, generation).map(Arc::new).map_err(|error| placed(&settings, &error))?;
        rules::refuse_idle(&settings, &agent)?;
        Ok(Made { agent, servers, servers_below })
    }

    /// The plugins that the scenario names, else that of its project, else those of the agent's folder.
    async fn generation(&self, scenario: &Scenario, settings: &Settings) -> Result<Generation, Failure> {
        let components = self.components.of(scenario)?;
        if let (true, Some(folder)) = (components.is_empty(), settings.plugins.as_deref()) {
            let folder = self.components.given().unwrap_or(folder);
            let loaded = Generation::load(&self.sandbox, folder, &|_| {}).await;
            let (generation, problems) = loaded.map_err(Failure::refused)?;
            super::refuse(&problems)?;
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

/// What agents are read for: a scenario, in its setting.
pub(crate) struct Stage<'s> {
    scenario: &'s Scenario,
    setting: &'s Setting,
}

impl Stage<'_> {
    /// The settings of the agent that is asked.
    fn top(&self) -> Result<Settings, Failure> {
        let (scenario, setting) = (self.scenario, self.setting);
        let (path, mut file) = match scenario.agent() {
            AgentSource::File(path) => {
                let file = AgentFile::read(&path).map_err(Failure::refused)?;
                (Some(path), file)
            }
            AgentSource::Below => {
                let file = AgentFile::parse_below("agent", &scenario.text, &scenario.path);
                (Some(scenario.path.clone()), file.map_err(Failure::refused)?)
            }
            AgentSource::Nothing => (None, AgentFile { folder: scenario.folder().to_owned(), ..AgentFile::default() }),
        };
        file.name.get_or_insert_with(|| NAME.to_owned());
        if setting.model.is_some() {
            (file.model, file.summary_model, file.embedding_model) = (None, None, None);
            file.fallback_models.clear();
        }
        self.settings(path, file)
    }

    /// The settings of an agent below, of its own file.
    pub(super) fn below(&self, path: &Path) -> Result<Settings, Failure> {
        let file = AgentFile::read(path).map_err(Failure::refused)?;
        let settings = self.settings(Some(path.to_owned()), file)?;
        refuse_far(&settings)?;
        Ok(settings)
    }

    /// What a file says, without the ways out of the scenario.
    fn settings(&self, path: Option<PathBuf>, mut file: AgentFile) -> Result<Settings, Failure> {
        file.outbox.directory = None;
        move_trees(&mut file, &self.setting.folder)?;
        let variable = |name: &str| self.scenario.variable(name).map(str::to_owned);
        let place = path.clone();
        let (mut settings, problems) = Settings::of_file((path, file), &AgentArguments::default(), &variable)?;
        problems.none(place.as_deref())?;
        settings.user = Some(self.scenario.user().to_owned());
        Ok(settings)
    }
}

/// Folders that are granted are those of the scenario's own folder, and are made where they are missing.
fn move_trees(file: &mut AgentFile, folder: &Path) -> Result<(), Failure> {
    for grant in file.grants.iter_mut().filter(|grant| matches!(grant.kind, Kind::Read | Kind::Write)) {
        if Path::new(&grant.value).is_absolute() {
            return Err(Failure::refused(format!(
                "{}: a scenario reads and writes in its own folder only: write a relative path, and lay what it needs there \
                 with `files`",
                grant.origin
            )));
        }
        grant.base = folder.to_owned();
        // A path that climbs is refused where all others are.
        let tree = folder.join(&grant.value);
        if !grant.value.split('/').any(|step| step == "..") && !tree.exists() {
            std::fs::create_dir_all(tree).map_err(|error| Failure::refused(format!("{}: {error}", grant.origin)))?;
        }
    }
    Ok(())
}

fn scripted(model: &Arc<dyn Provider>, settings: &Settings) -> Models {
    let mut models = Models::new(model.clone(), []);
    models.retry = retry(settings);
    if settings.file.retry.first_wait_ms.is_none() {
        models.retry.first_wait = NEXT_TRY;
    }
    models.fallback_text = settings.file.fallback_text.clone();
    let is_planned = settings.file.planner.is_some();
    models.planning = is_planned.then(|| PlanningModels { planner: model.clone(), executor: model.clone() });
    models
}

/// A scenario asks no model that is not here.
fn refuse_far(settings: &Settings) -> Result<(), Failure> {
    let is_near = |model: &NamedModel| provider_of(&model.name).is_some_and(|provider| BUILT_IN.contains(&provider));
    match settings.models.all_named().iter().find(|model| !is_near(model)) {
        None => Ok(()),
        Some(model) => Err(Failure::refused(format!(
            "{}: `{}` would be asked over the network, which no scenario is: give its turns `replies`, or name \
             a file of replies, `scripted:FILE`",
            model.place, model.name
        ))),
    }
}
