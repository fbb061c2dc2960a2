//! Front ends use agents over AG-UI 1.0 (I8): runs, text, tools, interrupts, threads, and attacks.

use super::client::Client;
use super::{TestServer, clerk, new_token};
use crate::peers::{node, peer, python_peer};
use crate::support::{TestHost, call_reply, repository, script, text_reply, with_tree_grant};
use agent_core::loop_break::Finish;
use agent_runtime::AgentConfig;
use agent_serve::{NewToken, Right};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns a request with one user message.
fn run_input(thread: &str, text: &str) -> Value {
    json!({
        "threadId": thread, "runId": format!("run {}", uuid::Uuid::new_v4()), "protocolVersion": "1.0",
        "messages": [{"id": "m1", "role": "user", "content": text}], "tools": [], "context": [], "state": {},
        "forwardedProps": {},
    })
}

/// Returns a request that answers interrupts.
fn resume_input(thread: &str, entries: Value) -> Value {
    let mut input = run_input(thread, "");
    input["messages"] = json!([]);
    input["resume"] = entries;
    input
}

async fn post(client: &Client, agent: &str, input: &Value) -> super::client::Answer {
    client.post(&format!("/agents/{agent}/ag-ui"), input.clone()).await
}

/// Runs the agent, and returns the events of the run.
async fn run(client: &Client, agent: &str, input: &Value) -> Vec<Value> {
    let answer = post(client, agent, input).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", answer.head);
    let lines = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("an event is JSON")).collect();
    validate(&answer.body);
    events
}

