//! A plugin that lacks something is about to be used for the first time, and the person at the terminal is asked (P6).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::support::{KeptCode, calling, components, saying, script};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const QUESTION: &str = "grant this? y this run, a always, n no, ? help >";
/// An agent.toml as somebody writes one.
const FILE: &str = "# my agent\nplugin_directory = \"../plugins\" # beside it\n\n[approval]\ndestructive = \"ask\"\n";

/// Plugins, a folder to work in, and a model that says what it is told to.
pub(super) struct Place {
    _kept: KeptCode,
    folder: TempDir,
}

impl Place {
    pub(super) fn new(file: &str, replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "work", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for plugin in ["text.wasm", "notes.wasm", "probe.wasm", "project-context.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).unwrap();
        }
        std::fs::write(folder.path().join("script.json"), script(replies).to_string()).unwrap();
        std::fs::write(folder.path().join("work/agent.toml"), file).unwrap();
        std::fs::write(folder.path().join("work/a.txt"), "one two\n").unwrap();
        std::fs::write(folder.path().join("other/b.txt"), "one two three\n").unwrap();
        Self { _kept: kept, folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub(super) fn file(&self) -> String {
        std::fs::read_to_string(self.path("work/agent.toml")).unwrap()
    }

    /// Of the agent of the file.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.without_agent(arguments);
        command.args(["--agent", "agent.toml"]);
        command
    }

    fn without_agent(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(["--model", &format!("scripted:{}", self.path("script.json").display())]);
        command.arg("--data").arg(self.path("data")).args(arguments);
        command.current_dir(self.path("work")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    fn start(&self, command: Command) -> Screen {
        Screen::start(command, 50, 200)
    }

    pub(super) fn session(&self) -> Screen {
        let screen = self.start(self.command(&[]));
        screen.wait_for_prompt(1);
        screen
    }

    /// What the binary writes to stdout where nobody is at a terminal.
    fn output(&self, mut command: Command) -> String {
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

pub(super) fn count() -> Value {
    calling(&[("text.count_file", json!({"path": "a.txt"}))])
}

/// P6: yes for this run: this very call has the grant, the next ones are not asked about; the next process is.
#[test]
fn p6_the_first_use_asks_and_a_yes_holds_for_this_run() {
    let replies = [count(), saying("First."), count(), saying("Second.")];
    let place = Place::new(FILE, &replies);
    let mut screen = place.session();
    screen.send("Count.\r");
    screen.wait_for_end(QUESTION);
    let shown = screen.text();
    let what = format!("  reading whatever is in {}  read = [\".\"]\n", place.path("work").display());
    assert!(
        shown.contains("first use: text ") && shown.contains(" asks for this, to run text.count_file (agent work-")
    );
    assert!(shown.contains(&what), "{shown}");
    screen.send("perhaps\r");
    screen.wait_for("another folder instead of the one that is shown");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nFirst.\n");
    assert!(screen.text().contains("a.txt has 1 line"), "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal is as it was");
    assert_eq!(place.file(), FILE);
    let audit = place.output(binary(&place, &["audit"]));
    assert!(audit.contains(&format!("read {}", place.path("work").display())), "O3: {audit}");
    let again = place.session_that_asks();
    drop(again);
}

fn binary(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.args(arguments).arg("--data").arg(place.path("data")).current_dir(place.path("work"));
    command
}

impl Place {
    fn session_that_asks(&self) -> Screen {
        let mut screen = self.session();
        screen.send("Count.\r");
        screen.wait_for_end(QUESTION);
        screen
    }
}

/// P6: always: just what was shown stands in the file, whose comments and layout are as they were, and no later process asks.
#[test]
fn p6_always_is_written_into_the_file() {
    let place = Place::new(FILE, &[count(), saying("First.")]);
    let mut screen = place.session_that_asks();
    screen.send("a\r");
    screen.wait_for("\nFirst.\n");
    assert!(screen.text().contains("a.txt has 1 line"), "{}", screen.text());
    assert_eq!(place.file(), format!("{FILE}\n[plugins.text.grants]\nread = [\".\"]\n"));
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let mut screen = place.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    assert!(!screen.text().contains("first use"), "{}", screen.text());
}

/// P6: another folder than the one that is shown is granted and written instead of it.
#[test]
fn p6_another_folder_can_be_named() {
    let place = Place::new(FILE, &[]);
    let folder = place.path("other");
    let reply = calling(&[("text.count_file", json!({"path": folder.join("b.txt")}))]);
    std::fs::write(place.path("script.json"), script(&[reply, saying("Done.")]).to_string()).unwrap();
    let mut screen = place.session_that_asks();
    screen.send("d ../nowhere\r");
    screen.wait_for("not by a yes: reading files");
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("a yes would give nothing here");
    screen.wait_for_end(QUESTION);
    screen.send("d ../other\r");
    screen.wait_for(&format!("reading whatever is in {}  read", folder.display()));
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("\nDone.\n");
    assert!(screen.text().contains("b.txt has 1 line, 3 words"), "{}", screen.text());
    assert!(place.file().ends_with(&format!("read = [\"{}\"]\n", folder.display())), "{}", place.file());
}

/// P6: no is the default; the denial names the line, and nobody is asked again in this run. Never is written.
#[test]
fn p6_no_holds_for_this_run_and_never_for_good() {
    let replies = [count(), saying("First."), count(), saying("Second.")];
    let place = Place::new(FILE, &replies);
    let mut screen = place.session_that_asks();
    screen.send("\r");
    screen.wait_for("\nFirst.\n");
    assert!(
        screen.text().contains("read = [\".\"]") && screen.text().contains("was denied reading files"),
        "{}",
        screen.text()
    );
    screen.wait_for_end("\n>");
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    assert_eq!(place.file(), FILE);
    drop(screen);
    let mut screen = place.session_that_asks();
    screen.send("never\r");
    screen.wait_for("\nFirst.\n");
    assert_eq!(place.file(), format!("{FILE}\n[plugins.text.grants]\nask = false\n"));
    drop(screen);
    let mut screen = place.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    assert!(!screen.text().contains("first use"), "{}", screen.text());
}

/// L29: Ctrl-C at the question cancels the turn; nothing has begun, nothing was answered.
#[test]
fn l29_ctrl_c_at_the_question_cancels_the_turn() {
    let place = Place::new(FILE, &[count(), count(), saying("Done.")]);
    let mut screen = place.session_that_asks();
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    let shown = screen.text();
    assert!(shown.contains("cancelled") && !shown.contains("outcome unknown"), "{shown}");
    screen.send("Again.\r");
    screen.wait("the question again", |shown| {
        shown.matches("first use").count() == 2 && shown.trim_end().ends_with(QUESTION)
    });
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(place.file(), FILE);
}

/// P6, D3: a process that dies at the question has begun nothing: the turn goes on without a doubt.
#[test]
fn p6_a_crash_at_the_question_leaves_nothing_unknown() {
    let place = Place::new(FILE, &[count(), saying("Done.")]);
    drop(place.session_that_asks());
    let shown = place.output(place.command(&["--continue", "--grant", "text:read=."]));
    // What was not granted when the turn began is not granted in the middle of it by another process (P10).
    assert!(shown.contains("denied reading files") && shown.contains("Done."), "{shown}");
    assert!(!shown.contains("outcome unknown"), "{shown}");
}

/// P6: in scripts nobody is asked, and the denial names the line.
#[test]
fn p6_nobody_is_asked_in_scripts() {
    let place = Place::new(FILE, &[count(), saying("Done.")]);
    let denied = |shown: &str| shown.contains("[plugins.text.grants]") && shown.contains("Done.");
    let shown = place.output(place.command(&["--json", "Count."]));
    assert!(denied(&shown) && !shown.contains("first use"), "{shown}");
    let shown = place.output(place.command(&["Count."]));
    assert!(denied(&shown) && !shown.contains("first use"), "{shown}");
    for arguments in [["--json", "Count."].as_slice(), &["--yes", "text.*", "Count."]] {
        let mut screen = place.start(place.command(arguments));
        assert_eq!(screen.exit_code(), Some(0));
        assert!(!screen.raw().contains("first use") && screen.raw().contains("Done."), "{}", screen.raw());
    }
    // With a prompt and on a terminal somebody is.
    let mut screen = place.start(place.command(&["Count."]));
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.raw().contains("a.txt has 1 line"), "{}", screen.raw());
}

/// P6: calls of one batch whose plugins lack nothing run meanwhile; those of two that do are asked about one after another.
#[test]
fn p6_two_plugins_of_a_batch_are_asked_about_one_after_another() {
    let calls = [
        ("text.count_file", json!({"path": "a.txt"})),
        ("notes.add", json!({"text": "kept"})),
        ("probe.echo", json!({"text": "meanwhile"})),
        ("text.count_file", json!({"path": "./a.txt"})),
    ];
    let place = Place::new(
        "plugin_directory = \"../plugins\"\n[plugins.probe.grants]\nask = false\n",
        &[calling(&calls), saying("Done.")],
    );
    let mut screen = place.session_that_asks();
    assert!(screen.text().contains("first use: text "), "{}", screen.text());
    screen.send("y\r");
    screen.wait_for("first use: notes ");
    screen.wait_for("  keeping up to 10 MiB between calls  key_value_mib = 10\n");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
    let shown = screen.text();
    assert_eq!((shown.matches("first use").count(), shown.matches("has 1 line").count()), (2, 2), "{shown}");
}

/// P6: without a file, and with one that has changed meanwhile, the grant is for this run and the line is named.
#[test]
fn p6_what_cannot_be_written_is_said_with_the_line() {
    let place = Place::new(FILE, &[count(), saying("Done.")]);
    let plugins = place.path("plugins");
    let mut screen = place.start(place.without_agent(&["--plugins", plugins.to_str().unwrap(), "Count."]));
    screen.wait_for_end("grant this? y this run, n no, ? help >");
    screen.send("a\r");
    assert_eq!(screen.exit_code(), Some(0));
    let shown = screen.raw();
    assert!(shown.contains("this agent has no configuration file"), "{shown}");
    assert!(shown.contains("or pass --grant text:read=."), "{shown}");
    assert!(shown.contains("a.txt has 1 line"), "{shown}");
    let mut screen = place.start(place.command(&["Count."]));
    screen.wait_for_end(QUESTION);
    let edited = format!("{FILE}# edited meanwhile\n");
    std::fs::write(place.path("work/agent.toml"), &edited).unwrap();
    screen.send("a\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.raw().contains("has changed in the meantime"), "{}", screen.raw());
    assert!(screen.raw().contains("a.txt has 1 line"), "{}", screen.raw());
    assert_eq!(place.file(), edited);
}

/// P6, L16: an agent below asks, too, by its name, and its answer goes into its own file. Both of two that work at once have it.
#[test]
fn p6_agents_below_ask_by_their_name() {
    let ask = |task: &str| ("reader", json!({"task": task}));
    let lead = "plugin_directory = \"../other\"\n[agents.reader]\nagent = \"reader.toml\"\ndescription = \"Reads.\"\n";
    let place = Place::new(lead, &[calling(&[ask("one"), ask("two")]), saying("Done.")]);
    let below = script(&[count(), saying("Read.")]);
    std::fs::write(place.path("work/below.json"), below.to_string()).unwrap();
    let reader = "model = \"scripted:below.json\"\nplugin_directory = \"../plugins\"\n";
    std::fs::write(place.path("work/reader.toml"), reader).unwrap();
    let mut screen = place.session_that_asks();
    assert!(screen.text().contains("asks for this, to run text.count_file (agent reader-"), "{}", screen.text());
    screen.send("a\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    assert_eq!(screen.text().matches("Read.").count(), 2, "{}", screen.text());
    assert_eq!(place.file(), lead);
    let file = std::fs::read_to_string(place.path("work/reader.toml")).unwrap();
    assert_eq!(file, format!("{reader}\n[plugins.text.grants]\nread = [\".\"]\n"));
    let listed = place.output(binary(&place, &["session", "list"]));
    let readers: Vec<&str> = listed.split_whitespace().filter(|word| word.starts_with("reader-")).collect();
    assert_eq!(readers.len(), 2, "{listed}");
    for reader in readers {
        let shown = place.output(binary(&place, &["session", "show", reader]));
        assert!(shown.contains("✓ text.count_file a.txt has 1 line"), "{shown}");
    }
}

/// P6: a context builder is asked about before its first turn.
#[test]
fn p6_a_context_builder_is_asked_about_before_its_first_turn() {
    let place =
        Place::new("plugin_directory = \"../plugins\"\ncontext_builder = \"project-context\"\n", &[saying("Done.")]);
    let mut screen = place.session_that_asks();
    assert!(screen.text().contains("asks for this, to build the context (agent work-"), "{}", screen.text());
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
}
