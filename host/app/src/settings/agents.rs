//! Which file `--agent` means: the path of one, or the name of an agent whose file is in the current folder.

use crate::configuration::{AgentFile, name_of_file, nearest, own_and_foreign_keys, read_bounded};
use crate::exit::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that is an agent's without further ado.
pub(crate) const AGENT_FILE: &str = "agent.toml";
/// The folder whose files are agents, too.
pub(crate) const AGENT_FOLDER: &str = "agents";
/// Most files that are looked at.
const MOST_FILES: usize = 1000;
/// Largest file that is looked at.
const MOST_BYTES: u64 = 1024 * 1024;

/// An agent's file that was found.
#[derive(Debug)]
pub(crate) struct FoundAgent {
    /// The agent's name.
    pub(crate) name: String,
    /// Its file, as it would be written behind `--agent`.
    pub(crate) path: PathBuf,
    /// What it says, or what is wrong with it.
    pub(crate) file: Result<AgentFile, String>,
}

/// The file that is meant by `--agent ASKED` in a folder. A text with a separator, one that ends in `.toml`, and the name
/// of a file that is there are paths; all else is an agent's name.
pub(crate) fn find(asked: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let is_path = asked.components().count() != 1 || asked.extension().is_some_and(|extension| extension == "toml");
    if is_path && std::fs::metadata(folder.join(asked)).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(Failure::refused(absent_file(asked, folder)));
    }
    if is_path || folder.join(asked).is_file() {
        return Ok(asked.to_owned());
    }
    let name = asked.to_string_lossy();
    let all = all(folder);
    let mut meant: Vec<_> = all.iter().filter(|agent| agent.name == name).collect();
    match meant.as_slice() {
        [one] => Ok(one.path.clone()),
        [] if folder.join(format!("{name}.toml")).is_file() => Ok(PathBuf::from(format!("{name}.toml"))),
        [] => Err(Failure::refused(absent(&name, &all))),
        _ => {
            meant.sort_by(|one, other| one.path.cmp(&other.path));
            let paths: Vec<_> = meant.iter().map(|agent| format!("--agent {}", agent.path.display())).collect();
            Err(Failure::refused(format!("{} files are the agent `{name}`: write {}", meant.len(), paths.join(" or "))))
        }
    }
}

/// All agents of a folder: `agent.toml`, what looks like one beside it, and `agents/*.toml`; by path.
pub(crate) fn all(folder: &Path) -> Vec<FoundAgent> {
    let here = toml_files(folder, Path::new("")).into_iter().filter(|path| looks_like_one(&folder.join(path), path));
    let paths = here.chain(toml_files(folder, Path::new(AGENT_FOLDER)));
    paths.map(|path| found(folder, path)).collect()
}

fn found(folder: &Path, path: PathBuf) -> FoundAgent {
    // Problems name the file as a person would write it here.
    let text = read_bounded(&folder.join(&path), MOST_BYTES).map_err(|error| error.to_string());
    let file = text.and_then(|text| AgentFile::parse(&text, &path).map_err(|error| error.to_string()));
    let name = file.as_ref().ok().and_then(|file| file.name.clone()).unwrap_or_else(|| name_of_file(&path));
    FoundAgent { name, path, file }
}

/// Paths of files in a folder below another, relative to that.
fn toml_files(folder: &Path, below: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder.join(below)) else { return Vec::new() };
    let names = entries.flatten().map(|entry| below.join(entry.file_name()));
    // Plugins may write the files of other well-known programs, so that no agent is looked for in them.
    let is_foreign = |path: &PathBuf| path.file_name().is_some_and(agent_plugins::is_foreign_toml);
    let is_file = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && folder.join(path).is_file();
    let is_file = |path: &PathBuf| is_file(path) && !is_foreign(path);
    let mut files: Vec<_> = names.filter(is_file).take(MOST_FILES).collect();
    files.sort();
    files
}

