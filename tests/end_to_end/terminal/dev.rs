//! `dev` rebuilds a plugin while a session is open. Messages about the plugin's source appear above the line that the
//! user is typing (S5).

use super::screen::Screen;
use super::{CTRL_BACKSLASH, CTRL_C, CTRL_D};
use crate::support::{SharedCompiledCode, agent_host, components};
use agent_plugins::{Manifest, with_manifest};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A JavaScript project with a program that replaces `jco`. The program copies the component that `app.js` names, or
/// reports an error in `app.js`.
struct DevProject {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl DevProject {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        let project = Self { _compiled_code: compiled_code, folder };
        std::fs::create_dir(project.path("project")).unwrap();
        std::fs::write(project.path("project/plugin.toml"), "name = \"work\"\n").unwrap();
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\nif grep -q bad app.js; then echo 'app.js:1: what is this?' >&2; exit 1; fi\n\
             cp \"{}/$(cat app.js).wasm\" \"$last\"\n",
            components().display()
        );
        std::fs::write(project.path("jco"), script).unwrap();
        std::fs::set_permissions(project.path("jco"), std::fs::Permissions::from_mode(0o755)).unwrap();
        // The setup compiles the components in advance, because the compilation takes long on a busy machine.
        for source in ["calc", "text", "strict-json"] {
            project.save(source);
            let checked = project.command(&["plugin", "check", "project"]).output().unwrap();
            assert!(checked.status.success(), "{checked:?}");
        }
        std::fs::remove_file(project.path("project/work.wasm")).unwrap();
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn save(&self, source: &str) {
        std::fs::write(self.path("project/.new"), source).unwrap();
        std::fs::rename(self.path("project/.new"), self.path("project/app.js")).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.args(arguments).args(["--data", "data"]).current_dir(self.folder.path());
        command.env("JCO", self.path("jco")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    fn start(&self, arguments: &[&str]) -> Screen {
        Screen::start(self.command(&[&["dev", "project"], arguments].concat()), 50, 160)
    }
}

/// S5: The session of `dev` starts with the first build of the plugin and loads a new build after each change. If a
/// build fails, the session keeps the previous version. Text that the user has typed stays on the input line.
#[test]
fn s5_loads_changes_while_the_user_types() {
    let project = DevProject::new();
    project.save("bad");
    let mut screen = project.start(&[]);
    screen.wait_for("app.js:1: what is this?");
    screen.wait_for("waiting for a change");
    project.save("calc");
    screen.wait_for_end("\n>");
    screen.send("calc.evaluate {\"expr");
    screen.wait_for("{\"expr");
    project.save("bad");
    screen.wait_for("the previous build stays in use");
    project.save("text");
    screen.wait_for("is used from the next turn on");
    // The terminal shows the prompt and the typed text a second time, below the message.
    screen.wait_for_end("> calc.evaluate {\"expr");
}

/// S5: A turn uses the plugin version that is loaded when the prompt of the turn is sent.
#[test]
fn s5_the_next_turn_uses_the_new_version() {
    let project = DevProject::new();
    project.save("text");
    let mut screen = project.start(&[]);
    screen.wait_for_prompt(1);
    screen.send("calc.evaluate {\"expression\": ");
    project.save("calc");
    screen.wait_for("is used from the next turn on");
    screen.send("\"6 * 7\"}\r");
    screen.wait_for("42");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// S5: Without an agent file, `dev` detects the kind of the built component and uses it, for example, as an output
/// validator. The prompt in the option `--prompt` runs after each change.
#[test]
fn s5_runs_a_validator_and_repeats_the_prompt() {
    let project = DevProject::new();
    project.save("strict-json");
    let mut screen = project.start(&["--prompt", "calc.evaluate {\"expression\": \"6 * 7\"}"]);
    screen.wait_for("prose, not JSON");
    screen.wait_for_end("waiting for a change; Ctrl-C quits");
    project.save("calc");
    screen.wait_for("42");
    screen.wait_for_end("waiting for a change; Ctrl-C quits");
    // Another process has already built the component when `dev` detects the change.
    std::fs::create_dir(project.path("other")).unwrap();
    std::fs::copy(project.path("project/plugin.toml"), project.path("other/plugin.toml")).unwrap();
    std::fs::write(project.path("other/app.js"), "text").unwrap();
    assert!(project.command(&["plugin", "build", "other"]).output().unwrap().status.success());
    std::fs::rename(project.path("other/work.wasm"), project.path("project/work.wasm")).unwrap();
    project.save("text");
    screen.wait_for("There is no tool named calc.evaluate");
    screen.wait_for_end("waiting for a change; Ctrl-C quits");
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
}

/// S5, P6: With `--agent`, the plugin that is built is one of the agent's plugins, so that the grants and secrets for it in the file
/// apply, also if the agent has no plugin folder.
#[test]
fn s5_the_agent_gets_the_built_plugin() {
    let project = DevProject::new();
    let asks = "name = \"work\"\n[asks]\nfiles = \"read\"\nsecrets = [\"API_TOKEN\"]\n";
    std::fs::write(project.path("project/plugin.toml"), asks).unwrap();
    let grants = "[plugins.work.grants]\nread = [\"docs\"]\n[plugins.work.secrets.API_TOKEN]\nenv = \"DEV_TOKEN\"\n\
                  hosts = [\"api.example.com\"]\n";
    std::fs::create_dir(project.path("docs")).unwrap();
    std::fs::write(project.path("docs/a.txt"), "one two three").unwrap();
    std::fs::write(project.path("agent.toml"), grants).unwrap();
    project.save("text");
    let start = |project: &DevProject| {
        let prompt = "text.count_file {\"path\": \"docs/a.txt\"}";
        let mut command = project.command(&["dev", "project", "--agent", "agent.toml", "--prompt", prompt]);
        command.env("DEV_TOKEN", "a-token-for-the-test");
        Screen::start(command, 50, 160)
    };
    let mut screen = start(&project);
    screen.wait_for("3 words");
    screen.wait_for_end("waiting for a change; Ctrl-C quits");
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));

    // The agent has plugins of its own. One of them is replaced for this session, and the folder does not change.
    std::fs::create_dir(project.path("plugins")).unwrap();
    std::fs::copy(components().join("calc.wasm"), project.path("plugins/calc.wasm")).unwrap();
    let older = Manifest { name: "work".into(), version: "0.1.0".into(), ..Manifest::default() };
    let older = with_manifest(&std::fs::read(components().join("strict-json.wasm")).unwrap(), &older).unwrap();
    std::fs::write(project.path("plugins/older.wasm"), &older).unwrap();
    std::fs::write(project.path("agent.toml"), format!("plugin_directory = \"plugins\"\n{grants}")).unwrap();
    let mut screen = start(&project);
    screen.wait_for("this session uses the build of `work` instead of the one in plugins");
    screen.wait_for("3 words");
    screen.wait_for_end("waiting for a change; Ctrl-C quits");
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read(project.path("plugins/older.wasm")).unwrap(), older);
    let mut files: Vec<_> =
        std::fs::read_dir(project.path("plugins")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["calc.wasm", "older.wasm"]);

