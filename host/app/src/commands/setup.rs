//! `setup`: asks which model, plugins and default grants to use in all folders, and writes the user-wide file.

mod models;
mod standard_plugins;

use super::starting_agent;
use super::user_presence::UserPresence;
use crate::arguments::setup::SetupArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, GREEN, Terminal, TypedLine, YELLOW, text};
use agent_config::settings::provider_of;
use agent_config::user_file::{UserChoices, check_owner, is_variable_name};
use agent_config::{AgentFile, AgentOptions, HostEnvironment, Settings, UserFile};
use models::{OfferedModel, provider_problem, usual_variable};
use standard_plugins::InstalledPlugins;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Standard plugins that are offered the right to read the folder in which agent-host is started.
const READING_PLUGINS: [&str; 2] = ["files", "text"];

/// Runs `setup`.
pub(crate) async fn run(arguments: SetupArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let environment = environment::host();
    let path = environment.user_file.clone().ok_or_else(|| {
        Failure::refused(
            "there is no home folder, so there is no place for the user-wide configuration; use --agent FILE",
        )
    })?;
    let present = match path.exists() {
        true => {
            check_owner(&path)?;
            AgentFile::read(&path).map_err(Failure::refused)?
        }
        false => AgentFile::default(),
    };
    if arguments.show {
        return show(&path, &present, terminal);
    }
    let is_user_there = UserPresence::of(terminal) == UserPresence::AtTerminal;
    let asking = match (arguments.yes, is_user_there) {
        (false, true) => Asking::AtTerminal,
        (true, _) => Asking::Nobody,
        (false, false) => {
            return Err(Failure::refused(
                "nobody can answer questions here: add --yes, and choose with --model MODEL, --plugins DIR and --no-read",
            ));
        }
    };
    let mut setup = Setup { arguments, environment, asking, terminal, choices: UserChoices::of(&present) };
    let Some(()) = setup.choose(&present, &path).await? else {
        terminal.note("nothing was changed");
        return Ok(Exit::Cancelled);
    };
    setup.choices.write(&path).map_err(Failure::refused)?;
    terminal.note(format!("{GREEN}✓{GREEN:#} wrote {}", path.display()));
    setup.explain_next_steps(&path);
    Ok(Exit::Done)
}

/// Where a plugin comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It was installed together with this program.
    Installed,
    /// Only its file has the name of a standard plugin.
    Elsewhere,
}

/// Who answers the questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// The user at the terminal answers.
    AtTerminal,
    /// Every question has its default answer.
    Nobody,
}

/// A run of `setup`, with the choices that were made so far.
struct Setup<'t> {
    arguments: SetupArguments,
    environment: HostEnvironment,
    asking: Asking,
    terminal: &'t Terminal,
    choices: UserChoices,
}

