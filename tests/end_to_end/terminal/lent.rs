//! A turn that waits for somebody else, while a person sits at its terminal: what it waits for may come from elsewhere.

use super::first_use::Place;
use super::{CTRL_D, Screen};
use crate::support::calling;
use serde_json::json;
use std::process::{Command, Output, Stdio};

const FILE: &str = "name = \"ada\"\nmodel = \"scripted:../script.json\"\n\n[services.payments]\ntype = \"com.example.pay\"\ndescription = \"Pays.\"\n";

/// A session whose turn waits for a payment.
fn waiting(place: &Place) -> Screen {
    let mut screen = place.session();
    screen.send("Pay.\r");
    screen.wait_for("waits for 1 answer");
    screen.wait_for_prompt(2);
    screen
}

fn respond(place: &Place, options: &[&str]) -> Output {
    let event = json!({"specversion": "1.0", "id": "e", "source": "/bank", "type": "com.example.paid",
        "parentid": "call_1_1_1", "data": {"receipt": 7}});
    std::fs::write(place.path("work/event.json"), event.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.args(["session", "respond", "ada/", "--event", "event.json", "--agent", "agent.toml"]).args(options);
    command.arg("--data").arg(place.path("data")).current_dir(place.path("work")).stdin(Stdio::null()).output().unwrap()
}

fn place() -> Place {
    Place::new(FILE, &[calling(&[("payments", json!({}))]), json!({"text": "All is paid."})])
}

/// L10: the answer is taken at once while a person sits before the waiting turn, and the next line goes on with it.
#[test]
fn l10_an_answer_from_elsewhere_is_met_at_the_prompt() {
    let place = place();
    let mut screen = waiting(&place);
    let answered = respond(&place, &["--no-run"]);
    assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
    screen.send("/continue\r");
    screen.wait_for("came meanwhile");
    screen.wait_for("\nAll is paid.\n");
    screen.wait_for("2 model calls");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L10: the other process may finish the turn, too; the terminal then shows how it ended, and the session goes on.
#[test]
fn l10_a_turn_that_was_finished_elsewhere_is_shown() {
    let place = place();
    let mut screen = waiting(&place);
    let answered = respond(&place, &[]);
    let said = String::from_utf8_lossy(&answered.stdout).into_owned();
    assert!(
        answered.status.success() && said.contains("All is paid."),
        "{said}{}",
        String::from_utf8_lossy(&answered.stderr)
    );
    assert!(!screen.text().contains("All is paid."));
    screen.send("/continue\r");
    screen.wait_for("in another process, and ended so");
    screen.wait_for("\nAll is paid.\n");
    screen.wait_for_prompt(3);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}
