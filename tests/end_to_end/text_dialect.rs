//! Models without native tool calls: the host and the model exchange tools, calls and results as text with tags. The
//! user never sees the tags of tools, calls and results (L20, L22).

use crate::chat_server::{Answer, ChatServer, local_provider};
use crate::support::{
    TestHost, event_types, events, results, run_turn, script, text_reply, view_summary, visible_messages,
};
use agent_core::event::{Event, EventKind};
use agent_core::message::{Part, TurnInput};
use agent_core::text_dialect::ToolDialect;
use agent_runtime::{Agent, AgentConfig, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn config() -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.tool_dialect = ToolDialect::Text;
    // Every step offers all tools of the fixture.
    config.offered_tools = 100;
    config
}

fn call_tag(server: &str, tool: &str, arguments: Value) -> String {
    format!("<tool>{}</tool>", json!({"server_name": server, "tool_name": tool, "arguments": arguments}))
}

fn expect_finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

fn streamed_text(events: &[Event]) -> String {
    let text = |event: &Event| match &event.kind {
        EventKind::StreamToken { text } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// L20, L22: The tool schemas are sent before the input. A call runs even if its text arrives character by character.
/// The host sends the call's result to the model as a message, and does not stream the tags to watchers.
#[tokio::test(flavor = "multi_thread")]
async fn l20_runs_a_call_written_as_text() {
    let test_host = TestHost::new(&["probe"]).await;
    let text = format!("I ask. {}", call_tag("local", "probe.echo", json!({"text": "hello"})));
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let schema = r#"{"server_name":"local","tool_name":"probe.echo","description":"Returns its text"#;
    let replies = [
        json!({"chunks": characters, "expect": {"tools": [], "roles": ["user"], "contains": ["## tool-schemas", schema, "Echo."]}}),
        json!({"text": "It says hello.", "expect": {
            "tools": [], "roles": ["user", "assistant", "user"],
            "contains": ["## tool-schemas", r#"<tool>{"server_name":"local","tool_name":"probe.echo","arguments":{"text":"hello"}}</tool>"#],
            "last_contains": ["Result of `probe.echo` (local), call_id call_1_1_1_", "\"text\":\"hello\""],
        }}),
        json!({"text": "Again.", "expect": {"roles": ["user", "assistant", "user", "assistant", "user"], "last_contains": "## tool-schemas"}}),
    ];
    let mut session = test_host.session(config(), script(&replies)).await;
    let mut watching = session.subscribe();
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.interactions), (json!("It says hello."), 2));
    let mut received = Vec::new();
    while let Ok(event) = watching.try_recv() {
        received.push(event);
    }
    assert_eq!(streamed_text(&received), "I ask.It says hello.");
    assert_eq!(view_summary(&test_host, &session).await, ["user 2", "assistant 2", "tool 1", "assistant 1"]);
    // The history is stored in the same form as with native tool calls.
    let messages = visible_messages(&test_host, &session).await;
    assert_eq!(messages[0].parts, [Part::Text("Echo.".into())]);
    assert!(
        matches!(&messages[1].parts[..], [Part::Text(text), Part::ToolCall(call)] if text == "I ask." && call.name == "probe.echo")
    );
    expect_finished(run_turn(&mut session, "And again.").await);
}

/// L20: A call in a code fence does not run, and the model gets one note about it. A model that quotes a call in its
/// answer can therefore still end the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l20_reports_a_call_in_a_code_fence() {
    let test_host = TestHost::new(&["probe"]).await;
    let fenced = format!("Here:\n```\n{}\n```", call_tag("local", "probe.echo", json!({"text": "hello"})));
    let note_texts = ["quoted_call", "do not run"];
    let replies = [
        json!({"text": fenced}),
        json!({"text": call_tag("local", "probe.echo", json!({"text": "hello"})), "expect": {"last_contains": note_texts}}),
        json!({"text": fenced}),
    ];
    let mut session = test_host.session(config(), script(&replies)).await;
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.interactions), (json!(fenced), 3));
    let quoted_call = format!("```\n{}\n```", call_tag("local", "no.such", json!({})));
    let mut session = test_host.session(config(), script(&[json!({"text": quoted_call})])).await;
    assert_eq!(
        expect_finished(run_turn(&mut session, "How?").await).interactions,
        1,
        "a quoted call to an unknown tool causes no note"
    );
}

