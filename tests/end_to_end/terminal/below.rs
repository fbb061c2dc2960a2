//! What an agent waits for that works for another one is asked at the terminal of the one that a person talks to (L16, L17).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::approvals::command_line::{Desk, paying};
use crate::support::{calling, components, saying, script};
use serde_json::{Value, json};
use std::process::Stdio;

const QUESTION: &str = "v view, ? help >";

/// A desk whose clerk works for a lead, who works for a chief. Each asks the one below once.
fn office(rules: &str, clerk: &[Value]) -> Desk {
    let desk = Desk::new(rules, clerk);
    for (above, below, file) in [("lead", "clerk", "agent.toml"), ("chief", "lead", "lead.toml")] {
        let text = format!(
            "name = \"{above}\"\nmodel = \"scripted:{above}.json\"\n\n[agents.{below}]\nagent = \"{file}\"\n\
             description = \"Does the work.\"\n"
        );
        std::fs::write(desk.path(&format!("{above}.toml")), text).unwrap();
        let replies = [calling(&[(below, json!({"task": "Do it."}))]), saying(&format!("The {above} is content."))];
        std::fs::write(desk.path(&format!("{above}.json")), script(&replies).to_string()).unwrap();
    }
    desk
}

fn at_terminal(desk: &Desk, arguments: &[&str]) -> Screen {
    Screen::start(desk.command(arguments), 50, 120)
}

/// L16, L17: one turn on a terminal: the person is told who asks and through whom, and their yes lets both go on.
#[test]
fn l17_an_agents_approval_is_asked_at_the_terminal_of_its_parent() {
    let desk = office("", &[paying(&[("Ann", 1), ("Bob", 2)]), saying("Paid.")]);
    let mut screen = at_terminal(&desk, &["--agent", "lead.toml", "Pay."]);
    screen.wait_for_end(QUESTION);
    let shown = screen.text();
    assert!(shown.contains("the agent clerk asks  lead → clerk, session clerk/"), "{shown}");
    assert!(shown.contains("approval needed (1 of 2): payer.pay  payer@"), "{shown}");
    assert!(desk.ledger().is_empty());
    screen.send("y\r");
    screen.wait_for("(2 of 2)");
    screen.wait_for_end(QUESTION);
    screen.send("n too much\r");
    assert_eq!(screen.exit_code(), Some(0));
    let shown = screen.text();
    assert!(shown.contains("The lead is content."), "{shown}");
    assert!(!shown.contains("session approve"), "nothing is left to a command: {shown}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
}

/// L16, L17: two levels down, in a session in which somebody types. Ctrl-D leaves all of them waiting, `/approve` asks
/// again, and what was typed ahead is no answer; Ctrl-C at the question cancels all three turns.
#[test]
fn l17_an_approval_two_levels_down_is_left_and_asked_again() {
    let desk = office("", &[paying(&[("Ann", 1)]), saying("Paid."), paying(&[("Bob", 2)]), saying("Paid.")]);
    let mut screen = at_terminal(&desk, &["--agent", "chief.toml"]);
    screen.wait_for_prompt(1);
    screen.send("Pay.\r");
    screen.wait_for_end(QUESTION);
    assert!(screen.text().contains("chief → lead → clerk, session clerk/"), "{}", screen.text());
    screen.send(CTRL_D);
    screen.wait_for("or here: /approve asks what can be answered, /cancel ends the turn");
    screen.wait_for_end("\n>");
    screen.send("And now?\r");
    screen.wait_for("/approve asks what the agents below it wait for");
    screen.wait_for_end("\n>");
    screen.send("/approve\r");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nThe chief is content.\n");
    assert_eq!(desk.ledger(), ["Ann 1"]);
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal is as it was");
    let mut screen = at_terminal(&desk, &["--agent", "chief.toml", "Pay Bob."]);
    screen.wait_for_end(QUESTION);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(130));
    let (_, listed, _) = desk.run(&["session", "list", "--limit", "3", "--json"]);
    let states = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone());
    assert!(states.clone().count() == 3 && states.clone().all(|state| state == "cancelled"), "{listed}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
}

/// L16, L18: a question of an agent below is asked in its name, and an empty line is no answer.
#[test]
fn l18_an_agents_question_is_asked_at_the_terminal_of_its_parent() {
    let mut done = calling(&[("task_completion", json!({"result": "Done."}))]);
    done["expect"] = json!({"last_contains": "the red one"});
    let desk = office("finish = \"tool\"", &[calling(&[("ask_question", json!({"question": "Which door?"}))]), done]);
    let mut screen = at_terminal(&desk, &["--agent", "lead.toml", "Open the door."]);
    screen.wait_for_end("your answer >");
    let shown = screen.text();
    assert!(shown.contains("the agent clerk asks  lead → clerk, session clerk/"), "{shown}");
    assert!(shown.contains("? Which door?\n"), "{shown}");
    screen.send("\r");
    screen.wait_for("that says nothing");
    screen.wait_for_end("your answer >");
    screen.send("the red one\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.text().contains("The lead is content."), "{}", screen.text());
}

/// D3, L16: a call of an agent below that nobody saw the end of is decided about at the terminal.
#[test]
fn d3_what_became_of_an_agents_call_is_asked_at_the_terminal_of_its_parent() {
    let told = json!({"text": "It is done.", "expect": {"last_contains": "all seven"}});
    let desk = office("", &[calling(&[("probe.slow", json!({"ms": 25_000}))]), told]);
    std::fs::copy(components().join("probe.wasm"), desk.path("plugins/probe.wasm")).unwrap();
    let mut command = desk.command(&["--agent", "lead.toml", "--json", "Work."]);
    let mut killed = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let printed = std::io::BufReader::new(killed.stdout.take().unwrap());
    let runs = |line: &String| line.contains("\"tool_call\"") && line.contains("probe.slow");
    assert!(std::io::BufRead::lines(printed).map_while(Result::ok).any(|line| runs(&line)), "the call runs");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut screen = at_terminal(&desk, &["--agent", "lead.toml", "--continue"]);
    screen.wait_for_end("what became of it? retry, failed [WHY], result TEXT >");
    let shown = screen.text();
    assert!(shown.contains("the agent clerk asks  lead → clerk, session clerk/"), "{shown}");
    assert!(shown.contains("  probe.slow\n  \"ms\": 25000\n"), "{shown}");
    screen.send("perhaps\r");
    screen.wait_for("write `retry`");
    screen.send("result all seven\r");
    screen.wait_for("\nThe lead is content.\n");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L16, L17: where nobody sits at a terminal the commands are named, and `--yes` allows an agent's calls below as it
/// does those of the one that is asked; what was answered is told.
#[test]
fn l17_without_a_terminal_yes_allows_what_agents_below_ask() {
    let clerk = [paying(&[("Ann", 1)]), saying("Paid."), paying(&[("Bob", 2)]), saying("Paid.")];
    let desk = office("", &clerk);
    let (code, _, said) = desk.run(&["--agent", "lead.toml", "Pay."]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("agent-host session approve clerk/"), "{said}");
    let (code, _, said) = desk.run(&["--agent", "lead.toml", "--yes", "payer.wipe", "--continue"]);
    assert_eq!(code, Some(3), "another tool was allowed: {said}");
    assert!(!said.contains("no such tool"), "the agents below have tools of their own: {said}");
    let (code, printed, said) = desk.run(&["--agent", "lead.toml", "--yes", "payer.*", "--json", "--continue"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
    let resolved = printed.lines().filter(|line| line.contains("\"approval_resolved\"")).count();
    assert_eq!(resolved, 1, "{printed}");
}
