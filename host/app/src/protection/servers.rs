//! What an MCP server runs. It is native code, so that no plugin may write what its program, its interpreter or its package
//! manager loads (P13, row 40).

mod programs;

use super::path;
use crate::configuration::McpTable;
use crate::settings::Settings;
use agent_plugins::{Access, ProtectedKind, ProtectedPath, TreeGrant};
use programs::{LANGUAGES, Language, Program, is_about_code, program};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The program, the scripts that it is started with, the folders that they are in, and what is loaded from the folder that it
/// runs in. `variable` reads the host's environment.
pub(super) fn of_server(
    name: &str,
    table: &McpTable,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<ProtectedPath> {
    let Some(command) = table.command.as_ref().map(|command| &*command.value) else { return Vec::new() };
    let what = format!("what the MCP server `{name}` runs");
    let mut found = Found {
        agent: folder,
        working: working_folder(table, folder),
        what: &what,
        looked_for: Vec::new(),
        paths: Vec::new(),
    };
    let working = found.working.clone();
    if command.contains(std::path::is_separator) {
        found.program(&folder.join(command));
    } else {
        let path = table.env.get("PATH").cloned().or_else(|| variable("PATH")).unwrap_or_default();
        // An empty part of it is the folder that the server runs in.
        std::env::split_paths(&path).for_each(|searched| found.on_path(command, &searched));
    }
    // `--script=run.py` names a file, too, and `sh -c "exec node run.js"` a program and a file.
    let words: Vec<&str> = table.args.iter().flat_map(|arg| words(arg)).collect();
    let known: Vec<_> = std::iter::once(command).chain(words.iter().copied()).filter_map(program).collect();
    for program in &known {
        program.runs.iter().for_each(|language| found.code(&working, language));
    }
    let language = known.iter().find_map(|program| program.runs.first().copied());
    for word in words {
        for script in [working.join(word), folder.join(word)] {
            found.script(&script, language);
        }
    }
    found.folder(&working);
    for program in known {
        found.launcher(program);
    }
    for (name, value) in variables(table, variable) {
        found.variable(&name, &value);
    }
    for place in std::mem::take(&mut found.looked_for) {
        let kind = if place.is_dir() { ProtectedKind::Folder } else { ProtectedKind::File };
        found.add(place, kind);
    }
    found.paths
}

/// Without a directory of its own a server runs where the host does.
fn working_folder(table: &McpTable, folder: &Path) -> PathBuf {
    table.directory.as_ref().map_or_else(|| PathBuf::from("."), |directory| folder.join(directory))
}

/// What an argument may name: itself, what it gives to an option, and the words of a shell's command.
fn words(argument: &str) -> impl Iterator<Item = &str> {
    let quoted = |character: char| character.is_whitespace() || "'\"`;|&()<>".contains(character);
    let parts = argument.split(quoted).flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        // `-Ilib`
        let joined = word.strip_prefix('-').and_then(|option| option.get(1..)).filter(|_| !word.starts_with("--"));
        [Some(word), value, joined]
    });
    let whole = argument.contains(quoted).then_some(argument);
    whole.into_iter().chain(parts.flatten()).filter(|word| !word.is_empty())
}

/// The variables of a server that say where code is.
fn variables(table: &McpTable, variable: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let own = table.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let passed = table.pass_env.iter().filter_map(|name| Some((name.value.clone(), variable(&name.value)?)));
    own.chain(passed).filter(|(name, _)| is_about_code(name)).collect()
}

/// MCP servers that run in a folder that a plugin may write: nobody can list everything that a program loads.
pub(super) fn in_writable_folders(settings: &Settings, trees: &[(String, TreeGrant)]) -> Vec<String> {
    let folder = settings.folder();
    let mut found = Vec::new();
    for (server, table) in settings.file.mcp.iter().filter(|(_, table)| table.command.is_some()) {
        let Ok(working) = working_folder(table, folder).canonicalize() else { continue };
        for (plugin, tree) in trees.iter().filter(|(_, tree)| tree.access == Access::ReadWrite) {
            let holds_agent = |place: &Path| place.canonicalize().is_ok_and(|place| place.starts_with(&working));
            let is_protected = !holds_agent(folder) && !holds_agent(Path::new("."));
            if !is_protected && tree.host.canonicalize().is_ok_and(|tree| working.starts_with(tree)) {
                found.push(format!(
                    "the MCP server `{server}` runs in {}, which {plugin} may write: known kinds of code there are left out, \
                     but not whatever the server might read; give the server a `directory` of its own",
                    working.display()
                ));
            }
        }
    }
    found
}

struct Found<'a> {
    agent: &'a Path,
    working: PathBuf,
    what: &'a str,
    /// What is looked for in folders above: a person is told of it last.
    looked_for: Vec<PathBuf>,
    paths: Vec<ProtectedPath>,
}

