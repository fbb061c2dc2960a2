//! If a child agent needs an answer from the user, the host asks at the terminal of the agent that the user talks to
//! (L16, L17).

use super::screen::Screen;
use super::{CTRL_C, CTRL_D};
use crate::approvals::command_line::{TestCli, payments_reply};
use crate::support::{call_reply, components, script, text_reply};
use serde_json::{Value, json};
use std::process::Stdio;

const QUESTION: &str = "v view, ? help >";

/// Creates a folder with three agents. The chief delegates once to the lead, and the lead delegates once to the clerk.
fn three_levels(rules: &str, clerk: &[Value]) -> TestCli {
    let cli = TestCli::new(rules, clerk);
    for (parent, delegate, file) in [("lead", "clerk", "agent.toml"), ("chief", "lead", "lead.toml")] {
        let text = format!(
            "name = \"{parent}\"\nmodel = \"scripted:{parent}.json\"\n\n[agents.{delegate}]\nagent = \"{file}\"\n\
             description = \"Does the work.\"\n"
        );
        std::fs::write(cli.path(&format!("{parent}.toml")), text).unwrap();
        let replies =
            [call_reply(&[(delegate, json!({"task": "Do it."}))]), text_reply(&format!("The {parent} is content."))];
        std::fs::write(cli.path(&format!("{parent}.json")), script(&replies).to_string()).unwrap();
    }
    cli
}

fn start_on_terminal(cli: &TestCli, arguments: &[&str]) -> Screen {
    Screen::start(cli.command(arguments), 50, 120)
}

/// L16, L17: If a call of a child agent needs an approval, the user is asked at the terminal of the child's parent.
/// The user sees which agent asks and which agent delegated to it. After the user has answered, the child agent
/// and its parent continue.
#[test]
fn l17_a_childs_call_is_approved_at_the_terminal_of_its_parent() {
    let cli = three_levels("", &[payments_reply(&[("Ann", 1), ("Bob", 2)]), text_reply("Paid.")]);
    let mut screen = start_on_terminal(&cli, &["--agent", "lead.toml", "Pay."]);
    screen.wait_for_end(QUESTION);
    let screen_text = screen.text();
    assert!(screen_text.contains("the agent clerk asks  lead → clerk, session clerk/"), "{screen_text}");
    assert!(screen_text.contains("approval needed (1 of 2): payer.pay  payer@"), "{screen_text}");
    assert!(cli.ledger().is_empty());
    screen.send("y\r");
    screen.wait_for("(2 of 2)");
    screen.wait_for_end(QUESTION);
    screen.send("n too much\r");
    assert_eq!(screen.exit_code(), Some(0));
    let screen_text = screen.text();
    assert!(screen_text.contains("The lead is content."), "{screen_text}");
    assert!(!screen_text.contains("session approve"), "no command is suggested: {screen_text}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
}

/// L16, L17: In an interactive session, the host asks at the terminal for the approval of a call, even if the call
/// belongs to an agent that is two delegation levels down. Ctrl-D leaves the question unanswered: the turns of all
/// three agents still wait, and `/approve` asks the question again. If the user presses Ctrl-C at the question,
/// all three turns are cancelled.
#[test]
fn l17_asks_again_for_an_approval_two_levels_down() {
    let cli = three_levels(
        "",
        &[payments_reply(&[("Ann", 1)]), text_reply("Paid."), payments_reply(&[("Bob", 2)]), text_reply("Paid.")],
    );
    let mut screen = start_on_terminal(&cli, &["--agent", "chief.toml"]);
    screen.wait_for_prompt(1);
    screen.send("Pay.\r");
    screen.wait_for_end(QUESTION);
    assert!(screen.text().contains("chief → lead → clerk, session clerk/"), "{}", screen.text());
    screen.send(CTRL_D);
    screen.wait_for("or here: /approve asks for the missing answers, /cancel ends the turn");
    screen.wait_for_end("\n>");
    screen.send("And now?\r");
    screen.wait_for("/approve asks you for the answers that the delegates wait for");
    screen.wait_for_end("\n>");
    screen.send("/approve\r");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nThe chief is content.\n");
    assert_eq!(cli.ledger(), ["Ann 1"]);
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.echoes(), "the terminal settings are restored");
    let mut screen = start_on_terminal(&cli, &["--agent", "chief.toml", "Pay Bob."]);
    screen.wait_for_end(QUESTION);
    screen.send(CTRL_C);
    assert_eq!(screen.exit_code(), Some(130));
    let (_, listed, _) = cli.run(&["session", "list", "--limit", "3", "--json"]);
    let states = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone());
    assert!(states.clone().count() == 3 && states.clone().all(|state| state == "cancelled"), "{listed}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
}

