//! Two services and an approval outstanding in one turn: answered in every order, each answer twice, from two processes at
//! once, and again when all is over; each has one effect (L10, L17, I6, D2; rows 20, 29 and 32).

use super::command_line::{Desk, paying};
use crate::support::{calling, saying, script};
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

/// What answers the turn waits for.
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

/// A turn that waits for all three.
fn waiting() -> (Desk, String) {
    let mut calls = paying(&[("Ann", 1)]);
    let others = [json!({"name": "books", "arguments": {}}), json!({"name": "stamps", "arguments": {}})];
    calls["calls"].as_array_mut().unwrap().splice(0..0, others);
    let mut answer = saying("Done.");
    answer["expect"] = json!({"roles": ["user", "assistant", "tool", "tool", "tool"]});
    let desk = Desk::new(SERVICES, &[calls, answer]);
    std::fs::create_dir(desk.path("out")).unwrap();
    std::fs::write(desk.path("any.json"), json!({"type": "object"}).to_string()).unwrap();
    for (call, name) in [(1, "books"), (2, "stamps")] {
        let event = json!({"specversion": "1.0", "id": name, "source": "/test", "type": format!("{name}.done"),
            "parentid": format!("call_1_1_{call}"), "data": {"from": name}});
        std::fs::write(desk.path(&format!("{name}.json")), event.to_string()).unwrap();
    }
    let (code, printed, said) = desk.run(&["--agent", "agent.toml", "--json", "Buy it."]);
    assert_eq!(code, Some(3), "{said}");
    let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(last["suspension"]["waits"].as_array().unwrap().len(), 3, "{last}");
    let session = desk.session();
    (desk, session)
}

fn begin(desk: &Desk, session: &str, answer: Answer) -> Child {
    let words: Vec<&str> = match answer {
        Answer::Books => vec!["respond", session, "--event", "books.json"],
        Answer::Stamps => vec!["respond", session, "--event", "stamps.json"],
        Answer::Approval => vec!["approve", session, "call_1_1_3"],
    };
    let mut command = desk.command(&[&["session"], &words[..], &["--agent", "agent.toml"]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Exit code, and what the process said.
fn end(process: Child) -> (Option<i32>, String) {
    let output = process.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// The stored events of these types.
fn stored(desk: &Desk, session: &str, types: &[&str]) -> Vec<String> {
    let (_, events, _) = desk.run(&["session", "show", session, "--json"]);
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let types_of = events.map(|event| event["type"].as_str().unwrap().to_owned());
    types_of.filter(|found| types.contains(&found.as_str())).collect()
}

#[test]
fn l10_l17_every_order_twice_from_two_processes_and_late() {
    for order in ORDERS {
        let (desk, session) = waiting();
        for answer in order {
            let both = [begin(&desk, &session, answer), begin(&desk, &session, answer)].map(end);
            // Whoever came second has the answer taken already, or finds that nothing waits for it.
            assert!(both.iter().any(|(code, _)| matches!(code, Some(0 | 3))), "{order:?}: {both:?}");
            assert!(both.iter().all(|(code, _)| matches!(code, Some(0 | 2 | 3))), "{order:?}: {both:?}");
        }
        // Whoever answered last may have found the session held by the one before.
        let (code, _, said) = desk.run(&["--agent", "agent.toml", "--continue"]);
        assert!(code == Some(0) || said.contains("nothing to go on with"), "{order:?}: {code:?} {said}");
        check(&desk, &session, &format!("{order:?}"));
        let before = stored(&desk, &session, ALL).len();
        for answer in order {
            let (code, said) = end(begin(&desk, &session, answer));
            assert_eq!(code, Some(if answer == Answer::Approval { 2 } else { 0 }), "{order:?}: {said}");
        }
        assert_eq!(stored(&desk, &session, ALL).len(), before, "{order:?}: what is late changes nothing");
        assert_eq!(desk.ledger(), ["Ann 1"], "{order:?}");
    }
}

const ALL: &[&str] = &["tool_result", "tool_result_error", "approval_resolved", "resumed", "loop_end", "suspended"];

/// One result for each call, in call order; one payment; one end.
fn check(desk: &Desk, session: &str, context: &str) {
    assert_eq!(desk.ledger(), ["Ann 1"], "{context}: paid once");
    let told = stored(desk, session, &["tool_result", "approval_resolved", "loop_end"]);
    let count = |kind: &str| told.iter().filter(|found| *found == kind).count();
    assert_eq!((count("tool_result"), count("approval_resolved"), count("loop_end")), (3, 1, 1), "{context}: {told:?}");
    let (_, pending, _) = desk.run(&["outbox", "list", "--json"]);
    assert_eq!(pending, "", "{context}");
    let files = std::fs::read_dir(desk.path("out")).unwrap().count();
    assert_eq!(files, 2, "{context}: one request for each service");
}

/// L16, L17, L10: what an agent waits for that works for another one is told with the commands that settle it, and going on
/// with the session above goes on with it.
#[test]
fn l16_what_waits_below_is_told_with_its_commands() {
    let (desk, _) = waiting();
    let ask = calling(&[("ask_clerk", json!({"task": "Buy it."}))]);
    std::fs::write(desk.path("lead.json"), script(&[ask, saying("Bought.")]).to_string()).unwrap();
    let lead = "name = \"lead\"\nmodel = \"scripted:lead.json\"\n[agents.ask_clerk]\nagent = \"agent.toml\"\ndescription = \"Buys.\"\n";
    std::fs::write(desk.path("lead.toml"), lead).unwrap();
    let (code, _, said) = desk.run(&["--agent", "lead.toml", "Buy it."]);
    assert_eq!(code, Some(3), "{said}");
    let child = said.split("session approve ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(child.starts_with("clerk/"), "{said}");
    for command in ["approve", "deny", "respond"] {
        assert!(said.contains(&format!("agent-host session {command} {child}")), "{command}: {said}");
    }
    let (_, shown, _) = desk.run(&["session", "show", "lead/"]);
    assert!(shown.contains(&format!("agent-host session respond {child} --event FILE")), "{shown}");
    for answer in [Answer::Approval, Answer::Books, Answer::Stamps] {
        let (code, said) = end(begin(&desk, &child, answer));
        assert!(matches!(code, Some(0 | 3)), "{said}");
    }
    let (code, printed, said) = desk.run(&["--agent", "lead.toml", "--continue"]);
    assert_eq!((code, printed.as_str()), (Some(0), "Bought.\n"), "{said}");
    assert_eq!(desk.ledger(), ["Ann 1"]);
}