/// L20: The user and the model receive a report about each call that cannot be parsed and each call to an unknown tool.
#[tokio::test(flavor = "multi_thread")]
async fn l20_reports_errors_to_the_model() {
    let test_host = TestHost::new(&["probe"]).await;
    let replies = [
        json!({"text": "<tool>{\"server_name\": \"local\",</tool>"}),
        json!({"text": "<tool>{\"server_name\": \"local\"}</tool>", "expect": {"roles": ["user", "assistant", "user"], "last_contains": "parse_error"}}),
        json!({"text": call_tag("service", "probe.echo", json!({"text": "x"})), "expect": {"last_contains": ["missing_field", "tool_name"]}}),
        json!({"text": call_tag("local", "probe.echo", json!({"txt": 1})), "expect": {"last_contains": ["Error of `probe.echo`", "`service` has no tool `probe.echo`"]}}),
        json!({"text": "Done.", "expect": {"last_contains": "required"}}),
    ];
    let mut session = test_host.session(config(), script(&replies)).await;
    expect_finished(run_turn(&mut session, "Echo.").await);
    let types = event_types(&test_host, &session).await;
    let step = |kinds: &[&str]| -> Vec<String> {
        ["loop_iteration", "context_built", "stream_complete"]
            .iter()
            .chain(kinds)
            .map(|kind| (*kind).to_owned())
            .collect()
    };
    let expected = [
        vec!["loop_start".to_owned()],
        step(&["stream_clear", "error", "no_tool_call"]),
        step(&["stream_clear", "error", "no_tool_call"]),
        step(&["tool_not_found"]),
        step(&["tool_call", "tool_result_error"]),
        step(&["loop_end"]),
    ];
    assert_eq!(types, expected.concat());
    let codes: Vec<String> = events(&test_host, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::Error { code, .. } => Some(code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["parse_error", "missing_field"]);
    let results = results(&test_host, &session).await;
    assert!(results.iter().all(|(_, is_error, _)| *is_error) && results.len() == 2, "{results:?}");
}

/// L4, L20: The last model call at the interaction limit offers no tools: the request contains no tool schema, and a
/// call in the reply does not run and is not shown.
#[tokio::test(flavor = "multi_thread")]
async fn l4_withholds_tools_in_the_text_dialect() {
    let test_host = TestHost::new(&["probe"]).await;
    let call = call_tag("local", "probe.echo", json!({"text": "hello"}));
    let last = json!({"text": format!("As far as I know.\n{call}"), "expect": {"lacks": "## tool-schemas", "contains": "Echo."}});
    let mut config = config();
    config.bounds.max_interactions = 1;
    let mut session = test_host.session(config, script(&[text_reply(&call), last])).await;
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.limit_reached), (json!("As far as I know."), true));
    assert_eq!(results(&test_host, &session).await.len(), 1);
}

/// L20: Requests contain no `tools` field, and each request of a turn begins with the bytes of the previous request.
#[tokio::test(flavor = "multi_thread")]
async fn l20_sends_text_instead_of_tools_over_the_wire() {
    const CALL: &str =
        r#"<tool>{"server_name": "local", "tool_name": "probe.echo", "arguments": {"text": "hi"}}</tool>"#;
    let test_host = TestHost::new(&["probe"]).await;
    let server = ChatServer::start([Answer::Text(CALL), Answer::Text("It says hi.")]).await;
    let model = local_provider(&server.base_url).model("local/tiny", test_host.directory.path()).unwrap();
    let agent = Agent::new(config(), model, test_host.generation().await).unwrap();
    let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let input = Some(TurnInput::Text("Say hi.".into()));
    let result = session.run(input, CancellationToken::new()).await.unwrap();
    assert_eq!(expect_finished(result).data, json!("It says hi."));
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.get("tools").is_none()));
    let last = requests[1]["messages"].as_array().unwrap();
    assert_eq!(last.last().unwrap()["role"], "user");
    assert!(requests[1].to_string().contains("Result of `probe.echo`"), "{}", requests[1]);
}
