//! The terminal asks for a missing grant when a plugin is about to be used for the first time (P6).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::support::{SharedCompiledCode, agent_host, call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const QUESTION: &str = "grant this? y this session, a always, n no, ? help >";
/// The text of an agent.toml as a user would write it.
const AGENT_FILE: &str =
    "# my agent\nplugin_directory = \"../plugins\" # beside it\n\n[approval]\ndestructive = \"ask\"\n";

/// A working folder with plugins, an agent file, and a scripted model.
pub(super) struct AgentFolder {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl AgentFolder {
    pub(super) fn new(file: &str, replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
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
        Self { _compiled_code: compiled_code, folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub(super) fn file(&self) -> String {
        std::fs::read_to_string(self.path("work/agent.toml")).unwrap()
    }

    /// Creates a command that uses the agent file.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.without_agent(arguments);
        command.args(["--agent", "agent.toml"]);
        command
    }

    fn without_agent(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
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

    /// Runs the command without a terminal, and returns its stdout followed by its stderr.
    fn output(&self, mut command: Command) -> String {
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

pub(super) fn count() -> Value {
    call_reply(&[("text.count_file", json!({"path": "a.txt"}))])
}

/// P6: After "yes, this session", the current call and later calls of the session have the grant. The next session and the
/// next process ask the user again, with the same offer.
#[test]
fn p6_the_answer_yes_applies_to_this_session() {
    let replies = [count(), text_reply("First."), count(), text_reply("Second.")];
    let folder = AgentFolder::new(AGENT_FILE, &replies);
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for_end(QUESTION);
    let output_text = screen.text();
    let grant_line = format!("  reading everything in {}  read = [\".\"]\n", folder.path("work").display());
    assert!(
        output_text.contains("first use: text ")
            && output_text.contains(" asks for these grants to run text.count_file (agent work-")
    );
    assert!(output_text.contains(&grant_line), "{output_text}");
    screen.send("perhaps\r");
    screen.wait_for("another folder instead of the folder that is shown");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nFirst.\n");
    assert!(screen.text().contains("a.txt has 1 line"), "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send("/session new\r");
    screen.wait_for_end("\n>");
    screen.send("Count.\r");
    screen.wait_for_end(QUESTION);
    assert_eq!(screen.text().matches(&grant_line).count(), 2, "{}", screen.text());
    screen.send("n\r");
    screen.wait_for_end("\n>");
    assert_eq!(screen.text().matches("a.txt has 1 line").count(), 2, "{}", screen.text());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal settings are restored");
    assert_eq!(folder.file(), AGENT_FILE);
    let audit = folder.output(binary(&folder, &["audit"]));
    assert!(audit.contains(&format!("read {}", folder.path("work").display())), "O3: {audit}");
    let screen = folder.session_that_asks();
    drop(screen);
}

fn binary(folder: &AgentFolder, arguments: &[&str]) -> Command {
    let mut command = agent_host();
    command.args(arguments).arg("--data").arg(folder.path("data")).current_dir(folder.path("work"));
    command
}

impl AgentFolder {
    fn session_that_asks(&self) -> Screen {
        let mut screen = self.session();
        screen.send("Count.\r");
        screen.wait_for_end(QUESTION);
        screen
    }
}

/// P6: After "always", exactly the shown grant is added to the file. The comments and the layout of the file are not
/// changed, and later processes do not ask the user.
#[test]
fn p6_a_permanent_answer_writes_the_grant_to_the_file() {
    let folder = AgentFolder::new(AGENT_FILE, &[count(), text_reply("First.")]);
    let mut screen = folder.session_that_asks();
    screen.send("a\r");
    screen.wait_for("\nFirst.\n");
    assert!(screen.text().contains("a.txt has 1 line"), "{}", screen.text());
    assert_eq!(folder.file(), format!("{AGENT_FILE}\n[plugins.text.grants]\nread = [\".\"]\n"));
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    assert!(!screen.text().contains("first use"), "{}", screen.text());
}

/// P6: The user can grant a folder other than the one in the question, and the chosen folder is written to the file.
#[test]
fn p6_grants_another_folder_on_request() {
    let folder = AgentFolder::new(AGENT_FILE, &[]);
    let other_folder = folder.path("other");
    let reply = call_reply(&[("text.count_file", json!({"path": other_folder.join("b.txt")}))]);
    std::fs::write(folder.path("script.json"), script(&[reply, text_reply("Done.")]).to_string()).unwrap();
    let mut screen = folder.session_that_asks();
    screen.send("d ../nowhere\r");
    screen.wait_for("cannot be granted here: reading files");
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("yes would grant nothing here");
    screen.wait_for_end(QUESTION);
    screen.send("d ../other\r");
    screen.wait_for(&format!("reading everything in {}  read", other_folder.display()));
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("\nDone.\n");
    assert!(screen.text().contains("b.txt has 1 line, 3 words"), "{}", screen.text());
    assert!(folder.file().ends_with(&format!("read = [\"{}\"]\n", other_folder.display())), "{}", folder.file());
}

/// P6: The default answer is "no". After the answer "no", the denial shows the configuration line to add, and the
/// question is not repeated in this session. The answer "never" is written to the file.
#[test]
fn p6_a_refusal_lasts_for_this_run_and_a_permanent_refusal_is_saved() {
    let replies = [count(), text_reply("First."), count(), text_reply("Second.")];
    let folder = AgentFolder::new(AGENT_FILE, &replies);
    let mut screen = folder.session_that_asks();
    screen.send("\r");
    screen.wait_for("\nFirst.\n");
    assert!(
        screen.text().contains("read = [\".\"]") && screen.text().contains("is not granted reading files"),
        "{}",
        screen.text()
    );
    screen.wait_for_end("\n>");
    screen.send("Again.\r");
    screen.wait_for("\nSecond.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    assert_eq!(folder.file(), AGENT_FILE);
    drop(screen);
    let mut screen = folder.session_that_asks();
    screen.send("never\r");
    screen.wait_for("\nFirst.\n");
    assert_eq!(folder.file(), format!("{AGENT_FILE}\n[plugins.text.grants]\nask = false\n"));
    drop(screen);
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for("\nFirst.\n");
    assert!(!screen.text().contains("first use"), "{}", screen.text());
}

/// L29: Ctrl-C at the question cancels the turn before the call has started. In the next turn, the host asks the
/// question a second time.
#[test]
fn l29_ctrl_c_at_the_question_cancels_the_turn() {
    let folder = AgentFolder::new(AGENT_FILE, &[count(), count(), text_reply("Done.")]);
    let mut screen = folder.session_that_asks();
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    let output_text = screen.text();
    assert!(output_text.contains("cancelled") && !output_text.contains("outcome unknown"), "{output_text}");
    screen.send("Again.\r");
    screen.wait("the question again", |output_text| {
        output_text.matches("first use").count() == 2 && output_text.trim_end().ends_with(QUESTION)
    });
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(folder.file(), AGENT_FILE);
}

/// P6, D3: If the process is killed while it asks the user, the call has not started, so the turn continues without an
/// unknown outcome.
#[test]
fn p6_a_crash_at_the_question_leaves_no_unknown_outcome() {
    let folder = AgentFolder::new(AGENT_FILE, &[count(), text_reply("Done.")]);
    drop(folder.session_that_asks());
    let output_text = folder.output(folder.command(&["--continue", "--grant", "text:read=."]));
    // If another process continues a turn with additional permissions, the turn keeps the permissions that it had at
    // its start (P10).
    assert!(output_text.contains("is not granted reading files") && output_text.contains("Done."), "{output_text}");
    assert!(!output_text.contains("outcome unknown"), "{output_text}");
}

/// P6: The host does not ask if it runs in a script without a terminal. The denial names the configuration line to add.
#[test]
fn p6_does_not_ask_in_scripts() {
    let folder = AgentFolder::new(AGENT_FILE, &[count(), text_reply("Done.")]);
    let denied = |output_text: &str| output_text.contains("[plugins.text.grants]") && output_text.contains("Done.");
    let output_text = folder.output(folder.command(&["--json", "Count."]));
    assert!(denied(&output_text) && !output_text.contains("first use"), "{output_text}");
    let output_text = folder.output(folder.command(&["Count."]));
    assert!(denied(&output_text) && !output_text.contains("first use"), "{output_text}");
    for arguments in [["--json", "Count."].as_slice(), &["--yes", "text.*", "Count."]] {
        let mut screen = folder.start(folder.command(arguments));
        assert_eq!(screen.exit_code(), Some(0));
        assert!(!screen.raw().contains("first use") && screen.raw().contains("Done."), "{}", screen.raw());
    }
    // If the host runs on a terminal, it asks, even if the prompt is on the command line.
    let mut screen = folder.start(folder.command(&["Count."]));
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.raw().contains("a.txt has 1 line"), "{}", screen.raw());
}

/// P6: If the calls of one reply use two plugins that need grants, the host asks about one plugin after the other.
/// An open question does not delay the calls of plugins that need no grant.
#[test]
fn p6_asks_about_two_plugins_one_after_the_other() {
    let calls = [
        ("text.count_file", json!({"path": "a.txt"})),
        ("notes.add", json!({"text": "kept"})),
        ("probe.echo", json!({"text": "meanwhile"})),
        ("text.count_file", json!({"path": "./a.txt"})),
    ];
    let folder = AgentFolder::new(
        "plugin_directory = \"../plugins\"\n[plugins.probe.grants]\nask = false\n",
        &[call_reply(&calls), text_reply("Done.")],
    );
    let mut screen = folder.session_that_asks();
    assert!(screen.text().contains("first use: text "), "{}", screen.text());
    screen.send("y\r");
    screen.wait_for("first use: notes ");
    screen.wait_for("  storing up to 10 MiB between calls  key_value_mib = 10\n");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
    let output_text = screen.text();
    assert_eq!(
        (output_text.matches("first use").count(), output_text.matches("has 1 line").count()),
        (2, 2),
        "{output_text}"
    );
}

/// P6: If the agent has no file, or if the file has changed in the meantime, the grant applies to this session, and a
/// message shows the configuration line that the user can add.
#[test]
fn p6_shows_the_line_that_could_not_be_written() {
    let folder = AgentFolder::new(AGENT_FILE, &[count(), text_reply("Done.")]);
    let plugins = folder.path("plugins");
    let mut screen = folder.start(folder.without_agent(&["--plugins", plugins.to_str().unwrap(), "Count."]));
    screen.wait_for_end("grant this? y this session, n no, ? help >");
    screen.send("a\r");
    assert_eq!(screen.exit_code(), Some(0));
    let output_text = screen.raw();
    assert!(output_text.contains("this agent has no configuration file"), "{output_text}");
    assert!(output_text.contains("or pass --grant text:read=."), "{output_text}");
    assert!(output_text.contains("a.txt has 1 line"), "{output_text}");
    let mut screen = folder.start(folder.command(&["Count."]));
    screen.wait_for_end(QUESTION);
    let edited = format!("{AGENT_FILE}# edited meanwhile\n");
    std::fs::write(folder.path("work/agent.toml"), &edited).unwrap();
    screen.send("a\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.raw().contains("was changed in the meantime"), "{}", screen.raw());
    assert!(screen.raw().contains("a.txt has 1 line"), "{}", screen.raw());
    assert_eq!(folder.file(), edited);
}

/// P6, L16: A child agent's question names the agent, and the answer is written to the agent's own file. If two child
/// agents work at the same time and need the same grant, both get it.
#[test]
fn p6_the_question_contains_the_name_of_the_child_agent() {
    let ask = |task: &str| ("reader", json!({"task": task}));
    let lead = "plugin_directory = \"../other\"\n[agents.reader]\nagent = \"reader.toml\"\ndescription = \"Reads.\"\n";
    let folder = AgentFolder::new(lead, &[call_reply(&[ask("one"), ask("two")]), text_reply("Done.")]);
    let reader_script = script(&[count(), text_reply("Read.")]);
    std::fs::write(folder.path("work/below.json"), reader_script.to_string()).unwrap();
    let reader = "model = \"scripted:below.json\"\nplugin_directory = \"../plugins\"\n";
    std::fs::write(folder.path("work/reader.toml"), reader).unwrap();
    let mut screen = folder.session_that_asks();
    assert!(screen.text().contains("asks for these grants to run text.count_file (agent reader-"), "{}", screen.text());
    screen.send("a\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(screen.text().matches("first use").count(), 1, "{}", screen.text());
    assert_eq!(screen.text().matches("Read.").count(), 2, "{}", screen.text());
    assert_eq!(folder.file(), lead);
    let file = std::fs::read_to_string(folder.path("work/reader.toml")).unwrap();
    assert_eq!(file, format!("{reader}\n[plugins.text.grants]\nread = [\".\"]\n"));
    let listed = folder.output(binary(&folder, &["session", "list"]));
    let readers: Vec<&str> = listed.split_whitespace().filter(|word| word.starts_with("reader-")).collect();
    assert_eq!(readers.len(), 2, "{listed}");
    for reader in readers {
        let output_text = folder.output(binary(&folder, &["session", "show", reader]));
        assert!(output_text.contains("✓ text.count_file a.txt has 1 line"), "{output_text}");
    }
}

/// P6: The host asks about the grants of a context builder before the agent's first turn.
#[test]
fn p6_asks_about_a_context_builder_before_the_first_turn_that_uses_it() {
    let folder = AgentFolder::new(
        "plugin_directory = \"../plugins\"\ncontext_builder = \"project-context\"\n",
        &[text_reply("Done.")],
    );
    let mut screen = folder.session_that_asks();
    assert!(screen.text().contains("asks for these grants to build the context (agent work-"), "{}", screen.text());
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
}

/// Starts a server that answers each request with this text. Returns its URL.
fn page(text: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", text.len());
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all((head + text).as_bytes());
        }
    });
    url
}

/// P6: The question names the server of the call. Each further server is asked about, also in the same turn, whatever the answer to the
/// earlier question was. A server is asked about once.
#[test]
fn p6_each_server_is_asked_about_once() {
    let (first, second, third) = (page("page of the first"), page("page of the second"), page("page of the third"));
    let get = |url: &str| ("web.fetch", json!({"url": url}));
    let replies = [
        call_reply(&[get(&first), get(&second), get(&first)]),
        text_reply("One."),
        call_reply(&[get(&second), get(&third)]),
        text_reply("Two."),
    ];
    let folder = AgentFolder::new(AGENT_FILE, &replies);
    std::fs::copy(components().join("web.wasm"), folder.path("plugins/web.wasm")).unwrap();
    let mut screen = folder.session();
    let questions = |screen: &Screen| -> Vec<String> {
        screen
            .raw()
            .split("first use")
            .skip(1)
            .map(|card| card.split("grant this?").next().unwrap().to_owned())
            .collect()
    };
    screen.send("Go.\r");
    for (number, answer, server, others) in [
        (1, "n\r", &first, [&second, &third]),
        (2, "y\r", &second, [&first, &third]),
        (3, "y\r", &third, [&first, &second]),
    ] {
        if number == 3 {
            screen.wait_for("\nOne.\n");
            screen.wait_for_end("\n>");
            screen.send("Again.\r");
        }
        screen.wait("the next question", |text| {
            text.matches("first use").count() == number && text.trim_end().ends_with(QUESTION)
        });
        let asked = questions(&screen);
        let card = asked.last().expect("a question");
        let origin = |url: &str| url.trim_end_matches('/').to_owned();
        assert_eq!(asked.len(), number, "{asked:?}");
        assert!(card.contains(&format!("GET {}", origin(server))), "{card}");
        assert!(others.iter().all(|other| !card.contains(&origin(other))) && !card.contains("://*"), "{card}");
        screen.send(answer);
    }
    screen.wait_for("\nTwo.\n");
    assert!(!screen.text().contains("page of the first"), "{}", screen.text());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(questions(&screen).len(), 3);
}
