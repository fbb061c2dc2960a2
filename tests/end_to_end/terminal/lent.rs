//! A turn waits for the answer of a service while its session is open in a terminal. The answer may be
//! stored by a process other than the one that runs in the terminal.

use super::first_use::AgentFolder;
use super::{CTRL_D, Screen};
use crate::support::{agent_host, call_reply};
use serde_json::json;
use std::process::{Output, Stdio};

const AGENT_FILE: &str = "name = \"ada\"\nmodel = \"scripted:../script.json\"\n\n[services.payments]\ntype = \"com.example.pay\"\ndescription = \"Pays.\"\n";

/// Opens a session whose turn waits for a payment.
fn waiting_session(folder: &AgentFolder) -> Screen {
    let mut screen = folder.session();
    screen.send("Pay.\r");
    screen.wait_for("waits for 1 answer");
    screen.wait_for_prompt(2);
    screen
}

fn respond(folder: &AgentFolder, options: &[&str]) -> Output {
    let event = json!({"specversion": "1.0", "id": "e", "source": "/bank", "type": "com.example.paid",
        "parentid": "call_1_1_1", "data": {"receipt": 7}});
    std::fs::write(folder.path("work/event.json"), event.to_string()).unwrap();
    let mut command = agent_host();
    command.args(["session", "respond", "ada/", "--event", "event.json", "--agent", "agent.toml"]).args(options);
    command
        .arg("--data")
        .arg(folder.path("data"))
        .current_dir(folder.path("work"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn payment_folder() -> AgentFolder {
    AgentFolder::new(AGENT_FILE, &[call_reply(&[("payments", json!({}))]), json!({"text": "All is paid."})])
}

/// L10: An answer from another process is accepted while the session waits at its prompt, and `/continue` continues the
/// turn.
#[test]
fn l10_an_answer_from_another_process_arrives_at_the_prompt() {
    let folder = payment_folder();
    let mut screen = waiting_session(&folder);
    let answered = respond(&folder, &["--no-run"]);
    assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
    screen.send("/continue\r");
    screen.wait_for("another process delivered the answer that the turn waited for");
    screen.wait_for("\nAll is paid.\n");
    screen.wait_for("2 model calls");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L10: The process that accepts the answer may continue the turn until the turn ends. If another
/// process has ended the turn, the terminal shows how the turn ended, and the session continues.
#[test]
fn l10_shows_a_turn_that_another_process_finished() {
    let folder = payment_folder();
    let mut screen = waiting_session(&folder);
    let answered = respond(&folder, &[]);
    let printed = String::from_utf8_lossy(&answered.stdout).into_owned();
    assert!(
        answered.status.success() && printed.contains("All is paid."),
        "{printed}{}",
        String::from_utf8_lossy(&answered.stderr)
    );
    assert!(!screen.text().contains("All is paid."));
    screen.send("/continue\r");
    screen.wait_for("another process continued the turn, and the turn ended as follows");
    screen.wait_for("\nAll is paid.\n");
    screen.wait_for_prompt(3);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}
