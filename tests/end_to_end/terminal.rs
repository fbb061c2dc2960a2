//! The terminal as a user sees it: the real binary on a pseudo-terminal, and the contents of its screen (I1, L29, L30).

mod approvals;
mod asking_screens;
mod attachments;
mod commands;
mod delegates;
mod dev;
mod first_use;
mod grant_commands;
mod lent;
mod narrow;
mod pages;
mod progress;
mod recap;
mod rehearsals;
pub(crate) mod screen;
pub(crate) mod walk;
mod watched;

use crate::support::{SharedCompiledCode, agent_host, call_reply, components, script};
use screen::Screen;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
const CTRL_BACKSLASH: &str = "\u{1c}";
const ENTER: &str = "\r";
const ARROW_UP: &str = "\u{1b}[A";

/// A working folder with two plugins, a data folder, a granted folder, and a scripted model.
struct TestCli {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl TestCli {
    fn new(replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiled_code = SharedCompiledCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "tree"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for plugin in ["probe.wasm", "text.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).unwrap();
        }
        std::fs::write(folder.path().join("script.json"), script(replies).to_string()).unwrap();
        Self { _compiled_code: compiled_code, folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = agent_host();
        command.arg("--plugins").arg(path("plugins")).arg("--data").arg(path("data"));
        command.args(["--model", &format!("scripted:{}", path("script.json").display())]);
        for grant in ["probe:write=.", "probe:events=com.example.probe.v1", "probe:media=true", "text:read=."] {
            command.args(["--grant", grant]);
        }
        command.args(arguments);
        command.current_dir(path("tree")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// Returns a command that runs a subcommand in the working folder, with the same data folder.
    fn host(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.arg("--data").arg(self.folder.path().join("data")).args(arguments);
        command.current_dir(self.folder.path().join("tree")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// Starts an interactive session, and waits for its prompt.
    fn session(&self) -> Screen {
        self.session_with(self.command(&[]))
    }

    fn session_with(&self, command: Command) -> Screen {
        self.session_with_prompts(command, 1)
    }

    /// Starts an interactive session, and waits until its screen shows this number of prompts. The last of them is the
    /// session's own, and the others belong to earlier turns.
    fn session_with_prompts(&self, command: Command, number: usize) -> Screen {
        let screen = Screen::start(command, 50, 80);
        screen.wait_for_prompt(number);
        screen
    }
}

/// Creates a reply that is streamed word by word.
fn streamed_slowly(text: &str, delay_ms: u64) -> Value {
    let chunks: Vec<&str> = text.split_inclusive(' ').collect();
    json!({"chunks": chunks, "delay_ms": delay_ms})
}

fn numbers() -> String {
    (1..=300).map(|number| format!("number{number} ")).collect()
}

/// I1, L21: Thinking is dimmed, text is rendered as Markdown, a call is shown on its own lines, and the turn ends with
/// a summary line.
#[test]
fn shows_a_streamed_turn_with_thinking_calls_and_markdown() {
    let first = json!({"thinking": "Let me count.", "text": "I **count** it.",
        "calls": [{"name": "text.count", "arguments": {"text": "one two"}}]});
    let cli = TestCli::new(&[first, json!({"text": "It has `two` words.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"})]);
    let mut screen = cli.session();
    screen.send("How many words?");
    screen.send(ENTER);
    screen.wait_for_prompt(2);
    let screen_text = screen.text();
    let expected = ["thinking\n  Let me count.\n\nI count it.\n\n✓ text.count {\"text\":\"one two\"}", "two words"];
    assert!(expected.iter().all(|expected| screen_text.contains(expected)), "{screen_text}");
    assert!(screen_text.contains("\n\nIt has two words.\n\na │ b\n──┼──\n1 │ 2\n\nscripted/"), "{screen_text}");
    assert!(screen_text.contains("2 model calls, "), "{screen_text}");
    assert!(
        screen
            .cells("Let me")
            .iter()
            .filter(|cell| cell.has_contents())
            .all(|cell| cell.dim() || cell.contents() == " ")
    );
    assert!(screen.cells("count it")[..5].iter().all(vt100::Cell::bold));
    assert!(!screen.cells("It has")[0].bold());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal settings are restored");
}

/// L29: Ctrl-C during a stream cancels the turn. Text that the user typed during the stream appears at the next prompt.
#[test]
fn l29_ctrl_c_cancels_a_stream_and_the_session_continues() {
    let cli = TestCli::new(&[streamed_slowly(&numbers(), 40)]);
    let mut screen = cli.session();
    screen.send("Count.");
    screen.send(ENTER);
    screen.wait_for("number3 ");
    assert!(!screen.echoes());
    screen.send("typed ahead");
    screen.wait_for("number9 ");
    assert!(!screen.text().contains("typed ahead"));
    screen.send(CTRL_C);
    screen.wait_for_end("> typed ahead");
    let screen_text = screen.text();
    assert!(screen_text.contains("the reply above is discarded: the turn was cancelled\n"), "{screen_text}");
    assert!(!screen_text.contains("number300"), "{screen_text}");
    // Ctrl-C at the prompt clears the typed line, and the line is not sent.
    screen.send(CTRL_C);
    screen.wait_for_end("> typed ahead\n\n>");
    screen.send("/session\r");
    screen.wait_for("1 turn; the model sees 1 message");
    screen.send("/undo\r");
    screen.wait_for("turn 1 was undone");
    screen.send("Again.\r");
    screen.wait_for("> Again.\n\nnumber1 number2");
}

/// L29: Ctrl-C during a call of a plugin stops the plugin's code.
#[test]
fn l29_ctrl_c_cancels_a_plugin_call() {
    let cli = TestCli::new(&[call_reply(&[("probe.sleep", json!({"ms": 600_000}))]), json!({"text": "Fine."})]);
    let mut screen = cli.session();
    screen.send("Sleep.\r");
    screen.wait_for("running probe.sleep");
    screen.send(CTRL_C);
    screen.wait_for_prompt(2);
    assert!(
        screen.text().contains("✗ probe.sleep {\"ms\":600000}\n  cancelled; outcome unknown\n"),
        "{}",
        screen.text()
    );
    screen.send("And now?\r");
    screen.wait_for("\nFine.\n");
    screen.wait_for_prompt(3);
}

#[test]
fn ctrl_c_at_an_empty_prompt_shows_how_to_exit_and_then_exits() {
    let cli = TestCli::new(&[json!({"text": "unused"})]);
    let mut screen = cli.session();
    screen.send(CTRL_C);
    screen.wait_for("press Ctrl-C again");
    screen.wait_for_prompt(2);
    // If the user types anything after the first Ctrl-C, the next Ctrl-C shows the hint and does not exit.
    screen.send("/session\r");
    screen.wait_for_prompt(3);
    screen.send(CTRL_C);
    screen.wait_for_prompt(4);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes());
    let listed = cli.command(&[]).args(["session", "list"]).output().unwrap();
    assert!(listed.stdout.is_empty(), "a session without a turn leaves nothing behind");
}

/// I1: Ctrl-\ exits immediately, even while the user types a line and the line editor reads the keyboard.
#[test]
fn ctrl_backslash_exits_immediately() {
    let cli = TestCli::new(&[json!({"text": "unused"})]);
    let mut screen = cli.session();
    screen.send("something");
    screen.wait_for("something");
    screen.send(CTRL_BACKSLASH);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
}

#[test]
fn sigterm_exits_cleanly_at_a_prompt_and_in_a_turn() {
    let cli = TestCli::new(&[streamed_slowly(&numbers(), 40)]);
    let terminate = |screen: &Screen| {
        let process = rustix::process::Pid::from_raw(screen.process().cast_signed()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    };
    let mut screen = cli.session();
    terminate(&screen);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
    let mut screen = cli.session();
    screen.send("Count.\r");
    screen.wait_for("number3 ");
    terminate(&screen);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
    let output = cli.command(&["--continue"]).stdin(Stdio::null()).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "the turn was interrupted, not cancelled: {output_text}");
    assert!(output_text.contains("number300"), "{output_text}");
}

/// If the process ignores the signal that a closed window sends (as with `nohup`), the session still ends when the
/// window is closed.
#[test]
fn a_closed_window_ends_a_session_that_ignores_hangups() {
    let cli = TestCli::new(&[streamed_slowly(&numbers(), 40)]);
    let host = cli.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(host.get_program()).args(host.get_args());
    command.current_dir(host.get_current_dir().unwrap()).env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let mut screen = cli.session_with(command);
    screen.close();
    assert_eq!(screen.exit_code(), Some(130));
}

/// If the window becomes narrower, later output is wrapped at the new width, and the user can continue to type.
#[test]
fn the_window_can_be_resized_during_a_reply_and_while_typing() {
    let cli = TestCli::new(&[streamed_slowly(&numbers(), 20)]);
    let mut screen = cli.session();
    screen.send("Count.\r");
    screen.wait_for("number9 ");
    screen.resize(50, 40);
    screen.wait_for("number300\n");
    screen.wait_for_end("\n>");
    let screen_text = screen.text();
    let lines = screen_text.lines().filter(|line| line.starts_with("number2"));
    let has_whole_words =
        |line: &str| line.split(' ').all(|word| word.trim_start_matches("number").parse::<u32>().is_ok());
    let lines: Vec<_> = lines.collect();
    assert!(lines.len() > 20 && lines.iter().all(|line| line.len() <= 40 && has_whole_words(line)), "{screen_text}");
    screen.send("a line that does not fit into forty columns");
    screen.wait_for("fit into forty columns");
    screen.resize(50, 20);
    screen.send(", nor twenty");
    screen.wait("the typed text", |screen_text| screen_text.replace('\n', "").ends_with("forty columns, nor twenty"));
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    screen.send("/sess\t");
    screen.wait_for_end("> /session");
}

/// A pasted block of several lines is a single input, which keeps its backslashes. The input is not sent before the
/// user presses Enter.
#[test]
fn a_pasted_block_is_one_input() {
    let block = "first line\nsecond \\\nthird line";
    let expected = json!({"text": "Read.", "expect": {"last_contains": [block]}});
    let cli = TestCli::new(&[expected, json!({"text": "Both.", "expect": {"last_contains": "one\ntwo"}})]);
    let mut screen = cli.session();
    screen.paste(block);
    screen.wait_for_end("> first line\n  second \\\n  third line");
    screen.send(ENTER);
    screen.wait_for("\nRead.\n");
    screen.wait_for("1 model call, ");
    screen.wait_for_end("\n>");
    // If a typed line ends with a backslash, the input continues on the next line, and the backslash is not part of
    // the text.
    screen.send("one\\\r");
    screen.wait_for_end("> one\\");
    screen.send("two");
    screen.wait_for_end("> one\\\n  two");
    screen.send(ENTER);
    screen.wait_for("\nBoth.\n");
}

#[test]
fn without_colours_the_output_has_no_styles() {
    let cli = TestCli::new(&[
        json!({"thinking": "Hm.", "text": "# Title\n\n**bold** `code`",
        "calls": [{"name": "text.count", "arguments": {"text": "one"}}]}),
        json!({"text": "Done."}),
    ]);
    let mut command = cli.command(&[]);
    command.env("NO_COLOR", "1");
    let mut screen = cli.session_with(command);
    screen.send("Go.\r");
    screen.wait_for("\nDone.\n");
    screen.wait_for_prompt(2);
    assert!(screen.text().contains("# Title\n\n**bold** `code`"), "{}", screen.text());
    assert_eq!(screen.styled_cells(), 0, "{}", screen.text());
}

/// If a terminal does not support escape codes, the host prints only plain text.
#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let cli = TestCli::new(&[json!({"text": "**Hello**", "expect": {"last_contains": "one\ntwo"}})]);
    let mut command = cli.command(&[]);
    // If the variable `CI` is set, some libraries assume that every output supports colour. The host must print plain
    // text even if `CI` is set.
    command.env("TERM", "dumb").env("CI", "true");
    let mut screen = cli.session_with(command);
    screen.send("one\\\rtwo\r");
    screen.wait_for("\n**Hello**\n");
    screen.wait_for("1 model call, ");
    screen.wait_for_end("\n>");
    screen.send(CTRL_C);
    screen.wait_for("press Ctrl-C again");
    screen.send("/session\r");
    screen.wait_for("1 turn; ");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(!screen.raw().contains('\u{1b}'), "{:?}", screen.raw());
}

#[test]
fn shortens_a_large_result_and_shows_it_on_request() {
    let cli = TestCli::new(&[call_reply(&[("probe.bytes", json!({"bytes": 20_480}))]), json!({"text": "Large."})]);
    let mut screen = cli.session();
    screen.send("Go.\r");
    screen.wait_for("\nLarge.\n");
    screen.wait_for_prompt(2);
    let screen_text = screen.text();
    assert!(screen_text.contains("x…\n  … 20.0 KiB in total: /result\n"), "{screen_text}");
    assert!(screen_text.matches('x').count() < 100, "{screen_text}");
    let before = screen.raw().matches('x').count();
    screen.send("/result\r");
    screen.wait_for("xxx\n\n>");
    assert_eq!(screen.raw().matches('x').count() - before, 20_480);
    screen.send("/result 2\r");
    screen.wait_for("fewer than 2 tools were called in this session");
    screen.send("/cost\r");
    screen.wait_for("1 turn: 2 model calls, ");
}

#[test]
fn slash_commands_print_their_results() {
    let cli = TestCli::new(&[json!({"text": "unused"})]);
    let mut screen = cli.session();
    let script = format!("scripted/{}/script.json", cli.folder.path().display());
    let cases = [
        ("/help", "undoes the last turn"),
        ("/tools", "text.count_file"),
        ("/plugins", "may read and write ."),
        ("/modle", "did you mean /model?"),
        ("/model offline", "offline/router is used from now on"),
        ("/undo", "there is no turn to undo"),
        ("/memory forget nothing", "there is no memory `nothing`"),
        ("/session list", "tree-"),
        ("/session nothing", "there is no session `nothing`"),
        ("/cancel", "there is no turn to cancel"),
    ];
    for (command, answer) in cases {
        screen.send(&format!("{command}\r"));
        screen.wait_for(answer);
    }
    screen.send("/model\r");
    screen.wait_for(&script);
    screen.wait_for_end("number or name, Enter keeps the current model >");
    screen.send("2\r");
    screen.wait_for("script.json is used from now on");
    screen.send("/model\r");
    screen.wait_for("● 1 scripted/");
    screen.wait_for_end("Enter keeps the current model >");
    screen.send("3\r");
    screen.wait_for("there is no model with the number 3");
    screen.send("/model offline\r");
    screen.wait_for_end("offline/router is used from now on\n\n>");
    screen.send("text.count {\"text\": \"one two\"}\r");
    screen.wait_for("This is the offline router");
    screen.wait_for("offline/router: 2 model calls");
    screen.send("/session new\r");
    screen.wait_for("0 turns; the model sees 0 messages");
    screen.send("/quit\r");
    assert_eq!(screen.exit_code(), Some(0));
}

#[test]
fn only_the_owner_can_search_the_input_history() {
    let cli = TestCli::new(&[json!({"text": "Yes."}), json!({"text": "Yes, too."})]);
    let mut screen = cli.session();
    screen.send("Remember this.\r");
    screen.wait_for("\nYes.\n");
    screen.wait_for_prompt(2);
    screen.send(" but not this\r");
    screen.wait_for("\nYes, too.\n");
    screen.wait_for_prompt(3);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let file = cli.folder.path().join("data/history");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "Remember this.\n");
    let mut screen = cli.session();
    screen.send(ARROW_UP);
    screen.wait_for_end("> Remember this.");
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    screen.send("\u{12}emb");
    screen.wait_for("(search: emb) Remember this.");
}

/// M3, L30: A reply whose stream was interrupted stays on the screen. A note below the reply states that the
/// reply is void, and gives the reason.
#[test]
fn m3_marks_an_interrupted_reply_as_void() {
    let broken =
        json!({"text": "Half a reply and more", "error": {"message": "overloaded", "status": 503, "times": 1}});
    let cli = TestCli::new(&[broken]);
    let mut screen = cli.session();
    screen.send("Go.\r");
    screen.wait_for("1 model call, ");
    let screen_text = screen.text();
    let expected_texts =
        ["Half a reply", "the reply above is discarded: it was interrupted", "overloaded", "retrying", "and more"];
    let mut remaining = screen_text.as_str();
    for expected_text in expected_texts {
        let (_, after_text) = remaining
            .split_once(expected_text)
            .unwrap_or_else(|| panic!("`{expected_text}` is missing:\n{screen_text}"));
        remaining = after_text;
    }
}

/// D3: In an interactive session, the host asks the user what to do about a call whose outcome is unknown.
#[test]
fn d3_the_user_decides_about_an_unknown_outcome_in_the_session() {
    let cli =
        TestCli::new(&[call_reply(&[("probe.count", json!({"path": "effects.txt"}))]), json!({"text": "Finished."})]);
    let killed = cli.command(&["Go."]).env("AGENT_HOST_KILL_AT", "after-call:probe.count").output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    let mut screen = Screen::start(cli.command(&["--continue"]), 50, 80);
    screen.wait_for("waits for a decision");
    screen.wait_for_end("\n>");
    screen.send("Something else.\r");
    screen.wait_for("/resolve decides about a call");
    screen.send("/resolve call_1_1_1 result counted\r");
    screen.wait_for("\nFinished.\n");
    screen.wait_for("2 model calls");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(cli.folder.path().join("tree/effects.txt")).unwrap().lines().count(), 1);
}

/// L18, L19: The terminal shows reminders as notes. The terminal shows a question of the agent, and the next line that
/// the user types is the answer. L29: A turn that waits for an answer can be cancelled.
#[test]
fn l18_the_next_typed_line_answers_a_question() {
    let ask = || call_reply(&[("ask_question", json!({"question": "Which year do you mean?"}))]);
    let done = json!({"calls": [{"name": "task_completion", "arguments": {"result": "It was in 1984."}}],
        "expect": {"last_contains": "the eighties, 1984"}});
    let cli = TestCli::new(&[json!({"text": "Let me think."}), ask(), done, ask()]);
    let file = cli.folder.path().join("agent.toml");
    std::fs::write(&file, "finish = \"tool\"\n").unwrap();
    let mut screen = cli.session_with(cli.command(&["--agent", file.to_str().unwrap()]));
    screen.send("When was it?\r");
    screen.wait_for("? Which year do you mean?");
    screen.wait_for("the next line that you type is the answer");
    assert!(
        screen.text().contains("the reply called no tool: the model is reminded (1 in a row)"),
        "{}",
        screen.text()
    );
    screen.wait_for_prompt(2);
    screen.send("the eighties, 1984\r");
    screen.wait_for("It was in 1984.");
    screen.wait_for_prompt(3);
    screen.send("And the other?\r");
    screen.wait_for_prompt(4);
    screen.send("/cancel\r");
    screen.wait_for("cancelled; send another prompt");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// I1: If stdout is a pipe, the host writes only the answer to stdout, exactly as the model wrote it and without
/// escape codes.
#[test]
fn i1_a_pipe_gets_only_the_answer() {
    let answer = "**bold** and a long line that no terminal would hold: ".to_owned() + &"word ".repeat(40) + "end";
    let first = json!({"thinking": "Hm.", "text": "I look.",
        "calls": [{"name": "text.count", "arguments": {"text": "one"}}]});
    let cli = TestCli::new(&[first, json!({"text": answer})]);
    let output = cli.command(&["Go."]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{answer}\n"), "{printed}");
    assert!(printed.contains("→ text.count {\"text\":\"one\"}\n✓ text.count {\"text\":\"one\"} ("), "{printed}");
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    assert!(output.status.success());
}

/// I1, L29: If the host cannot write its output, it reports an error.
#[test]
fn i1_output_that_cannot_be_written_is_an_error() {
    let cli = TestCli::new(&[json!({"text": "All."})]);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for options in [&["Go."] as &[&str], &["--json", "Go."]] {
        let output = cli.command(options).stdin(Stdio::null()).stdout(full()).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("error: the output cannot be written: No space left"), "{printed}");
    }
}
