//! What an agent is run with: agent.toml and the command line together, checked.

use crate::arguments::AgentArguments;
use crate::configuration::AgentFile;
use crate::exit::Failure;
use crate::grants::{self, ResolvedGrants};
use std::path::{Path, PathBuf};

/// The name of an agent that has no file.
const UNNAMED: &str = "agent";

/// An agent as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Its name; sessions belong to it.
    pub(crate) name: String,
    /// The model's name.
    pub(crate) model: String,
    /// What a file in the model's name is relative to.
    pub(crate) model_base: PathBuf,
    /// The folder with the plugins.
    pub(crate) plugins: Option<PathBuf>,
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
        let mut file = match &arguments.agent {
            Some(path) => AgentFile::read(path).map_err(Failure::refused)?,
            None => AgentFile::default(),
        };
        let plugins = arguments.plugins.clone().or_else(|| file.plugin_directory.take());
        if plugins.is_none() && arguments.agent.is_none() {
            return Err(Failure::refused(
                "name the folder with the plugins, --plugins DIR, or an agent's configuration, --agent FILE; \
                 `agent-host -h` shows an example",
            ));
        }
        if let Some(directory) = plugins.as_deref().filter(|directory| !directory.is_dir()) {
            let problem = format!("`{}` is no folder", directory.display());
            let (place, origin) = match (&arguments.plugins, file.places.get("plugin_directory")) {
                (None, Some(place)) => (format!("{place}: "), "`plugin_directory`"),
                _ => (String::new(), "--plugins"),
            };
            return Err(Failure::refused(format!("{place}{origin}: {problem}; name the folder with the plugins")));
        }
        let (model, model_base) = match (&arguments.model, &file.model) {
            (Some(model), _) => {
                file.places.remove("model");
                (model.clone(), PathBuf::new())
            }
            (None, Some(model)) => (model.clone(), file.folder.clone()),
            (None, None) => ("offline".to_owned(), PathBuf::new()),
        };
        let mut all = file.grants.clone();
        all.extend(arguments.grant.iter().cloned());
        let grants = grants::resolve(&all, variable).map_err(|problems| Failure::refused(problems.join("\n")))?;
        let granted = arguments.grant.iter().filter_map(|grant| Some((grant.plugin()?, grant.origin.as_str())));
        let tables = file.plugin_tables.iter().map(|(name, place)| (name.as_str(), place.as_str()));
        let spoken_of = tables.chain(granted).map(|(name, place)| (name.to_owned(), place.to_owned())).collect();
        let name = file.name.clone().unwrap_or_else(|| UNNAMED.to_owned());
        Ok(Self { name, model, model_base, plugins, file, grants, spoken_of })
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

/// The folder in which `--build` builds.
pub(crate) fn build_directory(settings: &Settings) -> Result<&Path, Failure> {
    settings
        .plugins
        .as_deref()
        .ok_or_else(|| Failure::refused("--build needs a folder: --plugins DIR, or `plugin_directory` in agent.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::Grant;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn agent(text: &str) -> (tempfile::TempDir, AgentArguments) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(folder.path().join("plugins")).expect("created");
        std::fs::write(folder.path().join("agent.toml"), text).expect("written");
        let arguments = AgentArguments { agent: Some(folder.path().join("agent.toml")), ..AgentArguments::default() };
        (folder, arguments)
    }

    /// I2: relative paths of the file are relative to the file.
    #[test]
    fn the_file_alone() {
        let text = "name = \"reader\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\
                    [plugins.files.grants]\nread = [\".\"]\n";
        let (folder, arguments) = agent(text);
        let settings = Settings::read(&arguments, &none).expect("read");
        assert_eq!((settings.name.as_str(), settings.model.as_str()), ("reader", "scripted:replies.json"));
        assert_eq!(settings.model_base, folder.path());
        assert_eq!(settings.plugins, Some(folder.path().join("plugins")));
        assert_eq!(settings.grants.plugins["files"].trees[0].host, folder.path().join("."));
        let place = folder.path().join("agent.toml").display().to_string();
        let expected = format!("{place}:4: plugins.files: there is no plugin `files`");
        assert_eq!(settings.unknown_plugins(&|_| false), [expected]);
        assert_eq!(settings.problem("model", "`model`: no").message, format!("{place}:2: `model`: no"));
        assert!(settings.unknown_plugins(&|name| name == "files").is_empty());
    }

    #[test]
    fn the_command_line_wins_and_its_grants_add() {
        let text = "model = \"scripted:replies.json\"\n[plugins.files.grants]\nread = [\".\"]\n";
        let (folder, mut arguments) = agent(text);
        arguments.model = Some("offline".into());
        arguments.plugins = Some(folder.path().join("plugins"));
        arguments.grant = vec![Grant::parse("files:write=/").expect("a grant")];
        let settings = Settings::read(&arguments, &none).expect("read");
        assert_eq!((settings.name.as_str(), settings.model.as_str()), (UNNAMED, "offline"));
        assert_eq!(settings.plugins, arguments.plugins);
        assert_eq!(settings.grants.plugins["files"].trees.len(), 2);
    }

    #[test]
    fn without_plugins_and_file_it_says_what_to_do() {
        let failure = Settings::read(&AgentArguments::default(), &none).expect_err("nothing given");
        assert!(failure.message.contains("--plugins DIR") && failure.message.contains("--agent FILE"));
        let absent = AgentArguments { plugins: Some("absent".into()), ..AgentArguments::default() };
        let failure = Settings::read(&absent, &none).expect_err("no folder");
        assert_eq!(failure.message, "--plugins: `absent` is no folder; name the folder with the plugins");
        let (folder, arguments) = agent("name = \"reader\"\nplugin_directory = \"nope\"\n");
        let failure = Settings::read(&arguments, &none).expect_err("no folder");
        let shown = failure.message.replace(&folder.path().display().to_string(), "/base");
        let expected =
            "/base/agent.toml:2: `plugin_directory`: `/base/nope` is no folder; name the folder with the plugins";
        assert_eq!(shown, expected);
    }
}
