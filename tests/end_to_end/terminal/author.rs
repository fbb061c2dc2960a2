//! A new author's way, step by step as a new project's README says it: from `plugin new` to a turn of somebody else, on another data
//! folder (S1, S2, S4, S5, P11).

use super::CTRL_D;
use super::screen::Screen;
use crate::kit::peer;
use crate::sharing::peers::DebianRegistry;
use crate::test_registry::TestRegistry;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// What a model would call, as README has it.
const CALL: &str = "words.count {\"text\": \"One two, and ONE more.\", \"word\": \"one\"}";

/// How long a first build may take, on a machine that does other things, too.
const TOOLCHAIN: Duration = Duration::from_secs(400);

/// Somebody with a folder and data of their own.
struct Person {
    folder: TempDir,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Person {
    fn new(variables: &[(&'static str, PathBuf)]) -> Self {
        let person = Self { folder: tempfile::tempdir().unwrap(), variables: variables.to_vec() };
        // Compiled code is kept from test to test.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("end-to-end/terminal-cache");
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::create_dir(person.path("data")).unwrap();
        std::os::unix::fs::symlink(cache, person.path("data/cache")).unwrap();
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.path(folder));
        command.envs(self.variables.iter().cloned()).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// The exit code, and what it said on both outputs.
    fn run(&self, folder: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(folder, arguments).stdin(Stdio::null()).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    }

    fn done(&self, folder: &str, arguments: &[&str]) -> String {
        let (code, text) = self.run(folder, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    }

    /// Puts one text in the place of another in a file of the project.
    fn edit(&self, file: &str, (before, after): (&str, &str)) {
        let path = self.path("words").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(before), "{text}");
        std::fs::write(path, text.replace(before, after)).unwrap();
    }
}

/// The whole way. The change counts one more.
fn way(new: &[&str], variables: &[(&'static str, PathBuf)], change: (&str, &str, &str), registry: &str) {
    let author = Person::new(variables);
    let made = author.done("", &[&["plugin", "new", "words"], new].concat());
    let readme = std::fs::read_to_string(author.path("words/README.md")).unwrap();
    for step in ["plugin build .", "plugin check .", "test .", "dev .", "plugin push ", "plugin add "] {
        assert!(readme.contains(&format!("\nagent-host {step}")), "{readme}");
    }
    assert!(
        readme.contains(&format!("\n{CALL}\n")) && made.contains("  agent-host test .\n  agent-host dev ."),
        "{made}"
    );

    let mut screen = Screen::start(author.command("words", &["dev", "."]), 60, 160).with_patience(TOOLCHAIN);
    screen.wait_for_prompt(1);
    screen.send(&format!("{CALL}\r"));
    screen.wait_for("times: 2");
    screen.wait_for_end("\n>");
    author.edit(change.0, (change.1, change.2));
    screen.wait_for("serves from the next turn on");
    screen.send(&format!("{CALL}\r"));
    screen.wait_for("times: 3");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));

    let (code, said) = author.run("words", &["test", "."]);
    assert!(code == Some(1) && said.contains("words.scenario.toml:") && said.contains("times"), "{said}");
    author.edit("words.scenario.toml", ("times = 2", "times = 3"));
    author.edit("words.scenario.toml", ("last_contains = \"2\"", "last_contains = \"3\""));
    author.done("words", &["test", "."]);
    author.done("words", &["plugin", "check", "."]);
    let reference = format!("{registry}/team/words");
    author.done("words", &["plugin", "push", &reference, "words.wasm"]);

    let user = Person::new(&[]);
    user.done("", &["plugin", "add", &reference, "--plugins", "plugins"]);
    let answer = user.done("", &["--plugins", "plugins", "--model", "offline", CALL]);
    assert!(answer.contains("times: 3"), "{answer}");
}

/// With a toolchain and a registry of others.
fn way_in(language: &str, change: (&str, &str, &str)) {
    let (Some((variables, _)), Some(registry)) = (peer(language), DebianRegistry::start()) else { return };
    way(&["--lang", language], &variables, change, &registry.host);
}

/// In Rust, with what other tests have compiled of what the SDK is built of.
#[test]
fn the_way_of_an_author_in_rust() {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("new-projects/target");
    let variables = [("CARGO_TARGET_DIR", target), ("CARGO", env!("CARGO").into())];
    let change = ("src/lib.rs", "filter(|other| *other == word).count()", "filter(|other| *other == word).count() + 1");
    way(&[], &variables, change, &TestRegistry::start().host());
}

#[test]
fn the_way_of_an_author_in_python() {
    way_in("python", ("logic.py", "count(word.lower())", "count(word.lower()) + 1"));
}

#[test]
fn the_way_of_an_author_in_javascript() {
    way_in("js", ("app.js", "word.toLowerCase()).length", "word.toLowerCase()).length + 1"));
}

#[test]
fn the_way_of_an_author_in_c() {
    way_in("c", ("app.c", "count(text, word));", "count(text, word) + 1);"));
}
