//! Snapshots of every screen that asks the user something, in windows of 60, 100 and 200 columns, with colours for dark and for
//! light backgrounds (I1, L17, P6, P14).

use super::screen::Screen;
use crate::support::{SharedCompiledCode, agent_host, call_reply, components, script, text_reply};
use regex::Regex;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

const WIDTHS: [u16; 3] = [60, 100, 200];
/// The background colour in the variable `COLORFGBG`, and the name of the section in the snapshot.
const BACKGROUNDS: [(&str, &str); 2] = [("15;0", "dark"), ("0;15", "light")];
const APPROVAL: &str = "[plugins.files.grants]\nwrite = [\".\"]\n";

/// A screen that asks something.
struct Asking {
    /// Name of the snapshot.
    name: &'static str,
    /// Keys of agent.toml.
    agent: &'static str,
    replies: Vec<Value>,
    /// Arguments of the program. `--agent agent.toml` follows if `uses_agent` is true.
    arguments: &'static [&'static str],
    uses_agent: bool,
    /// What the user types, each after the screen ends with a text.
    typed: &'static [(&'static str, &'static str)],
    /// The end of the screen when it asks.
    end: &'static str,
}

impl Asking {
    /// Creates a screen that one turn with the prompt `Go.` shows.
    fn turn(name: &'static str, agent: &'static str, call: (&str, Value), end: &'static str) -> Self {
        let replies = vec![call_reply(&[call]), text_reply("Done.")];
        Self { name, agent, replies, arguments: &["Go."], uses_agent: true, typed: &[], end }
    }

    fn after(mut self, name: &'static str, typed: &'static [(&'static str, &'static str)]) -> Self {
        (self.name, self.typed) = (name, typed);
        self
    }
}

fn asking_screens() -> Vec<Asking> {
    let read = || ("text.count_file", json!({"path": "poem.md"}));
    let get = || ("web.fetch", json!({"url": "https://api.example.com/v1/tides?port=hamburg"}));
    let edit = || ("files.edit", json!({"path": "poem.md", "edits": [{"old": "three\n", "new": "3\n\tand a half\n"}]}));
    let first_use = || Asking::turn("first_use", "", read(), "help >");
    let approval = || Asking::turn("approval", APPROVAL, edit(), "help >");
    let pay = |to: &str, amount: u32| ("payer.pay", json!({"to": to, "amount": amount}));
    let payer = "[plugins.payer.grants]\nwrite = [\".\"]\n";
    let mut several = Asking::turn("approval_of_two_calls", payer, pay("Ann", 1), "help >");
    several.replies = vec![call_reply(&[pay("Ann Somebody", 1), pay("Bob", 2)]), text_reply("Done.")];
    let question =
        "Which of the two harbours do you mean: the one in the old town, or the one at the mouth of the river?";
    let mut model_question = Asking::turn(
        "question_of_the_model",
        "finish = \"tool\"\n",
        ("ask_question", json!({"question": question})),
        "\n>",
    );
    (model_question.arguments, model_question.typed) = (&[], &[("\n>", "Where is it?\r")]);
    let session = |name, typed| Asking {
        arguments: &[],
        replies: vec![text_reply("Done.")],
        typed,
        ..Asking::turn(name, "", read(), "help >")
    };
    let command = |name, arguments, typed, end| Asking {
        arguments,
        uses_agent: false,
        typed,
        ..Asking::turn(name, "", read(), end)
    };
    vec![
        first_use(),
        first_use().after("first_use_help", &[("help >", "?\r")]),
        Asking::turn("first_use_of_the_network", "", get(), "help >"),
        session("grant_question", &[("\n>", "/grant files\r")]),
        approval(),
        approval().after("approval_help", &[("help >", "?\r")]),
        approval().after("approval_view", &[("help >", "v\r")]),
        Asking { end: "in one line >", ..approval().after("approval_edit", &[("help >", "e\r")]) },
        several,
        model_question,
        Asking { end: "Enter keeps the current model >", ..session("model_choice", &[("\n>", "/model\r")]) },
        command("setup", &["setup"], &[("[offline]:", "\r"), ("plugins]:", "\r")], "[Y/n]"),
        command("trust", &[], &[], "[t/w/q]"),
        command("session_pick", &["session", "pick"], &[], "Ctrl-D quits >"),
    ]
}

