//! Resolves the value of `--agent`: the path of a file, or the name of an agent whose file is in the current folder.

use crate::agent_file::{AgentFile, name_of_file, nearest, own_and_foreign_keys, read_bounded};
use crate::error::ConfigError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Standard name of an agent's configuration file.
pub const AGENT_FILE: &str = "agent.toml";
/// Subfolder of the current folder that contains the configuration files of further agents.
pub const AGENT_FOLDER: &str = "agents";
/// Maximum number of files that are examined in a folder.
const MAX_FILES: usize = 1000;
/// Maximum size of a file that is examined, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// An agent that was found in a folder.
#[derive(Debug)]
pub struct ListedAgent {
    /// Name of the agent: the `name` in its file, or the name of the file without `.toml`.
    pub name: String,
    /// Path of the agent's file, as it can be passed to `--agent`.
    pub path: PathBuf,
    /// The contents of the agent's file, or the problems of the file as text.
    pub file: Result<AgentFile, String>,
}

/// Finds the file for `--agent VALUE` in a folder. `VALUE` is a path if it contains a separator, ends in `.toml`, or is
/// the name of an existing file. In all other cases, `VALUE` is the name of an agent.
pub fn find_agent(requested: &Path, folder: &Path) -> Result<PathBuf, ConfigError> {
    let is_path =
        requested.components().count() != 1 || requested.extension().is_some_and(|extension| extension == "toml");
    if is_path && std::fs::metadata(folder.join(requested)).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(ConfigError::settings(missing_file(requested, folder)));
    }
    if is_path || folder.join(requested).is_file() {
        return Ok(requested.to_owned());
    }
    let name = requested.to_string_lossy();
    let agents = list_agents(folder);
    let mut matching: Vec<_> = agents.iter().filter(|agent| agent.name == name).collect();
    match matching.as_slice() {
        [agent] => Ok(agent.path.clone()),
        [] if folder.join(format!("{name}.toml")).is_file() => Ok(PathBuf::from(format!("{name}.toml"))),
        [] => Err(ConfigError::settings(missing_agent(&name, &agents))),
        _ => {
            matching.sort_by(|left, right| left.path.cmp(&right.path));
            let paths: Vec<_> = matching.iter().map(|agent| format!("--agent {}", agent.path.display())).collect();
            Err(ConfigError::settings(format!(
                "{} files define an agent named `{name}`: write {}",
                matching.len(),
                paths.join(" or ")
            )))
        }
    }
}

/// Lists the agents of a folder, sorted by the paths of their files. The files are `agent.toml`, other TOML files in
/// the folder that look like an agent's file, and `agents/*.toml`.
pub fn list_agents(folder: &Path) -> Vec<ListedAgent> {
    let top_files =
        toml_files(folder, Path::new("")).into_iter().filter(|path| looks_like_agent_file(&folder.join(path), path));
    let paths = top_files.chain(toml_files(folder, Path::new(AGENT_FOLDER)));
    paths.map(|path| read_agent(folder, path)).collect()
}

fn read_agent(folder: &Path, path: PathBuf) -> ListedAgent {
    // The file is parsed with its relative path, so that messages name the file as the user would write its path.
    let text = read_bounded(&folder.join(&path), MAX_BYTES).map_err(|error| error.to_string());
    let file = text.and_then(|text| AgentFile::parse(&text, &path).map_err(|error| error.to_string()));
    let name = file.as_ref().ok().and_then(|file| file.name.clone()).unwrap_or_else(|| name_of_file(&path));
    ListedAgent { name, path, file }
}

/// Returns the paths of the TOML files in a subfolder of `folder`, relative to `folder`.
fn toml_files(folder: &Path, subfolder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder.join(subfolder)) else { return Vec::new() };
    let names = entries.flatten().map(|entry| subfolder.join(entry.file_name()));
    // The TOML files of other well-known programs are never read as agents' files, because plugins may have the right
    // to write such files.
    let is_foreign = |path: &PathBuf| path.file_name().is_some_and(agent_plugins::is_foreign_toml);
    let is_file = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && folder.join(path).is_file();
    let is_file = |path: &PathBuf| is_file(path) && !is_foreign(path);
    let mut files: Vec<_> = names.filter(is_file).take(MAX_FILES).collect();
    files.sort();
    files
}

/// Whether a TOML file is probably an agent's file: it is `agent.toml`, or more than half of its keys are keys of
/// `agent.toml`.
fn looks_like_agent_file(file: &Path, path: &Path) -> bool {
    let keys = || own_and_foreign_keys(&read_bounded(file, MAX_BYTES).ok()?);
    path == Path::new(AGENT_FILE) || keys().is_some_and(|(known, foreign)| foreign == 0 || known > foreign)
}

