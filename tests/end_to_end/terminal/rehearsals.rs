//! What a user sees of the changes that a call would make to files, before the user approves the call (L17).

use super::screen::Screen;
use crate::approvals::command_line::{TestCli, payments_reply};
use crate::support::{call_reply, components, text_reply};
use serde_json::{Value, json};

const QUESTION: &str = "v view, ? help >";

/// Creates an agent whose plugins `files` and `payer` may write in the folder `tree`, which contains the file `poem.md`.
fn writer(replies: &[Value]) -> TestCli {
    let cli = TestCli::new("[plugins.files.grants]\nwrite = [\"tree\"]\n", replies);
    std::fs::copy(components().join("files.wasm"), cli.path("plugins/files.wasm")).unwrap();
    std::fs::write(cli.path("tree/poem.md"), "one\ntwo\nthree\nfour\nfive\n").unwrap();
    cli
}

fn ask(cli: &TestCli, columns: u16) -> Screen {
    let screen = Screen::start(cli.command(&["--agent", "agent.toml", "Go."]), 60, columns);
    screen.wait_for_end(QUESTION);
    screen
}

/// L17: by default, a tool that may overwrite files asks first, and the question shows the difference. Nothing is changed
/// before the answer.
#[test]
fn l17_a_question_shows_what_the_call_would_change() {
    let edit = json!({"path": "tree/poem.md", "edits": [{"old": "three\n", "new": "3\n\tand a half\n"}]});
    let cli = writer(&[call_reply(&[("files.edit", edit)]), text_reply("Done.")]);
    let mut screen = ask(&cli, 100);
    let text = screen.text();
    assert!(text.contains("approval required by approval.destructive"), "{text}");
    let expected = "  tree/poem.md  +2 -1\n    one\n    two\n  - three\n  + 3\n  +     and a half\n    four\n    five\n  arguments:";
    assert!(text.contains(expected), "{text}");
    assert_eq!(screen.cells("- three")[0].fgcolor(), vt100::Color::Idx(1));
    assert_eq!(screen.cells("+ 3")[0].fgcolor(), vt100::Color::Idx(2));
    assert_eq!(std::fs::read_to_string(cli.path("tree/poem.md")).unwrap(), "one\ntwo\nthree\nfour\nfive\n");
    let other = json!({"path": "tree/poem.md", "edits": [{"old": "one", "new": "1"}]});
    screen.send(&format!("e {other}\r"));
    screen.wait_for("- one\n  + 1\n");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(cli.path("tree/poem.md")).unwrap(), "1\ntwo\nthree\nfour\nfive\n");
}

/// L17, P6: If the plugin may not write yet, the user is asked for this grant first, so that the question about the call can show
/// what it would change. Without the grant, the question says why it shows nothing.
#[test]
fn l17_the_grant_is_asked_for_before_the_call() {
    let edit = || json!({"path": "tree/poem.md", "edits": [{"old": "three\n", "new": "3\n"}]});
    for (answer, shown) in [("y\r", "  - three\n  + 3\n"), ("n\r", "what the call would change cannot be shown")] {
        let cli = TestCli::new(
            "[plugins.files.grants]\nread = [\".\"]\n",
            &[call_reply(&[("files.edit", edit())]), text_reply("Done.")],
        );
        std::fs::copy(components().join("files.wasm"), cli.path("plugins/files.wasm")).unwrap();
        std::fs::write(cli.path("tree/poem.md"), "one\ntwo\nthree\n").unwrap();
        let mut screen = Screen::start(cli.command(&["--agent", "agent.toml", "Go."]), 60, 100);
        screen.wait_for("grant this?");
        assert!(!screen.text().contains("approval required"), "{}", screen.text());
        screen.send(answer);
        screen.wait_for_end(QUESTION);
        assert!(screen.text().contains(shown), "{}", screen.text());
        assert_eq!(std::fs::read_to_string(cli.path("tree/poem.md")).unwrap(), "one\ntwo\nthree\n");
        screen.send("y\r");
        assert_eq!(screen.exit_code(), Some(0));
        assert_eq!(screen.raw().matches("grant this?").count(), 1, "the plugin's grants are asked about once");
        let is_changed = std::fs::read_to_string(cli.path("tree/poem.md")).unwrap() != "one\ntwo\nthree\n";
        assert_eq!(is_changed, answer == "y\r");
    }
}