/// A user with a project, plugins and a scripted model, in a folder whose path always has the same length.
struct User {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl User {
    fn new(asking: &Asking) -> Self {
        let folder = tempfile::Builder::new().prefix("ask-").rand_bytes(6).tempdir_in("/tmp").unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "work", "home"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for plugin in ["text.wasm", "files.wasm", "web.wasm", "payer.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).unwrap();
        }
        let user = Self { _compiled_code: compiled_code, folder };
        user.write("work/poem.md", "one\ntwo\nthree\nfour\nfive\n");
        user.write("work/script.json", &script(&asking.replies).to_string());
        let head = "model = \"scripted:script.json\"\nplugin_directory = \"../plugins\"\n";
        user.write("work/agent.toml", &format!("{head}{}", asking.agent));
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.args(arguments).current_dir(self.path("work")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "xterm-256color");
        command.env("HOME", self.path("home")).env("XDG_CONFIG_HOME", self.path("home/.config")).env("USER", "ann");
        command.env("AGENT_HOST_DATA", self.path("data")).env("TZ", "UTC");
        command.env("AGENT_HOST_INSTALLED_PLUGINS", self.path("plugins"));
        command
    }

    /// Returns the screen when it asks.
    fn ask(&self, asking: &Asking, (columns, background): (u16, &str)) -> Screen {
        let agent: &[&str] = if asking.uses_agent { &["--agent", "agent.toml"] } else { &[] };
        let mut command = self.command(&[asking.arguments, agent].concat());
        command.env("COLORFGBG", background);
        let mut screen = Screen::start(command, 60, columns);
        for (number, (end, keys)) in asking.typed.iter().enumerate() {
            screen.wait_for_end(end);
            let before = screen.raw().len();
            screen.send(keys);
            screen.wait(&format!("answer {number}"), |_| screen.raw().len() > before);
        }
        screen.wait_for_end(asking.end);
        screen
    }
}

/// Replaces everything that differs between two runs by placeholders of the same length.
fn stable(text: &str, user: &User) -> String {
    let folder = user.folder.path().to_string_lossy().into_owned();
    let text = text.replace(&folder, "/tmp/ask-FOLDER");
    let patterns = [
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "IDIDIDID-IDID-IDID-IDID-IDIDIDIDIDID"),
        (r"(call_\d+_\d+_\d+)_[0-9a-f]{12}\b", "${1}_IDIDIDIDIDID"),
        (r"\b[0-9a-f]{12}\b", "DIGESTDIGEST"),
        (r"work-[0-9a-f]{6}\b", "work-FOLDER"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "DATEDATE TIME"),
    ];
    patterns.iter().fold(text, |text, (pattern, placeholder)| {
        Regex::new(pattern).unwrap().replace_all(&text, *placeholder).into_owned()
    })
}

/// I1, L17, P6, P14: no screen that asks has a line that is wider than the window, and each looks like its snapshot.
#[test]
fn i1_screens_that_ask_fit_into_the_window() {
    for asking in asking_screens() {
        let mut sections = Vec::new();
        for (background, name) in BACKGROUNDS {
            for columns in WIDTHS {
                let user = User::new(&asking);
                if asking.name == "session_pick" {
                    for prompt in ["What does the walrus do on the ice when the winter is long?", "And a seal?"] {
                        let output = user.command(&["--agent", "agent.toml", "--yes", "*", prompt]).output().unwrap();
                        assert!(output.status.success(), "{output:?}");
                    }
                }
                let screen = user.ask(&asking, (columns, background));
                let shown = stable(&screen.styled_text(), &user);
                for line in screen.text().lines() {
                    assert!(line.width() <= usize::from(columns), "{}, {columns} columns: {line}", asking.name);
                }
                sections.push(format!("== {columns} columns, {name} background\n{shown}"));
            }
        }
        insta::with_settings!({ omit_expression => true, snapshot_path => "../snapshots/asking_screens", prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(asking.name, sections.join("\n\n"));
        });
    }
}
