//! Finds the code that an MCP server runs. It is native code, so no plugin may write what its program, interpreter or package
//! manager loads (P13, row 40).

mod programs;

use super::path;
use crate::agent_file::McpTable;
use crate::settings::Settings;
use agent_plugins::{Access, ProtectedKind, ProtectedPath, TreeGrant};
use programs::{LANGUAGES, Language, Program, is_about_code, program};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Paths to protect for a server: its program, its scripts, the folders that contain them, and what is loaded from its working
/// directory. `variable` reads the host's environment.
pub(super) fn server_paths(
    name: &str,
    table: &McpTable,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<ProtectedPath> {
    let Some(command) = table.command.as_ref().map(|command| &*command.value) else { return Vec::new() };
    let what = format!("code that the MCP server `{name}` runs");
    let mut collector = PathCollector {
        agent: folder,
        working: working_folder(table, folder),
        what: &what,
        searched_above: Vec::new(),
        paths: Vec::new(),
    };
    let working = collector.working.clone();
    if command.contains(std::path::is_separator) {
        collector.program(&folder.join(command));
    } else {
        let path = table.env.get("PATH").cloned().or_else(|| variable("PATH")).unwrap_or_default();
        // An empty part of `PATH` means the working directory of the server.
        std::env::split_paths(&path).for_each(|searched| collector.on_path(command, &searched));
    }
    // `--script=run.py` names a file, and `sh -c "exec node run.js"` names a program and a file.
    let words: Vec<&str> = table.args.iter().flat_map(|arg| words(arg)).collect();
    let known: Vec<_> = std::iter::once(command).chain(words.iter().copied()).filter_map(program).collect();
    for program in &known {
        program.runs.iter().for_each(|language| collector.code(&working, language));
    }
    let language = known.iter().find_map(|program| program.runs.first().copied());
    for word in words {
        for script in [working.join(word), folder.join(word)] {
            collector.script(&script, language);
        }
    }
    collector.folder(&working);
    for program in known {
        collector.launcher(program);
    }
    for (name, value) in variables(table, variable) {
        collector.variable(&name, &value);
    }
    for place in std::mem::take(&mut collector.searched_above) {
        let kind = if place.is_dir() { ProtectedKind::Folder } else { ProtectedKind::File };
        collector.add(place, kind);
    }
    collector.paths
}

/// Working directory of a server. By default, it is that of the host.
fn working_folder(table: &McpTable, folder: &Path) -> PathBuf {
    table.directory.as_ref().map_or_else(|| PathBuf::from("."), |directory| folder.join(directory))
}

/// Parts of an argument that may be paths: the argument itself, the value of an option, and the words of a shell command.
fn words(argument: &str) -> impl Iterator<Item = &str> {
    let quoted = |character: char| character.is_whitespace() || "'\"`;|&()<>".contains(character);
    let parts = argument.split(quoted).flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        // `-Ilib`
        let joined = word.strip_prefix('-').and_then(|option| option.get(1..)).filter(|_| !word.starts_with("--"));
        [Some(word), value, joined]
    });
    let full_argument = argument.contains(quoted).then_some(argument);
    full_argument.into_iter().chain(parts.flatten()).filter(|word| !word.is_empty())
}

/// The variables of a server that can contain paths of code.
fn variables(table: &McpTable, variable: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let own = table.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let passed = table.pass_env.iter().filter_map(|name| Some((name.value.clone(), variable(&name.value)?)));
    own.chain(passed).filter(|(name, _)| is_about_code(name)).collect()
}

/// Warnings about MCP servers that run in a folder that a plugin may write, because it is not possible to list everything
/// that a program loads.
pub(super) fn in_writable_folders(settings: &Settings, trees: &[(String, TreeGrant)]) -> Vec<String> {
    let folder = settings.folder();
    let mut warnings = Vec::new();
    for (server, table) in settings.file.mcp.iter().filter(|(_, table)| table.command.is_some()) {
        let Ok(working) = working_folder(table, folder).canonicalize() else { continue };
        for (plugin, tree) in trees.iter().filter(|(_, tree)| tree.access == Access::ReadWrite) {
            let holds_agent = |place: &Path| place.canonicalize().is_ok_and(|place| place.starts_with(&working));
            let is_protected = !holds_agent(folder) && !holds_agent(Path::new("."));
            if !is_protected && tree.host.canonicalize().is_ok_and(|tree| working.starts_with(tree)) {
                warnings.push(format!(
                    "the MCP server `{server}` runs in {}, which {plugin} may write; known kinds of code there are protected, \
                     but not everything that the server might load; set `directory` to a separate folder for the server",
                    working.display()
                ));
            }
        }
    }
    warnings
}

/// Collects the paths to protect for one server.
struct PathCollector<'a> {
    /// Folder of the agent.
    agent: &'a Path,
    /// Working directory of the server.
    working: PathBuf,
    /// Description of the protected paths, for messages.
    what: &'a str,
    /// Names that are searched in folders above. They are added last, so that messages mention them last.
    searched_above: Vec<PathBuf>,
    paths: Vec<ProtectedPath>,
}

