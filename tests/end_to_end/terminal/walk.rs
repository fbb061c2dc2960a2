//! Somebody who does what a page says: lays out its files, types its commands into a shell, and looks at what they print.

use super::CTRL_D;
use super::screen::Screen;
use crate::page::{Block, Typed};
use crate::support::{KeptCode, repository, scratch};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a first build may take, on a machine that does other things, too.
const TOOLCHAIN: Duration = Duration::from_secs(400);

/// Languages of blocks that are files, and how those end.
const SOURCES: [(&str, &str); 6] =
    [("toml", ".toml"), ("rust", ".rs"), ("wit", ".wit"), ("python", ".py"), ("javascript", ".js"), ("c", ".c")];

/// The file that a block is which types nothing.
pub(super) fn file_of(block: &Block) -> &str {
    let Block { section, language, text, file } = block;
    let known = SOURCES.iter().find(|(name, _)| name == language);
    let Some((_, ending)) = known else { panic!("below `{section}`, nothing checks a block of `{language}`: {text}") };
    let file = file.as_deref().filter(|file| file.ends_with(ending));
    file.unwrap_or_else(|| panic!("below `{section}`, no words say which file this is: {text}"))
}

/// Somebody at a shell, with data of their own.
pub(super) struct Walk {
    _kept: KeptCode,
    top: PathBuf,
    /// Where the shell is.
    pub(super) place: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Walk {
    /// In an empty folder, the same in each run, so that cargo knows again what it has compiled there.
    pub(super) fn begin(name: &str, variables: &[(&'static str, PathBuf)]) -> Self {
        let top = scratch().join("walks").join(name);
        if top.exists() {
            std::fs::remove_dir_all(&top).unwrap();
        }
        let place = top.join("here");
        std::fs::create_dir_all(&place).unwrap();
        // Compiled code is kept from test to test.
        let kept = KeptCode::in_data(&top.join("data"));
        Self { _kept: kept, top, place, variables: variables.to_vec() }
    }

    /// Does what the block says.
    pub(super) fn follow(&mut self, block: &Block) {
        if block.language == "console" {
            return block.typed().iter().for_each(|typed| self.do_as_typed(typed));
        }
        let path = self.place.join(file_of(block));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &block.text).unwrap();
    }

    pub(super) fn do_as_typed(&mut self, typed: &Typed) {
        let command = typed.command.as_str();
        if let Some(folder) = command.strip_prefix("cd ") {
            self.place = self.place.join(folder);
            assert!(self.place.is_dir(), "{command}: there is no {}", self.place.display());
        } else if command == "npm install" || command.ends_with("pip install -r requirements.txt") {
            self.take_what_is_installed(command);
        } else if command.starts_with("agent-host dev ") {
            let mut screen = self.session(command);
            screen.wait_for_prompt(1);
            screen.send(CTRL_D);
            assert_eq!(screen.exit_code(), Some(0), "{command}");
        } else {
            let printed = self.done(command);
            assert!(typed.prints.is_empty() || printed == typed.prints, "{command} prints {printed:?}");
        }
    }

    /// What the command prints, which must succeed.
    pub(super) fn done(&self, command: &str) -> String {
        let (code, printed, said) = self.run(command);
        assert_eq!(code, Some(0), "{command}: {printed}{said}");
        printed
    }

    /// Its exit code, and what it prints and says.
    pub(super) fn run(&self, command: &str) -> (Option<i32>, String, String) {
        let output = self.shell(command).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// A command that speaks with people.
    pub(super) fn session(&self, command: &str) -> Screen {
        Screen::start(self.shell(&format!("exec {command}")), 60, 160).with_patience(TOOLCHAIN)
    }

    /// A new shell at the place of this one, with `agent-host` on its path.
    fn shell(&self, command: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_agent-host")).parent().unwrap().to_owned();
        let of_language = self.variables.iter().filter(|(name, _)| *name == "PATH").map(|(_, path)| path.clone());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(binary).chain(of_language).chain(std::env::split_paths(&path));
        let folders: OsString = std::env::join_paths(folders).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", command]).current_dir(&self.place).envs(self.variables.iter().cloned());
        shell.env("PATH", folders).env("AGENT_HOST_DATA", self.top.join("data")).env("TERM", "xterm-256color");
        // What this test was built with is not the author's.
        shell.env_remove("NO_COLOR").env_remove("RUSTFLAGS");
        shell
    }

    /// In place of an installation: `tests/install-peers` has made it, with the versions of the same files.
    fn take_what_is_installed(&self, command: &str) {
        let peers = repository().join("tests/.peers");
        if command != "npm install" {
            std::os::unix::fs::symlink(peers.join("python"), self.place.join(".venv")).unwrap();
            self.done(".venv/bin/python -m pip install --quiet --no-index --dry-run -r requirements.txt");
            return;
        }
        std::os::unix::fs::symlink(peers.join("node/node_modules"), self.place.join("node_modules")).unwrap();
        let read = |path: PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
        let wanted = read(self.place.join("package.json"));
        for (package, version) in wanted["devDependencies"].as_object().unwrap() {
            let there = self.place.join("node_modules").join(package).join("package.json");
            assert_eq!(read(there)["version"], *version, "{package}: run tests/install-peers");
        }
    }
}
