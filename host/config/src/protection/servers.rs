//! Finds the code that an MCP server runs. The server is native code, so plugins must not be able to write the files
//! that its program, interpreter or package manager loads (P13, row 40).

mod programs;

use super::protected_path;
use crate::agent_file::McpTable;
use crate::settings::Settings;
use agent_plugins::{Access, ProtectedKind, ProtectedPath, TreeGrant};
use programs::{LANGUAGES, Language, Program, can_contain_code_paths, program};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Returns the paths to protect for a server: its program, its scripts, the folders that contain them, and the code
/// files in its working directory. `variable` returns the value of a variable of the host's environment.
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
        working_directory: working_directory(table, folder),
        what: &what,
        ancestor_files: Vec::new(),
        paths: Vec::new(),
    };
    let working_directory = collector.working_directory.clone();
    if command.contains(std::path::is_separator) {
        collector.add_program(&folder.join(command));
    } else {
        let path = table.env.get("PATH").cloned().or_else(|| variable("PATH")).unwrap_or_default();
        // If an entry of `PATH` is empty, it stands for the working directory of the server.
        std::env::split_paths(&path).for_each(|searched| collector.add_path_folder(command, &searched));
    }
    // An argument can contain paths. For example, `--script=run.py` contains a file, and `"exec node run.js"`, an
    // argument of `sh -c`, contains a program and a file.
    let words: Vec<&str> = table.args.iter().flat_map(|arg| possible_paths(arg)).collect();
    let known: Vec<_> = std::iter::once(command).chain(words.iter().copied()).filter_map(program).collect();
    for program in &known {
        program.runs.iter().for_each(|language| collector.add_code_files(&working_directory, language));
    }
    let language = known.iter().find_map(|program| program.runs.first().copied());
    for word in words {
        for script in [working_directory.join(word), folder.join(word)] {
            collector.add_script(&script, language);
        }
    }
    collector.add_folder(&working_directory);
    for program in known {
        collector.add_program_inputs(program);
    }
    for (name, value) in variables_that_load_code(table, variable) {
        collector.add_variable(&name, &value);
    }
    for path in std::mem::take(&mut collector.ancestor_files) {
        let kind = if path.is_dir() { ProtectedKind::Folder } else { ProtectedKind::File };
        collector.add(path, kind);
    }
    collector.paths
}

/// Returns the working directory of a server. The default is the working directory of the host.
fn working_directory(table: &McpTable, folder: &Path) -> PathBuf {
    table.directory.as_ref().map_or_else(|| PathBuf::from("."), |directory| folder.join(directory))
}

/// Returns the parts of an argument that may be paths. The possible parts are the argument itself, the value of an
/// option, and the words of a shell command.
fn possible_paths(argument: &str) -> impl Iterator<Item = &str> {
    let is_separator = |character: char| character.is_whitespace() || "'\"`;|&()<>".contains(character);
    let parts = argument.split(is_separator).flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        // The value of a short option can follow without a space, as in `-Ilib`.
        let joined = word.strip_prefix('-').and_then(|option| option.get(1..)).filter(|_| !word.starts_with("--"));
        [Some(word), value, joined]
    });
    let full_argument = argument.contains(is_separator).then_some(argument);
    full_argument.into_iter().chain(parts.flatten()).filter(|word| !word.is_empty())
}

/// Returns the names and values of the server's environment variables that can contain paths of code.
fn variables_that_load_code(table: &McpTable, variable: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let configured = table.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let passed = table.pass_env.iter().filter_map(|name| Some((name.value.clone(), variable(&name.value)?)));
    configured.chain(passed).filter(|(name, _)| can_contain_code_paths(name)).collect()
}

/// Returns warnings about MCP servers that run in a folder that a plugin may write. The warnings are needed because the
/// protection cannot cover all files that a program might load.
pub(super) fn in_writable_folders(settings: &Settings, trees: &[(String, TreeGrant)]) -> Vec<String> {
    let folder = settings.folder();
    let mut warnings = Vec::new();
    for (server, table) in settings.file.mcp.iter().filter(|(_, table)| table.command.is_some()) {
        let Ok(directory) = working_directory(table, folder).canonicalize() else { continue };
        for (plugin, tree) in trees.iter().filter(|(_, tree)| tree.access == Access::ReadWrite) {
            let contains = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&directory));
            let is_protected = !contains(folder) && !contains(Path::new("."));
            if !is_protected && tree.host.canonicalize().is_ok_and(|tree| directory.starts_with(tree)) {
                warnings.push(format!(
                    "the MCP server `{server}` runs in {}, which {plugin} may write; known kinds of code there are protected, \
                     but not everything that the server might load; set `directory` to a separate folder for the server",
                    directory.display()
                ));
            }
        }
    }
    warnings
}