impl Setup<'_> {
    /// Makes all choices. Returns None if the user has ended the input.
    async fn choose(&mut self, present: &AgentFile, path: &Path) -> Result<Option<()>, Failure> {
        if self.choose_model(present).await?.is_none() || self.choose_key(present).await?.is_none() {
            return Ok(None);
        }
        if self.choose_plugins().await?.is_none() || self.choose_standard_plugins(path).await?.is_none() {
            return Ok(None);
        }
        self.choose_grants(present).await
    }

    async fn choose_model(&mut self, present: &AgentFile) -> Result<Option<()>, Failure> {
        if let Some(model) = self.arguments.model.clone() {
            if let Some(problem) = provider_problem(&model, present) {
                return Err(Failure::refused(format!("--model: {problem}")));
            }
            self.set_model(model);
            return Ok(Some(()));
        }
        let offers = models::offers(self.choices.model.as_deref(), &self.environment).await;
        if self.asking == Asking::Nobody {
            // Nothing is chosen that could send data to another machine without the user's decision.
            let model = self.choices.model.clone().unwrap_or_else(|| models::OFFLINE.to_owned());
            self.set_model(model);
            return Ok(Some(()));
        }
        self.terminal.note(format!("{BOLD}Which model answers?{BOLD:#}"));
        for (index, OfferedModel { name, reason }) in offers.iter().enumerate() {
            let name = text::one_line(name, 200);
            self.terminal.note(format!("  {}  {name}  {DIM}{reason}{DIM:#}", index + 1));
        }
        self.terminal.note(format!("  {DIM}or write PROVIDER/MODEL; `agent-host model list` lists models{DIM:#}"));
        loop {
            let Some(answer) = self.ask(&format!("Model [{}]: ", offers[0].name)).await? else { return Ok(None) };
            let model = match answer.parse::<usize>() {
                _ if answer.is_empty() => offers[0].name.clone(),
                Ok(number) => match number.checked_sub(1).and_then(|index| offers.get(index)) {
                    Some(offer) => offer.name.clone(),
                    None => continue,
                },
                Err(_) => answer,
            };
            match provider_problem(&model, present) {
                None => {
                    self.set_model(model);
                    return Ok(Some(()));
                }
                Some(problem) => self.warn(&problem),
            }
        }
    }

    /// Sets the model. The variable of another provider's key does not belong to the new model.
    fn set_model(&mut self, model: String) {
        if self.choices.model.as_deref().and_then(provider_of) != provider_of(&model) {
            self.choices.key_variable = None;
        }
        self.choices.model = Some(model);
    }

    /// Chooses the environment variable with the key of the model's provider. Local and built-in models need no key.
    async fn choose_key(&mut self, present: &AgentFile) -> Result<Option<()>, Failure> {
        let provider = self.choices.model.as_deref().and_then(provider_of).unwrap_or_default().to_owned();
        let configured = present.providers.get(&provider).and_then(|table| Some(table.key_env.as_ref()?.value.clone()));
        let is_configured = configured.is_some();
        let usual = usual_variable(&provider);
        let Some(default) = configured.or_else(|| usual.map(str::to_owned)) else {
            if self.arguments.key_env.is_some() {
                return Err(Failure::refused(format!("--key-env: the model provider `{provider}` needs no key")));
            }
            return Ok(Some(()));
        };
        let named = self.arguments.key_env.clone();
        loop {
            let answer = match (&named, self.asking) {
                (Some(named), _) => named.clone(),
                (None, Asking::Nobody) => String::new(),
                (None, Asking::AtTerminal) => {
                    let question = format!("Environment variable that contains the key of {provider} [{default}]: ");
                    let Some(answer) = self.ask(&question).await? else { return Ok(None) };
                    answer
                }
            };
            let variable = if answer.is_empty() { default.clone() } else { answer };
            let is_set = self.environment.variable(&variable).is_some_and(|value| !value.trim().is_empty());
            if !is_variable_name(&variable, is_set) {
                // The text is not repeated, because it may be a key.
                let problem = "this is not the name of an environment variable. Write only the NAME of the variable, such as \
                               OPENAI_API_KEY; a key itself is never stored";
                if named.is_some() {
                    return Err(Failure::refused(format!("--key-env: {problem}")));
                }
                self.warn(problem);
                continue;
            }
            if !is_set {
                self.warn(&format!(
                    "{variable} is not set: set it before you start agent-host, for example in ~/.profile"
                ));
            }
            // The usual variable needs no key, unless the file names another one.
            let is_usual = Some(variable.as_str()) == usual && !is_configured;
            self.choices.key_variable = (!is_usual).then_some(variable);
            return Ok(Some(()));
        }
    }

    async fn choose_plugins(&mut self) -> Result<Option<()>, Failure> {
        let installed = self.environment.installed_plugins();
        if let Some(folder) = self.arguments.plugins.clone() {
            self.choices.plugins =
                Some(plugin_folder(&folder).map_err(|problem| Failure::refused(format!("--plugins: {problem}")))?);
            return Ok(Some(()));
        }
        let default = self.choices.plugins.clone().filter(|folder| folder.is_dir()).or(installed);
        if self.asking == Asking::Nobody {
            self.choices.plugins = default;
            return Ok(Some(()));
        }
        let shown = default.as_ref().map_or("none".to_owned(), |folder| folder.display().to_string());
        self.terminal.note(format!("{BOLD}Which folder contains the plugins (*.wasm)?{BOLD:#}"));
        loop {
            let Some(answer) = self.ask(&format!("Plugin folder [{shown}]: ")).await? else { return Ok(None) };
            if answer.is_empty() || answer == "none" && default.is_none() {
                self.choices.plugins = default;
                return Ok(Some(()));
            }
            match plugin_folder(&self.in_home(&answer)) {
                Ok(folder) => {
                    self.choices.plugins = Some(folder);
                    return Ok(Some(()));
                }
                Err(problem) => self.warn(&problem),
            }
        }
    }

    /// Returns a typed path. A path that begins with `~/` is in the home folder, as in a shell.
    fn in_home(&self, typed: &str) -> PathBuf {
        match (typed.strip_prefix("~/"), &self.environment.home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(typed),
        }
    }

    /// Decides for the reading plugins in the plugin folder whether they may read the current folder. By default, only the
    /// plugins that were installed together with this program may, because any component can have the name of a file.
    async fn choose_grants(&mut self, present: &AgentFile) -> Result<Option<()>, Failure> {
        let Some(folder) = self.choices.plugins.clone() else { return Ok(Some(())) };
        let has_file = |plugin: &&&str| folder.join(format!("{plugin}.wasm")).is_file();
        let plugins: Vec<String> = READING_PLUGINS.iter().filter(has_file).map(|name| (*name).to_owned()).collect();
        let installed = InstalledPlugins::find()?;
        let is_installed = |plugin: &String| installed.contains(&folder.join(format!("{plugin}.wasm")), plugin);
        let (installed, foreign): (Vec<String>, Vec<String>) = plugins.into_iter().partition(is_installed);
        let earlier = UserChoices::of(present);
        for (plugins, origin) in [(installed, Origin::Installed), (foreign, Origin::Elsewhere)] {
            if plugins.is_empty() {
                continue;
            }
            let Some(may_read) = self.may_read(&plugins, origin).await? else { return Ok(None) };
            for plugin in plugins {
                // Without a question, an answer that the user gave for this plugin folder stays.
                let is_kept = !self.arguments.no_read
                    && self.asking == Asking::Nobody
                    && earlier.plugins.as_ref() == Some(&folder)
                    && earlier.reads.get(&plugin) == Some(&true);
                self.choices.reads.insert(plugin, may_read || is_kept);
            }
        }
        Ok(Some(()))
    }

    /// Decides whether plugins may read the current folder. Returns None if the user has ended the input.
    async fn may_read(&self, plugins: &[String], origin: Origin) -> Result<Option<bool>, Failure> {
        match (self.arguments.no_read, self.asking) {
            (true, _) => return Ok(Some(false)),
            (false, Asking::Nobody) => return Ok(Some(origin == Origin::Installed)),
            (false, Asking::AtTerminal) => {}
        }
        let (about, default) = match origin {
            Origin::Installed => ("", "[Y/n]"),
            Origin::Elsewhere => (", which were not installed with agent-host,", "[y/N]"),
        };
        let names = plugins.join(" and ");
        let question = format!("May {names}{about} read the folder in which agent-host is started? {default} ");
        let Some(answer) = self.ask(&question).await? else { return Ok(None) };
        let answer = answer.to_lowercase();
        Ok(Some(match origin {
            Origin::Installed => !["n", "no"].contains(&answer.as_str()),
            Origin::Elsewhere => ["y", "yes"].contains(&answer.as_str()),
        }))
    }

    /// Asks for a line. Returns None if the user has ended the input.
    async fn ask(&self, question: &str) -> Result<Option<String>, Failure> {
        let stopped = CancellationToken::new();
        let _guard = stopped.clone().drop_guard();
        match self.terminal.question(question, &stopped).await.map_err(Failure::failed)? {
            TypedLine::Text(line) => Ok(Some(line.trim().to_owned())),
            TypedLine::End | TypedLine::Stopped => Ok(None),
        }
    }

    fn warn(&self, problem: &str) {
        let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(problem));
        self.terminal.note(text::wrapped(&line, self.terminal.width()));
    }

    fn explain_next_steps(&self, path: &Path) {
        let options = AgentOptions { user_file: Some(UserFile::Agent(path.to_owned())), ..AgentOptions::default() };
        // A missing key was already reported, and other problems are reported by `config check`.
        if let Err(error) = Settings::read(&options, &self.environment) {
            self.warn(&error.to_string());
        }
        if self.choices.model.as_deref() == Some(models::OFFLINE) {
            self.warn("`offline` is not a language model: it only runs tools that a prompt names");
        }
        let folder = match starting_agent::file_of_folder(&self.environment) {
            Some(_) => "; the agent.toml in this folder takes precedence here",
            None => "",
        };
        self.terminal.note(format!(
            "next: `agent-host` starts a session in any folder{folder}\n      `agent-host doctor` checks whether everything is ready"
        ));
    }
}

