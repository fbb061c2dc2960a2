//! What an agent is run with: agent.toml and the command line together, checked.

pub(crate) mod agents;
mod mcp;
mod models;
pub(crate) mod offer;
mod problems;
mod providers;

pub(crate) use agents::{AGENT_FILE, AGENT_FOLDER};
pub(crate) use models::{AT_BASE_URL, Chain, Helpers, NamedModel, WantedModels, provider_of};
pub(crate) use problems::Problems;
pub(crate) use providers::OPENAI_BASE_URL;

use crate::arguments::AgentArguments;
use crate::configuration::{AgentFile, Placed, UNNAMED, is_name, name_of_file};
use crate::exit::Failure;
use crate::grants::{self, ResolvedGrants};
use agent_mcp::ServerConfig;
use agent_models::ProviderConfig;
use agent_runtime::RuleBinding;
use std::path::{Path, PathBuf};

/// Reads variables of the environment.
type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Hexadecimal digits that tell a place in an agent's name.
const PLACE_DIGITS: usize = 6;
/// Letters of such a name before its place.
const LONGEST_SPOKEN: usize = 50;

/// An agent as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Its name; sessions belong to it.
    pub(crate) name: String,
    /// Its file, where it has one.
    pub(crate) path: Option<PathBuf>,
    /// For whom it works. None: for who is logged in.
    pub(crate) user: Option<String>,
    /// What rules that allow a tool by its exact name are bound to.
    pub(crate) rule_binding: RuleBinding,
    /// The models that it asks.
    pub(crate) models: WantedModels,
    /// The folder with the plugins.
    pub(crate) plugins: Option<PathBuf>,
    /// The folder with the projects that `agent-host dev` builds.
    pub(crate) sources: Option<PathBuf>,
    /// What agent.toml says beside that; empty without one.
    pub(crate) file: AgentFile,
    /// All grants, of the file and of the command line.
    pub(crate) grants: ResolvedGrants,
    /// Names of plugins, each with where it was written.
    spoken_of: Vec<(String, String)>,
}

impl Settings {
    /// Reads the file, adds the command line, and finds what is granted. The command line wins over the file, and its
    /// grants add to those of the file.
    pub(crate) fn read(arguments: &AgentArguments, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let (settings, problems) = Self::examine(arguments, variable)?;
        problems.none(settings.path.as_deref())?;
        Ok(settings)
    }

    /// The folder of its file; the working folder where it has none.
    pub(crate) fn folder(&self) -> &Path {
        if self.file.folder.as_os_str().is_empty() { Path::new(".") } else { &self.file.folder }
    }

    /// The same with all that is wrong beside it, in place of which there is nothing.
    pub(crate) fn examine(
        arguments: &AgentArguments,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Problems), Failure> {
        let path = arguments.agent.as_deref().map(|asked| agents::find(asked, Path::new("."))).transpose()?;
        let file = match &path {
            Some(path) => AgentFile::read(path).map_err(Failure::refused)?,
            None => AgentFile::default(),
        };
        if arguments.plugins.is_none() && file.plugin_directory.is_none() && path.is_none() {
            return Err(nothing_named(Path::new(".")));
        }
        Self::of_file((path, file), arguments, variable)
    }

    /// The same for a file that is read already.
    pub(crate) fn of_file(
        (path, mut file): (Option<PathBuf>, AgentFile),
        arguments: &AgentArguments,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Problems), Failure> {
        let plugins = arguments.plugins.clone().or_else(|| file.plugin_directory.take());
        let mut problems = Problems::default();
        let plugins = problems.take(check_folder(plugins.as_deref(), arguments, &file)).and(plugins);
        problems.take(check_outbox(&file));
        let models = WantedModels::new(arguments, &file).map_err(Failure::refused)?;
        let mut all = file.grants.clone();
        all.extend(arguments.grant.iter().cloned());
        let refused = |problems: Vec<String>| Failure::refused(problems.join("\n"));
        let mut grants = problems.take(grants::resolve(&all, variable).map_err(refused)).unwrap_or_default();
        problems.take(grants::add_secrets(&file.secrets, variable, &mut grants).map_err(refused));
        let granted = arguments.grant.iter().filter_map(|grant| Some((grant.plugin()?, grant.origin.as_str())));
        let tables = file.plugin_tables.iter().map(|(name, place)| (name.as_str(), place.as_str()));
        let spoken_of = tables.chain(granted).map(|(name, place)| (name.to_owned(), place.to_owned())).collect();
        let named = name(path.as_deref(), &file)
            .map_err(|error| Failure::refused(format!("this folder cannot be looked up: {error}")));
        let name = problems.take(named).unwrap_or_else(|| UNNAMED.to_owned());
        let (user, rule_binding) = (None, RuleBinding::default());
        Ok((Self { name, path, user, rule_binding, models, plugins, sources: None, file, grants, spoken_of }, problems))
    }

