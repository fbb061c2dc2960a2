//! Follows a documentation page as a reader would: creates its files, types its commands into a shell, and reads the
//! output.

use super::CTRL_D;
use super::screen::Screen;
use crate::documentation_page::{Block, TypedCommand};
use crate::peers::link_local_packages;
use crate::support::{SharedCompiledCode, repository, scratch};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The maximum duration of a first build on a busy machine.
const TOOLCHAIN_TIMEOUT: Duration = Duration::from_secs(400);

/// The languages of code blocks that contain files, with the file extension of each language.
const SOURCES: [(&str, &str); 7] = [
    ("toml", ".toml"),
    ("rust", ".rs"),
    ("wit", ".wit"),
    ("python", ".py"),
    ("javascript", ".js"),
    ("typescript", ".ts"),
    ("c", ".c"),
];

/// Returns the name of the file whose content this code block shows. Panics if the block does not show a file.
pub(crate) fn file_of(block: &Block) -> &str {
    let Block { section, language, text, file } = block;
    let known = SOURCES.iter().find(|(name, _)| name == language);
    let Some((_, ending)) = known else { panic!("below `{section}`, nothing checks a block of `{language}`: {text}") };
    let file = file.as_deref().filter(|file| file.ends_with(ending));
    file.unwrap_or_else(|| panic!("below `{section}`, no text names the file of this block: {text}"))
}

/// A user who types commands into a shell and has a data folder that no other test uses.
pub(crate) struct ShellUser {
    // The fields are dropped in this order, so the code is stored for other tests before the folder is removed.
    _compiled_code: SharedCompiledCode,
    _folder: RemovedOnSuccess,
    top: PathBuf,
    /// The current folder of the shell.
    pub(crate) current_folder: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

/// A folder that is removed at the end of a test, unless the test fails. All walks together would need half a gigabyte.
struct RemovedOnSuccess(PathBuf);

impl Drop for RemovedOnSuccess {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl ShellUser {
    /// Creates a user whose current folder is empty. The path of this folder is always the same, so that cargo reuses
    /// crates that it has already compiled in this folder.
    pub(crate) fn begin(name: &str, variables: &[(&'static str, PathBuf)]) -> Self {
        let top = scratch().join("walks").join(name);
        if top.exists() {
            std::fs::remove_dir_all(&top).unwrap();
        }
        let current_folder = top.join("here");
        std::fs::create_dir_all(&current_folder).unwrap();
        // The user's data folder shares its compiled code with other tests.
        let compiled_code = SharedCompiledCode::in_data(&top.join("data"));
        let folder = RemovedOnSuccess(top.clone());
        Self { _compiled_code: compiled_code, _folder: folder, top, current_folder, variables: variables.to_vec() }
    }

    /// Creates the file that the code block contains, or runs the commands of the block.
    pub(crate) fn follow_block(&mut self, block: &Block) {
        if block.language == "console" {
            return block.typed().iter().for_each(|typed| self.run_typed(typed));
        }
        let path = self.current_folder.join(file_of(block));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &block.text).unwrap();
    }

    pub(crate) fn run_typed(&mut self, typed: &TypedCommand) {
        let command = typed.command.as_str();
        if let Some(folder) = command.strip_prefix("cd ") {
            self.current_folder = self.current_folder.join(folder);
            assert!(self.current_folder.is_dir(), "{command}: there is no {}", self.current_folder.display());
        } else if command == "npm install" || command.ends_with("pip install -r requirements.txt") {
            self.use_installed_packages(command);
        } else if command.starts_with("agent-host dev ") {
            let mut screen = self.session(command);
            screen.wait_for_prompt(1);
            screen.send(CTRL_D);
            assert_eq!(screen.exit_code(), Some(0), "{command}");
        } else {
            let printed = self.succeed(command);
            assert!(typed.prints.is_empty() || printed == typed.prints, "{command} prints {printed:?}");
        }
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub(crate) fn succeed(&self, command: &str) -> String {
        let (code, printed, stderr) = self.run(command);
        assert_eq!(code, Some(0), "{command}: {printed}{stderr}");
        printed
    }

    /// Runs a command, and returns its exit code, stdout and stderr.
    pub(crate) fn run(&self, command: &str) -> (Option<i32>, String, String) {
        let output = self.shell(command).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Starts an interactive command on a terminal.
    pub(crate) fn session(&self, command: &str) -> Screen {
        Screen::start(self.shell(&format!("exec {command}")), 60, 160).with_max_wait(TOOLCHAIN_TIMEOUT)
    }

    /// Creates a shell in the current folder, with `agent-host` on its path.
    fn shell(&self, command: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_agent-host")).parent().unwrap().to_owned();
        let language_paths = self.variables.iter().filter(|(name, _)| *name == "PATH").map(|(_, path)| path.clone());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(binary).chain(language_paths).chain(std::env::split_paths(&path));
        let folders: OsString = std::env::join_paths(folders).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", command]).current_dir(&self.current_folder).envs(self.variables.iter().cloned());
        shell.env("PATH", folders).env("AGENT_HOST_DATA", self.top.join("data")).env("TERM", "xterm-256color");
        // Removes environment variables that may be set for the build of this test, because they are not set for a
        // plugin author.
        shell.env_remove("NO_COLOR").env_remove("RUSTFLAGS");
        shell
    }

    /// Does what an installation command of a page would do, but does not download the packages: `tests/install-peers`
    /// has already installed the same versions of the packages.
    fn use_installed_packages(&self, command: &str) {
        let peers = repository().join("tests/.peers");
        if command != "npm install" {
            std::os::unix::fs::symlink(peers.join("python"), self.current_folder.join(".venv")).unwrap();
            self.succeed(".venv/bin/python -m pip install --quiet --no-index --dry-run -r requirements.txt");
            return;
        }
        // The folder is not a link, because the packages in folders of the project are linked into it, too.
        let packages = self.current_folder.join("node_modules");
        std::fs::create_dir(&packages).unwrap();
        for entry in std::fs::read_dir(peers.join("node/node_modules")).unwrap().map(|entry| entry.unwrap()) {
            std::os::unix::fs::symlink(entry.path(), packages.join(entry.file_name())).unwrap();
        }
        link_local_packages(&self.current_folder);
        let read = |path: PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
        let wanted = read(self.current_folder.join("package.json"));
        for (package, version) in wanted["devDependencies"].as_object().unwrap() {
            let package_file = self.current_folder.join("node_modules").join(package).join("package.json");
            assert_eq!(read(package_file)["version"], *version, "{package}: run tests/install-peers");
        }
    }
}
