//! A person at the terminal is asked what must be allowed, and what they type is what happens (L17, L29).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::approvals::command_line::{Desk, paying};
use crate::support::{calling, saying};
use serde_json::json;

const QUESTION: &str = "v view, ? help >";

fn at_terminal(desk: &Desk, arguments: &[&str]) -> Screen {
    Screen::start(desk.command(arguments), 50, 100)
}

/// L17: in a session each call is shown with its tool and arguments; yes, no with a reason, changed, and for all at once.
#[test]
fn l17_each_call_is_shown_and_answered() {
    let desk = Desk::new(
        "",
        &[
            paying(&[("Ann", 1), ("Bob\u{1b}[2J\u{202e}", 2), ("Cy", 3)]),
            saying("First."),
            paying(&[("Di", 4), ("Ed", 5)]),
            saying("Second."),
            paying(&[("Flo", 6)]),
            saying("Third."),
        ],
    );
    let mut screen = at_terminal(&desk, &["--agent", "agent.toml"]);
    screen.wait_for_prompt(1);
    screen.send("Pay.\r");
    screen.wait_for_end(QUESTION);
    let shown = screen.text();
    assert!(shown.contains("approval needed (1 of 3): payer.pay  payer@"), "{shown}");
    assert!(shown.contains("asked for by the tool itself\n  \"to\": \"Ann\"\n  \"amount\": 1\n"), "{shown}");
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
    let mut paid = desk.ledger();
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
    assert_eq!(desk.ledger().len(), 5, "what was allowed in this session is not asked for again");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal is as it was");
}

/// L17: what was typed before the question is no answer to it.
#[test]
fn l17_what_was_typed_ahead_allows_nothing() {
    let mut slow = paying(&[("Ann", 1)]);
    slow["chunks"] = json!(["one ", "two ", "three ", "four ", "five "]);
    slow["delay_ms"] = json!(300);
    let desk = Desk::new("", &[slow, saying("Done.")]);
    let mut screen = at_terminal(&desk, &["--agent", "agent.toml", "Pay."]);
    screen.wait_for("one");
    screen.send("y\ry\r");
    screen.wait_for_end(QUESTION);
    assert!(desk.ledger().is_empty());
    screen.send("n\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(desk.ledger().is_empty());
}

/// L29: Ctrl-C at the question cancels the turn; Ctrl-D leaves it waiting, and `/approve` asks again.
#[test]
fn l29_a_question_is_cancelled_or_left() {
    let desk = Desk::new("", &[paying(&[("Ann", 1)]), saying("Done.")]);
    let mut screen = at_terminal(&desk, &["--agent", "agent.toml", "Pay."]);
    screen.wait_for_end(QUESTION);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(130));
    let (_, shown, _) = desk.run(&["session", "show"]);
    assert!(shown.contains("cancelled before it ran"), "{shown}");
    let mut screen = at_terminal(&desk, &["--agent", "agent.toml"]);
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
    assert_eq!(desk.ledger(), ["Ann 1"]);
    let (_, listed, _) = desk.run(&["approvals", "list"]);
    assert!(listed.contains("clerk may call payer.pay"), "{listed}");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L17: the arguments are changed in the person's own editor.
#[test]
fn l17_arguments_are_changed_in_an_editor() {
    let wipe = calling(&[("payer.wipe", json!({"to": "everything", "amount": 9}))]);
    let desk = Desk::new("[approval]\ndestructive = \"ask\"\n", &[wipe, saying("Done.")]);
    let mut command = desk.command(&["--agent", "agent.toml", "Wipe."]);
    command.env("EDITOR", "sed -i s/everything/little/");
    let mut screen = Screen::start(command, 50, 100);
    screen.wait_for("it says: may delete or overwrite; asked for by approval.destructive");
    screen.wait_for_end(QUESTION);
    screen.send("e\r");
    screen.wait_for("with the arguments that you changed:\n  \"to\": \"little\"");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert_eq!(desk.ledger(), ["little 9"]);
    let drafts = std::fs::read_dir(desk.path("data")).unwrap().flatten();
    assert_eq!(drafts.filter(|entry| entry.file_name().to_string_lossy().starts_with("draft")).count(), 0);
}
