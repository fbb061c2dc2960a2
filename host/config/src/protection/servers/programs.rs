//! Known programs that run code from folders: interpreters, package managers and build tools.

use super::super::native_builds::CARGO_ANCESTOR_FILES;

/// In a list of file name extensions, this value represents all names without an extension.
/// See [`agent_plugins::ProtectedKind::CodeFiles`].
const NO_EXTENSION: &str = agent_plugins::NO_EXTENSION;

/// A programming language, with the names of the files that its programs load as code.
pub(super) struct Language {
    /// Endings of the names of scripts.
    pub(super) scripts: &'static [&'static str],
    /// Name endings of the files that a script loads from its own folder and from the working directory.
    pub(super) loads: &'static [&'static str],
    /// Names of files and folders that programs look for in the folder of a script, in the working directory, and in
    /// every folder above these two folders.
    pub(super) above: &'static [&'static str],
}

static PYTHON: Language = Language {
    scripts: &[".py", ".pyw", ".pyz"],
    loads: &[".py", ".pyw", ".pyc", ".pyd", ".so", ".pth", ".pyz", ".egg", ".zip", "pyvenv.cfg", ".env"],
    above: &["pyvenv.cfg"],
};
static JAVASCRIPT: Language = Language {
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
        ".sh",
        ".npmrc",
        ".env",
        "package.json",
        "tsconfig.json",
        "deno.json",
        "deno.jsonc",
        "bunfig.toml",
        NO_EXTENSION,
    ],
    above: &["node_modules", "package.json", "tsconfig.json", ".npmrc", ".pnp.cjs", ".pnp.loader.mjs"],
};
static RUBY: Language = Language {
    scripts: &[".rb"],
    loads: &[".rb", ".so", "gemfile", ".gemspec", ".env"],
    above: &["Gemfile", ".bundle"],
};
static PERL: Language = Language { scripts: &[".pl"], loads: &[".pl", ".pm", ".so", NO_EXTENSION], above: &[] };
static PHP: Language =
    Language { scripts: &[".php"], loads: &[".php", ".phar", ".inc", "php.ini", ".user.ini", ".env"], above: &[] };
static LUA: Language = Language { scripts: &[".lua"], loads: &[".lua", ".so", ".luarc"], above: &[] };
static SHELL: Language = Language {
    scripts: &[".sh", ".bash", ".zsh", ".fish", ".ps1"],
    loads: &[".sh", ".bash", ".zsh", ".fish", ".ps1", ".env", ".envrc", NO_EXTENSION],
    above: &[],
};
static RUST: Language = Language {
    scripts: &[],
    loads: &[".rs", "cargo.toml", "cargo.lock", "rust-toolchain", "rust-toolchain.toml"],
    above: &CARGO_ANCESTOR_FILES,
};
static GO: Language = Language {
    scripts: &[],
    loads: &[".go", ".s", ".c", ".h", ".cc", ".cpp", "go.mod", "go.sum", "go.work"],
    above: &["go.mod", "go.work", "vendor"],
};
static JAVA: Language =
    Language { scripts: &[".jar", ".java"], loads: &[".jar", ".class", ".java", ".kts", ".gradle"], above: &[] };

/// All known languages, which are used to recognise scripts by their file name extensions.
pub(super) static LANGUAGES: [&Language; 10] =
    [&PYTHON, &JAVASCRIPT, &RUBY, &PERL, &PHP, &LUA, &SHELL, &RUST, &GO, &JAVA];

/// A known program that runs code.
pub(super) struct Program {
    /// Names of the program, without versions.
    commands: &'static [&'static str],
    /// Languages of the code that the program runs.
    pub(super) runs: &'static [&'static Language],
    /// Files in the working directory that determine what the program runs.
    pub(super) files: &'static [&'static str],
    /// Folders in the working directory that contain code that the program runs.
    pub(super) folders: &'static [&'static str],
}

impl Program {
    const fn interpreter(commands: &'static [&'static str], runs: &'static [&'static Language]) -> Self {
        Self { commands, runs, files: &[], folders: &[] }
    }
}

const NODE_FILES: [&str; 12] = [
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
];
const PYTHON_FILES: [&str; 8] =
    ["pyproject.toml", "uv.toml", "uv.lock", "poetry.toml", "poetry.lock", ".python-version", "setup.py", "setup.cfg"];