/// L16, L18: If a child agent asks a question, the terminal shows the agent's name, and an empty line does not count as
/// an answer.
#[test]
fn l18_an_agents_question_is_asked_at_the_terminal_of_its_parent() {
    let mut done = call_reply(&[("task_completion", json!({"result": "Done."}))]);
    done["expect"] = json!({"last_contains": "the red one"});
    let cli =
        three_levels("finish = \"tool\"", &[call_reply(&[("ask_question", json!({"question": "Which door?"}))]), done]);
    let mut screen = start_on_terminal(&cli, &["--agent", "lead.toml", "Open the door."]);
    screen.wait_for_end("your answer >");
    let screen_text = screen.text();
    assert!(screen_text.contains("the agent clerk asks  lead → clerk, session clerk/"), "{screen_text}");
    assert!(screen_text.contains("? Which door?\n"), "{screen_text}");
    screen.send("\r");
    screen.wait_for("the answer is empty");
    screen.wait_for_end("your answer >");
    screen.send("the red one\r");
    assert_eq!(screen.exit_code(), Some(0));
    assert!(screen.text().contains("The lead is content."), "{}", screen.text());
}

/// D3, L16: If a call of a child agent has an unknown outcome, the user decides at the terminal what happens to
/// the call.
#[test]
fn d3_an_unknown_outcome_of_a_child_is_decided_at_the_terminal_of_its_parent() {
    let final_reply = json!({"text": "It is done.", "expect": {"last_contains": "all seven"}});
    let cli = three_levels("", &[call_reply(&[("probe.slow", json!({"ms": 25_000}))]), final_reply]);
    std::fs::copy(components().join("probe.wasm"), cli.path("plugins/probe.wasm")).unwrap();
    let mut command = cli.command(&["--agent", "lead.toml", "--json", "Work."]);
    let mut killed = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let printed = std::io::BufReader::new(killed.stdout.take().unwrap());
    let runs = |line: &String| line.contains("\"tool_call\"") && line.contains("probe.slow");
    assert!(std::io::BufRead::lines(printed).map_while(Result::ok).any(|line| runs(&line)), "the call runs");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut screen = start_on_terminal(&cli, &["--agent", "lead.toml", "--continue"]);
    screen.wait_for_end("what was the outcome? retry, failed [WHY], result TEXT >");
    let screen_text = screen.text();
    assert!(screen_text.contains("the agent clerk asks  lead → clerk, session clerk/"), "{screen_text}");
    assert!(screen_text.contains("  probe.slow\n  \"ms\": 25000\n"), "{screen_text}");
    screen.send("perhaps\r");
    screen.wait_for("type `retry`");
    screen.send("result all seven\r");
    screen.wait_for("\nThe lead is content.\n");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// L16, L17: Without a terminal, the host prints the commands with which a user can answer. `--yes` allows the calls of
/// the agent and of its child agents, and the host reports each answer.
#[test]
fn l17_without_a_terminal_the_option_yes_allows_calls_of_child_agents() {
    let clerk =
        [payments_reply(&[("Ann", 1)]), text_reply("Paid."), payments_reply(&[("Bob", 2)]), text_reply("Paid.")];
    let cli = three_levels("", &clerk);
    let (code, _, stderr) = cli.run(&["--agent", "lead.toml", "Pay."]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("agent-host session approve clerk/"), "{stderr}");
    let (code, _, stderr) = cli.run(&["--agent", "lead.toml", "--yes", "payer.wipe", "--continue"]);
    assert_eq!(code, Some(3), "only another tool was allowed: {stderr}");
    assert!(!stderr.contains("no such tool"), "the child agents have tools of their own: {stderr}");
    let (code, printed, stderr) = cli.run(&["--agent", "lead.toml", "--yes", "payer.*", "--json", "--continue"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
    let resolved = printed.lines().filter(|line| line.contains("\"approval_resolved\"")).count();
    assert_eq!(resolved, 1, "{printed}");
}