fn missing_file(requested: &Path, folder: &Path) -> String {
    let absolute = std::path::absolute(folder.join(requested)).unwrap_or_else(|_| requested.to_owned());
    let (shown, absolute, agents) = (requested.display(), absolute.display(), list_agents(folder));
    let paths: Vec<String> = agents.iter().map(|agent| agent.path.display().to_string()).collect();
    let suggestion = nearest(&shown.to_string(), paths.iter().map(String::as_str));
    let suggestion = suggestion.map(|suggestion| format!(" (did you mean `{suggestion}`?)")).unwrap_or_default();
    let available = match paths.as_slice() {
        [] => "this folder contains no agents' files".to_owned(),
        _ => format!("agents' files in this folder: {}", paths.join(", ")),
    };
    format!(
        "there is no file `{shown}` (searched at `{absolute}`){suggestion}; {available}; `agent-host config init --output {shown}` writes one"
    )
}

fn missing_agent(name: &str, agents: &[ListedAgent]) -> String {
    let listed: Vec<_> = agents.iter().map(|agent| format!("\n  {} ({})", agent.name, agent.path.display())).collect();
    let suggestion = nearest(name, agents.iter().map(|agent| agent.name.as_str()));
    let suggestion = suggestion.map(|suggestion| format!(" Did you mean `{suggestion}`?")).unwrap_or_default();
    let available = match listed.as_slice() {
        [] => "this folder contains no agents; `agent-host config init` writes an agent.toml".to_owned(),
        _ => format!("these agents exist:{}", listed.concat()),
    };
    format!(
        "there is no agent `{name}` in this folder.{suggestion} Searched in *.toml and {AGENT_FOLDER}/*.toml; {available}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("agents")).expect("created");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    /// I2: agents in a folder are found by the name in their file, by the name of their file, and by path.
    #[test]
    fn finds_agents_by_name_and_path() {
        let folder = folder(&[
            ("agent.toml", "plugin_directory = \"plugins\"\n"),
            ("writer.toml", "# nothing yet\n"),
            ("second.toml", "name = \"reader\"\nmodel = \"offline\"\n"),
            ("agents/helper.toml", "name = \"helper\"\n"),
            ("agents/broken.toml", "modle = 1\n"),
            ("Cargo.toml", "[package]\nname = \"x\"\n"),
            ("plugin.toml", "name = \"p\"\nversion = \"1\"\ndescription = \"d\"\n"),
        ]);
        let listed: Vec<_> = list_agents(folder.path())
            .into_iter()
            .map(|agent| (agent.name, agent.path.display().to_string()))
            .collect();
        let expected = [
            ("agent", "agent.toml"),
            ("reader", "second.toml"),
            ("writer", "writer.toml"),
            ("broken", "agents/broken.toml"),
            ("helper", "agents/helper.toml"),
        ];
        assert_eq!(listed, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
        let cases = [
            ("agent", "agent.toml"),
            ("reader", "second.toml"),
            ("writer", "writer.toml"),
            ("helper", "agents/helper.toml"),
            ("second.toml", "second.toml"),
            ("./agents", "./agents"),
            ("Cargo", "Cargo.toml"),
        ];
        for (requested, path) in cases {
            let found = find_agent(Path::new(requested), folder.path())
                .unwrap_or_else(|error| panic!("{requested}: {error:?}"));
            assert_eq!(found, Path::new(path), "{requested}");
        }
    }

    /// I2: the error for a missing agent lists similar names, and the error for an ambiguous name lists all matching agents.
    #[test]
    fn missing_and_ambiguous_agents_are_explained() {
        let empty = folder(&[]);
        let message = find_agent(Path::new("reader"), empty.path()).expect_err("absent").to_string();
        assert!(message.contains("config init"), "{message}");
        let folder = folder(&[("one.toml", "name = \"reader\"\n"), ("agents/two.toml", "name = \"reader\"\n")]);
        let message =
            |requested: &str| find_agent(Path::new(requested), folder.path()).expect_err(requested).to_string();
        assert_eq!(
            message("reader"),
            "2 files define an agent named `reader`: write --agent agents/two.toml or --agent one.toml"
        );
        let absent = "there is no agent `raeder` in this folder. Did you mean `reader`? Searched in *.toml and \
                      agents/*.toml; these agents exist:\n  reader (one.toml)\n  reader (agents/two.toml)";
        assert_eq!(message("raeder"), absent);
        let message = message("onne.toml");
        let absolute = folder.path().join("onne.toml").display().to_string();
        for part in
            ["there is no file `onne.toml`", &absolute, "did you mean `one.toml`?", "config init --output onne.toml"]
        {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }
}
