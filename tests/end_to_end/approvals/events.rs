//! Events to and from an agent as `host/docs/guide/events.md` describes them: the input, an approval request with its
//! answer, and the end of the turn (I6, L17; rows 19, 20 and 29).

use super::command_line::{TestCli, payments_reply};
use crate::fixture::mcp_server;
use crate::support::{call_reply, text_reply};
use agent_core::cloud_event::CloudEvent;
use serde_json::{Value, json};

const OUTBOX: &str = "[outbox]\ndirectory = \"out\"\napprovals = true\ncompletions = true\n";

fn cli(replies: &[Value]) -> TestCli {
    let cli = TestCli::new(OUTBOX, replies);
    std::fs::create_dir(cli.path("out")).unwrap();
    cli
}

/// Returns the events of a type in the outbox directory, oldest first.
fn sent_events(cli: &TestCli, event_type: &str) -> Vec<CloudEvent> {
    let files = std::fs::read_dir(cli.path("out")).unwrap().map(|entry| entry.unwrap().path());
    let events = files.map(|file| CloudEvent::parse(&std::fs::read(file).unwrap()).unwrap());
    let mut events: Vec<_> = events.filter(|event| event.event_type == event_type).collect();
    events.sort_by_key(|event| event.time.clone());
    events
}

fn requests(cli: &TestCli) -> Vec<CloudEvent> {
    sent_events(cli, "agent-host.approval.requested")
}

/// Creates the answer to an approval request, and modifies it with `change`.
fn answer(request: &CloudEvent, decisions: Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut event = json!({"specversion": "1.0", "type": "agent-host.approval.resolved", "id": "1", "source": "/desk",
        "parentid": request.id, "subject": request.subject, "data": {"decisions": decisions}});
    change(&mut event);
    event
}

fn respond(cli: &TestCli, session: &str, event: &Value) -> (Option<i32>, String, String) {
    std::fs::write(cli.path("answer.json"), event.to_string()).unwrap();
    cli.run(&["session", "respond", session, "--event", "answer.json", "--agent", "agent.toml"])
}

fn allow_decision() -> Value {
    json!([{"call": "call_1_1_1", "verdict": "granted"}])
}

/// I6: The input, the approval request, its answer and the end of the turn are events.
#[test]
fn i6_events_start_answer_and_end_a_turn() {
    let mut first = payments_reply(&[("Ann", 1), ("Bob", 2)]);
    first["expect"] = json!({"contains": "{\"order\":7}"});
    let cli = cli(&[first, text_reply("Done.")]);
    let order = json!({"specversion": "1.0", "type": "order", "id": "o", "source": "/shop", "data": {"order": 7}});
    std::fs::write(cli.path("asked.json"), order.to_string()).unwrap();
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--event", "asked.json"]);
    assert_eq!(code, Some(3), "{stderr}");
    let [request] = &requests(&cli)[..] else { panic!("there is not one request for the batch") };
    let session = request.subject.clone().unwrap();
    let data = request.data.as_ref().unwrap();
    assert_eq!(data.pointer("/calls/1/details/arguments"), Some(&json!({"to": "Bob", "amount": 2})), "{data}");
    let decisions = json!([
        {"call": "call_1_1_1", "verdict": "granted", "scope": "once", "arguments": {"to": "Ann", "amount": 3}},
        {"call": "call_1_1_2", "verdict": "denied", "reason": "Bob has enough"},
    ]);
    let event = answer(request, decisions, |_| {});
    let (code, printed, stderr) = respond(&cli, &session, &event);
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{stderr}");
    assert_eq!(cli.ledger(), ["Ann 3"]);
    let [end] = &sent_events(&cli, "agent-host.turn.finished")[..] else {
        panic!("there is not one event for the end of the turn")
    };
    assert_eq!(end.data.as_ref().unwrap()["data"], json!("Done."));
    let (code, _, stderr) = respond(&cli, &session, &event);
    assert!(code == Some(0) && stderr.contains("too late"), "row 29: {stderr}");
    assert_eq!(cli.ledger(), ["Ann 3"]);
}

/// Row 20: An event that does not answer the approval request of this session changes nothing, and the error
/// explains why.
#[test]
fn row_20_accepts_only_the_answer_to_its_request() {
    let cli = cli(&[payments_reply(&[("Ann", 1)]), text_reply("Done.")]);
    cli.run(&["--agent", "agent.toml", "Pay."]);
    cli.run(&["--agent", "agent.toml", "Pay."]);
    let [one, two] = &requests(&cli)[..] else { panic!("there are not two approval requests") };
    let session = two.subject.clone().unwrap();
    let unknown = json!([{"call": "call_9_9_9", "verdict": "granted"}]);
    for (event, problem) in [
        (answer(one, allow_decision(), |_| {}), "the event's `subject` is"),
        (
            answer(two, allow_decision(), |event| drop(event.as_object_mut().unwrap().remove("subject"))),
            "has no `subject`",
        ),
        (
            answer(two, allow_decision(), |event| event["parentid"] = json!("approval_99")),
            "has not sent an approval request with this id",
        ),
        (answer(two, unknown, |_| {}), "does not contain call `call_9_9_9`"),
        (answer(two, json!([{"call": "call_1_1_1", "verdict": "yes"}]), |_| {}), "not an approval answer"),
        (answer(two, json!([{"call": "call_1_1_1", "verdict": "granted", "arguments": {"to": 1}}]), |_| {}), "/to"),
    ] {
        let (code, _, stderr) = respond(&cli, &session, &event);
        assert!(code == Some(2) && stderr.contains(problem), "{problem}: {stderr}");
    }
    std::fs::write(cli.path("answer.json"), answer(two, allow_decision(), |_| {}).to_string()).unwrap();
    let (code, _, stderr) = cli.run(&["session", "respond", &session, "--event", "answer.json"]);
    assert!(code == Some(2) && stderr.contains("--agent"), "{stderr}");
    assert!(cli.ledger().is_empty());
}

/// Row 19: If the definition of a server's tool has changed since the approval request, the host asks again, and only
/// the answer to the new request is accepted.
#[test]
fn row_19_refuses_an_answer_to_an_earlier_request() {
    let cli = cli(&[call_reply(&[("desk.echo", json!({"text": "hello"}))]), text_reply("Done.")]);
    let with_server = |mode: &str| {
        let server = mcp_server().display().to_string();
        cli.configure(&format!(
            "{OUTBOX}[approval.tools]\n\"desk.echo\" = \"ask\"\n[mcp.desk]\ncommand = {server:?}\nargs = [{mode:?}]\n"
        ));
    };
    with_server("good");
    let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Echo."]);
    assert_eq!(code, Some(3), "{stderr}");
    with_server("renewed");
    let first = requests(&cli).remove(0);
    let session = first.subject.clone().unwrap();
    let (code, _, stderr) = respond(&cli, &session, &answer(&first, allow_decision(), |_| {}));
    assert_eq!((code, requests(&cli).len()), (Some(3), 2), "{stderr}");
    let (_, _, stderr) = respond(&cli, &session, &answer(&first, allow_decision(), |_| {}));
    assert!(stderr.contains("too late") && !stderr.contains("✓"), "{stderr}");
    let second = requests(&cli).remove(1);
    let (code, printed, stderr) = respond(&cli, &session, &answer(&second, allow_decision(), |_| {}));
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{stderr}");
}