/// Collects the paths that are protected for one server.
struct PathCollector<'a> {
    /// Folder that contains the agent's file.
    agent: &'a Path,
    /// Working directory of the server, to which relative paths are joined.
    working_directory: PathBuf,
    /// Description of the protected paths, for messages.
    what: &'a str,
    /// Files that programs look for in the folders above the code. Files in this list are added after all other paths,
    /// so that messages mention them last.
    ancestor_files: Vec<PathBuf>,
    paths: Vec<ProtectedPath>,
}

impl PathCollector<'_> {
    fn add(&mut self, path: PathBuf, kind: ProtectedKind) {
        let path = protected_path(path, self.what, kind);
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    /// Adds a program and its folder to the protected paths. If the program is in the folder `bin` of a Python virtual
    /// environment, the files next to `bin` are added, because the program loads these files.
    fn add_program(&mut self, program: &Path) {
        self.add(program.to_owned(), ProtectedKind::File);
        let Some(folder) = program.parent() else { return };
        self.add_folder(folder);
        let is_program_folder =
            folder.file_name().is_some_and(|name| ["bin", "Scripts"].map(OsStr::new).contains(&name));
        if let Some(environment) =
            folder.parent().filter(|parent| is_program_folder && parent.join("pyvenv.cfg").is_file())
        {
            self.add_folder(environment);
        }
        // If the program is a link, the package that contains the link's target is added, because the program loads
        // code from this package. The folder of the target is not added: the interpreter of a virtual environment is a
        // link, and it does not load code from the folder of the link's target.
        if let Ok(target) = program.canonicalize() {
            self.add_package_folder(&target);
        }
        self.add_package_folder(program);
    }

    /// Adds a folder that `PATH` contains, so that no plugin can create a program with the name of the command in
    /// this folder.
    fn add_path_folder(&mut self, command: &str, searched: &Path) {
        let folder = self.working_directory.join(searched);
        self.add(folder.join(command), ProtectedKind::File);
        self.add_folder(&folder);
        if folder.join(command).is_file() {
            self.add_program(&folder.join(command));
        }
    }

    /// Adds the paths of code in a variable, such as `PYTHONPATH=lib:more` or `NODE_OPTIONS=--require ./first.js`.
    fn add_variable(&mut self, name: &str, value: &str) {
        for word in possible_paths(value).flat_map(|word| word.split(':')).filter(|word| !word.is_empty()) {
            let path = self.working_directory.join(word);
            match path.is_dir() {
                true => self.add_folder(&path),
                false if path.is_file() => self.add_script(&path, None),
                // The path is protected although no file has this path, because a plugin could create such a file.
                false if word.contains(std::path::is_separator) || name.to_ascii_uppercase().contains("PATH") => {
                    self.add(path, ProtectedKind::File);
                }
                false => {}
            }
        }
    }

    /// Adds a script, or a folder with scripts.
    fn add_script(&mut self, script: &Path, language: Option<&'static Language>) {
        let Ok(metadata) = std::fs::metadata(script) else { return };
        self.add_package_folder(script);
        if metadata.is_dir() {
            return self.add_folder(script);
        }
        if let Some(parent) = script.parent() {
            self.add_folder(parent);
            let by_ending =
                LANGUAGES.iter().copied().find(|known| known.scripts.iter().any(|ending| has_ending(script, ending)));
            by_ending.or(language).into_iter().for_each(|language| self.add_code_files(parent, language));
        }
        self.add(script.to_owned(), ProtectedKind::File);
    }

    /// Adds a code folder with all its contents, because interpreters load files next to a script. If the code
    /// folder contains the agent's folder, nothing is added, because plugins work in the agent's folder.
    fn add_folder(&mut self, code: &Path) {
        if let Some(canonical) = code.canonicalize().ok().filter(|canonical| !self.contains_agent(canonical)) {
            self.add(canonical, ProtectedKind::Folder);
        }
    }

    /// Adds the files that programs of a language look for in the folders above a code folder. If the code folder
    /// contains the agent's folder, also adds each file in the code folder whose name shows that the file is code.
    fn add_code_files(&mut self, code: &Path, language: &Language) {
        let Ok(canonical) = code.canonicalize() else { return };
        self.ancestor_files
            .extend(canonical.ancestors().flat_map(|above| language.above.iter().map(|name| above.join(name))));
        if self.contains_agent(&canonical) {
            self.add(canonical, ProtectedKind::CodeFiles(language.loads));
        }
    }

    /// If the script is in a folder of installed packages, such as `node_modules`, adds this folder, because packages
    /// load other packages.
    fn add_package_folder(&mut self, script: &Path) {
        let is_package_folder = |component: Component<'_>| {
            ["node_modules", "site-packages"].map(OsStr::new).contains(&component.as_os_str())
        };
        if let Some(index) = script.components().position(is_package_folder) {
            self.add_folder(&script.components().take(index + 1).collect::<PathBuf>());
        }
    }

    /// Adds the files and folders that a program reads. Files and folders that do not exist are added as well, because
    /// a plugin could create them.
    fn add_program_inputs(&mut self, program: &Program) {
        for folder in program.folders {
            self.add(self.working_directory.join(folder), ProtectedKind::Folder);
        }
        for file in program.files {
            self.add(self.working_directory.join(file), ProtectedKind::File);
        }
    }

    /// Whether `folder` contains the folder of the agent, or the current folder of the host.
    fn contains_agent(&self, folder: &Path) -> bool {
        let contains = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(folder));
        contains(self.agent) || contains(Path::new("."))
    }
}