/// Checks a recorded run with a third-party program. Warnings count as errors.
fn validate(recorded: &str) {
    let Some(program) = python_peer("ag-ui-validate") else { return };
    // The body was sent in pieces, whose lengths are not part of the recorded run.
    let run: String =
        recorded.lines().filter(|line| line.starts_with("data: ")).map(|line| format!("{line}\n\n")).collect();
    let file = tempfile::NamedTempFile::with_suffix(".sse").expect("a file");
    std::fs::write(file.path(), run).expect("written");
    let output =
        Command::new(program).arg(file.path()).args(["--max-warnings", "0"]).output().expect("the program runs");
    let shown = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}\n{recorded}", String::from_utf8_lossy(&shown));
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// Returns the text that a client shows: the pieces of the messages that no later snapshot has removed.
fn text(events: &[Value]) -> String {
    let from = events.iter().rposition(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap_or(0);
    let pieces = events[from..].iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    pieces.map(|event| event["delta"].as_str().expect("a text")).collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().expect("the run has events")
}

/// I8: a run has text, reasoning, steps, tools, usage and a result, and the thread continues with the next message, also
/// after a restart of the server.
#[tokio::test(flavor = "multi_thread")]
async fn i8_a_thread_has_runs_with_text_and_tools() {
    let test_host = TestHost::new(&["probe"]).await;
    let echo = |text: &str| json!({"name": "probe.echo", "arguments": {"text": text}});
    let replies = [
        json!({"thinking": "Two calls.", "text": "Let me see.", "calls": [echo("a"), echo("b")]}),
        text_reply("Both are done."),
        text_reply("You are welcome."),
    ];
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let mut input = run_input("thread-1", "Go.");
    input["tools"] = json!([{"name": "show_map", "description": "Shows a map.", "parameters": {}}]);
    let events = run(&client, "clerk", &input).await;
    let types = types(&events);
    assert_eq!(types[..2], ["RUN_STARTED", "STATE_SNAPSHOT"]);
    for expected in ["STEP_STARTED", "REASONING_MESSAGE_CONTENT", "STATE_DELTA", "STEP_FINISHED"] {
        assert!(types.contains(&expected), "{expected}: {types:?}");
    }
    let of_type = |name: &str| types.iter().filter(|kind| **kind == name).count();
    assert_eq!((of_type("TOOL_CALL_START"), of_type("TOOL_CALL_END"), of_type("TOOL_CALL_RESULT")), (2, 2, 2));
    assert_eq!(text(&events), "Let me see.Both are done.");
    let end = last(&events);
    assert_eq!((&end["type"], &end["outcome"]["type"]), (&json!("RUN_FINISHED"), &json!("success")));
    assert_eq!((&end["threadId"], &end["runId"]), (&json!("thread-1"), &input["runId"]));
    assert_eq!(end["result"], "Both are done.");
    assert!(end["usage"][0]["outputTokens"].as_u64() > Some(0), "{end}");
    let session = events[1]["snapshot"]["session"].as_str().expect("the session is named").to_owned();
    assert!(session.starts_with("clerk/ag-ui-"), "{session}");
    server.server.shutdown().await;
    server.supervisor.shutdown().await;

    let agent = test_host.agent(AgentConfig::new("clerk"), script(&replies)).await;
    let restarted = TestServer::start(&test_host, &[&agent]).await;
    let client = Client::new(restarted.address(), client.token());
    let events = run(&client, "clerk", &run_input("thread-1", "Thanks.")).await;
    assert_eq!(text(&events), "You are welcome.");
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").expect("the thread is continued");
    let roles: Vec<_> =
        snapshot["messages"].as_array().expect("a list").iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
    // The session of the HTTP API is a thread, too.
    let events = run(&client, "clerk", &resumeless(&session)).await;
    assert_eq!(last(&events)["type"], "RUN_ERROR", "the script has no further reply: {events:?}");
    restarted.stop().await;
}

fn resumeless(thread: &str) -> Value {
    run_input(thread, "More.")
}

/// I8, L17: an approval interrupts the run, and the next run continues after the decision. It needs the right `approve`, and
/// is taken only once.
#[tokio::test(flavor = "multi_thread")]
async fn i8_l17_an_approval_interrupts_the_run() {
    let test_host = TestHost::new(&["payer"]).await;
    let pay = |to: &str| ("payer.pay", json!({"to": to, "amount": 3}));
    let replies = [call_reply(&[pay("ann"), pay("bob")]), text_reply("Decided.")];
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Read, Right::Talk, Right::Approve]);
    let events = run(&client, "test", &run_input("t", "Pay.")).await;
    let end = last(&events);
    assert_eq!(end["outcome"]["type"], "interrupt", "{end}");
    let interrupts = end["outcome"]["interrupts"].as_array().expect("a list").clone();
    assert_eq!(interrupts.len(), 2);
    assert_eq!(interrupts[0]["metadata"]["arguments"]["to"], "ann");
    assert_eq!(interrupts[0]["responseSchema"]["required"], json!(["approved"]));
    let ids = [&interrupts[0]["id"], &interrupts[1]["id"]];
    let entry = |id: &Value, payload: Value| json!([{"interruptId": id, "status": "resolved", "payload": payload}]);
    let yes = resume_input("t", entry(ids[0], json!({"approved": true})));
    let talker = server.client_of(NewToken { rights: [Right::Read, Right::Talk].into(), ..new_token() });
    assert_eq!(post(&talker, "test", &yes).await.status, 422, "another token has no such thread");
    for (payload, status) in [(json!({}), 422), (json!("yes"), 422), (json!({"approved": "true"}), 422)] {
        assert_eq!(post(&client, "test", &resume_input("t", entry(ids[0], payload))).await.status, status);
    }
    let forged = resume_input("t", entry(&json!("call_9_9_9"), json!({"approved": true})));
    assert_eq!(post(&client, "test", &forged).await.status, 409);
    assert_eq!(post(&client, "test", &run_input("t", "And now?")).await.status, 409, "text approves nothing");
    let of_one = run(&client, "test", &yes).await;
    let end = last(&of_one);
    assert_eq!(end["outcome"]["interrupts"].as_array().map(Vec::len), Some(1), "the other call still waits: {end}");
    assert_eq!(post(&client, "test", &yes).await.status, 409, "the decision was taken already");
    let no = json!([{"interruptId": ids[1], "status": "cancelled"}]);
    let events = run(&client, "test", &resume_input("t", no)).await;
    assert_eq!((text(&events), &last(&events)["outcome"]["type"]), ("Decided.".to_owned(), &json!("success")));
    let results = of_one.iter().chain(&events).filter(|event| event["type"] == "TOOL_CALL_RESULT").count();
    assert_eq!(results, 2, "{of_one:?} {events:?}");
    let ledger = std::fs::read_to_string(test_host.tree().join("ledger.txt")).expect("one call ran");
    assert!(ledger.contains("ann") && !ledger.contains("bob"), "{ledger}");
    server.stop().await;
}