    // The agent's other plugins are used, too, and the next build is used from the next turn on.
    let mut command = project.command(&["dev", "project", "--agent", "agent.toml"]);
    command.env("DEV_TOKEN", "a-token-for-the-test");
    let mut screen = Screen::start(command, 50, 160);
    screen.wait_for_prompt(1);
    screen.send("calc.evaluate {\"expression\": \"6 * 7\"}\r");
    screen.wait_for("42");
    screen.wait_for_end("\n>");
    project.save("strict-json");
    screen.wait_for("is used from the next turn on");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// S5: If the user exits immediately during a build, no toolchain process keeps running.
#[test]
fn s5_exiting_ends_the_toolchain() {
    let project = DevProject::new();
    let script =
        format!("#!/bin/sh\nsleep 600 &\necho $$ $! > {0}.new; mv {0}.new {0}\nwait\n", project.path("pids").display());
    std::fs::write(project.path("jco"), script).unwrap();
    project.save("hangs");
    let mut screen = project.start(&[]);
    screen.wait("the build hangs", |_| project.path("pids").exists());
    screen.send(CTRL_BACKSLASH);
    assert_eq!(screen.exit_code(), Some(130));
    for process in std::fs::read_to_string(project.path("pids")).unwrap().split_whitespace() {
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next())
        };
        screen.wait("the process is gone", |_| matches!(state(), None | Some('Z' | 'X')));
    }
}
