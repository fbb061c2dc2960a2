//! `agent-host mcp`: tools and agents for MCP clients over standard input and output (I4), with the real binary.

mod approvals;
mod client;
mod conformance;

use crate::support::components;
use agent_store::{Options, RecordRange, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use client::{STATELESS, StdioClient, WITH_HANDSHAKE, text};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with plugins and a data folder.
pub(crate) struct Workplace {
    pub(crate) folder: TempDir,
}

impl Workplace {
    pub(crate) fn new(plugins: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("plugins")).expect("a fresh directory");
        std::fs::create_dir(folder.path().join("tree")).expect("a fresh directory");
        let workplace = Self { folder };
        plugins.iter().for_each(|plugin| workplace.add(plugin));
        workplace
    }

    pub(crate) fn add(&self, plugin: &str) {
        let file = format!("{plugin}.wasm");
        let to = self.plugins().join(&file);
        std::fs::copy(components().join(&file), &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self, arguments: &[&str], version: &'static str, capabilities: Value) -> StdioClient {
        let plugins = self.plugins().display().to_string();
        let mut all = vec!["--plugins", &plugins];
        all.extend(arguments);
        StdioClient::start(&self.data(), &all, version, capabilities)
    }
}

async fn stored_sessions(data: &Path) -> Vec<agent_store::SessionSummary> {
    let store = SqliteStore::open(data.join("agent-host.db"), Options::default()).expect("the database opens");
    store.sessions(SessionFilter::default(), 100).await.expect("the sessions can be listed")
}

/// I4: a client with the handshake lists and calls tools. Invalid arguments are an error result, an unknown tool is a
/// protocol error, and all calls that follow each other are turns of one session.
#[tokio::test(flavor = "multi_thread")]
async fn i4_tools_are_called_after_the_handshake() {
    let workplace = Workplace::new(&["calc", "text"]);
    let mut client = workplace.start(&[], WITH_HANDSHAKE, json!({}));
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list");
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == json!(name));
    let count = named("text.count").unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(count["annotations"]["readOnlyHint"], json!(true), "{count}");
    assert_eq!(count["inputSchema"]["type"], json!("object"));
    for hidden in ["memory_search", "read_result", "list_directory", "task_completion"] {
        assert!(named(hidden).is_none(), "{hidden} is offered: {listed}");
    }
    let result = client.call("text.count", json!({"text": "two words"}));
    assert_eq!(
        (&result["isError"], result["structuredContent"]["words"].as_u64()),
        (&json!(false), Some(2)),
        "{result}"
    );
    let wrong = client.call("text.count", json!({"words": 7}));
    assert_eq!(wrong["isError"], json!(true), "{wrong}");
    assert!(text(&wrong).contains("invalid arguments"), "{wrong}");
    let unknown = client.request("tools/call", json!({"name": "memory_search", "arguments": {"query": "x"}}));
    assert_eq!(unknown["error"]["code"], json!(-32602), "{unknown}");
    assert!(client.close(), "the server exits when the client closes its input");
    let sessions = stored_sessions(&workplace.data()).await;
    assert_eq!(sessions.iter().map(|session| session.turns).collect::<Vec<_>>(), [2], "{sessions:?}");
}

/// I4: a client without a handshake discovers the server, and each request describes itself.
#[tokio::test(flavor = "multi_thread")]
async fn i4_tools_are_called_without_a_handshake() {
    let workplace = Workplace::new(&["text"]);
    let mut client = workplace.start(&[], STATELESS, json!({}));
    let discovered = client.request("server/discover", json!({}));
    let versions = discovered["result"]["supportedVersions"].as_array().expect("a list");
    assert!(versions.contains(&json!(STATELESS)) && versions.contains(&json!(WITH_HANDSHAKE)), "{discovered}");
    let listed = client.request("tools/list", json!({}));
    assert_eq!(listed["result"]["cacheScope"], json!("private"), "{listed}");
    let result = client.call("text.count", json!({"text": "two words"}));
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(false)), "{result}");
    let bare = json!({"jsonrpc": "2.0", "id": "bare", "method": "tools/list", "params": {}});
    client.send(&bare);
    let refused = client.incoming_answer("bare");
    assert_eq!(refused["error"]["code"], json!(-32602), "a request without metadata is refused: {refused}");
    assert!(client.close());
}

/// I6: a call with a trace context in its `_meta` is a turn of that trace. An invalid trace context is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn i6_a_call_belongs_to_the_trace_of_its_request() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let workplace = Workplace::new(&["text"]);
    for version in [WITH_HANDSHAKE, STATELESS] {
        let mut client = workplace.start(&[], version, json!({}));
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for meta in [json!({"traceparent": parent, "tracestate": "a=b"}), json!({"traceparent": "00-zz"})] {
            let arguments = json!({"text": "two words"});
            let answer =
                client.request("tools/call", json!({"name": "text.count", "arguments": arguments, "_meta": meta}));
            assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
        }
        assert!(client.close());
    }
    let store = SqliteStore::open(workplace.data().join("agent-host.db"), Options::default()).expect("a database");
    for session in store.sessions(SessionFilter::default(), 10).await.expect("sessions") {
        assert_eq!(session.turns, 2);
        let trace = async |turn| {
            let records = store.records(&session.subject, RecordRange::Turn(turn)).await.expect("records");
            records.into_iter().find(|stored| stored.record.kind == "trace").expect("a trace").record.body
        };
        let first = trace(1).await;
        assert!(first["traceparent"].as_str().is_some_and(|own| own.contains(TRACE)), "{first}");
        assert_eq!((&first["tracestate"], first.get("parent").is_some()), (&json!("a=b"), true), "{first}");
        let second = trace(2).await;
        assert!(second.get("parent").is_none(), "{second}");
    }
}

