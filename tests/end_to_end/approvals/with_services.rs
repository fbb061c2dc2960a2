//! A turn waits for two services and an approval. The tests send the three answers in every order, each from two
//! processes at the same time, and again after the end of the turn. Each answer takes effect once (L10, L17, I6, D2;
//! rows 20, 29 and 32).

use super::command_line::{TestCli, payments_reply};
use crate::support::{call_reply, script, text_reply};
use serde_json::{Value, json};
use std::process::{Child, Stdio};

const SERVICES: &str = r#"
[services.books]
emits = "any.json"

[services.stamps]
emits = "any.json"

[outbox]
directory = "out"
"#;

/// The answers that the turn waits for: two from services and one from the user.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Books,
    Stamps,
    Approval,
}

const ORDERS: [[Answer; 3]; 6] = {
    use Answer::{Approval, Books, Stamps};
    [
        [Books, Stamps, Approval],
        [Books, Approval, Stamps],
        [Stamps, Books, Approval],
        [Stamps, Approval, Books],
        [Approval, Books, Stamps],
        [Approval, Stamps, Books],
    ]
};

/// Starts a turn that waits for all three answers. Returns the working directory and the session.
fn waiting_turn() -> (TestCli, String) {
    let mut calls = payments_reply(&[("Ann", 1)]);
    let others = [json!({"name": "books", "arguments": {}}), json!({"name": "stamps", "arguments": {}})];
    calls["calls"].as_array_mut().unwrap().splice(0..0, others);
    let mut answer = text_reply("Done.");
    answer["expect"] = json!({"roles": ["user", "assistant", "tool", "tool", "tool"]});
    let cli = TestCli::new(SERVICES, &[calls, answer]);
    std::fs::create_dir(cli.path("out")).unwrap();
    std::fs::write(cli.path("any.json"), json!({"type": "object"}).to_string()).unwrap();
    for (call, name) in [(1, "books"), (2, "stamps")] {
        let event = json!({"specversion": "1.0", "id": name, "source": "/test", "type": format!("{name}.done"),
            "parentid": format!("call_1_1_{call}"), "data": {"from": name}});
        std::fs::write(cli.path(&format!("{name}.json")), event.to_string()).unwrap();
    }
    let (code, printed, stderr) = cli.run(&["--agent", "agent.toml", "--json", "Buy it."]);
    assert_eq!(code, Some(3), "{stderr}");
    let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(last["suspension"]["waits"].as_array().unwrap().len(), 3, "{last}");
    let session = cli.session();
    (cli, session)
}