/// I8: a token that may talk, but not approve, cannot answer an approval of its own thread.
#[tokio::test(flavor = "multi_thread")]
async fn i8_an_approval_needs_the_right() {
    let test_host = TestHost::new(&["payer"]).await;
    let replies = [call_reply(&[("payer.pay", json!({"to": "ann", "amount": 3}))])];
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let talker = server.client(&[Right::Talk]);
    let events = run(&talker, "test", &run_input("t", "Pay.")).await;
    let id = &last(&events)["outcome"]["interrupts"][0]["id"];
    for payload in [json!({"approved": true}), json!({"approved": false})] {
        let entries = json!([{"interruptId": id, "status": "resolved", "payload": payload}]);
        assert_eq!(post(&talker, "test", &resume_input("t", entries)).await.status, 403);
    }
    assert!(!test_host.tree().join("ledger.txt").exists());
    server.stop().await;
}

/// I8, L18: a question interrupts the run. A user message, or the answer to the interrupt, continues it.
#[tokio::test(flavor = "multi_thread")]
async fn i8_l18_a_question_is_answered_by_the_next_message() {
    let test_host = TestHost::new(&[]).await;
    let mut config = AgentConfig::new("clerk");
    config.bounds.finish = Finish::Tool;
    let ask = |question: &str| call_reply(&[("ask_question", json!({"question": question}))]);
    let done = call_reply(&[("task_completion", json!({"result": "Pier 3, Monday."}))]);
    let agent = test_host.agent(config, script(&[ask("Which pier?"), ask("Which day?"), done])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Talk]);
    let events = run(&client, "clerk", &run_input("t", "Book a berth.")).await;
    assert_eq!(last(&events)["outcome"]["interrupts"][0]["message"], "Which pier?");
    let events = run(&client, "clerk", &run_input("t", "Pier 3.")).await;
    let question = &last(&events)["outcome"]["interrupts"][0];
    assert_eq!((&question["message"], &question["reason"]), (&json!("Which day?"), &json!("agent-host.question")));
    let entries = json!([{"interruptId": question["id"], "status": "resolved", "payload": {"answer": "Monday."}}]);
    let events = run(&client, "clerk", &resume_input("t", entries)).await;
    assert_eq!(last(&events)["result"], "Pier 3, Monday.");
    server.stop().await;
}

/// I8: the front end runs the calls of its own tools, and the next run continues the turn with their results. Another thread
/// cannot answer them.
#[tokio::test(flavor = "multi_thread")]
async fn i8_the_front_end_runs_its_own_tools() {
    let test_host = TestHost::new(&["probe"]).await;
    let calls = [("show_map", json!({"place": "pier 3"})), ("probe.echo", json!({"text": "own"}))];
    let done = json!({"text": "You see it.", "expect": {"contains": ["shown", "own"]}});
    let failed = json!({"text": "A pity.", "expect": {"last_contains": "no map"}});
    let replies = [call_reply(&calls), done, call_reply(&calls[..1]), failed];
    let server = TestServer::start(&test_host, &[&clerk(&test_host, &replies).await]).await;
    let client = server.client(&[Right::Talk]);
    let schema = json!({"type": "object", "properties": {"place": {"type": "string"}}});
    let tools = json!([{"name": "show_map", "description": "Shows a map.", "parameters": schema}]);
    let with_tools = |mut input: Value| {
        input["tools"] = tools.clone();
        input
    };
    let events = run(&client, "clerk", &with_tools(run_input("t", "Show me pier 3."))).await;
    assert_eq!(last(&events)["outcome"]["type"], "success", "{events:?}");
    let start = events.iter().find(|event| event["toolCallName"] == "show_map").expect("the call is sent");
    let id = start["toolCallId"].clone();
    let results = |events: &[Value]| events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count();
    assert_eq!(results(&events), 1, "only the agent's own call has a result: {events:?}");
    let result = |thread: &str, id: &Value, more: Value| {
        let mut input = with_tools(run_input(thread, "Show me pier 3."));
        let mut message = json!({"id": "m2", "role": "tool", "toolCallId": id, "content": "shown"});
        message.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        input["messages"].as_array_mut().expect("a list").push(message);
        input
    };
    assert_eq!(post(&client, "clerk", &run_input("t", "And?")).await.status, 409, "the turn waits for the result");
    assert_eq!(post(&client, "clerk", &result("other", &id, json!({}))).await.status, 422, "a foreign thread");
    let events = run(&client, "clerk", &result("t", &id, json!({}))).await;
    assert_eq!((text(&events), results(&events)), ("You see it.".to_owned(), 1), "{events:?}");
    let again = post(&client, "clerk", &result("t", &id, json!({}))).await;
    assert_eq!(again.status, 422, "the result was taken already, and there is no new message");
    let events = run(&client, "clerk", &with_tools(run_input("t", "Once more."))).await;
    let id = &events.iter().find(|event| event["toolCallName"] == "show_map").expect("the call is sent")["toolCallId"];
    let events = run(&client, "clerk", &result("t", id, json!({"error": "no map"}))).await;
    assert_eq!(text(&events), "A pity.");
    server.stop().await;
}

