//! Reads the settings of an agent from `agent.toml` and from the caller's options, and validates the settings.

pub mod agent_lookup;
pub(crate) mod events;
mod mcp;
mod model_choice;
mod model_offers;
mod models;
mod problems;
mod providers;
pub(crate) mod telemetry;

pub use agent_lookup::{AGENT_FILE, AGENT_FOLDER};
pub use events::EventSettings;
pub use model_choice::{ModelChooser, choose_model};
pub use model_offers::ModelOffer;
pub use models::{Chain, Helpers, NamedModel, WantedModels, problem as model_problem, provider_of};
pub use problems::Problems;
pub use telemetry::TelemetrySettings;

use crate::agent_file::{AgentFile, Located, UNNAMED, is_name, name_of_file};
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::grants::{self, Grant, ResolvedGrants};
use crate::user_file::{self, UserFile};
use agent_mcp::ServerConfig;
use agent_models::ProviderConfig;
use agent_plugins::HostLimits;
use agent_plugins::limits::HOST_LIMITS;
use agent_runtime::RuleBinding;
use std::path::{Path, PathBuf};

/// Type of a function that reads the environment variable with the given name.
type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Options that select and configure an agent, such as those of a command line. If an option is set, it replaces
/// the same setting in `agent.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOptions {
    /// Path of the agent's file, or the name of an agent in the current folder. None if the agent has no file.
    pub agent: Option<PathBuf>,
    /// Plugin directory, which is used in place of the file's `plugin_directory`.
    pub plugins: Option<PathBuf>,
    /// Model that is used instead of all models that the file names. The value is `PROVIDER/MODEL`, `offline`
    /// or `scripted:FILE`.
    pub model: Option<String>,
    /// Address of the first model's provider.
    pub base_url: Option<String>,
    /// Grants that are added to the grants in the file.
    pub grants: Vec<Grant>,
    /// The user-wide file, and what it is used for. None if it is not used.
    pub user_file: Option<UserFile>,
}

/// Number of hexadecimal digits in a default name. The digits identify the folder of the agent.
const FOLDER_DIGITS: usize = 6;
/// Maximum number of characters of a default name, not counting the digits that identify the folder.
const MAX_READABLE: usize = 50;

/// The validated settings of one agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the agent, to which sessions, memory and approvals belong.
    pub name: String,
    /// Path of the agent's configuration file. None if the agent has no file.
    pub path: Option<PathBuf>,
    /// User that the agent works for. If no user is set, the agent works for the user who is logged in.
    pub user: Option<String>,
    /// Determines how an approval rule that contains the exact name of a tool is bound to this tool.
    pub rule_binding: RuleBinding,
    /// The agent's models, as set by the options or by the agent's file.
    pub models: WantedModels,
    /// Path of the plugin directory. None if no plugin directory is set.
    pub plugins: Option<PathBuf>,
    /// Folder with the plugin projects that `agent-host dev` builds.
    pub sources: Option<PathBuf>,
    /// The contents of the agent's `agent.toml`. If the agent has no file, no key is set.
    pub file: AgentFile,
    /// All grants, from the file and from the options.
    pub grants: ResolvedGrants,
    /// The receiver of outgoing events, the schedules, the webhooks and the sources of events.
    pub events: EventSettings,
    /// The collector of the agent's traces.
    pub telemetry: TelemetrySettings,
    /// The options from which the settings were read.
    pub options: AgentOptions,
    /// The environment in which the settings were read.
    pub environment: HostEnvironment,
    /// Grants of the user-wide file that do not apply in the current folder, each with the reason as a sentence.
    pub unapplied_grants: Vec<String>,
    /// The text of the agent's file from which the settings were read.
    text: Option<String>,
    /// Whether the agent works only for other agents.
    is_delegate: bool,
    /// Names of the plugins that the settings mention, each with the location of the name, for messages.
    named_plugins: Vec<(String, String)>,
}

