//! The agents that an agent may delegate to: each is made from its own file and gets nothing of the one above (L16).

use super::scenario::Stage;
use crate::arguments::AgentArguments;
use crate::configuration::AgentTable;
use crate::environment;
use crate::exit::Failure;
use crate::settings::{Chain, Settings};
use crate::terminal::{Terminal, YELLOW};
use agent_plugins::Sandbox;
use agent_runtime::{Delegate, LiveAgent};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;

/// Most agents that are loaded for one.
const MOST_AGENTS: usize = 64;

/// Whether the plugin projects of the agents' folders are built first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projects {
    /// They are.
    Build,
    /// The components are there.
    Leave,
}

/// What the files of agents are read for.
#[derive(Clone, Copy)]
pub(crate) enum ReadFor<'r> {
    /// To be run as they say, with the host's environment.
    Host,
    /// To be played: with the folders and variables of a scenario.
    Stage(&'r Stage<'r>),
}

/// All agents below the one of the settings. An agent that several delegate to is loaded once; those that would wait for
/// one another are refused, with their chain.
pub(crate) async fn delegates(
    settings: &Settings,
    sandbox: &Sandbox,
    (projects, read_for): (Projects, ReadFor<'_>),
    terminal: &Terminal,
) -> Result<Delegates, Failure> {
    let mut loader = Loader {
        sandbox,
        terminal,
        projects,
        read_for,
        built: settings.plugins.as_deref().and_then(canonical).into_iter().collect(),
        loaded: BTreeMap::new(),
        files: BTreeMap::new(),
        made: Vec::new(),
    };
    let file = settings.path.as_deref().and_then(canonical).unwrap_or_default();
    loader.files.insert(settings.name.clone(), file.clone());
    let below = loader.below(settings, &[Above { file, name: settings.name.clone() }]).await?;
    Ok(Delegates { below, made: loader.made })
}

/// The agents below one.
pub(crate) struct Delegates {
    /// Those that it may delegate to itself.
    pub(crate) below: BTreeMap<String, Delegate>,
    /// All of them.
    pub(crate) made: Vec<MadeAgent>,
}

/// An agent with what it was made of.
#[derive(Clone)]
pub(crate) struct MadeAgent {
    /// As it is now.
    pub(crate) live: LiveAgent,
    /// What it was asked for with.
    pub(crate) arguments: AgentArguments,
    /// What came of that.
    pub(crate) settings: Settings,
}

/// An agent on the way down.
#[derive(Clone)]
struct Above {
    file: PathBuf,
    name: String,
}

struct Loader<'l> {
    sandbox: &'l Sandbox,
    terminal: &'l Terminal,
    projects: Projects,
    read_for: ReadFor<'l>,
    /// Folders whose projects are built already.
    built: BTreeSet<PathBuf>,
    /// By file.
    loaded: BTreeMap<PathBuf, LiveAgent>,
    /// By name.
    files: BTreeMap<String, PathBuf>,
    made: Vec<MadeAgent>,
}

type Below<'f> = Pin<Box<dyn Future<Output = Result<BTreeMap<String, Delegate>, Failure>> + Send + 'f>>;

