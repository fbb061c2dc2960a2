//! A plugin is worked on while a session is open: what becomes of its source is said above the line that is being typed (S5).

use super::screen::Screen;
use super::{CTRL_BACKSLASH, CTRL_C, CTRL_D};
use crate::support::{KeptCode, components};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A project in JavaScript whose `jco` copies the component that `app.js` names, or finds an error in it.
struct Bench {
    _kept: KeptCode,
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptCode::in_data(&folder.path().join("data"));
        let bench = Self { _kept: kept, folder };
        std::fs::create_dir(bench.path("project")).unwrap();
        std::fs::write(bench.path("project/plugin.toml"), "name = \"work\"\n").unwrap();
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\nif grep -q bad app.js; then echo 'app.js:1: what is this?' >&2; exit 1; fi\n\
             cp \"{}/$(cat app.js).wasm\" \"$last\"\n",
            components().display()
        );
        std::fs::write(bench.path("jco"), script).unwrap();
        std::fs::set_permissions(bench.path("jco"), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Compiled beforehand, which takes its time where the machine is busy.
        for source in ["calc", "text", "strict-json"] {
            bench.save(source);
            let checked = bench.command(&["plugin", "check", "project"]).output().unwrap();
            assert!(checked.status.success(), "{checked:?}");
        }
        std::fs::remove_file(bench.path("project/work.wasm")).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn save(&self, source: &str) {
        std::fs::write(self.path("project/.new"), source).unwrap();
        std::fs::rename(self.path("project/.new"), self.path("project/app.js")).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(arguments).args(["--data", "data"]).current_dir(self.folder.path());
        command.env("JCO", self.path("jco")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    fn start(&self, arguments: &[&str]) -> Screen {
        Screen::start(self.command(&[&["dev", "project"], arguments].concat()), 50, 160)
    }
}

/// S5: a session begins with what is built, takes up what changes, and goes on with what there was where that fails; what was
/// typed meanwhile stays.
#[test]
fn s5_changes_are_taken_up_while_somebody_types() {
    let bench = Bench::new();
    bench.save("bad");
    let mut screen = bench.start(&[]);
    screen.wait_for("app.js:1: what is this?");
    screen.wait_for("waiting for a change");
    bench.save("calc");
    screen.wait_for_end("\n>");
    screen.send("calc.evaluate {\"expr");
    screen.wait_for("{\"expr");
    bench.save("bad");
    screen.wait_for("what was built before goes on serving");
    bench.save("text");
    screen.wait_for("serves from the next turn on");
    let line = "> calc.evaluate {\"expr";
    assert!(screen.text().trim_end().ends_with(line), "{}", screen.text());
}

/// S5: what was typed is sent to the version that serves by then.
#[test]
fn s5_the_new_version_serves_the_next_turn() {
    let bench = Bench::new();
    bench.save("text");
    let mut screen = bench.start(&[]);
    screen.wait_for_prompt(1);
    screen.send("calc.evaluate {\"expression\": ");
    bench.save("calc");
    screen.wait_for("serves from the next turn on");
    screen.send("\"6 * 7\"}\r");
    screen.wait_for("42");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// S5: without an agent of its own, what is built is used as what it is; a prompt is asked again after each change.
#[test]
fn s5_a_validator_is_asked_and_a_prompt_asked_again() {
    let bench = Bench::new();
    bench.save("strict-json");
    let mut screen = bench.start(&["--prompt", "calc.evaluate {\"expression\": \"6 * 7\"}"]);
    screen.wait_for("prose, not JSON");
    screen.wait_for_end("waiting for a change; Ctrl-C leaves");
    bench.save("calc");
    screen.wait_for("42");
    screen.wait_for_end("waiting for a change; Ctrl-C leaves");
    // Somebody else has built it already when the change is seen.
    std::fs::create_dir(bench.path("other")).unwrap();
    std::fs::copy(bench.path("project/plugin.toml"), bench.path("other/plugin.toml")).unwrap();
    std::fs::write(bench.path("other/app.js"), "text").unwrap();
    assert!(bench.command(&["plugin", "build", "other"]).output().unwrap().status.success());
    std::fs::rename(bench.path("other/work.wasm"), bench.path("project/work.wasm")).unwrap();
    bench.save("text");
    screen.wait_for("No tool calc.evaluate is offered");
    screen.wait_for_end("waiting for a change; Ctrl-C leaves");
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
}

/// S5: who leaves at once in the middle of a build leaves nothing of it behind.
#[test]
fn s5_leaving_at_once_ends_the_toolchain() {
    let bench = Bench::new();
    let script =
        format!("#!/bin/sh\nsleep 600 &\necho $$ $! > {0}.new; mv {0}.new {0}\nwait\n", bench.path("pids").display());
    std::fs::write(bench.path("jco"), script).unwrap();
    bench.save("hangs");
    let mut screen = bench.start(&[]);
    screen.wait("the build hangs", |_| bench.path("pids").exists());
    screen.send(CTRL_BACKSLASH);
    assert_eq!(screen.exit_code(), Some(130));
    for process in std::fs::read_to_string(bench.path("pids")).unwrap().split_whitespace() {
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next())
        };
        screen.wait("it is gone", |_| matches!(state(), None | Some('Z' | 'X')));
    }
}
