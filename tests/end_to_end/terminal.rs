//! The terminal, as a person uses it: the real binary on a pseudo-terminal, and what stands on its screen (I1, issue 3,
//! check 4).

mod approvals;
mod author;
mod below;
mod dev;
mod first_use;
mod lent;
mod pages;
mod progress;
mod screen;
mod walk;
mod watched;

use crate::support::{KeptCode, calling, components, script};
use screen::Screen;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_BACKSLASH: &str = "\u{1c}";
const ENTER: &str = "\r";
const UP: &str = "\u{1b}[A";

/// A place to work in: two plugins, a data folder, a granted folder, and a model that says what it is told to.
struct Desk {
    _kept: KeptCode,
    folder: TempDir,
}

impl Desk {
    fn new(replies: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptCode::in_data(&folder.path().join("data"));
        for name in ["plugins", "tree"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for plugin in ["probe.wasm", "text.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).unwrap();
        }
        std::fs::write(folder.path().join("script.json"), script(replies).to_string()).unwrap();
        Self { _kept: kept, folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.arg("--plugins").arg(path("plugins")).arg("--data").arg(path("data"));
        command.args(["--model", &format!("scripted:{}", path("script.json").display())]);
        for grant in ["probe:write=.", "probe:events=com.example.probe.v1", "probe:media=true", "text:read=."] {
            command.args(["--grant", grant]);
        }
        command.args(arguments);
        command.current_dir(path("tree")).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command
    }

    /// An interactive session, once it asks for something.
    fn session(&self) -> Screen {
        self.session_with(self.command(&[]))
    }

    fn session_with(&self, command: Command) -> Screen {
        let screen = Screen::start(command, 50, 80);
        screen.wait_for_prompt(1);
        screen
    }
}

/// A reply that comes word by word.
fn slowly(text: &str, delay_ms: u64) -> Value {
    let chunks: Vec<&str> = text.split_inclusive(' ').collect();
    json!({"chunks": chunks, "delay_ms": delay_ms})
}

fn numbers() -> String {
    (1..=300).map(|number| format!("number{number} ")).collect()
}

/// I1, L21: thinking is dimmed, words appear as they come and as Markdown, a call is a card, and the turn has its line.
#[test]
fn a_turn_is_streamed_with_thinking_cards_and_markdown() {
    let first = json!({"thinking": "Let me count.", "text": "I **count** it.",
        "calls": [{"name": "text.count", "arguments": {"text": "one two"}}]});
    let desk = Desk::new(&[first, json!({"text": "It has `two` words.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"})]);
    let mut screen = desk.session();
    screen.send("How many words?");
    screen.send(ENTER);
    screen.wait_for_prompt(2);
    let shown = screen.text();
    let expected = ["thinking\n  Let me count.\n\nI count it.\n\n✓ text.count {\"text\":\"one two\"}", "two words"];
    assert!(expected.iter().all(|expected| shown.contains(expected)), "{shown}");
    assert!(shown.contains("\n\nIt has two words.\n\na │ b\n──┼──\n1 │ 2\n\nscripted/"), "{shown}");
    assert!(shown.contains("2 model calls, "), "{shown}");
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
    assert!(screen.echoes(), "the terminal is as it was");
}

/// L29: Ctrl-C in the middle of a stream cancels the turn; what was typed ahead waits at the next prompt.
#[test]
fn l29_a_stream_is_cancelled_and_the_session_goes_on() {
    let desk = Desk::new(&[slowly(&numbers(), 40)]);
    let mut screen = desk.session();
    screen.send("Count.");
    screen.send(ENTER);
    screen.wait_for("number3 ");
    assert!(!screen.echoes());
    screen.send("typed ahead");
    screen.wait_for("number9 ");
    assert!(!screen.text().contains("typed ahead"));
    screen.send(CTRL_C);
    screen.wait_for_end("> typed ahead");
    let shown = screen.text();
    assert!(shown.contains("the reply above is void: the turn was cancelled\n"), "{shown}");
    assert!(!shown.contains("number300"), "{shown}");
    // It clears the line, and nothing is sent.
    screen.send(CTRL_C);
    screen.wait_for_end("> typed ahead\n\n>");
    screen.send("/session\r");
    screen.wait_for("1 turn; the model sees 1 message");
    screen.send("/undo\r");
    screen.wait_for("turn 1 is taken back");
    screen.send("Again.\r");
    screen.wait_for("> Again.\n\nnumber1 number2");
}

/// L29: Ctrl-C in the middle of a plugin's call stops the guest.
#[test]
fn l29_a_call_of_a_plugin_is_cancelled() {
    let desk = Desk::new(&[calling(&[("probe.sleep", json!({"ms": 600_000}))]), json!({"text": "Fine."})]);
    let mut screen = desk.session();
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
fn ctrl_c_at_an_empty_prompt_says_how_to_leave_and_then_leaves() {
    let desk = Desk::new(&[json!({"text": "unused"})]);
    let mut screen = desk.session();
    screen.send(CTRL_C);
    screen.wait_for("Ctrl-C once more leaves");
    screen.wait_for_prompt(2);
    // Whatever is done in between, the first one only says how again.
    screen.send("/session\r");
    screen.wait_for_prompt(3);
    screen.send(CTRL_C);
    screen.wait_for_prompt(4);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes());
    let listed = desk.command(&[]).args(["session", "list"]).output().unwrap();
    assert!(listed.stdout.is_empty(), "a session in which nothing was asked leaves nothing behind");
}

/// I1: the other way to leave is there while a line is typed, too, where the editor has the keyboard.
#[test]
fn ctrl_backslash_leaves_at_once() {
    let desk = Desk::new(&[json!({"text": "unused"})]);
    let mut screen = desk.session();
    screen.send("something");
    screen.wait_for("something");
    screen.send(CTRL_BACKSLASH);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
}

#[test]
fn a_request_to_end_ends_cleanly_at_a_prompt_and_in_a_turn() {
    let desk = Desk::new(&[slowly(&numbers(), 40)]);
    let terminate = |screen: &Screen| {
        let process = rustix::process::Pid::from_raw(screen.process().cast_signed()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    };
    let mut screen = desk.session();
    terminate(&screen);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
    let mut screen = desk.session();
    screen.send("Count.\r");
    screen.wait_for("number3 ");
    terminate(&screen);
    assert_eq!(screen.exit_code(), Some(130));
    assert!(screen.echoes());
    let shown = desk.command(&["--continue"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "the turn was interrupted, not cancelled: {said}");
    assert!(said.contains("number300"), "{said}");
}

/// Where the signal of a closed window is ignored (`nohup`), a prompt still ends with it, instead of reading ends of input
/// for ever.
#[test]
fn a_closed_window_ends_a_session_that_ignores_hangups() {
    let desk = Desk::new(&[slowly(&numbers(), 40)]);
    let asked = desk.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(asked.get_program()).args(asked.get_args());
    command.current_dir(asked.get_current_dir().unwrap()).env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let mut screen = desk.session_with(command);
    screen.close();
    assert_eq!(screen.exit_code(), Some(130));
}

/// What is written after the window has become narrower is wrapped at its new width, and typing still works.
#[test]
fn a_window_may_be_resized_while_a_reply_is_written_and_while_something_is_typed() {
    let desk = Desk::new(&[slowly(&numbers(), 20)]);
    let mut screen = desk.session();
    screen.send("Count.\r");
    screen.wait_for("number9 ");
    screen.resize(50, 40);
    screen.wait_for("number300\n");
    screen.wait_for_end("\n>");
    let shown = screen.text();
    let lines = shown.lines().filter(|line| line.starts_with("number2"));
    let whole = |line: &str| line.split(' ').all(|word| word.trim_start_matches("number").parse::<u32>().is_ok());
    let lines: Vec<_> = lines.collect();
    assert!(lines.len() > 20 && lines.iter().all(|line| line.len() <= 40 && whole(line)), "{shown}");
    screen.send("a line that does not fit into forty columns");
    screen.wait_for("fit into forty columns");
    screen.resize(50, 20);
    screen.send(", nor twenty");
    screen.wait("what was typed", |shown| shown.replace('\n', "").ends_with("forty columns, nor twenty"));
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    screen.send("/sess\t");
    screen.wait_for_end("> /session");
}

/// A pasted block stays one input, is not sent before Enter, and keeps its backslashes.
#[test]
fn a_pasted_block_is_one_input() {
    let block = "first line\nsecond \\\nthird line";
    let expected = json!({"text": "Read.", "expect": {"last_contains": [block]}});
    let desk = Desk::new(&[expected, json!({"text": "Both.", "expect": {"last_contains": "one\ntwo"}})]);
    let mut screen = desk.session();
    screen.paste(block);
    screen.wait_for_end("> first line\n  second \\\n  third line");
    screen.send(ENTER);
    screen.wait_for("\nRead.\n");
    screen.wait_for("1 model call, ");
    // A backslash at the end of what is typed begins a new line, and is none of the text.
    screen.send("one\\\r");
    screen.wait_for_end("> one\\");
    screen.send("two");
    screen.wait_for_end("> one\\\n  two");
    screen.send(ENTER);
    screen.wait_for("\nBoth.\n");
}

#[test]
fn without_colours_nothing_has_a_style() {
    let desk = Desk::new(&[
        json!({"thinking": "Hm.", "text": "# Title\n\n**bold** `code`",
        "calls": [{"name": "text.count", "arguments": {"text": "one"}}]}),
        json!({"text": "Done."}),
    ]);
    let mut command = desk.command(&[]);
    command.env("NO_COLOR", "1");
    let mut screen = desk.session_with(command);
    screen.send("Go.\r");
    screen.wait_for("\nDone.\n");
    screen.wait_for_prompt(2);
    assert!(screen.text().contains("# Title\n\n**bold** `code`"), "{}", screen.text());
    assert_eq!(screen.styled_cells(), 0, "{}", screen.text());
}

/// A terminal that can do nothing but print gets nothing else.
#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let desk = Desk::new(&[json!({"text": "**Hello**", "expect": {"last_contains": "one\ntwo"}})]);
    let mut command = desk.command(&[]);
    // In continuous integration, too, where some libraries take every output for one that shows colours.
    command.env("TERM", "dumb").env("CI", "true");
    let mut screen = desk.session_with(command);
    screen.send("one\\\rtwo\r");
    screen.wait_for("\n**Hello**\n");
    screen.wait_for("1 model call, ");
    screen.wait_for_end("\n>");
    screen.send(CTRL_C);
    screen.wait_for("once more leaves");
    screen.send("/session\r");
    screen.wait_for("1 turn; ");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(!screen.raw().contains('\u{1b}'), "{:?}", screen.raw());
}

#[test]
fn a_large_result_stays_short_and_can_be_seen_whole() {
    let desk = Desk::new(&[calling(&[("probe.bytes", json!({"bytes": 20_480}))]), json!({"text": "Large."})]);
    let mut screen = desk.session();
    screen.send("Go.\r");
    screen.wait_for("\nLarge.\n");
    screen.wait_for_prompt(2);
    let shown = screen.text();
    assert!(shown.contains("x…\n  … 20.0 KiB: /result\n"), "{shown}");
    assert!(shown.matches('x').count() < 100, "{shown}");
    let before = screen.raw().matches('x').count();
    screen.send("/result\r");
    screen.wait_for("xxx\n\n>");
    assert_eq!(screen.raw().matches('x').count() - before, 20_480);
}

#[test]
fn slash_commands_answer() {
    let desk = Desk::new(&[json!({"text": "unused"})]);
    let mut screen = desk.session();
    let script = format!("scripted/{}/script.json", desk.folder.path().display());
    let cases = [
        ("/help", "takes the last turn back"),
        ("/tools", "text.count_file"),
        ("/plugins", "may read and write ."),
        ("/model", &script),
        ("/modle", "did you mean /model?"),
        ("/model offline", "offline/router answers from now on"),
        ("/undo", "there is no turn to undo"),
        ("/session list", "tree-"),
        ("/session nothing", "there is no session `nothing`"),
        ("/cancel", "there is no turn to cancel"),
    ];
    for (command, answer) in cases {
        screen.send(&format!("{command}\r"));
        screen.wait_for(answer);
    }
    screen.send("text.count {\"text\": \"one two\"}\r");
    screen.wait_for("This is the offline router");
    screen.wait_for("offline/router: 2 model calls");
    screen.send("/session new\r");
    screen.wait_for("0 turns; the model sees 0 messages");
    screen.send("/quit\r");
    assert_eq!(screen.exit_code(), Some(0));
}

#[test]
fn what_was_typed_is_found_again_by_its_owner_only() {
    let desk = Desk::new(&[json!({"text": "Yes."}), json!({"text": "Yes, too."})]);
    let mut screen = desk.session();
    screen.send("Remember this.\r");
    screen.wait_for("\nYes.\n");
    screen.wait_for_prompt(2);
    screen.send(" but not this\r");
    screen.wait_for("\nYes, too.\n");
    screen.wait_for_prompt(3);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let file = desk.folder.path().join("data/history");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "Remember this.\n");
    let mut screen = desk.session();
    screen.send(UP);
    screen.wait_for_end("> Remember this.");
    screen.send(CTRL_C);
    screen.wait_for_end("\n>");
    screen.send("\u{12}emb");
    screen.wait_for("(earlier: emb) Remember this.");
}

/// M3, L30: a reply that broke off stays on the screen, and is said to be void and why.
#[test]
fn m3_a_reply_that_breaks_off_is_void() {
    let broken =
        json!({"text": "Half a reply and more", "error": {"message": "overloaded", "status": 503, "times": 1}});
    let desk = Desk::new(&[broken]);
    let mut screen = desk.session();
    screen.send("Go.\r");
    screen.wait_for("1 model call, ");
    let shown = screen.text();
    let places =
        ["Half a reply", "the reply above is void: it broke off", "overloaded", "is asked again in", "and more"];
    let mut rest = shown.as_str();
    for place in places {
        let (_, behind) = rest.split_once(place).unwrap_or_else(|| panic!("`{place}` is missing:\n{shown}"));
        rest = behind;
    }
}

/// D3: a call whose outcome is unknown is decided about in the session itself.
#[test]
fn d3_a_turn_that_waits_is_decided_about() {
    let desk = Desk::new(&[calling(&[("probe.count", json!({"path": "effects.txt"}))]), json!({"text": "Finished."})]);
    let killed = desk.command(&["Go."]).env("AGENT_HOST_KILL_AT", "after-call:probe.count").output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    let mut screen = desk.session_with(desk.command(&["--continue"]));
    screen.wait_for("waits for a decision");
    screen.send("Something else.\r");
    screen.wait_for("/resolve decides about a call");
    screen.send("/resolve call_1_1_1 result counted\r");
    screen.wait_for("\nFinished.\n");
    screen.wait_for("2 model calls");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(desk.folder.path().join("tree/effects.txt")).unwrap().lines().count(), 1);
}

/// L18, L19: reminders are dim notes; a question is shown, and the next line that is typed is its answer. L29: a turn that
/// waits for an answer can be cancelled.
#[test]
fn l18_a_question_is_answered_with_the_next_line() {
    let ask = || calling(&[("ask_question", json!({"question": "Which year do you mean?"}))]);
    let done = json!({"calls": [{"name": "task_completion", "arguments": {"result": "It was in 1984."}}],
        "expect": {"last_contains": "the eighties, 1984"}});
    let desk = Desk::new(&[json!({"text": "Let me think."}), ask(), done, ask()]);
    let file = desk.folder.path().join("agent.toml");
    std::fs::write(&file, "finish = \"tool\"\n").unwrap();
    let mut screen = desk.session_with(desk.command(&["--agent", file.to_str().unwrap()]));
    screen.send("When was it?\r");
    screen.wait_for("? Which year do you mean?");
    screen.wait_for("the next line that you write is the answer");
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
    screen.wait_for("cancelled; ask on");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// I1: into a pipe goes the answer as the model wrote it, and nothing else; no escape codes anywhere.
#[test]
fn i1_a_pipe_gets_the_answer_only() {
    let answer = "**bold** and a long line that no terminal would hold: ".to_owned() + &"word ".repeat(40) + "end";
    let first = json!({"thinking": "Hm.", "text": "I look.",
        "calls": [{"name": "text.count", "arguments": {"text": "one"}}]});
    let desk = Desk::new(&[first, json!({"text": answer})]);
    let output = desk.command(&["Go."]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{answer}\n"), "{printed}");
    assert!(printed.contains("→ text.count {\"text\":\"one\"}\n✓ text.count {\"text\":\"one\"} ("), "{printed}");
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    assert!(output.status.success());
}

/// I1, L29: output that cannot be written is an error, which is said; that its reader has gone is none.
#[test]
fn i1_output_that_cannot_be_written_is_an_error() {
    let desk = Desk::new(&[json!({"text": "All."})]);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for options in [&["Go."] as &[&str], &["--json", "Go."]] {
        let output = desk.command(options).stdin(Stdio::null()).stdout(full()).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("error: the output cannot be written: No space left"), "{printed}");
    }
}