impl Settings {
    /// Reads the agent's file, applies the options and resolves the grants. Options override the file, except that the
    /// grants of the options are added to the grants of the file.
    ///
    /// The error lists all problems that were found, each with its file, line and key if they are known.
    ///
    /// ```
    /// use agent_config::{AgentOptions, HostEnvironment, Settings};
    ///
    /// // The environment contains exactly these variables. Nothing is read from the process.
    /// let environment = HostEnvironment::new(|name| (name == "GROQ_API_KEY").then(|| "secret".to_owned()));
    /// let options = AgentOptions {
    ///     plugins: Some(std::env::temp_dir()),
    ///     model: Some("groq/llama-3.3-70b-versatile".to_owned()),
    ///     ..AgentOptions::default()
    /// };
    /// let settings = Settings::read(&options, &environment)?;
    /// let (models, providers) = settings.models()?;
    /// assert_eq!(models[0].name, "groq/llama-3.3-70b-versatile");
    /// assert!(providers.iter().any(|provider| provider.name == "groq" && provider.key.is_some()));
    /// # Ok::<(), agent_config::ConfigError>(())
    /// ```
    pub fn read(options: &AgentOptions, environment: &HostEnvironment) -> Result<Self, ConfigError> {
        let (settings, problems) = Self::examine(options, environment)?;
        problems.into_result(settings.path.as_deref())?;
        Ok(settings)
    }

    /// Reads the settings again with the same options and environment, because the file may have changed.
    pub fn reread(&self) -> Result<Self, ConfigError> {
        let settings = Self::read(&self.options, &self.environment)?;
        Ok(if self.is_delegate { settings.of_delegate() } else { settings })
    }

    /// Returns the settings of an agent that works only for other agents. Schedules, webhooks and events have no effect, because
    /// only agents that are served run by themselves.
    #[must_use]
    pub fn of_delegate(mut self) -> Self {
        self.is_delegate = true;
        self.events.schedules.clear();
        self.events.webhooks.clear();
        self.events.events.clear();
        self
    }

    /// Returns the folder of the agent's file, or the current folder if the agent has no file.
    pub fn folder(&self) -> &Path {
        if self.file.folder.as_os_str().is_empty() { Path::new(".") } else { &self.file.folder }
    }

    /// Returns the limits of the host, which are those of the first agent's file.
    pub fn host_limits(&self) -> HostLimits {
        let mut limits = HostLimits::default();
        self.file.host_limits.set(&HOST_LIMITS, &mut limits);
        limits
    }

    /// Reads the settings as [`Settings::read`] does, but returns the problems together with the settings. Parts of the
    /// configuration that have problems are left out of the settings. Fails only if the file cannot be read at all.
    pub fn examine(options: &AgentOptions, environment: &HostEnvironment) -> Result<(Self, Problems), ConfigError> {
        let found =
            options.agent.as_deref().map(|agent| agent_lookup::find_agent(agent, Path::new("."))).transpose()?;
        let mut unapplied_grants = Vec::new();
        let (path, text, file) = match (found, &options.user_file) {
            (Some(path), _) => {
                let text = AgentFile::text(&path)?;
                if let Some(trusted) = &environment.trusted {
                    trusted.verify(&path, &text)?;
                }
                let file = AgentFile::parse(&text, &path)?;
                (Some(path), Some(text), file)
            }
            (None, Some(UserFile::Agent(path))) => {
                let (text, mut file) = user_file::read(path)?;
                unapplied_grants = user_file::apply_grants(&mut file, Path::new("."), environment.home.as_deref());
                (Some(path.clone()), Some(text), file)
            }
            _ => (None, None, AgentFile::default()),
        };
        if options.plugins.is_none() && file.plugin_directory.is_none() && path.is_none() {
            return Err(no_agent_error(Path::new(".")));
        }
        let (mut settings, problems) = Self::of_file((path, file), options, environment)?;
        settings.use_default_model()?;
        Ok((Self { text, unapplied_grants, ..settings }, problems))
    }

    /// Uses the models of the user-wide file if the agent's file names none.
    pub(crate) fn use_default_model(&mut self) -> Result<(), ConfigError> {
        match (&self.models.chain, self.options.user_file.clone()) {
            (Chain::Unnamed, Some(UserFile::DefaultModel(path))) => self.use_models_of(&user_file::read(&path)?.1),
            _ => Ok(()),
        }
    }

    /// Uses the models of another file, and the providers that this agent's file does not configure.
    fn use_models_of(&mut self, file: &AgentFile) -> Result<(), ConfigError> {
        let models = WantedModels::new(&AgentOptions::default(), file).map_err(ConfigError::Settings)?;
        self.models.chain = models.chain;
        for (name, table) in &file.providers {
            self.file.providers.entry(name.clone()).or_insert_with(|| table.clone());
        }
        Ok(())
    }

