//! Approvals at the terminal, and the effect of each answer (L17, L29).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::approvals::command_line::{TestCli, payments_reply};
use crate::support::{call_reply, text_reply};
use serde_json::json;

const QUESTION: &str = "v view, ? help >";

fn start_on_terminal(cli: &TestCli, arguments: &[&str]) -> Screen {
    Screen::start(cli.command(arguments), 50, 100)
}

/// L17: In a session, each call that needs an approval is shown with its tool and arguments. The user can allow a call,
/// deny it with a reason, edit its arguments, or allow all calls together.
#[test]
fn l17_shows_each_call_and_asks_for_an_answer() {
    let cli = TestCli::new(
        "",
        &[
            payments_reply(&[("Ann", 1), ("Bob\u{1b}[2J\u{202e}", 2), ("Cy", 3)]),
            text_reply("First."),
            payments_reply(&[("Di", 4), ("Ed", 5)]),
            text_reply("Second."),
            payments_reply(&[("Flo", 6)]),
            text_reply("Third."),
        ],
    );
    let mut screen = start_on_terminal(&cli, &["--agent", "agent.toml"]);
    screen.wait_for_prompt(1);
    screen.send("Pay.\r");
    screen.wait_for_end(QUESTION);
    let screen_text = screen.text();
    assert!(screen_text.contains("approval needed (1 of 3): payer.pay  payer@"), "{screen_text}");
    assert!(
        screen_text.contains("approval required by the tool itself\n  changes that a rehearsal")
            && screen_text.contains("  tree/ledger.txt  new file, +1 -0\n")
            && screen_text.contains("  arguments:\n  \"to\": \"Ann\"\n  \"amount\": 1\n"),
        "{screen_text}"
    );
    screen.send("\r");
    screen.wait_for("Ctrl-C cancels the turn");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("(2 of 3)");
    screen.wait_for_end(QUESTION);
    assert!(screen.text().contains("\"to\": \"Bob\\u001b[2J\\u{202e}\""), "{}", screen.text());
    screen.send("n too much\r");
    screen.wait_for("(3 of 3)");
    screen.wait_for_end(QUESTION);
    screen.send("e {\"to\": \"Cy\", \"amount\": 0}\r");
    screen.wait_for("/amount: ");
    screen.send("e {\"to\": \"Cy\", \"amount\": 1}\r");
    screen.wait_for("with the arguments that you changed");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nFirst.\n");
    let mut paid = cli.ledger();
    paid.sort();
    assert_eq!(paid, ["Ann 1", "Cy 1"]);
    screen.wait_for_end("\n>");
    screen.send("Pay on.\r");
    screen.wait_for("(1 of 2)");
    screen.wait_for_end(QUESTION);
    screen.send("s all\r");
    screen.wait_for("\nSecond.\n");
    screen.wait_for_end("\n>");
    screen.send("And on.\r");
    screen.wait_for("\nThird.\n");
    assert_eq!(cli.ledger().len(), 5, "a call allowed in this session needs no new approval");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal settings are restored");
}

/// L17: Text that was typed before the question appeared is not used as the answer.
#[test]
fn l17_text_typed_ahead_allows_nothing() {
    let mut slow = payments_reply(&[("Ann", 1)]);
    slow["chunks"] = json!(["one ", "two ", "three ", "four ", "five "]);
    slow["delay_ms"] = json!(300);
    let cli = TestCli::new("", &[slow, text_reply("Done.")]);
    let mut screen = start_on_terminal(&cli, &["--agent", "agent.toml", "Pay."]);
    screen.wait_for("one");
    screen.send("y\ry\r");
    screen.wait_for_end(QUESTION);
    assert!(cli.ledger().is_empty());
    screen.send("n\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(cli.ledger().is_empty());
}

/// L29: Ctrl-C at the question cancels the turn. Ctrl-D leaves the question unanswered: the turn still waits, and
/// `/approve` asks the question again.
#[test]
fn l29_a_question_can_be_cancelled_or_left_open() {
    let cli = TestCli::new("", &[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    let mut screen = start_on_terminal(&cli, &["--agent", "agent.toml", "Pay."]);
    screen.wait_for_end(QUESTION);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(130));
    let (_, screen_text, _) = cli.run(&["session", "show"]);
    assert!(screen_text.contains("cancelled before it ran"), "{screen_text}");
    let mut screen = start_on_terminal(&cli, &["--agent", "agent.toml"]);
    screen.wait_for_prompt(1);
    screen.send("Pay.\r");
    screen.wait_for_end(QUESTION);
    screen.send(CTRL_D);
    screen.wait_for("/approve asks again, /cancel ends the turn");
    screen.wait_for_end("\n>");
    screen.send("/approve\r");
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(cli.ledger(), ["Ann 1"]);
    let (_, listed, _) = cli.run(&["approvals", "list"]);
    assert!(listed.contains("clerk may call payer.pay"), "{listed}");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L17: The user can change the arguments of a call in the editor that the user has configured.
#[test]
fn l17_edits_arguments_in_an_editor() {
    let wipe = call_reply(&[("payer.wipe", json!({"to": "everything", "amount": 9}))]);
    let cli = TestCli::new("[approval]\ndestructive = \"ask\"\n", &[wipe, text_reply("Done.")]);
    let mut command = cli.command(&["--agent", "agent.toml", "Wipe."]);
    command.env("EDITOR", "sed -i s/everything/little/");
    let mut screen = Screen::start(command, 50, 100);
    screen.wait_for("declared effects: may delete or overwrite; approval required by approval.destructive");
    screen.wait_for_end(QUESTION);
    screen.send("e\r");
    screen.wait_for("with the arguments that you changed:\n  \"to\": \"little\"");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(cli.ledger(), ["little 9"]);
    let drafts = std::fs::read_dir(cli.path("data")).unwrap().flatten();
    assert_eq!(drafts.filter(|entry| entry.file_name().to_string_lossy().starts_with("draft")).count(), 0);
}
