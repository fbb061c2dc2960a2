//! The first day with agent-host: `setup` and the user-wide configuration, trust in the agent.toml of a folder, and `doctor`
//! (I1, I2, P6, P14).

mod doctor;
mod plugins;
mod serve;
mod setup;
mod trust;

use crate::support::{SharedCompiledCode, agent_host, components, script};
use crate::terminal::screen::Screen;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A user with an empty home folder, a project folder with a file, installed plugins and a scripted model.
struct User {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

/// What a command without a terminal has printed.
#[derive(Debug)]
struct Printed {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl User {
    fn new(replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        for name in ["home/project", "installed"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for plugin in ["text.wasm", "files.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("installed").join(plugin)).unwrap();
        }
        let user = Self { _compiled_code: compiled_code, folder };
        std::fs::write(user.path("script.json"), script(replies).to_string()).unwrap();
        user.write("home/a.txt", "one\n");
        user.write("home/project/a.txt", "one two\n");
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Name of the scripted model.
    fn model(&self) -> String {
        format!("scripted:{}", self.path("script.json").display())
    }

    /// Writes the user-wide configuration without a terminal.
    fn set_up(&self) {
        let printed = self.run("home", &["setup", "--model", &self.model(), "--yes"]);
        assert_eq!(printed.code, Some(0), "{printed:?}");
    }

    /// Creates a command that runs in this folder, with the environment of the user.
    fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.args(arguments).current_dir(self.path(folder)).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "xterm-256color");
        command.env("HOME", self.path("home")).env("USER", "ann");
        command.env("XDG_CONFIG_HOME", self.path("home/.config")).env("AGENT_HOST_DATA", self.path("data"));
        command.env("AGENT_HOST_INSTALLED_PLUGINS", self.path("installed"));
        command
    }

    fn run(&self, folder: &str, arguments: &[&str]) -> Printed {
        let output = self.command(folder, arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn start(&self, folder: &str, arguments: &[&str]) -> Screen {
        Screen::start(self.command(folder, arguments), 50, 200)
    }

    /// Path of the user-wide configuration, relative to the user's folder.
    fn user_file() -> &'static Path {
        Path::new("home/.config/agent-host/agent.toml")
    }

    fn user_text(&self) -> String {
        self.read(&Self::user_file().display().to_string())
    }
}
