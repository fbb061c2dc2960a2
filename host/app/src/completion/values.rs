//! The values that are proposed to a shell.

use crate::environment;
use agent_config::settings::agent_lookup::{find_agent, list_agents};
use agent_config::{AgentFile, DataDirectory, assembly, one_line};
use agent_models::KNOWN_PROVIDERS;
use agent_models::known_models::known_model_names;
use agent_store::SessionFilter;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Maximum number of sessions that are proposed.
const MAX_SESSIONS: usize = 100;
/// Maximum number of characters of the text that describes a value.
const MAX_CHARACTERS: usize = 60;
/// Folder of the plugins, if neither an option nor an agent's file names one.
const PLUGIN_FOLDER: &str = "plugins";
/// The kinds of grants that an option can give.
const GRANTS: [&str; 9] =
    ["read=", "write=", "env=", "config=", "http=", "key_value_mib=", "model_tokens=", "events=", "media=true"];

/// Proposes values that begin with the current word, each with a text that describes it. A value that a shell would not take
/// literally is left out.
fn proposed(current: &OsStr, values: impl IntoIterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let fitting = values
        .into_iter()
        .filter(|(value, _)| value.starts_with(current) && !value.starts_with('-') && is_literal(value));
    fitting
        .map(|(value, about)| {
            let about = (!about.is_empty()).then(|| one_line(&about, MAX_CHARACTERS).into());
            CompletionCandidate::new(value).help(about)
        })
        .collect()
}

/// Whether a shell takes the text literally.
fn is_literal(text: &str) -> bool {
    text.chars().all(|character| character.is_alphanumeric() || "._/:@%+=-".contains(character))
}

/// Proposes the paths that `completer` finds. A path whose name a shell would not take literally is left out. What the user has
/// typed may contain other characters, such as `~`.
fn literal_paths(current: &OsStr, completer: &PathCompleter) -> Vec<CompletionCandidate> {
    let typed = current.to_str().unwrap_or_default();
    let mut found = completer.complete(current);
    found.retain(|path| {
        let path = path.get_value().to_str().unwrap_or("$");
        is_literal(path.strip_prefix(typed).unwrap_or(path)) && !path.starts_with('-')
    });
    found
}

/// Proposes files, and folders that may contain files.
pub(super) fn files(current: &OsStr) -> Vec<CompletionCandidate> {
    literal_paths(current, &PathCompleter::file())
}

/// Proposes folders.
pub(super) fn folders(current: &OsStr) -> Vec<CompletionCandidate> {
    literal_paths(current, &PathCompleter::dir())
}

/// Proposes files and folders.
pub(super) fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    literal_paths(current, &PathCompleter::any())
}

/// Returns the value of an option in the command line that the shell completes.
fn option(name: &str) -> Option<PathBuf> {
    option_in(std::env::args_os().skip_while(|word| word != "--"), name)
}

fn option_in(words: impl IntoIterator<Item = OsString>, name: &str) -> Option<PathBuf> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == name {
            return words.next().map(PathBuf::from);
        }
        let value = word.to_str().and_then(|word| word.strip_prefix(name)).and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value {
            return Some(value.into());
        }
    }
    None
}

/// Proposes the sessions of the user, the latest first, each with its first prompt.
pub(super) fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    let candidates = proposed(current, stored_sessions().unwrap_or_default());
    candidates.into_iter().enumerate().map(|(order, value)| value.display_order(Some(order))).collect()
}

/// Returns the ids and the titles of the stored sessions. `None` if there is no database that can be read, or if the sessions
/// are in a shared database, which could keep the shell waiting.
fn stored_sessions() -> Option<Vec<(String, String)>> {
    if option("--store").is_some() || environment::shared_database(None, None).ok()?.is_some() {
        return None;
    }
    let environment = environment::host();
    let named = option("--data").or_else(|| environment::variable("AGENT_HOST_DATA").map(PathBuf::from));
    let root = named.or_else(|| environment.data_directory.clone()).filter(|root| DataDirectory::has_database(root))?;
    let data = DataDirectory::open(Some(&root), &environment).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let store = runtime.block_on(assembly::open_store_to_read(&data)).ok()?;
    let filter = data.sessions_of_user(SessionFilter::default());
    let sessions = runtime.block_on(store.sessions(filter, MAX_SESSIONS)).ok()?;
    Some(sessions.into_iter().map(|session| (session.subject, session.title.unwrap_or_default())).collect())
}

