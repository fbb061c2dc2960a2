//! The agents of scenarios: their keys are those of agent.toml, their folders and variables those of the scenario (S4).

use super::{agents, configuration, models, placed, refuse_unknown, retry, rules};
use crate::arguments::AgentArguments;
use crate::commands::test::components::Components;
use crate::configuration::AgentFile;
use crate::exit::Failure;
use crate::grants::Kind;
use crate::settings::{NamedModel, Settings};
use crate::terminal::Terminal;
use agent_kit::scenario::{AgentSource, Casting, Scenario, Setting};
use agent_models::Provider;
use agent_plugins::{Generation, Sandbox};
use agent_runtime::{Agent, AgentConfig, Models, PlanningModels};
use async_trait::async_trait;
use std::path::Path;
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
    async fn agent(&self, scenario: &Scenario, setting: &Setting) -> Result<Arc<Agent>, String> {
        self.make(scenario, setting).await.map_err(|failure| failure.message)
    }
}

impl Cast {
    async fn make(&self, scenario: &Scenario, setting: &Setting) -> Result<Arc<Agent>, Failure> {
        let settings = settings(scenario, setting)?;
        let generation = self.generation(scenario, &settings).await?;
        refuse_unknown(&settings, &generation)?;
        let delegates = agents::delegates(&settings, &self.sandbox, agents::Projects::Leave, &self.terminal).await?;
        for made in &delegates.made {
            refuse_far(&made.settings)?;
        }
        let models = match &setting.model {
            Some(model) => scripted(model, &settings),
            None => {
                refuse_far(&settings)?;
                models(&settings)?
            }
        };
        let variable = |name: &str| scenario.variable(name).map(str::to_owned);
        let mcp = settings.servers(&variable)?;
        let config = AgentConfig { delegates: delegates.below, mcp, ..configuration(&settings) };
        let agent = Agent::new(config, models, generation).map(Arc::new).map_err(|error| placed(&settings, &error))?;
        rules::refuse_idle(&settings, &agent)?;
        Ok(agent)
    }

    /// The plugins that the scenario names, else that of its project, else those of the agent's folder.
    async fn generation(&self, scenario: &Scenario, settings: &Settings) -> Result<Generation, Failure> {
        let components = self.components.of(scenario)?;
        if let (true, Some(folder)) = (components.is_empty(), &settings.plugins) {
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

fn settings(scenario: &Scenario, setting: &Setting) -> Result<Settings, Failure> {
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
    // What goes out of a scenario goes nowhere.
    file.outbox.directory = None;
    if setting.model.is_some() {
        (file.model, file.summary_model, file.embedding_model) = (None, None, None);
        file.fallback_models.clear();
    }
    move_trees(&mut file, &setting.folder)?;
    let variable = |name: &str| scenario.variable(name).map(str::to_owned);
    let place = path.clone();
    let (mut settings, problems) = Settings::of_file((path, file), &AgentArguments::default(), &variable)?;
    problems.none(place.as_deref())?;
    settings.user = Some(scenario.user().to_owned());
    Ok(settings)
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
        if !grant.value.split('/').any(|step| step == "..") {
            std::fs::create_dir_all(folder.join(&grant.value))
                .map_err(|error| Failure::refused(format!("{}: {error}", grant.origin)))?;
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
    let is_near = |model: &NamedModel| model.name.starts_with("scripted") || model.name.starts_with("offline");
    match settings.models.all_named().iter().find(|model| !is_near(model)) {
        None => Ok(()),
        Some(model) => Err(Failure::refused(format!(
            "{}: `{}` would be asked over the network, which no scenario is: give its turns `replies`, or name \
             a file of replies, `scripted:FILE`",
            model.place, model.name
        ))),
    }
}
