//! Runs every example of `agent-host --help` in a shell, as a user would type it (I1).

use crate::chat_server::{Answer, ChatServer};
use crate::peers::python_peer;
use crate::support::{SharedCompiledCode, components, repository};
use crate::terminal::CTRL_D;
use crate::terminal::screen::Screen;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How an example runs, and what shows that it works.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// The command ends by itself, and its stdout contains this text.
    Prints(&'static str),
    /// As [`Run::Prints`], in the repository, whose plugins the command builds.
    PrintsInRepository(&'static str),
    /// The command writes this text to the file `answer.txt`.
    WritesAnswer(&'static str),
    /// The command starts an interactive session.
    Session,
    /// The command starts an interactive session that builds a Python project, which needs a toolchain.
    PythonSession,
    /// The command asks questions, which have default answers, and prints this text at the end.
    Questions(&'static str),
    /// The command runs until it is stopped, and reports this on stderr when it is ready.
    Server(&'static str),
    /// The command serves the program that started it, and ends when its stdin is closed.
    Stdio,
}

/// Every example, in the order of the help.
const EXAMPLES: &[(&str, Run)] = &[
    (
        "agent-host --plugins plugins --build --grant text:read=. \"Count the lines of README.md\"",
        Run::PrintsInRepository("README.md has "),
    ),
    ("agent-host --plugins plugins --model openai/gpt-4.1-mini", Run::Session),
    (
        "echo 'text.count_file {\"path\": \"README.md\"}' | agent-host --plugins plugins --grant text:read=. > answer.txt",
        Run::WritesAnswer("README.md has 2 lines"),
    ),
    ("git diff | agent-host --agent agent.toml \"Summarise this change.\"", Run::Prints("An answer.")),
    ("agent-host setup", Run::Questions("next: `agent-host` starts a session in any folder")),
    ("agent-host \"What changed in the notes?\"", Run::Prints("An answer.")),
    ("agent-host config init", Run::Prints("")),
    ("agent-host --agent agent.toml \"What changed in the notes?\"", Run::Prints("An answer.")),
    ("agent-host --plugins plugins --model openai/gpt-4.1-mini \"...\"", Run::Prints("An answer.")),
    (
        "agent-host --plugins plugins --base-url http://127.0.0.1:8000/v1 --model NAME \"...\"",
        Run::Prints("An answer."),
    ),
    ("agent-host --agent agent.toml --continue \"And the week before?\"", Run::Prints("An answer.")),
    ("agent-host plugin new words --lang python", Run::Prints("words  a tool in Python")),
    ("agent-host dev words", Run::PythonSession),
    ("agent-host acp --agent agent.toml", Run::Stdio),
    ("agent-host serve --agent agent.toml", Run::Server("http://127.0.0.1:")),
    ("agent-host token create dashboard --right read", Run::Prints("aht_")),
    ("agent-host mcp --plugins plugins --grant text:read=.", Run::Stdio),
    ("agent-host test plugins", Run::Prints("1 passed")),
    ("agent-host plugin inspect plugins/text.wasm", Run::Prints("text.count_file")),
    (
        "agent-host plugin call plugins/text.wasm text.count_file '{\"path\": \"README.md\"}' --grant text:read=.",
        Run::Prints("README.md has 2 lines"),
    ),
];

const SCENARIO: &str = "plugins = [\"text\"]\n\n[[turns]]\nsay = \"Count.\"\nreplies = [\n\
                        { calls = [{ name = \"text.count\", arguments = { text = \"one two\" } }] },\n\
                        { text = \"Two.\" },\n]\ncalls = [{ name = \"text.count\" }]\n";

/// A user in a folder with plugins, a scenario, a README and a Git repository, and a model server that answers everything.
struct User {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
    server: ChatServer,
}

impl User {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let _compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        for name in ["bin", "home", "work/plugins"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_agent-host"), folder.path().join("bin/agent-host")).unwrap();
        std::fs::copy(components().join("text.wasm"), folder.path().join("work/plugins/text.wasm")).unwrap();
        std::fs::write(folder.path().join("work/plugins/text.scenario.toml"), SCENARIO).unwrap();
        std::fs::write(folder.path().join("work/README.md"), "# Notes\nTwo lines.\n").unwrap();
        let server = ChatServer::start(std::iter::repeat_n(Answer::Text("An answer."), 40)).await;
        let user = Self { _compiled_code, folder, server };
        user.write_agent_file();
        assert!(
            user.shell("git init -q && git add README.md && echo more >> README.md && sed -i '$d' README.md")
                .status
                .success()
        );
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn write_agent_file(&self) {
        let text = "model = \"openai/gpt-4.1-mini\"\nplugin_directory = \"plugins\"\n";
        std::fs::write(self.folder.path().join("work/agent.toml"), text).unwrap();
    }

    /// Creates the command of a shell that runs a line in the user's folder.
    fn command(&self, line: &str) -> Command {
        let line = line.replace("http://127.0.0.1:8000/v1", &self.server.base_url);
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(self.path("work")).env_clear();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        for variable in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            command.envs(std::env::var_os(variable).map(|value| (variable, value)));
        }
        if let (None, Some(home)) = (std::env::var_os("CARGO_HOME"), std::env::home_dir()) {
            command.env("CARGO_HOME", home.join(".cargo")).env("RUSTUP_HOME", home.join(".rustup"));
        }
        command.env("HOME", self.path("home")).env("XDG_CONFIG_HOME", self.path("home/.config")).env("USER", "ann");
        command.env("AGENT_HOST_DATA", self.path("data")).env("TERM", "xterm-256color");
        command.env("AGENT_HOST_INSTALLED_PLUGINS", self.path("work/plugins"));
        command.env("OPENAI_API_KEY", "key").env("OPENAI_BASE_URL", &self.server.base_url);
        command
    }

    fn shell(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    fn check(&self, line: &str, run: Run) {
        match run {
            Run::Prints(text) => self.check_output(&self.shell(line), (line, text)),
            Run::PrintsInRepository(text) => {
                let mut command = self.command(line);
                let output = command.current_dir(repository()).stdin(Stdio::null()).output().unwrap();
                self.check_output(&output, (line, text));
            }
            Run::WritesAnswer(text) => {
                self.check_output(&self.shell(line), (line, ""));
                let answer = std::fs::read_to_string(self.path("work/answer.txt")).unwrap();
                assert!(answer.contains(text), "{line}: {answer}");
            }
            Run::Session => self.check_session(self.command(line)),
            Run::PythonSession => {
                if let Some(componentize) = python_peer("componentize-py") {
                    let mut command = self.command(line);
                    command.env("COMPONENTIZE_PY", componentize);
                    self.check_session(command);
                }
            }
            Run::Questions(text) => {
                let mut screen = Screen::start(self.command(line), 50, 200);
                for question in ["Model [", "[OPENAI_API_KEY]:", "Plugin folder [", "[Y/n]"] {
                    screen.wait_for(question);
                    screen.send("\r");
                }
                screen.wait_for(text);
                assert_eq!(screen.exit_code(), Some(0), "{line}");
            }
            Run::Server(text) => self.check_server(line, text),
            Run::Stdio => self.check_output(&self.shell(line), (line, "")),
        }
    }

    fn check_output(&self, output: &Output, (line, text): (&str, &str)) {
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains(text), "{line}: {output:?}");
    }

    fn check_session(&self, command: Command) {
        let mut screen = Screen::start(command, 50, 120).with_max_wait(Duration::from_secs(120));
        screen.wait_for_end("\n>");
        screen.send(CTRL_D);
        assert_eq!(screen.exit_code(), Some(0), "{}", screen.text());
    }

    fn check_server(&self, line: &str, text: &str) {
        let log = std::fs::File::create(self.path("server.log")).unwrap();
        // The default port may be in use on this machine.
        let mut command = self.command(&format!("exec {line} --listen 127.0.0.1:0"));
        let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let started = Instant::now();
        let printed = || std::fs::read_to_string(self.path("server.log")).unwrap_or_default();
        while !printed().contains(text) {
            assert!(started.elapsed() < Duration::from_secs(60), "{line}: {}", printed());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.shell(&format!("kill -TERM {}", server.id())).status.success());
        server.wait().unwrap();
    }
}

/// Returns the commands of the examples. Lines that a shell continues are joined.
fn examples(help: &str) -> Vec<String> {
    let section = help.split("Examples:\n").nth(1).and_then(|rest| rest.split("\nPlugins that change:").next());
    let mut commands: Vec<String> = Vec::new();
    let mut is_continued = false;
    for line in section.expect("the help has examples").lines() {
        let Some(command) = line.strip_prefix("    ") else { continue };
        let command = command.trim();
        let text = command.strip_suffix('\\').unwrap_or(command).trim_end();
        match commands.last_mut().filter(|_| is_continued) {
            Some(previous) => previous.push_str(&format!(" {text}")),
            None => commands.push(text.to_owned()),
        }
        is_continued = command.ends_with(['\\', '|']);
    }
    commands
}

/// I1: every example in the help works, and the help has no other example.
#[tokio::test(flavor = "multi_thread")]
async fn i1_every_example_of_the_help_works() {
    let user = User::new().await;
    let help = String::from_utf8(user.shell("agent-host --help").stdout).unwrap();
    let expected: Vec<_> = EXAMPLES.iter().map(|(line, _)| (*line).to_owned()).collect();
    assert_eq!(examples(&help), expected);
    let short = String::from_utf8(user.shell("agent-host -h").stdout).unwrap();
    let example = short.split("Example:\n").nth(1).and_then(|rest| rest.lines().next()).map(str::trim);
    assert_eq!(example, Some(EXAMPLES[0].0), "the short help has the first example");
    for (line, run) in EXAMPLES {
        // From here on, the examples begin without an agent.toml.
        if *line == "agent-host setup" {
            std::fs::remove_file(user.path("work/agent.toml")).unwrap();
        }
        tokio::task::block_in_place(|| user.check(line, *run));
    }
}