    /// Returns whether the agent's file is the user-wide file.
    pub fn is_user_wide(&self) -> bool {
        self.options.agent.is_none() && matches!(self.options.user_file, Some(UserFile::Agent(_)))
    }

    /// Returns the text of the agent's file from which the settings were read. `None` if the agent has no file.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Does the same as [`Settings::examine`], but for a file that has already been read.
    pub fn of_file(
        (path, mut file): (Option<PathBuf>, AgentFile),
        options: &AgentOptions,
        environment: &HostEnvironment,
    ) -> Result<(Self, Problems), ConfigError> {
        let variable = environment.variables();
        let plugins = options.plugins.clone().or_else(|| file.plugin_directory.take());
        let mut problems = Problems::default();
        let plugins = problems.collect(check_folder(plugins.as_deref(), options, &file)).and(plugins);
        problems.collect(check_outbox(&file));
        let models = WantedModels::new(options, &file).map_err(ConfigError::Settings)?;
        let mut all_grants = file.grants.clone();
        all_grants.extend(options.grants.iter().cloned());
        let settings_error = |problems: Vec<String>| ConfigError::Settings(problems.join("\n"));
        let mut grants =
            problems.collect(grants::resolve(&all_grants, variable).map_err(settings_error)).unwrap_or_default();
        problems.collect(grants::add_secrets(&file.secrets, variable, &mut grants).map_err(settings_error));
        let mut event_problems = Vec::new();
        let telemetry = telemetry::telemetry(&file, variable, &mut event_problems);
        let events = events::events(&file, variable, &mut event_problems);
        event_problems.iter().for_each(|problem| problems.add(problem));
        let granted = options.grants.iter().filter_map(|grant| Some((grant.plugin()?, grant.origin.as_str())));
        let tables = file.plugin_tables.iter().map(|(name, location)| (name.as_str(), location.as_str()));
        let named_plugins =
            tables.chain(granted).map(|(name, location)| (name.to_owned(), location.to_owned())).collect();
        // The user-wide file belongs to no folder, so its agent is named after the current folder.
        let is_user_wide = options.agent.is_none() && matches!(options.user_file, Some(UserFile::Agent(_)));
        let name = agent_name(path.as_deref().filter(|_| !is_user_wide), &file)
            .map_err(|error| ConfigError::settings(format!("the current folder cannot be resolved: {error}")));
        let name = problems.collect(name).unwrap_or_else(|| UNNAMED.to_owned());
        let (user, rule_binding) = (None, RuleBinding::default());
        let (options, environment) = (options.clone(), environment.clone());
        let settings = Self {
            name,
            path,
            user,
            rule_binding,
            models,
            plugins,
            sources: None,
            file,
            grants,
            events,
            telemetry,
            options,
            environment,
            unapplied_grants: Vec::new(),
            text: None,
            is_delegate: false,
            named_plugins,
        };
        Ok((settings, problems))
    }

    /// Returns the models in the order in which they are called, and the configuration of each provider. If a summary
    /// model is named, the summary model is the last model in the list. The error lists all problems, each with the
    /// location of the model's name.
    pub fn models(&self) -> Result<(Vec<NamedModel>, Vec<ProviderConfig>), ConfigError> {
        let chain = self.models.chain_and_summary();
        let (providers, mut problems) = providers::providers(&self.models, &self.file, self.environment.variables());
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
        Err(ConfigError::Settings(problems.join("\n")))
    }

    /// Returns the MCP servers of the agent. The error lists all problems, each with its location in the file.
    pub fn servers(&self) -> Result<Vec<ServerConfig>, ConfigError> {
        mcp::servers(&self.file, self.environment.variables())
            .map_err(|problems| ConfigError::Settings(problems.join("\n")))
    }

    /// Returns a message for each plugin that the settings mention and for which `known` returns false. Each message
    /// begins with the location of the plugin's name in the settings.
    pub fn unknown_plugins(&self, known: &dyn Fn(&str) -> bool) -> Vec<String> {
        let unknown = self.named_plugins.iter().filter(|(name, _)| !known(name));
        unknown.map(|(name, location)| format!("{location}: there is no plugin `{name}`")).collect()
    }

