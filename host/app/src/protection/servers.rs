//! What an MCP server runs. It is native code, so that no plugin may write what its program, its interpreter or its package
//! manager loads (P13, row 40).

use super::path;
use crate::configuration::McpTable;
use agent_plugins::{ProtectedKind, ProtectedPath};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// What an interpreter loads from the folder of a script, and from the folder that it runs in.
struct Interpreter {
    /// Names of its programs, without versions.
    commands: &'static [&'static str],
    /// Endings of its scripts.
    scripts: &'static [&'static str],
    /// Endings of what it loads.
    loads: &'static [&'static str],
}

const INTERPRETERS: [Interpreter; 7] = [
    Interpreter {
        commands: &["python", "pythonw", "pypy"],
        scripts: &[".py", ".pyw", ".pyz"],
        loads: &[".py", ".pyw", ".pyc", ".pyd", ".so", ".pth", ".pyz"],
    },
    Interpreter {
        commands: &["node", "nodejs", "deno", "bun", "tsx", "ts-node"],
        scripts: &[".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"],
        loads: &[
            ".js",
            ".mjs",
            ".cjs",
            ".ts",
            ".mts",
            ".cts",
            ".jsx",
            ".tsx",
            ".node",
            ".wasm",
            "package.json",
            "tsconfig.json",
            "deno.json",
            "deno.jsonc",
            "bunfig.toml",
        ],
    },
    Interpreter { commands: &["ruby"], scripts: &[".rb"], loads: &[".rb", ".so", "gemfile"] },
    Interpreter { commands: &["perl"], scripts: &[".pl"], loads: &[".pl", ".pm", ".so"] },
    Interpreter { commands: &["php"], scripts: &[".php"], loads: &[".php", ".phar"] },
    Interpreter { commands: &["lua", "luajit"], scripts: &[".lua"], loads: &[".lua", ".so"] },
    Interpreter {
        commands: &["sh", "bash", "dash", "zsh", "fish", "pwsh", "powershell"],
        scripts: &[".sh", ".bash", ".zsh", ".fish", ".ps1"],
        loads: &[".sh", ".bash", ".zsh", ".fish", ".ps1"],
    },
];

/// What a package manager or a build tool reads, in the folder that it runs in, to decide what it runs.
struct Launcher {
    commands: &'static [&'static str],
    files: &'static [&'static str],
    folders: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 6] = [
    Launcher {
        commands: &["npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno"],
        files: &[
            "package.json",
            "package-lock.json",
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            ".pnpmfile.cjs",
            "pnpm-workspace.yaml",
            "bunfig.toml",
            "deno.json",
            "deno.jsonc",
        ],
        folders: &["node_modules", ".yarn"],
    },
    Launcher {
        commands: &["uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye"],
        files: &[
            "pyproject.toml",
            "uv.toml",
            "uv.lock",
            "poetry.toml",
            "poetry.lock",
            ".python-version",
            "setup.py",
            "setup.cfg",
        ],
        folders: &[".venv", "__pypackages__"],
    },
    Launcher {
        commands: &["cargo", "rustup"],
        files: &["Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain", "rust-toolchain.toml"],
        folders: &[".cargo", "src"],
    },
    Launcher { commands: &["go"], files: &["go.mod", "go.sum", "go.work"], folders: &["vendor"] },
    Launcher {
        commands: &["make", "gmake", "just", "task"],
        files: &["Makefile", "GNUmakefile", "justfile", ".justfile", "Taskfile.yml", "Taskfile.yaml"],
        folders: &[],
    },
    Launcher {
        commands: &["docker", "docker-compose", "podman"],
        files: &["Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", ".env"],
        folders: &[],
    },
];

/// The program, the scripts that it is started with, the folders that they are in, and what is loaded from the folder that it
/// runs in.
pub(super) fn of_server(name: &str, table: &McpTable, folder: &Path) -> Vec<ProtectedPath> {
    let Some(command) = table.command.as_ref().map(|command| &*command.value) else { return Vec::new() };
    let what = format!("what the MCP server `{name}` runs");
    // Without a directory of its own it runs where the host does.
    let working = table.directory.as_ref().map_or_else(|| PathBuf::from("."), |directory| folder.join(directory));
    let mut found = Found { agent: folder, what: &what, paths: Vec::new() };
    if command.contains(std::path::is_separator) {
        found.program(&folder.join(command));
    }
    let interpreter = INTERPRETERS.iter().find(|known| is_one_of(command, known.commands));
    if let Some(interpreter) = interpreter {
        found.code(&working, interpreter);
    }
    // `--script=run.py` names a file, too.
    let words = table.args.iter().flat_map(|arg| [Some(arg.as_str()), arg.split_once('=').map(|(_, value)| value)]);
    for word in words.flatten().filter(|word| !word.is_empty()) {
        for script in [working.join(word), folder.join(word)] {
            found.script(&script, interpreter);
        }
    }
    found.folder(&working);
    for launcher in LAUNCHERS.iter().filter(|known| known.commands.contains(&&*base_name(command))) {
        found.launcher(&working, launcher);
    }
    found.paths
}

