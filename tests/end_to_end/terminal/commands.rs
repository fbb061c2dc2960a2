//! Slash commands that show changes and summarise, `session pick`, Ctrl-Z, and times in lists (I1).

use super::screen::Screen;
use super::{CTRL_D, TestCli, numbers, streamed_slowly};
use crate::support::{call_reply, components};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CTRL_Z: &str = "\u{1a}";

/// I1: `/diff` shows what the last turn changed in files, and `/diff all` what all turns changed.
#[test]
fn i1_diff_shows_the_changed_files() {
    let write = |text: &str| call_reply(&[("files.write", json!({"path": "a.md", "text": text, "mode": "overwrite"}))]);
    let replies = [write("one\n2\n"), json!({"text": "Written."}), json!({"text": "Nothing to do."})];
    let cli = TestCli::new(&replies);
    let path = |name: &str| cli.folder.path().join(name);
    std::fs::copy(components().join("files.wasm"), path("plugins/files.wasm")).unwrap();
    std::fs::write(path("tree/a.md"), "one\ntwo\n").unwrap();
    let mut screen = cli.session_with(cli.command(&["--grant", "files:write=.", "--yes", "files.write"]));
    screen.send("/diff\r");
    screen.wait_for("no tool of a plugin has changed a text file here");
    screen.wait_for_end("\n>");
    screen.send("Write.\r");
    screen.wait_for("\nWritten.\n");
    screen.wait_for_end("\n>");
    assert_eq!(std::fs::read_to_string(path("tree/a.md")).unwrap(), "one\n2\n", "{}", screen.text());
    let difference = "  a.md  +1 -1\n    one\n  - two\n  + 2\n\n>";
    screen.send("/diff\r");
    screen.wait_for_end(difference);
    assert_eq!(screen.cells("+ 2")[0].fgcolor(), vt100::Color::Idx(2));
    screen.send("And now?\r");
    screen.wait_for("\nNothing to do.\n");
    screen.wait_for_end("\n>");
    screen.send("/diff\r");
    screen.wait_for("the last turn changed no file; /diff all shows the changes of this session");
    screen.send("/diff all\r");
    screen.wait_for_end(difference);
}

/// L27: after `/compact`, the next turn begins with a summary of the earlier messages, and later turns do not.
#[test]
fn l27_compact_summarises_the_earlier_messages_once() {
    let long = json!({"text": "word ".repeat(4_000)});
    let cli = TestCli::new(&[long, json!({"text": "Second."}), json!({"text": "Third."})]);
    let agent = cli.folder.path().join("tree/agent.toml");
    std::fs::write(&agent, "name = \"compact\"\nsummary = \"extract\"\n").unwrap();
    let mut screen = cli.session_with(cli.command(&["--agent", agent.to_str().unwrap()]));
    screen.send("/compact\r");
    screen.wait_for("there are no earlier messages");
    screen.wait_for_end("\n>");
    screen.send("Tell me.\r");
    screen.wait_for("1 model call, ");
    screen.wait_for_end("\n>");
    screen.send("/compact\r");
    screen.wait_for("your next prompt begins with a summary of the earlier messages");
    screen.wait_for_end("\n>");
    screen.send("What else?\r");
    screen.wait_for("2 earlier messages (");
    screen.wait_for("\nSecond.\n");
    screen.wait_for_end("\n>");
    screen.send("And then?\r");
    screen.wait_for("\nThird.\n");
    screen.wait_for_end("\n>");
    assert_eq!(screen.raw().matches("earlier messages (").count(), 1, "{}", screen.text());
}

fn is_stopped(screen: &Screen) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", screen.process())).unwrap();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