impl PathCollector<'_> {
    fn add(&mut self, place: PathBuf, kind: ProtectedKind) {
        let path = path(place, self.what, kind);
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    /// Adds a program and its folder. A program in a virtual environment also loads files next to its folder `bin`.
    fn program(&mut self, program: &Path) {
        self.add(program.to_owned(), ProtectedKind::File);
        let Some(folder) = program.parent() else { return };
        self.folder(folder);
        let is_of_programs = folder.file_name().is_some_and(|name| ["bin", "Scripts"].map(OsStr::new).contains(&name));
        if let Some(environment) = folder.parent().filter(|above| is_of_programs && above.join("pyvenv.cfg").is_file())
        {
            self.folder(environment);
        }
        // The interpreter of a virtual environment is a link, and nothing is loaded from the folder of its target. Other links
        // lead into packages.
        if let Ok(target) = program.canonicalize() {
            self.packages(&target);
        }
        self.packages(program);
    }

    /// Adds a folder of the `PATH`, so that no other program can be placed before the one that the command means.
    fn on_path(&mut self, command: &str, searched: &Path) {
        let folder = self.working.join(searched);
        self.add(folder.join(command), ProtectedKind::File);
        self.folder(&folder);
        if folder.join(command).is_file() {
            self.program(&folder.join(command));
        }
    }

    /// Adds the paths of code in a variable, such as `PYTHONPATH=lib:more` or `NODE_OPTIONS=--require ./first.js`.
    fn variable(&mut self, name: &str, value: &str) {
        for word in words(value).flat_map(|word| word.split(':')).filter(|word| !word.is_empty()) {
            let place = self.working.join(word);
            match place.is_dir() {
                true => self.folder(&place),
                false if place.is_file() => self.script(&place, None),
                // The path does not exist yet, but a plugin could create it.
                false if word.contains(std::path::is_separator) || name.to_ascii_uppercase().contains("PATH") => {
                    self.add(place, ProtectedKind::File);
                }
                false => {}
            }
        }
    }

    /// Adds a script, or a folder with scripts.
    fn script(&mut self, script: &Path, language: Option<&'static Language>) {
        let Ok(metadata) = std::fs::metadata(script) else { return };
        self.packages(script);
        if metadata.is_dir() {
            return self.folder(script);
        }
        if let Some(parent) = script.parent() {
            self.folder(parent);
            let by_ending =
                LANGUAGES.iter().copied().find(|known| known.scripts.iter().any(|ending| has_ending(script, ending)));
            by_ending.or(language).into_iter().for_each(|language| self.code(parent, language));
        }
        self.add(script.to_owned(), ProtectedKind::File);
    }

    /// Adds a folder of code with everything in it, because interpreters load files next to a script. The folder of the
    /// whole agent is not added, because plugins are meant to work there.
    fn folder(&mut self, code: &Path) {
        if let Some(canonical) = code.canonicalize().ok().filter(|canonical| !self.holds_whole_agent(canonical)) {
            self.add(canonical, ProtectedKind::Folder);
        }
    }

    /// Adds the code files of a language in a folder. In the folder of the whole agent, files of code are recognised by
    /// their names.
    fn code(&mut self, code: &Path, language: &Language) {
        let Ok(canonical) = code.canonicalize() else { return };
        self.searched_above
            .extend(canonical.ancestors().flat_map(|above| language.above.iter().map(|name| above.join(name))));
        if self.holds_whole_agent(&canonical) {
            self.add(canonical, ProtectedKind::CodeFiles(language.loads));
        }
    }

    /// Adds the folder of installed packages that contains a script, because packages load other packages.
    fn packages(&mut self, script: &Path) {
        let is_packages = |component: Component<'_>| {
            ["node_modules", "site-packages"].map(OsStr::new).contains(&component.as_os_str())
        };
        if let Some(place) = script.components().position(is_packages) {
            self.folder(&script.components().take(place + 1).collect::<PathBuf>());
        }
    }

    /// Adds the files and folders that a program reads, even if they do not exist, because a plugin could create them.
    fn launcher(&mut self, program: &Program) {
        for folder in program.folders {
            self.add(self.working.join(folder), ProtectedKind::Folder);
        }
        for file in program.files {
            self.add(self.working.join(file), ProtectedKind::File);
        }
    }

    /// Whether this folder contains the agent, or the current folder of the host.
    fn holds_whole_agent(&self, folder: &Path) -> bool {
        let holds = |place: &Path| place.canonicalize().is_ok_and(|place| place.starts_with(folder));
        holds(self.agent) || holds(Path::new("."))
    }
}