static PROGRAMS: [Program; 16] = [
    Program::interpreter(&["python", "pythonw", "pypy"], &[&PYTHON]),
    Program::interpreter(&["node", "nodejs", "tsx", "ts-node"], &[&JAVASCRIPT]),
    Program::interpreter(&["ruby", "bundle", "rake"], &[&RUBY]),
    Program::interpreter(&["perl"], &[&PERL]),
    Program::interpreter(&["php"], &[&PHP]),
    Program::interpreter(&["lua", "luajit"], &[&LUA]),
    Program::interpreter(&["sh", "bash", "dash", "zsh", "ksh", "fish", "pwsh", "powershell"], &[&SHELL]),
    Program::interpreter(&["java", "gradle", "mvn", "jbang"], &[&JAVA]),
    // `npx`, `pnpx` and `bunx` run a package from their own cache, unless the working directory contains a package with
    // the same name.
    Program { commands: &["npx", "pnpx", "bunx"], runs: &[], files: &NODE_FILES, folders: &["node_modules", ".yarn"] },
    Program {
        commands: &["npm", "pnpm", "yarn", "bun", "deno"],
        runs: &[&JAVASCRIPT, &SHELL],
        files: &NODE_FILES,
        folders: &["node_modules", ".yarn"],
    },
    Program { commands: &["uvx", "pipx"], runs: &[], files: &PYTHON_FILES, folders: &[".venv", "__pypackages__"] },
    Program {
        commands: &["uv", "poetry", "pdm", "hatch", "rye", "pipenv", "pixi"],
        runs: &[&PYTHON],
        files: &PYTHON_FILES,
        folders: &[".venv", "__pypackages__"],
    },
    Program {
        commands: &["cargo", "rustup"],
        runs: &[&RUST],
        files: &["Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain", "rust-toolchain.toml"],
        folders: &[".cargo", "src", "target"],
    },
    Program { commands: &["go"], runs: &[&GO], files: &["go.mod", "go.sum", "go.work"], folders: &["vendor"] },
    // `make`, `just` and similar build tools may run code in any language.
    Program {
        commands: &["make", "gmake", "just", "task"],
        runs: &[&PYTHON, &JAVASCRIPT, &RUBY, &PERL, &SHELL, &RUST, &GO],
        files: &["Makefile", "GNUmakefile", "justfile", ".justfile", "Taskfile.yml", "Taskfile.yaml"],
        folders: &[],
    },
    Program {
        commands: &["docker", "docker-compose", "podman", "podman-compose"],
        runs: &[&PYTHON, &JAVASCRIPT, &SHELL],
        files: &["Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", ".env"],
        folders: &[],
    },
];

/// Beginnings of the names of environment variables that contain paths of code.
const CODE_VARIABLE_PREFIXES: [&str; 33] = [
    "BASH_ENV",
    "BUN_",
    "BUNDLE_",
    "CARGO",
    "CLASSPATH",
    "CONDA_",
    "DENO_",
    "DYLD_",
    "ENV",
    "GEM_",
    "GIT_",
    "GOPATH",
    "GOROOT",
    "GOFLAGS",
    "GOENV",
    "HOME",
    "JAVA_",
    "JDK_",
    "LD_",
    "LUA_",
    "MAKE",
    "NODE_",
    "NPM_",
    "PATH",
    "PERL",
    "PHP",
    "PYTHON",
    "RUBY",
    "RUST",
    "UV_",
    "VIRTUAL_ENV",
    "XDG_",
    "ZDOTDIR",
];

/// Whether the variable with this name can contain paths of code that programs load.
pub(super) fn can_contain_code_paths(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    CODE_VARIABLE_PREFIXES.iter().any(|beginning| variable.starts_with(beginning))
}

/// Returns the known program that a command names, such as `/usr/bin/python3.12`. The folder and the version in the
/// command are ignored.
pub(super) fn program(command: &str) -> Option<&'static Program> {
    let name = base_name(command);
    let is_version =
        |suffix: &str| suffix.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b't'));
    PROGRAMS
        .iter()
        .find(|known| known.commands.iter().any(|command| name.strip_prefix(command).is_some_and(is_version)))
}

/// Returns the name of a program in lower case, without its folder and its extension.
fn base_name(command: &str) -> String {
    let name = command.rsplit(std::path::is_separator).next().unwrap_or(command).to_ascii_lowercase();
    let endings = [".exe", ".cmd", ".bat"];
    endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name).to_owned()
}