fn wait_until_stopped(screen: &Screen) {
    let started = Instant::now();
    while !is_stopped(screen) {
        assert!(started.elapsed() < Duration::from_secs(60), "the process is not suspended:\n{}", screen.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// I1: Ctrl-Z suspends the process at the prompt and during a turn. While the process is suspended, the keyboard has its
/// original mode. Afterwards, the prompt has its text again, and the turn continues.
#[test]
fn i1_ctrl_z_suspends_the_process_at_the_prompt_and_in_a_turn() {
    let cli = TestCli::new(&[streamed_slowly(&numbers(), 20)]);
    let mut screen = cli.session();
    let resume = |screen: &Screen| {
        kill_process(Pid::from_raw(screen.process().cast_signed()).unwrap(), Signal::CONT).unwrap();
        // In the original mode, the terminal echoes what is typed, and turns Enter into a line feed, which is another key.
        screen.wait("the mode of the process", |_| !screen.echoes());
    };
    screen.send("Count");
    screen.wait_for_end("> Count");
    screen.send(CTRL_Z);
    wait_until_stopped(&screen);
    assert!(screen.echoes(), "the shell gets the terminal in its original mode");
    resume(&screen);
    screen.send(" now.");
    screen.wait_for_end("> Count now.");
    screen.send("\r");
    screen.wait_for("number3 ");
    screen.send(CTRL_Z);
    wait_until_stopped(&screen);
    assert!(screen.echoes());
    resume(&screen);
    screen.wait_for("number300");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes());
}

/// I1: `session pick` lists the sessions, narrows the list down with words, and continues the chosen session. Without a
/// terminal, it prints the list.
#[test]
fn i1_session_pick_continues_the_chosen_session() {
    let cli = TestCli::new(&[json!({"text": "It has a zebra."}), json!({"text": "Done."})]);
    let run = |prompt: &str| cli.command(&[prompt]).stdin(Stdio::null()).output().unwrap();
    assert!(run("Count the walruses").status.success());
    assert!(run("Paint the fence").status.success());
    let pick = |words: &[&str]| {
        let mut command = cli.host(&["session", "pick"]);
        command.arg("--plugins").arg(cli.folder.path().join("plugins"));
        command.args(["--model", &format!("scripted:{}", cli.folder.path().join("script.json").display())]);
        command.args(words);
        command
    };
    let piped = pick(&["walruses"]).stdin(Stdio::null()).output().unwrap();
    let (printed, notes) = (String::from_utf8_lossy(&piped.stdout), String::from_utf8_lossy(&piped.stderr));
    assert!(printed.contains("Count the walruses") && !printed.contains("fence"), "{printed}");
    assert!(notes.contains("this is not a terminal: continue one with agent-host --session ID"), "{notes}");

    let mut screen = Screen::start(pick(&[]), 40, 60);
    screen.wait_for_end("number, or words to search; Ctrl-D quits >");
    let shown = screen.text();
    assert!(shown.starts_with("1  Paint the fence\n   ") && shown.contains("\n2  Count the walruses\n   "), "{shown}");
    screen.send("no such words\r");
    screen.wait_for("no session contains `no such words`");
    screen.wait_for("Enter for all sessions");
    screen.wait_for_end("quits >");
    screen.send("7\r");
    screen.wait_for("there is no session with the number 7 in this list");
    screen.wait_for_end("quits >");
    screen.send("\r");
    screen.wait("all sessions again", |shown| shown.matches("1  Paint the fence").count() == 2);
    screen.wait_for_end("words to search; Ctrl-D quits >");
    screen.send("WALRUSES\r");
    screen.wait("the found session", |shown| shown.contains("> WALRUSES\n1  Count the walruses"));
    screen.wait_for_end("Ctrl-D quits >");
    screen.send("1\r");
    screen.wait_for("\n> Count the walruses\nIt has a zebra.\n");
    screen.wait_for_end("\n>");
    screen.send("/session\r");
    screen.wait_for("1 turn; the model sees 2 messages");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    // The words of messages are searched too.
    let mut screen = Screen::start(pick(&["zebra"]), 40, 60);
    screen.wait_for("  Count the walruses\n");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// I1: `/theme` changes the colours of this session and of later ones.
#[test]
fn i1_theme_changes_the_colours() {
    let cli = TestCli::new(&[json!({"text": "unused"})]);
    let mut screen = cli.session();
    let warned_in = |screen: &mut Screen, theme: &str, colour: vt100::Color| {
        screen.send(&format!("/theme {theme}\r"));
        screen.wait_for(&format!("the theme is `{theme}` from now on"));
        screen.wait_for_end("\n\n>");
        screen.send(&format!("/not{theme}\r"));
        let warning = format!("! there is no command /not{theme}");
        screen.wait_for(&warning);
        screen.wait_for_end("\n\n>");
        assert_eq!(screen.cells(&warning)[0].fgcolor(), colour, "{theme}");
    };
    warned_in(&mut screen, "dark", vt100::Color::Idx(3));
    warned_in(&mut screen, "light", vt100::Color::Idx(5));
    warned_in(&mut screen, "none", vt100::Color::Default);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    let mut screen = cli.session();
    screen.send("/theme\r");
    screen.wait_for("the theme is `none`; /theme light|dark|none changes it");
    assert_eq!(screen.styled_cells(), 0, "{}", screen.text());
}

/// I1: lists show times in the time zone of the user. JSON contains times in UTC.
#[test]
fn i1_lists_show_local_times() {
    let cli = TestCli::new(&[json!({"text": "Yes."})]);
    assert!(cli.command(&["Ready?"]).stdin(Stdio::null()).output().unwrap().status.success());
    let run = |arguments: &[&str]| {
        let output = cli.host(arguments).env("TZ", "Asia/Kolkata").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let stored = run(&["session", "list", "--json"]);
    let stored: serde_json::Value = serde_json::from_str(stored.trim()).unwrap();
    let updated: jiff::Timestamp = stored["updated"].as_str().unwrap().parse().unwrap();
    let local = updated.to_zoned(jiff::tz::TimeZone::get("Asia/Kolkata").unwrap());
    let local = local.strftime("%Y-%m-%d %H:%M:%S IST").to_string();
    assert!(stored["updated"].as_str().unwrap().ends_with('Z'), "{stored}");
    let listed = run(&["session", "list"]);
    assert!(listed.contains(&local), "{listed} {local}");
    for list in [["memory", "list"], ["audit", "--since=1d"]] {
        assert!(run(&list).contains(" IST"), "{list:?}");
    }
}