fn has_ending(script: &Path, ending: &str) -> bool {
    script.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    /// Protected paths inside the agent's folder, relative to it.
    fn protected(folder: &Path, toml: &str) -> Vec<(String, ProtectedKind)> {
        let settings = settings(folder, &format!("model = \"scripted:replies.json\"\n[mcp.notes]\n{toml}"));
        let agent = folder.canonicalize().expect("exists");
        let paths = server_paths("notes", &settings.file.mcp["notes"], &agent, &|_| None);
        let shown = paths.into_iter().filter_map(|path| {
            let place = path.path.strip_prefix(&agent).ok()?.components();
            let place: PathBuf = place.filter(|component| *component != Component::CurDir).collect();
            Some((place.to_string_lossy().into_owned(), path.kind))
        });
        shown.collect()
    }

    /// Makes an agent's folder that contains servers.
    fn folder_with_servers() -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path();
        for name in [".venv/bin", "servers", "node_modules/notes", "bin", "lib"] {
            std::fs::create_dir_all(folder.join(name)).expect("created");
        }
        for name in [
            ".venv/bin/python",
            ".venv/pyvenv.cfg",
            "servers/run.py",
            "run.py",
            "run.js",
            "node_modules/notes/index.js",
            "bin/notes",
        ] {
            std::fs::write(folder.join(name), "").expect("written");
        }
        place
    }

    /// P13, row 40: files that an interpreter or a package manager loads are protected together with the script.
    #[test]
    fn p13_protects_what_a_server_loads() {
        use ProtectedKind::{File, Folder};
        let place = folder_with_servers();
        let code_of = |command: &str| {
            ProtectedKind::CodeFiles(
                program(command).and_then(|known| known.runs.first()).expect("an interpreter").loads,
            )
        };
        let (python, node, shell) = (code_of("python3"), code_of("node"), code_of("sh"));
        let cases: [(&str, &[(&str, ProtectedKind)]); 13] = [
            ("command = \"python3.12\"\nargs = [\"servers/run.py\"]", &[("servers", Folder), ("servers/run.py", File)]),
            ("command = \"python3\"\nargs = [\"run.py\"]", &[("", python), ("run.py", File)]),
            (
                "command = \"node\"\nargs = [\"node_modules/notes/index.js\"]",
                &[("node_modules", Folder), ("node_modules/notes/index.js", File)],
            ),
            (
                "command = \".venv/bin/python\"\nargs = [\"-m\", \"notes\"]\ndirectory = \"servers\"",
                &[(".venv/bin/python", File), (".venv", Folder), ("servers", Folder)],
            ),
            ("command = \"python3\"\nargs = [\"-m\", \"notes\"]\ndirectory = \".\"", &[("", python)]),
            ("command = \"npx\"\nargs = [\"-y\", \"notes\"]\ndirectory = \".\"", &[("node_modules", Folder)]),
            (
                "command = \"npm\"\nargs = [\"start\"]\ndirectory = \".\"",
                &[("", node), ("node_modules", Folder), ("package.json", File)],
            ),
            ("command = \"uv\"\nargs = [\"run\", \"notes\"]\ndirectory = \".\"", &[("", python), (".venv", Folder)]),
            (
                "command = \"sh\"\nargs = [\"-c\", \"exec node 'run.js' --fast\"]\ndirectory = \".\"",
                &[("", shell), ("", node), ("run.js", File), ("node_modules", Folder)],
            ),
            ("command = \"make\"\ndirectory = \".\"", &[("", python), ("", node), ("", shell), ("Makefile", File)]),
            (
                "command = \"notes\"\ndirectory = \".\"\nenv = { PATH = \"first:bin\" }",
                &[("first/notes", File), ("bin", Folder), ("bin/notes", File)],
            ),
            (
                "command = \"notes\"\ndirectory = \".\"\nenv = { PYTHONPATH = \"lib:absent\" }",
                &[("lib", Folder), ("absent", File)],
            ),
            (
                "command = \"notes\"\ndirectory = \".\"\nenv = { NODE_OPTIONS = \"--require ./run.js\" }",
                &[("run.js", File), ("", node)],
            ),
        ];
        for (toml, expected) in cases {
            let found = protected(place.path(), toml);
            for (name, kind) in expected {
                assert!(
                    found.contains(&((*name).to_owned(), *kind)),
                    "{toml}\ndoes not protect {name} {kind:?}: {found:#?}"
                );
            }
        }
    }

    /// P13: the user is warned if a server runs in a folder where code is only recognised by names.
    #[test]
    fn p13_warns_of_a_server_in_a_writable_folder() {
        let place = folder_with_servers();
        let text = |directory: &str| {
            format!(
                "model = \"scripted:replies.json\"\n[mcp.notes]\ncommand = \"notes\"\ndirectory = \"{directory}\"\n\
                 [plugins.files.grants]\nwrite = [\".\"]\n"
            )
        };
        let warnings = |directory: &str| {
            let settings = settings(place.path(), &text(directory));
            in_writable_folders(&settings, &super::super::granted_trees(&settings))
        };
        assert_eq!(warnings("servers"), Vec::<String>::new());
        assert!(matches!(&warnings(".")[..], [one] if one.contains("`notes` runs in")), "{:?}", warnings("."));
    }
}