/// Other programs have TOML files, too: what has more foreign keys than an agent's is none.
fn looks_like_one(file: &Path, path: &Path) -> bool {
    let keys = || own_and_foreign_keys(&read_bounded(file, MOST_BYTES).ok()?);
    path == Path::new(AGENT_FILE) || keys().is_some_and(|(own, foreign)| foreign == 0 || own > foreign)
}

fn absent_file(asked: &Path, folder: &Path) -> String {
    let whole = std::path::absolute(folder.join(asked)).unwrap_or_else(|_| asked.to_owned());
    let (shown, whole, all) = (asked.display(), whole.display(), all(folder));
    let paths: Vec<String> = all.iter().map(|agent| agent.path.display().to_string()).collect();
    let meant = nearest(&shown.to_string(), paths.iter().map(String::as_str));
    let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
    let there = match paths.as_slice() {
        [] => "this folder has no agent's file".to_owned(),
        _ => format!("agents' files of this folder are: {}", paths.join(", ")),
    };
    format!(
        "there is no file `{shown}`, looked for at `{whole}`{meant}; {there}; `agent-host config init --output {shown}` writes one with \
         every key explained"
    )
}

fn absent(name: &str, all: &[FoundAgent]) -> String {
    let listed: Vec<_> = all.iter().map(|agent| format!("\n  {} ({})", agent.name, agent.path.display())).collect();
    let meant = nearest(name, all.iter().map(|agent| agent.name.as_str()));
    let meant = meant.map(|meant| format!(" Did you mean `{meant}`?")).unwrap_or_default();
    let there = match listed.as_slice() {
        [] => "there is none; `agent-host config init` writes an agent.toml".to_owned(),
        _ => format!("there are:{}", listed.concat()),
    };
    format!(
        "there is no agent `{name}` in this folder.{meant} Looked for it in *.toml and {AGENT_FOLDER}/*.toml; {there}"
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

    /// I2: several agents in one directory.
    #[test]
    fn agents_are_found_by_name() {
        let folder = folder(&[
            ("agent.toml", "plugin_directory = \"plugins\"\n"),
            ("writer.toml", "# nothing yet\n"),
            ("second.toml", "name = \"reader\"\nmodel = \"offline\"\n"),
            ("agents/helper.toml", "name = \"helper\"\n"),
            ("agents/broken.toml", "modle = 1\n"),
            ("Cargo.toml", "[package]\nname = \"x\"\n"),
            ("plugin.toml", "name = \"p\"\nversion = \"1\"\ndescription = \"d\"\n"),
        ]);
        let listed: Vec<_> =
            all(folder.path()).into_iter().map(|agent| (agent.name, agent.path.display().to_string())).collect();
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
        for (asked, path) in cases {
            let found = find(Path::new(asked), folder.path()).unwrap_or_else(|error| panic!("{asked}: {error:?}"));
            assert_eq!(found, Path::new(path), "{asked}");
        }
    }

    /// I2
    #[test]
    fn an_agent_that_is_absent_or_there_twice_is_said_so() {
        let empty = folder(&[]);
        let message = find(Path::new("reader"), empty.path()).expect_err("absent").message;
        assert!(message.contains("config init"), "{message}");
        let folder = folder(&[("one.toml", "name = \"reader\"\n"), ("agents/two.toml", "name = \"reader\"\n")]);
        let message = |asked: &str| find(Path::new(asked), folder.path()).expect_err(asked).message;
        assert_eq!(
            message("reader"),
            "2 files are the agent `reader`: write --agent agents/two.toml or --agent one.toml"
        );
        let absent = "there is no agent `raeder` in this folder. Did you mean `reader`? Looked for it in *.toml and \
                      agents/*.toml; there are:\n  reader (one.toml)\n  reader (agents/two.toml)";
        assert_eq!(message("raeder"), absent);
        let message = message("onne.toml");
        let whole = folder.path().join("onne.toml").display().to_string();
        for said in
            ["there is no file `onne.toml`", &whole, "did you mean `one.toml`?", "config init --output onne.toml"]
        {
            assert!(message.contains(said), "`{said}` is not in: {message}");
        }
    }
}
