//! Approvals over the Model Context Protocol (L17): with elicitation, with multi-round-trip requests, and by another person.

use super::Workplace;
use super::client::{STATELESS, StdioClient, WITH_HANDSHAKE, agent_host, text};
use serde_json::{Value, json};

const GRANT: [&str; 2] = ["--grant", "payer:write=tree"];

fn asks() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn payments(workplace: &Workplace) -> usize {
    let ledger = std::fs::read_to_string(workplace.folder.path().join("tree/ledger.txt")).unwrap_or_default();
    ledger.lines().count()
}

fn begin_payment(client: &mut StdioClient, amount: u32) -> u64 {
    client.begin("tools/call", json!({"name": "payer.pay", "arguments": {"to": "Ann", "amount": amount}}))
}

/// Waits for the question about a call, and answers it.
fn decide(client: &mut StdioClient, answer: Value) -> Value {
    let question = client.incoming("elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    question
}

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

/// L17: the user of a client with the handshake is asked with the exact arguments, and can allow a call once, allow it for
/// the session, or deny it.
#[tokio::test(flavor = "multi_thread")]
async fn l17_the_user_of_an_older_client_decides() {
    let workplace = Workplace::new(&["payer"]);
    let mut client = workplace.start(&GRANT, WITH_HANDSHAKE, asks());
    for (answer, is_paid) in [
        (accept("deny"), false),
        (json!({"action": "decline"}), false),
        (json!({"action": "cancel"}), false),
        (accept("always"), false),
        (accept("allow_once"), true),
        (accept("allow_session"), true),
    ] {
        let (before, id) = (payments(&workplace), begin_payment(&mut client, 5));
        let question = decide(&mut client, answer.clone());
        let message = question["params"]["message"].as_str().expect("a message");
        assert!(message.contains("payer.pay") && message.contains(r#"{"to":"Ann","amount":5}"#), "{message}");
        let result = client.answer(id)["result"].clone();
        assert_eq!(result["isError"], json!(!is_paid), "{answer}: {result}");
        assert_eq!(payments(&workplace) - before, usize::from(is_paid), "{answer}");
    }
    // The tool is allowed for the session now.
    let result = client.call("payer.pay", json!({"to": "Bob", "amount": 7}));
    assert_eq!((text(&result), payments(&workplace)), ("Bob has 7", 3));
    assert!(client.close());
}

/// Returns the request state and the id of the only question of a result that requires input.
fn question_of(answer: &Value) -> (String, String) {
    let result = &answer["result"];
    assert_eq!(result["resultType"], json!("input_required"), "{answer}");
    let requests = result["inputRequests"].as_object().expect("requests");
    let (id, request) = requests.iter().next().expect("a request");
    assert_eq!((requests.len(), &request["method"]), (1, &json!("elicitation/create")), "{answer}");
    (result["requestState"].as_str().expect("a state").to_owned(), id.clone())
}

fn retry(client: &mut StdioClient, arguments: Value, state: &str, responses: Value) -> Value {
    let params = json!({
        "name": "payer.pay", "arguments": arguments, "requestState": state, "inputResponses": responses,
    });
    client.request("tools/call", params)
}

/// L17, row 20: the user of a client without a handshake decides in a second request. The state is valid for this call and
/// these arguments, and only once.
#[tokio::test(flavor = "multi_thread")]
async fn l17_the_user_of_a_newer_client_decides() {
    let workplace = Workplace::new(&["payer"]);
    let mut client = workplace.start(&GRANT, STATELESS, asks());
    let arguments = json!({"to": "Ann", "amount": 5});
    let id = begin_payment(&mut client, 5);
    let (state, question) = question_of(&client.answer(id));
    let allowed = json!({&question: accept("allow_once")});
    for (arguments, state) in [
        (json!({"to": "Eve", "amount": 5}), state.as_str()),
        (arguments.clone(), "0123456789abcdef"),
        (arguments.clone(), ""),
    ] {
        let refused = retry(&mut client, arguments, state, allowed.clone());
        assert_eq!(refused["error"]["code"], json!(-32602), "{refused}");
    }
    assert_eq!(payments(&workplace), 0);
    // Answers to other questions answer nothing, so the same question is asked again.
    let again = retry(&mut client, arguments.clone(), &state, json!({"call_9_9_9": accept("allow_once")}));
    let (next, same) = question_of(&again);
    assert_eq!(same, question);
    let paid = retry(&mut client, arguments.clone(), &next, allowed.clone());
    assert_eq!((text(&paid["result"]), payments(&workplace)), ("Ann has 5", 1), "{paid}");
    let replayed = retry(&mut client, arguments.clone(), &next, allowed);
    assert_eq!(replayed["error"]["code"], json!(-32602), "{replayed}");
    // An answer without a state belongs to no call: the user is asked.
    let params =
        json!({"name": "payer.pay", "arguments": arguments, "inputResponses": {&question: accept("allow_once")}});
    let answer = client.request("tools/call", params);
    let (state, question) = question_of(&answer);
    let denied = retry(&mut client, arguments, &state, json!({&question: {"action": "decline"}}));
    assert_eq!((&denied["result"]["isError"], payments(&workplace)), (&json!(true), 1), "{denied}");
    assert!(client.close());
}

/// L17: without elicitation, the result says how to approve. After the approval on the command line, the repeated call
/// returns the result of the call, which ran once.
#[tokio::test(flavor = "multi_thread")]
async fn l17_another_person_decides_on_the_command_line() {
    let workplace = Workplace::new(&["payer"]);
    let mut client = workplace.start(&GRANT, WITH_HANDSHAKE, json!({}));
    let arguments = json!({"to": "Ann", "amount": 5});
    for _ in 0..2 {
        let refused = client.call("payer.pay", arguments.clone());
        assert_eq!(refused["isError"], json!(true), "{refused}");
        assert!(text(&refused).contains("agent-host session approve "), "{refused}");
    }
    let refused = client.call("payer.pay", arguments.clone());
    let session = text(&refused).split("session approve ").nth(1).and_then(|rest| rest.split([',', ' ']).next());
    let session = session.expect("a session").to_owned();
    let mut command = agent_host(&workplace.data());
    command.args(["session", "approve", &session, "--plugins"]).arg(workplace.plugins()).args(GRANT);
    let approved = command.output().expect("agent-host runs");
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
    assert_eq!(payments(&workplace), 1);
    let result = client.call("payer.pay", arguments);
    assert_eq!((text(&result), payments(&workplace)), ("Ann has 5", 1), "{result}");
    assert!(client.close());
}