impl Found<'_> {
    fn add(&mut self, place: PathBuf, kind: ProtectedKind) {
        let path = path(place, self.what, kind);
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    /// A program with what lies beside it: that of a virtual environment loads what lies beside its folder `bin`, too.
    fn program(&mut self, program: &Path) {
        self.add(program.to_owned(), ProtectedKind::File);
        let Some(folder) = program.parent() else { return };
        self.folder(folder);
        let is_of_programs = folder.file_name().is_some_and(|name| ["bin", "Scripts"].map(OsStr::new).contains(&name));
        if let Some(environment) = folder.parent().filter(|above| is_of_programs && above.join("pyvenv.cfg").is_file())
        {
            self.folder(environment);
        }
        // An interpreter of a virtual environment is a link, beside which nothing is loaded; other links lead to packages.
        if let Ok(target) = program.canonicalize() {
            self.packages(&target);
        }
        self.packages(program);
    }

    /// The programs that the command, and whatever it starts, could be: no other ones come before them.
    fn on_path(&mut self, command: &str, searched: &Path) {
        let folder = self.working.join(searched);
        self.add(folder.join(command), ProtectedKind::File);
        self.folder(&folder);
        if folder.join(command).is_file() {
            self.program(&folder.join(command));
        }
    }

    /// Places of code in a variable, such as `PYTHONPATH=lib:more` or `NODE_OPTIONS=--require ./first.js`.
    fn variable(&mut self, name: &str, value: &str) {
        for word in words(value).flat_map(|word| word.split(':')).filter(|word| !word.is_empty()) {
            let place = self.working.join(word);
            match place.is_dir() {
                true => self.folder(&place),
                false if place.is_file() => self.script(&place, None),
                // A plugin could make it.
                false if word.contains(std::path::is_separator) || name.to_ascii_uppercase().contains("PATH") => {
                    self.add(place, ProtectedKind::File);
                }
                false => {}
            }
        }
    }

    /// A script, or a folder with scripts.
    fn script(&mut self, script: &Path, language: Option<&'static Language>) {
        let Ok(found) = std::fs::metadata(script) else { return };
        self.packages(script);
        if found.is_dir() {
            return self.folder(script);
        }
        if let Some(parent) = script.parent() {
            self.folder(parent);
            let by_ending =
                LANGUAGES.iter().copied().find(|known| known.scripts.iter().any(|ending| ends(script, ending)));
            by_ending.or(language).into_iter().for_each(|language| self.code(parent, language));
        }
        self.add(script.to_owned(), ProtectedKind::File);
    }

    /// A folder of code is protected with everything in it, since interpreters load what lies beside a script; not the folder of
    /// the whole agent, in which plugins are meant to work.
    fn folder(&mut self, code: &Path) {
        if let Some(whole) = code.canonicalize().ok().filter(|whole| !self.holds_whole_agent(whole)) {
            self.add(whole, ProtectedKind::Folder);
        }
    }

    /// In the folder of the whole agent, names tell what is loaded.
    fn code(&mut self, code: &Path, language: &Language) {
        let Ok(whole) = code.canonicalize() else { return };
        self.looked_for.extend(whole.ancestors().flat_map(|above| language.above.iter().map(|name| above.join(name))));
        if self.holds_whole_agent(&whole) {
            self.add(whole, ProtectedKind::CodeFiles(language.loads));
        }
    }

    /// A script of an installed package loads other packages.
    fn packages(&mut self, script: &Path) {
        let is_packages = |component: Component<'_>| {
            ["node_modules", "site-packages"].map(OsStr::new).contains(&component.as_os_str())
        };
        if let Some(place) = script.components().position(is_packages) {
            self.folder(&script.components().take(place + 1).collect::<PathBuf>());
        }
    }

    /// These need not exist: a plugin could make them.
    fn launcher(&mut self, program: &Program) {
        for folder in program.folders {
            self.add(self.working.join(folder), ProtectedKind::Folder);
        }
        for file in program.files {
            self.add(self.working.join(file), ProtectedKind::File);
        }
    }

    /// Whether the agent, or the folder in which the host runs, lies in this folder.
    fn holds_whole_agent(&self, folder: &Path) -> bool {
        let holds = |place: &Path| place.canonicalize().is_ok_and(|place| place.starts_with(folder));
        holds(self.agent) || holds(Path::new("."))
    }
}

fn ends(script: &Path, ending: &str) -> bool {
    script.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    /// What is protected in the agent's folder, by its place there.
    fn protected(folder: &Path, toml: &str) -> Vec<(String, ProtectedKind)> {
        let settings = settings(folder, &format!("model = \"scripted:replies.json\"\n[mcp.notes]\n{toml}"));
        let agent = folder.canonicalize().expect("there");
        let paths = of_server("notes", &settings.file.mcp["notes"], &agent, &|_| None);
        let shown = paths.into_iter().filter_map(|path| {
            let place = path.path.strip_prefix(&agent).ok()?.components();
            let place: PathBuf = place.filter(|component| *component != Component::CurDir).collect();
            Some((place.to_string_lossy().into_owned(), path.kind))
        });
        shown.collect()
    }

    /// An agent's folder with servers in it.
    fn with_servers() -> tempfile::TempDir {
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

    // P13, row 40: what an interpreter or a package manager loads is protected with the script.
    #[test]
    fn p13_what_a_server_loads_is_protected() {
        use ProtectedKind::{File, Folder};
        let place = with_servers();
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
                assert!(found.contains(&((*name).to_owned(), *kind)), "{toml}\nhas no {name} {kind:?}: {found:#?}");
            }
        }
    }

    // P13: where names decide, a person is told.
    #[test]
    fn p13_a_server_in_a_writable_folder_is_told() {
        let place = with_servers();
        let text = |directory: &str| {
            format!(
                "model = \"scripted:replies.json\"\n[mcp.notes]\ncommand = \"notes\"\ndirectory = \"{directory}\"\n\
                 [plugins.files.grants]\nwrite = [\".\"]\n"
            )
        };
        let told = |directory: &str| {
            let settings = settings(place.path(), &text(directory));
            in_writable_folders(&settings, &super::super::trees(&settings))
        };
        assert_eq!(told("servers"), Vec::<String>::new());
        assert!(matches!(&told(".")[..], [one] if one.contains("`notes` runs in")), "{:?}", told("."));
    }
}