/// I4: the result of a call is complete, although a model would be shown only its beginning.
#[tokio::test(flavor = "multi_thread")]
async fn i4_results_are_complete() {
    let workplace = Workplace::new(&["probe"]);
    let mut client = workplace.start(&[], WITH_HANDSHAKE, json!({}));
    let result = client.call("probe.bytes", json!({"bytes": 100_000}));
    assert_eq!(text(&result).len(), 100_000);
    assert!(client.close());
}

/// I4, P10: a new plugin changes the list of tools, and clients of both versions are told.
#[tokio::test(flavor = "multi_thread")]
async fn i4_changes_of_the_list_are_announced() {
    let workplace = Workplace::new(&["text"]);
    let mut older = workplace.start(&[], WITH_HANDSHAKE, json!({}));
    older.request("tools/list", json!({}));
    let other = Workplace::new(&["text"]);
    let mut newer = other.start(&[], STATELESS, json!({}));
    newer.request("tools/list", json!({}));
    newer.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    newer.incoming("notifications/subscriptions/acknowledged");
    for (client, workplace) in [(&mut older, &workplace), (&mut newer, &other)] {
        workplace.add("calc");
        client.incoming("notifications/tools/list_changed");
        let listed = client.request("tools/list", json!({}));
        assert!(listed.to_string().contains("calc."), "{listed}");
    }
}

/// L29: cancellation by the client ends the turn. The server keeps working.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_client_cancels_a_call() {
    let workplace = Workplace::new(&["probe", "text"]);
    let mut client = workplace.start(&[], WITH_HANDSHAKE, json!({}));
    let params = json!({"name": "probe.spin", "arguments": {}, "_meta": {"progressToken": "p"}});
    let id = client.begin("tools/call", params);
    let progress = client.incoming("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], json!("p"), "{progress}");
    let params = json!({"requestId": id, "reason": "test"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    assert_eq!(client.call("text.count", json!({"text": "a"}))["isError"], json!(false));
    assert!(client.close());
    let sessions = stored_sessions(&workplace.data()).await;
    assert!(sessions.iter().any(|session| session.state == agent_store::SessionState::Cancelled), "{sessions:?}");
}

/// I4: an agent is offered as one tool. A client continues the conversation with the session of an answer, but not with a
/// session of another agent.
#[tokio::test(flavor = "multi_thread")]
async fn i4_an_agent_is_offered_as_a_tool() {
    let workplace = Workplace::new(&["text"]);
    let replies = json!({"replies": [
        {"calls": [{"name": "text.count", "arguments": {"text": "a b"}}]}, {"text": "Two words."}, {"text": "Yes."},
    ]});
    std::fs::write(workplace.folder.path().join("replies.json"), replies.to_string()).expect("a file");
    let arguments = ["--expose", "agent", "--model", "scripted:replies.json"];
    let mut client = workplace.start(&arguments, WITH_HANDSHAKE, json!({}));
    let listed = client.request("tools/list", json!({}));
    let tool = &listed["result"]["tools"][0];
    let name = tool["name"].as_str().expect("a name").to_owned();
    assert_eq!(tool["inputSchema"]["required"], json!(["prompt"]), "{listed}");
    let params = json!({"name": name, "arguments": {"prompt": "Count."}, "_meta": {"progressToken": 1}});
    let answer = client.request("tools/call", params);
    let result = &answer["result"];
    assert_eq!(
        (text(result), &result["structuredContent"]["answer"]),
        ("Two words.", &json!("Two words.")),
        "{answer}"
    );
    let progress = client.incoming("notifications/progress");
    assert!(progress["params"]["message"].is_string(), "{progress}");
    let session = result["structuredContent"]["session"].as_str().expect("a session").to_owned();
    let result = client.call(&name, json!({"prompt": "Sure?", "session": session}));
    assert_eq!(text(&result), "Yes.");
    for foreign in ["other/01a20eb6-d915-7899-a368-367c6c553e61", "", "../x"] {
        let arguments = json!({"prompt": "Hello?", "session": foreign});
        let refused = client.request("tools/call", json!({"name": name, "arguments": arguments}));
        assert_eq!(refused["error"]["code"], json!(-32602), "{refused}");
    }
    assert!(client.close());
}

/// Row 26: huge and deeply nested messages end the connection with a reason, and do not crash the host.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_oversized_messages_end_the_connection() {
    let workplace = Workplace::new(&["text"]);
    for message in [
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/list\",\"params\":{}{}}}\n",
            "[".repeat(500),
            "]".repeat(500)
        ),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"{}\"}}\n", "x".repeat(5 << 20)),
    ] {
        let mut client = workplace.start(&[], WITH_HANDSHAKE, json!({}));
        client.write(message.as_bytes());
        assert!(!client.close(), "the server reports the broken connection");
    }
    // Arguments of 1 MiB are accepted.
    let mut client = workplace.start(&[], WITH_HANDSHAKE, json!({}));
    let result = client.call("text.count", json!({"text": "x ".repeat(500_000)}));
    assert_eq!(result["structuredContent"]["words"], json!(500_000), "{}", result["isError"]);
    assert!(client.close());
}