/// Proposes the agents of this folder, by their names and by their files.
pub(super) fn agents(current: &OsStr) -> Vec<CompletionCandidate> {
    let agents = list_agents(Path::new(".")).into_iter().flat_map(|agent| {
        let file = agent.path.display().to_string();
        [(agent.name.clone(), file.clone()), (file, agent.name)]
    });
    proposed(current, agents)
}

/// Proposes the plugins of the plugin folder.
pub(super) fn plugins(current: &OsStr) -> Vec<CompletionCandidate> {
    proposed(current, plugin_names().into_iter().map(|name| (name, String::new())))
}

/// Proposes the plugins of the plugin folder, and files.
pub(super) fn plugin_files(current: &OsStr) -> Vec<CompletionCandidate> {
    plugins(current).into_iter().chain(files(current)).collect()
}

fn plugin_names() -> BTreeSet<String> {
    let entries = plugin_folder().and_then(|folder| std::fs::read_dir(folder).ok());
    let entries = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let components = entries.filter(|path| path.extension().is_some_and(|end| end == "wasm"));
    components.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

/// Returns the plugin folder that the command line selects: by an option, by the agent, or by the user-wide configuration.
fn plugin_folder() -> Option<PathBuf> {
    let in_file = |path: PathBuf| AgentFile::read(&path).ok()?.plugin_directory;
    if let Some(folder) = option("--plugins") {
        return Some(folder);
    }
    if let Some(agent) = option("--agent") {
        return find_agent(&agent, Path::new(".")).ok().and_then(in_file);
    }
    if Path::new(PLUGIN_FOLDER).is_dir() {
        return Some(PLUGIN_FOLDER.into());
    }
    let environment = environment::host();
    let agents = list_agents(Path::new(".")).into_iter().filter_map(|agent| agent.file.ok()?.plugin_directory).next();
    let user_file = || environment.user_file.clone().filter(|path| path.is_file());
    agents.or_else(|| match user_file() {
        Some(path) => in_file(path),
        None => environment.installed_plugins(),
    })
}

/// Proposes models: those in the files of this folder's agents, the known models, and the providers whose models only the
/// provider knows.
pub(super) fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let of_agents = list_agents(Path::new(".")).into_iter().filter_map(|agent| {
        let model = agent.file.ok()?.model?.value;
        Some((model, format!("the model of {}", agent.name)))
    });
    let known = known_model_names().map(|name| (name, String::new()));
    let providers = KNOWN_PROVIDERS.iter().map(|provider| (format!("{}/", provider.name), String::new()));
    let own = [("offline".to_owned(), "not a language model".to_owned())];
    let mut seen = BTreeSet::new();
    let models = of_agents.chain(own).chain(known).chain(providers);
    proposed(current, models.filter(|(model, _)| seen.insert(model.clone())))
}

/// Proposes the known providers.
pub(super) fn providers(current: &OsStr) -> Vec<CompletionCandidate> {
    proposed(current, KNOWN_PROVIDERS.iter().map(|provider| (provider.name.to_owned(), String::new())))
}

/// Proposes the kinds of grants for each plugin.
pub(super) fn grants(current: &OsStr) -> Vec<CompletionCandidate> {
    let of_plugin = |plugin: String| GRANTS.map(|grant| (format!("{plugin}:{grant}"), String::new()));
    proposed(current, plugin_names().into_iter().flat_map(of_plugin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: values that a shell would interpret, and descriptions with escape codes, are not printed.
    #[test]
    fn i1_hostile_values_are_not_proposed() {
        let values = ["$(rm -rf .)", "`id`", "a b", "a;b", "--yes", "a\u{1b}[2Jb", "reader"];
        let proposed = proposed(OsStr::new(""), values.map(|value| (value.to_owned(), "\u{1b}[31mred".to_owned())));
        let found: Vec<_> = proposed.iter().map(|value| value.get_value().to_str().expect("text")).collect();
        assert_eq!(found, ["reader"]);
        let about = proposed[0].get_help().expect("a description").to_string();
        assert!(!about.contains('\u{1b}'), "{about}");
    }

    #[test]
    fn option_in_finds_both_forms() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(option_in(words("session show --data d x"), "--data"), Some("d".into()));
        assert_eq!(option_in(words("session show --data=d"), "--data"), Some("d".into()));
        assert_eq!(option_in(words("session show --database d"), "--data"), None);
    }
}