    /// The models in order, the one that summarises last, and how each provider is reached. Whatever is wrong with any of them is in the error, each
    /// led by where it was written.
    pub(crate) fn models(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Vec<NamedModel>, Vec<ProviderConfig>), Failure> {
        let chain = self.models.asked();
        let (providers, mut problems) = providers::providers(&self.models, &self.file, variable);
        for (index, model) in self.models.all_named().iter().enumerate() {
            let is_embedding = self.models.helpers.embedding.as_ref() == Some(model);
            let no_embedding = is_embedding.then(|| models::embedding_problem(&model.name)).flatten();
            let problem = no_embedding.or_else(|| models::problem(&model.name, &self.file));
            problems.extend(problem.map(|problem| (index, format!("{}: {problem}", model.place))));
        }
        if problems.is_empty() {
            return Ok((chain, providers));
        }
        problems.sort_by_key(|(index, _)| *index);
        let problems: Vec<_> = problems.into_iter().map(|(_, problem)| problem).collect();
        Err(Failure::refused(problems.join("\n")))
    }

    /// The MCP servers.
    pub(crate) fn servers(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<ServerConfig>, Failure> {
        mcp::servers(&self.file, variable).map_err(|problems| Failure::refused(problems.join("\n")))
    }

    /// Plugins that the settings speak of and that are not there, each with where it was written.
    pub(crate) fn unknown_plugins(&self, known: &dyn Fn(&str) -> bool) -> Vec<String> {
        let unknown = self.spoken_of.iter().filter(|(name, _)| !known(name));
        unknown.map(|(name, place)| format!("{place}: there is no plugin `{name}`")).collect()
    }

    /// A problem that names a key, led by where the key stands.
    pub(crate) fn problem(&self, key: &str, problem: impl std::fmt::Display) -> Failure {
        match self.file.places.get(key) {
            Some(place) => Failure::refused(format!("{place}: {problem}")),
            None => Failure::refused(problem),
        }
    }
}

/// The agent's name: what the file says. Else one for this place alone: agents of one name share sessions, approvals and
/// memory, and nobody has said that they shall.
fn name(path: Option<&Path>, file: &AgentFile) -> std::io::Result<String> {
    if let Some(name) = &file.name {
        return Ok(name.clone());
    }
    let folder = path.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize()?;
    let stem = path.map(name_of_file).filter(|stem| stem != UNNAMED);
    let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let spoken = stem.or_else(of_folder).unwrap_or_else(|| UNNAMED.to_owned());
    let place = blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex();
    Ok(format!("{}-{}", readable(&spoken), &place[..PLACE_DIGITS]))
}

/// The text with what no name may have replaced, and cut to what leaves room for the place.
fn readable(text: &str) -> String {
    let allowed = |letter: char| if is_name(letter.encode_utf8(&mut [0; 4])) { letter } else { '-' };
    let begun = text.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let readable: String = begun.chars().map(allowed).take(LONGEST_SPOKEN).collect();
    if is_name(&readable) { readable } else { UNNAMED.to_owned() }
}

/// An agent.toml that lies here is its author's word, not yet that of who runs it.
fn nothing_named(folder: &Path) -> Failure {
    let ask = "name the folder with the plugins, --plugins DIR, or an agent's configuration, --agent FILE; \
               `agent-host -h` shows an example";
    if folder.join(AGENT_FILE).is_file() {
        return Failure::refused(format!(
            "{ask}. The {AGENT_FILE} of this folder is not taken unasked, since it grants what its author wants: \
             `agent-host config check` shows what it would run, and `agent-host --agent {AGENT_FILE}` runs it"
        ));
    }
    Failure::refused(ask)
}

fn check_folder(plugins: Option<&Path>, arguments: &AgentArguments, file: &AgentFile) -> Result<(), Failure> {
    let Some(directory) = plugins.filter(|directory| !directory.is_dir()) else { return Ok(()) };
    let problem = format!("`{}` is no folder", directory.display());
    let (place, origin) = match (&arguments.plugins, file.places.get("plugin_directory")) {
        (None, Some(place)) => (format!("{place}: "), "`plugin_directory`"),
        _ => (String::new(), "--plugins"),
    };
    Err(Failure::refused(format!("{place}{origin}: {problem}; name the folder with the plugins")))
}

/// Events that cannot be handed on would be noticed only when somebody misses their answers.
fn check_outbox(file: &AgentFile) -> Result<(), Failure> {
    let absent = |directory: &&Placed| !file.folder.join(&directory.value).is_dir();
    let Some(Placed { value, place }) = file.outbox.directory.as_ref().filter(absent) else { return Ok(()) };
    Err(Failure::refused(format!("{place}: `{value}` is no folder; make it, or name one that is there")))
}

/// The folder in which `--build` builds.
pub(crate) fn build_directory(settings: &Settings) -> Result<&Path, Failure> {
    settings
        .plugins
        .as_deref()
        .ok_or_else(|| Failure::refused("--build needs a folder: --plugins DIR, or `plugin_directory` in agent.toml"))
}

#[cfg(test)]
mod tests;