fn has_ending(script: &Path, ending: &str) -> bool {
    script.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    /// Returns the protected paths inside the agent's folder, relative to this folder.
    fn protected(folder: &Path, toml: &str) -> Vec<(String, ProtectedKind)> {
        let settings = settings(folder, &format!("model = \"scripted:replies.json\"\n[mcp.notes]\n{toml}"));
        let agent = folder.canonicalize().expect("exists");
        let paths = server_paths("notes", &settings.file.mcp["notes"], &agent, &|_| None);
        let shown = paths.into_iter().filter_map(|path| {
            let components = path.path.strip_prefix(&agent).ok()?.components();
            let relative: PathBuf = components.filter(|component| *component != Component::CurDir).collect();
            Some((relative.to_string_lossy().into_owned(), path.kind))
        });
        shown.collect()
    }

    /// Creates an agent's folder that contains the files of servers.
    fn folder_with_servers() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = directory.path();
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
        directory
    }

    /// P13, row 40: files that an interpreter or a package manager loads are protected together with the script.
    #[test]
    fn p13_protects_the_files_that_a_server_loads() {
        use ProtectedKind::{File, Folder};
        let directory = folder_with_servers();
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
            let found = protected(directory.path(), toml);
            for (name, kind) in expected {
                assert!(
                    found.contains(&((*name).to_owned(), *kind)),
                    "{toml}\ndoes not protect {name} {kind:?}: {found:#?}"
                );
            }
        }
    }

    /// P13: the user is warned if a server runs in the agent's folder, where only files with known names are protected.
    #[test]
    fn p13_warns_of_a_server_in_a_writable_folder() {
        let folder = folder_with_servers();
        let text = |directory: &str| {
            format!(
                "model = \"scripted:replies.json\"\n[mcp.notes]\ncommand = \"notes\"\ndirectory = \"{directory}\"\n\
                 [plugins.files.grants]\nwrite = [\".\"]\n"
            )
        };
        let warnings = |directory: &str| {
            let settings = settings(folder.path(), &text(directory));
            in_writable_folders(&settings, &super::super::granted_trees(&settings))
        };
        assert_eq!(warnings("servers"), Vec::<String>::new());
        assert!(matches!(&warnings(".")[..], [one] if one.contains("`notes` runs in")), "{:?}", warnings("."));
    }
}