    /// Returns what to add to an agent's file that names no plugin folder, with the folder of the user-wide configuration or of the
    /// installation as an example. `None` if the agent has a plugin folder.
    pub fn advice_without_plugin_folder(&self) -> Option<String> {
        if self.plugins.is_some() {
            return None;
        }
        let of_user = match &self.options.user_file {
            Some(UserFile::DefaultModel(path)) => {
                user_file::read(path).ok().and_then(|(_, file)| file.plugin_directory)
            }
            _ => None,
        };
        let folder = of_user.or_else(|| self.environment.installed_plugins());
        let folder = folder.as_deref().map_or("plugins".to_owned(), |folder| folder.display().to_string());
        let file = self.path.as_deref().map_or(AGENT_FILE.to_owned(), |path| path.display().to_string());
        let value = toml::Value::String(folder);
        Some(format!("the agent has no plugin folder; to use plugins, add `plugin_directory = {value}` to {file}"))
    }

    /// Returns an error about a key of the file. If the file and line of the key are known, the error contains both.
    pub fn problem(&self, key: &str, problem: impl std::fmt::Display) -> ConfigError {
        match self.file.locations.get(key) {
            Some(location) => ConfigError::settings(format!("{location}: {problem}")),
            None => ConfigError::settings(problem),
        }
    }
}

/// Returns the name of the agent. If the file does not set a name, the returned name contains digits that identify the
/// agent's folder, because agents with the same name share sessions, approvals and memory.
fn agent_name(path: Option<&Path>, file: &AgentFile) -> std::io::Result<String> {
    if let Some(name) = &file.name {
        return Ok(name.clone());
    }
    let folder = path.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize()?;
    let stem = path.map(name_of_file).filter(|stem| stem != UNNAMED);
    let folder_name = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let base = stem.or_else(folder_name).unwrap_or_else(|| UNNAMED.to_owned());
    let folder_hash = blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex();
    Ok(format!("{}-{}", readable(&base), &folder_hash[..FOLDER_DIGITS]))
}

/// Replaces characters that are not allowed in a name, and shortens the text to `MAX_READABLE` characters.
fn readable(text: &str) -> String {
    let allowed = |letter: char| if is_name(letter.encode_utf8(&mut [0; 4])) { letter } else { '-' };
    let trimmed = text.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let readable: String = trimmed.chars().map(allowed).take(MAX_READABLE).collect();
    if is_name(&readable) { readable } else { UNNAMED.to_owned() }
}

/// Returns the error for options that name neither a plugin directory nor an agent.
fn no_agent_error(folder: &Path) -> ConfigError {
    let advice = "name a folder with plugins (--plugins DIR) or an agent's configuration file (--agent FILE), or run \
                  `agent-host setup` once to choose a model and plugins for all folders; `agent-host -h` shows an example";
    if folder.join(AGENT_FILE).is_file() {
        return ConfigError::settings(format!(
            "{advice}. This command does not use the {AGENT_FILE} in this folder by itself: `agent-host config check` shows what \
             it would run, and --agent {AGENT_FILE} uses it"
        ));
    }
    ConfigError::settings(advice)
}

fn check_folder(plugins: Option<&Path>, options: &AgentOptions, file: &AgentFile) -> Result<(), ConfigError> {
    let Some(directory) = plugins.filter(|directory| !directory.is_dir()) else { return Ok(()) };
    let problem = format!("`{}` is not a folder", directory.display());
    let (location, origin) = match (&options.plugins, file.locations.get("plugin_directory")) {
        (None, Some(location)) => (format!("{location}: "), "`plugin_directory`"),
        _ => (String::new(), "--plugins"),
    };
    Err(ConfigError::settings(format!("{location}{origin}: {problem}; name the folder with the plugins")))
}

/// Rejects an outbox folder that does not exist. If a missing folder were accepted, no events would be delivered, and
/// the user would notice the problem only when answers are missing.
fn check_outbox(file: &AgentFile) -> Result<(), ConfigError> {
    let absent = |directory: &&Located| !file.folder.join(&directory.value).is_dir();
    let Some(Located { value, location }) = file.outbox.directory.as_ref().filter(absent) else { return Ok(()) };
    Err(ConfigError::settings(format!("{location}: `{value}` is not a folder; create it, or name an existing folder")))
}

/// Returns the folder in which `--build` builds the plugin projects. Fails if the agent has no plugin directory.
pub fn build_directory(settings: &Settings) -> Result<&Path, ConfigError> {
    settings.plugins.as_deref().ok_or_else(|| {
        ConfigError::settings(
            "--build needs a folder with plugins: set --plugins DIR, or `plugin_directory` in agent.toml",
        )
    })
}

#[cfg(test)]
mod tests;
