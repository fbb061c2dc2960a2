//! Events from and to an agent as `host/docs/guide/events.md` says: the input, an approval request with its answer, and how the
//! turn ended (I6, L17; rows 19, 20 and 29).

use super::command_line::{Desk, paying};
use crate::fixture::mcp_server;
use crate::support::{calling, saying};
use agent_core::cloud_event::CloudEvent;
use serde_json::{Value, json};

const OUTBOX: &str = "[outbox]\ndirectory = \"out\"\napprovals = true\ncompletions = true\n";

fn desk(replies: &[Value]) -> Desk {
    let desk = Desk::new(OUTBOX, replies);
    std::fs::create_dir(desk.path("out")).unwrap();
    desk
}

/// The events of a type in the folder, the oldest first.
fn sent(desk: &Desk, event_type: &str) -> Vec<CloudEvent> {
    let files = std::fs::read_dir(desk.path("out")).unwrap().map(|entry| entry.unwrap().path());
    let events = files.map(|file| CloudEvent::parse(&std::fs::read(file).unwrap()).unwrap());
    let mut events: Vec<_> = events.filter(|event| event.event_type == event_type).collect();
    events.sort_by_key(|event| event.time.clone());
    events
}

fn requests(desk: &Desk) -> Vec<CloudEvent> {
    sent(desk, "agent-host.approval.requested")
}

/// An answer to a request, changed as is said.
fn answer(request: &CloudEvent, decisions: Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut event = json!({"specversion": "1.0", "type": "agent-host.approval.resolved", "id": "1", "source": "/desk",
        "parentid": request.id, "subject": request.subject, "data": {"decisions": decisions}});
    change(&mut event);
    event
}

fn respond(desk: &Desk, session: &str, event: &Value) -> (Option<i32>, String, String) {
    std::fs::write(desk.path("answer.json"), event.to_string()).unwrap();
    desk.run(&["session", "respond", session, "--event", "answer.json", "--agent", "agent.toml"])
}

fn granted() -> Value {
    json!([{"call": "call_1_1_1", "verdict": "granted"}])
}

/// I6: an event is the input, the request and its answer are events, and so is the end.
#[test]
fn i6_a_turn_of_events() {
    let mut first = paying(&[("Ann", 1), ("Bob", 2)]);
    first["expect"] = json!({"contains": "{\"order\":7}"});
    let desk = desk(&[first, saying("Done.")]);
    let asked = json!({"specversion": "1.0", "type": "order", "id": "o", "source": "/shop", "data": {"order": 7}});
    std::fs::write(desk.path("asked.json"), asked.to_string()).unwrap();
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "--event", "asked.json"]);
    assert_eq!(code, Some(3), "{said}");
    let [request] = &requests(&desk)[..] else { panic!("one request for the batch") };
    let session = request.subject.clone().unwrap();
    let data = request.data.as_ref().unwrap();
    assert_eq!(data.pointer("/calls/1/details/arguments"), Some(&json!({"to": "Bob", "amount": 2})), "{data}");
    let decisions = json!([
        {"call": "call_1_1_1", "verdict": "granted", "scope": "once", "arguments": {"to": "Ann", "amount": 3}},
        {"call": "call_1_1_2", "verdict": "denied", "reason": "Bob has enough"},
    ]);
    let event = answer(request, decisions, |_| {});
    let (code, printed, said) = respond(&desk, &session, &event);
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{said}");
    assert_eq!(desk.ledger(), ["Ann 3"]);
    let [end] = &sent(&desk, "agent-host.turn.finished")[..] else { panic!("one end") };
    assert_eq!(end.data.as_ref().unwrap()["data"], json!("Done."));
    let (code, _, said) = respond(&desk, &session, &event);
    assert!(code == Some(0) && said.contains("too late"), "row 29: {said}");
    assert_eq!(desk.ledger(), ["Ann 3"]);
}

/// Row 20: what is no answer to this session's request changes nothing, and says why.
#[test]
fn row_20_only_the_answer_to_the_request_counts() {
    let desk = desk(&[paying(&[("Ann", 1)]), saying("Done.")]);
    desk.run(&["--agent", "agent.toml", "Pay."]);
    desk.run(&["--agent", "agent.toml", "Pay."]);
    let [one, two] = &requests(&desk)[..] else { panic!("two sessions ask") };
    let session = two.subject.clone().unwrap();
    let unknown = json!([{"call": "call_9_9_9", "verdict": "granted"}]);
    for (event, problem) in [
        (answer(one, granted(), |_| {}), "the event's `subject` is"),
        (answer(two, granted(), |event| drop(event.as_object_mut().unwrap().remove("subject"))), "has no `subject`"),
        (answer(two, granted(), |event| event["parentid"] = json!("approval_99")), "has sent no approval request"),
        (answer(two, unknown, |_| {}), "did not ask about call `call_9_9_9`"),
        (answer(two, json!([{"call": "call_1_1_1", "verdict": "yes"}]), |_| {}), "no answer to an approval"),
        (answer(two, json!([{"call": "call_1_1_1", "verdict": "granted", "arguments": {"to": 1}}]), |_| {}), "/to"),
    ] {
        let (code, _, said) = respond(&desk, &session, &event);
        assert!(code == Some(2) && said.contains(problem), "{problem}: {said}");
    }
    std::fs::write(desk.path("answer.json"), answer(two, granted(), |_| {}).to_string()).unwrap();
    let (code, _, said) = desk.run(&["session", "respond", &session, "--event", "answer.json"]);
    assert!(code == Some(2) && said.contains("--agent"), "{said}");
    assert!(desk.ledger().is_empty());
}

/// Row 19: a server's tool has changed since it was asked about: it is asked again, and only the answer to that counts.
#[test]
fn row_19_an_answer_to_an_earlier_request_is_late() {
    let desk = desk(&[calling(&[("desk.echo", json!({"text": "hello"}))]), saying("Done.")]);
    let with_server = |mode: &str| {
        let server = mcp_server().display().to_string();
        desk.configure(&format!(
            "{OUTBOX}[approval.tools]\n\"desk.echo\" = \"ask\"\n[mcp.desk]\ncommand = {server:?}\nargs = [{mode:?}]\n"
        ));
    };
    with_server("good");
    let (code, _, said) = desk.run(&["--agent", "agent.toml", "Echo."]);
    assert_eq!(code, Some(3), "{said}");
    with_server("renewed");
    let first = requests(&desk).remove(0);
    let session = first.subject.clone().unwrap();
    let (code, _, said) = respond(&desk, &session, &answer(&first, granted(), |_| {}));
    assert_eq!((code, requests(&desk).len()), (Some(3), 2), "{said}");
    let (_, _, said) = respond(&desk, &session, &answer(&first, granted(), |_| {}));
    assert!(said.contains("too late") && !said.contains("✓"), "{said}");
    let second = requests(&desk).remove(1);
    let (code, printed, said) = respond(&desk, &session, &answer(&second, granted(), |_| {}));
    assert_eq!((code, printed.as_str()), (Some(0), "Done.\n"), "{said}");
}