struct Found<'a> {
    agent: &'a Path,
    what: &'a str,
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
        if let Some(environment) = folder.parent().filter(|_| is_of_programs) {
            self.folder(environment);
        }
        self.packages(program);
    }

    /// A script, or a folder with scripts.
    fn script(&mut self, script: &Path, interpreter: Option<&Interpreter>) {
        let Ok(found) = std::fs::metadata(script) else { return };
        self.packages(script);
        if found.is_dir() {
            return self.folder(script);
        }
        if let Some(parent) = script.parent() {
            self.folder(parent);
            let by_ending = INTERPRETERS.iter().find(|known| known.scripts.iter().any(|ending| ends(script, ending)));
            by_ending.or(interpreter).into_iter().for_each(|interpreter| self.code(parent, interpreter));
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

    /// In the folder of the whole agent, names tell what the interpreter loads.
    fn code(&mut self, code: &Path, interpreter: &Interpreter) {
        if let Some(whole) = code.canonicalize().ok().filter(|whole| self.holds_whole_agent(whole)) {
            self.add(whole, ProtectedKind::CodeFiles(interpreter.loads));
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
    fn launcher(&mut self, working: &Path, launcher: &Launcher) {
        for folder in launcher.folders {
            self.add(working.join(folder), ProtectedKind::Folder);
        }
        for file in launcher.files {
            self.add(working.join(file), ProtectedKind::File);
        }
    }

    /// Whether the agent, or the folder in which the host runs, lies in this folder.
    fn holds_whole_agent(&self, folder: &Path) -> bool {
        let holds = |place: &Path| place.canonicalize().is_ok_and(|place| place.starts_with(folder));
        holds(self.agent) || holds(Path::new("."))
    }
}

/// The name of a program without its folder and its ending.
fn base_name(command: &str) -> String {
    let name = command.rsplit(std::path::is_separator).next().unwrap_or(command).to_ascii_lowercase();
    let endings = [".exe", ".cmd", ".bat"];
    endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name).to_owned()
}

/// Whether it is one of these programs, in whatever version: `python3.12`.
fn is_one_of(command: &str, programs: &[&str]) -> bool {
    let name = base_name(command);
    let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b't'));
    programs.iter().any(|program| name.strip_prefix(program).is_some_and(is_version))
}

fn ends(script: &Path, ending: &str) -> bool {
    script.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    fn protected(folder: &Path, toml: &str) -> Vec<(String, ProtectedKind)> {
        let settings = settings(folder, &format!("model = \"scripted:replies.json\"\n[mcp.notes]\n{toml}"));
        let agent = folder.canonicalize().expect("there");
        let paths = of_server("notes", &settings.file.mcp["notes"], &agent);
        let shown = paths.into_iter().filter_map(|path| {
            let place = path.path.strip_prefix(&agent).ok()?.to_string_lossy().into_owned();
            Some((place, path.kind))
        });
        shown.collect()
    }

    // P13, row 40: what an interpreter or a package manager loads is protected with the script.
    #[test]
    fn p13_what_a_server_loads_is_protected() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path();
        for name in [".venv/bin", "servers", "node_modules/notes", "node_modules/other"] {
            std::fs::create_dir_all(folder.join(name)).expect("created");
        }
        for name in [".venv/bin/python", "servers/run.py", "run.py", "node_modules/notes/index.js"] {
            std::fs::write(folder.join(name), "").expect("written");
        }
        let found = |toml: &str| protected(folder, toml);
        let (file, whole) = (ProtectedKind::File, ProtectedKind::Folder);
        let python = ProtectedKind::CodeFiles(INTERPRETERS[0].loads);
        let entry = |place: &str, kind| (place.to_owned(), kind);
        assert_eq!(
            found("command = \"python3.12\"\nargs = [\"servers/run.py\"]"),
            [entry("servers", whole), entry("servers/run.py", file)]
        );
        assert_eq!(found("command = \"python3\"\nargs = [\"run.py\"]"), [entry("", python), entry("run.py", file)]);
        assert_eq!(
            found("command = \"node\"\nargs = [\"node_modules/notes/index.js\"]"),
            [
                entry("node_modules", whole),
                entry("node_modules/notes", whole),
                entry("node_modules/notes/index.js", file)
            ]
        );
        assert_eq!(
            found("command = \".venv/bin/python\"\nargs = [\"-m\", \"notes\"]\ndirectory = \"servers\""),
            [
                entry(".venv/bin/python", file),
                entry(".venv/bin", whole),
                entry(".venv", whole),
                entry("servers", whole)
            ]
        );
        assert_eq!(found("command = \"python3\"\nargs = [\"-m\", \"notes\"]\ndirectory = \".\""), [entry("", python)]);
        let npx = found("command = \"npx\"\nargs = [\"-y\", \"notes\"]\ndirectory = \".\"");
        assert!(
            npx.contains(&entry("./node_modules", whole)) || npx.contains(&entry("node_modules", whole)),
            "{npx:?}"
        );
    }
}