/// Returns the absolute path of a folder, because the user-wide file is used in all folders.
fn plugin_folder(folder: &Path) -> Result<PathBuf, String> {
    if !folder.is_dir() {
        return Err(format!("`{}` is not a folder", folder.display()));
    }
    std::path::absolute(folder).map_err(|error| error.to_string())
}

/// Shows the path and the values of the user-wide file.
fn show(path: &Path, file: &AgentFile, terminal: &Terminal) -> Result<Exit, Failure> {
    let print = |line: String| terminal.print(line).map_err(Failure::output);
    let exists = if path.exists() { "" } else { "  (does not exist; `agent-host setup` writes it)" };
    print(format!("{BOLD}{}{BOLD:#}{exists}", path.display()))?;
    let choices = UserChoices::of(file);
    let model = choices.model.clone().unwrap_or_else(|| "none".to_owned());
    let provider = choices.model.as_deref().and_then(provider_of).unwrap_or_default();
    let variable = choices.key_variable.or_else(|| usual_variable(provider).map(str::to_owned));
    let key = variable.map_or("none needed".to_owned(), |name| {
        let is_set = environment::variable(&name).is_some_and(|value| !value.trim().is_empty());
        format!("in {name}, which is {}", if is_set { "set" } else { "not set" })
    });
    let plugins = choices.plugins.map_or("none".to_owned(), |folder| folder.display().to_string());
    let reads: Vec<&str> = choices.reads.iter().filter(|(_, may)| **may).map(|(name, _)| name.as_str()).collect();
    let reads = if reads.is_empty() { "none".to_owned() } else { reads.join(", ") };
    for (name, value) in [("model", model), ("key", key), ("plugins", plugins), ("readers", reads)] {
        print(format!("  {DIM}{name:<9}{DIM:#}{}", text::harmless(&value)))?;
    }
    Ok(Exit::Done)
}