/// P6, P10, L17: `/grant` and `/revoke` also work while the host asks about a call. The changes are shown as the new grants allow.
#[test]
fn p6_grants_are_changed_while_the_host_asks_about_a_call() {
    let edit = json!({"path": "tree/poem.md", "edits": [{"old": "three\n", "new": "3\n"}]});
    let cli = writer(&[call_reply(&[("files.edit", edit)]), text_reply("Done.")]);
    let mut screen = ask(&cli, 100);
    for (typed, shown) in [
        ("/grant nobody read=.", "the agent has no plugin `nobody`"),
        ("/revoke files", "revoked the grants of files"),
        ("/grant files write=tree", "granted to files for this session: write="),
    ] {
        let questions = screen.raw().matches(QUESTION).count();
        screen.send(&format!("{typed}\r"));
        screen.wait_for(shown);
        screen.wait("the host asks again", |_| screen.raw().matches(QUESTION).count() > questions);
    }
    let text = screen.text();
    let (revoked, granted) = (text.find("revoked the").unwrap(), text.find("granted to files").unwrap());
    assert!(!text[revoked..granted].contains("- three"), "without the grant, nothing can be shown: {text}");
    assert!(text[granted..].contains("  - three\n  + 3\n"), "{text}");
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(cli.path("tree/poem.md")).unwrap(), "one\ntwo\n3\nfour\nfive\n");
}

/// L17: a file that the arguments do not name is shown with its present content, and a call that fails on the copies, or
/// that moves a whole folder, is shown without a difference.
#[test]
fn l17_a_rehearsal_finds_files_that_the_arguments_do_not_name() {
    let cli = writer(&[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    std::fs::write(cli.path("tree/ledger.txt"), "call_0 Zoe 9\n").unwrap();
    let mut screen = ask(&cli, 100);
    let text = screen.text();
    assert!(text.contains("  tree/ledger.txt  +1 -0\n    call_0 Zoe 9\n  + call_1_1_1_"), "{text}");
    screen.send("n\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(cli.path("tree/ledger.txt")).unwrap(), "call_0 Zoe 9\n");

    let failing = json!({"path": "tree/poem.md", "edits": [{"old": "nine", "new": "9"}]});
    let cli = writer(&[call_reply(&[("files.edit", failing)]), text_reply("Done.")]);
    let screen = ask(&cli, 100);
    assert!(!screen.text().contains("rehearsal") && screen.text().contains("nine"), "{}", screen.text());
}

/// L17: a removed file, a new file and a long difference are shown in a narrow window, and `v` shows everything.
#[test]
fn l17_v_shows_a_long_difference_completely() {
    let lines: String = (1..=90).map(|number| format!("line {number}\n")).collect();
    let write = ("files.write", json!({"path": "tree/new.md", "text": lines}));
    let rename = ("files.move", json!({"from": "tree/poem.md", "to": "tree/verse.md"}));
    let cli = writer(&[call_reply(&[rename, write]), text_reply("Done.")]);
    let mut screen = ask(&cli, 72);
    let text = screen.text();
    assert!(text.contains("tree/poem.md  removed, +0 -5") && text.contains("tree/verse.md  new file, +5 -0"), "{text}");
    screen.send("y\r");
    screen.wait_for("(2 of 2)");
    screen.wait_for_end(QUESTION);
    let text = screen.text();
    assert!(text.contains("tree/new.md  new file, +90 -0") && text.contains("v shows all (51 more lines)"), "{text}");
    screen.send("v\r");
    screen.wait_for("+ line 90\n");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(std::fs::read_to_string(cli.path("tree/new.md")).unwrap(), lines);
    assert!(!cli.path("tree/poem.md").exists() && cli.path("tree/verse.md").exists());
}