impl Loader<'_> {
    /// Boxed, since the agents below may have agents below.
    fn below<'f>(&'f mut self, settings: &'f Settings, above: &'f [Above]) -> Below<'f> {
        Box::pin(async move {
            let mut delegates = BTreeMap::new();
            for (tool, table) in &settings.file.agents {
                let agent = self.agent(&settings.file.folder.join(&table.agent.value), table, above).await;
                let agent = agent.map_err(|failure| reached_from(&table.agent.place, failure))?;
                let (description, input_schema) = (table.description.clone(), table.input_schema.clone());
                delegates.insert(tool.clone(), Delegate { agent, description, input_schema });
            }
            Ok(delegates)
        })
    }

    async fn agent(&mut self, path: &Path, table: &AgentTable, above: &[Above]) -> Result<LiveAgent, Failure> {
        let place = &table.agent.place;
        let file = std::fs::canonicalize(path)
            .map_err(|error| Failure::refused(format!("{place}: {}", unreadable(path, &error))))?;
        refuse_circle(&file, above, place)?;
        if let Some(agent) = self.loaded.get(&file) {
            return Ok(agent.clone());
        }
        if self.loaded.len() == MOST_AGENTS {
            return Err(Failure::refused(format!("{place}: more than {MOST_AGENTS} agents would be loaded")));
        }
        let (arguments, settings) = self.settings(path).await?;
        self.sandbox.protect(crate::protection::of_agent(&settings));
        if let Some(other) = self.files.get(&settings.name) {
            return Err(Failure::refused(format!(
                "{place}: `{}` and `{}` are both the agent `{}`: give one of them another `name`",
                other.display(),
                file.display(),
                settings.name
            )));
        }
        self.files.insert(settings.name.clone(), file.clone());
        let (generation, problems) =
            super::plugins(&settings, &super::vetted(self.sandbox, &settings), self.terminal).await?;
        super::refuse(&problems)?;
        super::note_no_plugins(&settings, &generation, self.terminal);
        let chain = [above, &[Above { file: file.clone(), name: settings.name.clone() }]].concat();
        let delegates = self.below(&settings, &chain).await?;
        let servers = match self.read_for {
            ReadFor::Host => settings.servers(&environment::variable)?,
            ReadFor::Stage(_) => Vec::new(),
        };
        let agent = LiveAgent::new(super::agent(&settings, (generation, delegates), servers, self.terminal)?);
        self.made.push(MadeAgent { live: agent.clone(), arguments, settings });
        self.loaded.insert(file, agent.clone());
        Ok(agent)
    }

    /// Only of its own file: what stands on the command line is meant for the agent that is asked.
    async fn settings(&mut self, path: &Path) -> Result<(AgentArguments, Settings), Failure> {
        let arguments = AgentArguments { agent: Some(path.to_owned()), ..AgentArguments::default() };
        let settings = match self.read_for {
            ReadFor::Host => Settings::read(&arguments, &environment::variable)?,
            ReadFor::Stage(stage) => stage.below(path)?,
        };
        if settings.models.chain == Chain::Unnamed {
            let (path, offline) = (path.display(), "the built-in `offline` answers for it, which is no language model");
            self.terminal.note(format!("{YELLOW}!{YELLOW:#} `{path}` names no `model`: {offline}"));
        }
        if let Some(place) = settings.file.places.get("host.limits") {
            self.terminal.note(format!(
                "{YELLOW}!{YELLOW:#} {place}: `[host.limits]` does nothing here: they are those of the file that the host is \
                 started with; write them there"
            ));
        }
        if let (Projects::Build, Some(folder)) = (self.projects, &settings.plugins)
            && canonical(folder).is_some_and(|folder| self.built.insert(folder))
        {
            super::build(folder, self.terminal).await?;
        }
        Ok((arguments, settings))
    }
}

/// What is wrong with an agent, led by the key that names it: its file alone does not say why it is read.
fn reached_from(place: &str, failure: Failure) -> Failure {
    if failure.message.starts_with(place) {
        return failure;
    }
    Failure { message: format!("{place}: the agent that this names cannot be used:\n{}", failure.message), ..failure }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!(
                "there is no file `{path}`: `agent-host config init --output {path}` writes one with every key explained"
            )
        }
        _ => format!("`{path}` cannot be read: {error}"),
    }
}

/// A file that stands above already would wait for itself.
fn refuse_circle(file: &Path, above: &[Above], place: &str) -> Result<(), Failure> {
    let Some(first) = above.iter().position(|agent| agent.file == file) else { return Ok(()) };
    let names: Vec<_> = above[first..].iter().chain([&above[first]]).map(|agent| agent.name.as_str()).collect();
    Err(Failure::refused(format!(
        "{place}: these agents would wait for one another: {}; take one of their [agents] tables away",
        names.join(" → ")
    )))
}

fn canonical(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}