/// I8, L12: text that the host discards is removed from the client by the snapshot that follows.
#[tokio::test(flavor = "multi_thread")]
async fn i8_l12_discarded_text_is_removed() {
    let test_host = TestHost::new(&[]).await;
    let broken = json!({"chunks": ["Half a ", "reply"], "delay_ms": 300, "error": {"message": "cut", "times": 1}});
    let agent = test_host.agent(AgentConfig::new("clerk"), script(&[broken])).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Talk]);
    let events = run(&client, "clerk", &run_input("t", "Go.")).await;
    let ids: Vec<_> =
        events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_START").map(|event| &event["messageId"]).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{events:?}");
    assert!(events.iter().any(|event| event["type"] == "MESSAGES_SNAPSHOT"), "{events:?}");
    assert_eq!(text(&events), "Half a reply", "the second attempt is complete");
    server.stop().await;
}

/// I8: a second client joins the open run and receives all of it. A message during the run is refused, and a cancelled run
/// ends with this outcome.
#[tokio::test(flavor = "multi_thread")]
async fn i8_an_open_run_is_joined_and_cancelled() {
    let test_host = TestHost::new(&[]).await;
    let pieces: Vec<String> = (0..200).map(|piece| format!("piece {piece}, ")).collect();
    let agent = clerk(&test_host, &[json!({"chunks": pieces, "delay_ms": 50})]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Read, Right::Talk]);
    let first = tokio::spawn({
        let client = client.clone();
        async move { run(&client, "clerk", &run_input("t", "Go.")).await }
    });
    let session = super::until(async || {
        let listed = client.get("/api/sessions?state=running").await.json(200);
        listed["sessions"][0]["session"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(post(&client, "clerk", &run_input("t", "And this?")).await.status, 409);
    let second = tokio::spawn({
        let (client, mut input) = (client.clone(), run_input("t", ""));
        input["messages"] = json!([]);
        async move { run(&client, "clerk", &input).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let path = format!("/api/sessions/{}/cancel", super::encoded(&session));
    assert_eq!(client.post(&path, json!({})).await.status, 204);
    let (first, second) = (first.await.expect("the run ends"), second.await.expect("the run ends"));
    assert_eq!(last(&first)["outcome"]["type"], "cancelled");
    assert_eq!(last(&second)["outcome"]["type"], "cancelled");
    let pieces = second.iter().filter_map(|event| event["delta"].as_str()).collect::<String>();
    assert!(
        pieces.starts_with("piece 0, piece 1, "),
        "the client that joins has the text from its beginning: {pieces}"
    );
    server.stop().await;
}

/// I8, rows 24 and 26: threads of other tokens and users, agents that the token may not use, and hostile bodies.
#[tokio::test(flavor = "multi_thread")]
async fn i8_row_26_threads_are_separate_and_bodies_are_checked() {
    let test_host = TestHost::new(&[]).await;
    let agent = clerk(&test_host, &[text_reply("One."), text_reply("Two.")]).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let talk =
        |user: Option<&str>| NewToken { rights: [Right::Talk].into(), user: user.map(str::to_owned), ..new_token() };
    let (ann, bob) = (server.client_of(talk(Some("ann"))), server.client_of(talk(Some("bob"))));
    let session = |events: &[Value]| events[1]["snapshot"]["session"].as_str().expect("an id").to_owned();
    let of_ann = session(&run(&ann, "clerk", &run_input("t", "Hi.")).await);
    let of_bob = session(&run(&bob, "clerk", &run_input("t", "Hi.")).await);
    assert_ne!(of_ann, of_bob, "the same thread id of another token is another session");
    let foreign = session(&run(&bob, "clerk", &run_input(&of_ann, "Hi.")).await);
    assert_ne!(foreign, of_ann, "the session of another user is not found by its id");
    let reader = server.client(&[Right::Read]);
    assert_eq!(post(&reader, "clerk", &run_input("t", "Hi.")).await.status, 403);
    assert_eq!(post(&ann, "none", &run_input("t", "Hi.")).await.status, 404);
    assert_eq!(post(&server.anonymous(), "clerk", &run_input("t", "Hi.")).await.status, 401);
    let mut nothing = run_input("new", "");
    assert_eq!(post(&ann, "clerk", &nothing).await.status, 422, "a new thread needs a message");
    nothing["messages"] = json!({"a": 1});
    assert_eq!(post(&ann, "clerk", &nothing).await.status, 422);
    let mut picture = run_input("new", "");
    let source = json!({"type": "url", "value": "http://169.254.169.254/"});
    picture["messages"][0]["content"] = json!([{"type": "image", "source": source}]);
    assert_eq!(post(&ann, "clerk", &picture).await.status, 422, "the host fetches nothing for a client");
    let source = json!({"type": "data", "mimeType": "image/png", "value": "aGVsbG8="});
    picture["messages"][0]["content"] = json!([{"type": "image", "source": source}]);
    assert_eq!(post(&ann, "clerk", &picture).await.status, 422, "the bytes are no picture");
    for deep in ["[".repeat(100_000), format!("{{\"threadId\": {}", "[".repeat(100_000))] {
        let status = ann.send("POST", "/agents/clerk/ag-ui", "application/json", &[], deep).await.status;
        assert!(matches!(status, 400 | 422), "{status}");
    }
    let text = run_input("t2", "a\0b'; DROP TABLE sessions; -- <script>alert(1)</script>");
    assert_eq!(last(&run(&ann, "clerk", &text).await)["type"], "RUN_FINISHED");
    server.stop().await;
}

/// I8: the official client connects unchanged, and builds the conversation from the events.
#[tokio::test(flavor = "multi_thread")]
async fn i8_the_official_client_runs_an_agent() {
    let Some(_) = peer("node/node_modules/@ag-ui/client", "package.json") else { return };
    let Some(node) = node() else { return };
    let test_host = TestHost::new(&["payer"]).await;
    let replies = [
        json!({"thinking": "I pay.", "text": "Paying.", "calls": [{"name": "payer.pay", "arguments": {"to": "ann", "amount": 3}}]}),
        text_reply("Paid."),
        text_reply("Goodbye."),
        call_reply(&[("show_map", json!({"place": "pier 3"}))]),
        json!({"text": "You see it.", "expect": {"last_contains": "pier 3 is shown"}}),
    ];
    let agent = test_host.agent(with_tree_grant(&test_host, "payer"), script(&replies)).await;
    let server = TestServer::start(&test_host, &[&agent]).await;
    let client = server.client(&[Right::Talk, Right::Approve]);
    let url = format!("http://{}/agents/test/ag-ui", server.address());
    let output = tokio::task::spawn_blocking(move || {
        Command::new(node)
            .arg(repository().join("tests/end_to_end/serve/ag_ui.mjs"))
            .args([&url, &client.token().expect("a token")])
            .current_dir(repository().join("tests/.peers/node"))
            .stdin(Stdio::null())
            .output()
            .expect("the client runs")
    })
    .await
    .expect("the client ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let messages: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let shown: Vec<_> = messages
        .as_array()
        .expect("a list")
        .iter()
        .map(|message| (message["role"].as_str().unwrap_or_default(), message["content"].as_str().unwrap_or_default()))
        .collect();
    for text in ["Paid.", "Goodbye.", "You see it."] {
        assert!(shown.contains(&("assistant", text)), "{text}: {shown:?}");
    }
    assert!(shown.iter().any(|(role, content)| *role == "tool" && content.contains("ann has 3")), "{shown:?}");
    server.stop().await;
}