fn start_answer(cli: &TestCli, session: &str, answer: Answer) -> Child {
    let command_arguments: Vec<&str> = match answer {
        Answer::Books => vec!["respond", session, "--event", "books.json"],
        Answer::Stamps => vec!["respond", session, "--event", "stamps.json"],
        Answer::Approval => vec!["approve", session, "call_1_1_3"],
    };
    let mut command = cli.command(&[&["session"], &command_arguments[..], &["--agent", "agent.toml"]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the process has ended. Returns the exit code of the process, and its stdout followed by its stderr.
fn finish_answer(process: Child) -> (Option<i32>, String) {
    let output = process.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Returns the types of the session's stored events. Events of types that are not in `types` are left out.
fn stored_events(cli: &TestCli, session: &str, types: &[&str]) -> Vec<String> {
    let (_, events, _) = cli.run(&["session", "show", session, "--json"]);
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found_types = events.map(|event| event["type"].as_str().unwrap().to_owned());
    found_types.filter(|found| types.contains(&found.as_str())).collect()
}

#[test]
fn l10_l17_answers_take_effect_once_in_every_order() {
    for order in ORDERS {
        let (cli, session) = waiting_turn();
        for answer in order {
            let outputs =
                [start_answer(&cli, &session, answer), start_answer(&cli, &session, answer)].map(finish_answer);
            // The second process finds that the answer is already stored, or that no call waits for the answer.
            assert!(outputs.iter().any(|(code, _)| matches!(code, Some(0 | 3))), "{order:?}: {outputs:?}");
            assert!(outputs.iter().all(|(code, _)| matches!(code, Some(0 | 2 | 3))), "{order:?}: {outputs:?}");
        }
        // The last process may have found the session locked by the previous process.
        let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--continue"]);
        assert!(code == Some(0) || stderr.contains("nothing to continue"), "{order:?}: {code:?} {stderr}");
        check_single_effects(&cli, &session, &format!("{order:?}"));
        let before = stored_events(&cli, &session, ANSWER_EVENT_TYPES).len();
        for answer in order {
            let (code, stderr) = finish_answer(start_answer(&cli, &session, answer));
            assert_eq!(code, Some(if answer == Answer::Approval { 2 } else { 0 }), "{order:?}: {stderr}");
        }
        assert_eq!(
            stored_events(&cli, &session, ANSWER_EVENT_TYPES).len(),
            before,
            "{order:?}: a late answer changes nothing"
        );
        assert_eq!(cli.ledger(), ["Ann 1"], "{order:?}");
    }
}

const ANSWER_EVENT_TYPES: &[&str] =
    &["tool_result", "tool_result_error", "approval_resolved", "resumed", "loop_end", "suspended"];

/// Checks that each call has one result, that one payment was made, and that the turn ended once.
fn check_single_effects(cli: &TestCli, session: &str, context: &str) {
    assert_eq!(cli.ledger(), ["Ann 1"], "{context}: paid once");
    let types = stored_events(cli, session, &["tool_result", "approval_resolved", "loop_end"]);
    let count = |kind: &str| types.iter().filter(|found| *found == kind).count();
    assert_eq!(
        (count("tool_result"), count("approval_resolved"), count("loop_end")),
        (3, 1, 1),
        "{context}: {types:?}"
    );
    let (_, pending, _) = cli.run(&["outbox", "list", "--json"]);
    assert_eq!(pending, "", "{context}");
    let files = std::fs::read_dir(cli.path("out")).unwrap().count();
    assert_eq!(files, 2, "{context}: one request for each service");
}

/// L16, L17, L10: The parent session shows which answers its child agent still waits for, and the commands that give
/// these answers. Continuing the parent session continues the child.
#[test]
fn l16_shows_pending_answers_of_a_child_with_their_commands() {
    let (cli, _) = waiting_turn();
    let ask = call_reply(&[("ask_clerk", json!({"task": "Buy it."}))]);
    std::fs::write(cli.path("lead.json"), script(&[ask, text_reply("Bought.")]).to_string()).unwrap();
    let lead = "name = \"lead\"\nmodel = \"scripted:lead.json\"\n[agents.ask_clerk]\nagent = \"agent.toml\"\ndescription = \"Buys.\"\n";
    std::fs::write(cli.path("lead.toml"), lead).unwrap();
    let (code, _, stderr) = cli.run(&["--agent", "lead.toml", "Buy it."]);
    assert_eq!(code, Some(3), "{stderr}");
    let child = stderr.split("session approve ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(child.starts_with("clerk/"), "{stderr}");
    for command in ["approve", "deny", "respond"] {
        assert!(stderr.contains(&format!("agent-host session {command} {child}")), "{command}: {stderr}");
    }
    let (_, shown, _) = cli.run(&["session", "show", "lead/"]);
    assert!(shown.contains(&format!("agent-host session respond {child} --event FILE")), "{shown}");
    for answer in [Answer::Approval, Answer::Books, Answer::Stamps] {
        let (code, stderr) = finish_answer(start_answer(&cli, &child, answer));
        assert!(matches!(code, Some(0 | 3)), "{stderr}");
    }
    let (code, printed, stderr) = cli.run(&["--agent", "lead.toml", "--continue"]);
    assert_eq!((code, printed.as_str()), (Some(0), "Bought.\n"), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 1"]);
}
