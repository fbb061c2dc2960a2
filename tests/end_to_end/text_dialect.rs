//! Models that can only write: their tools, calls and results are words, and the words between the tags are nobody's to
//! read (L20, L22).

use crate::chat_server::{Answer, ChatServer, local};
use crate::support::{House, event_types, events, results, saying, script, seen, turn, view};
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
    // All tools of the fixture.
    config.offered_tools = 100;
    config
}

fn tagged(server: &str, tool: &str, arguments: Value) -> String {
    format!("<tool>{}</tool>", json!({"server_name": server, "tool_name": tool, "arguments": arguments}))
}

fn finished(result: TurnResult) -> agent_core::run::Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

fn streamed(events: &[Event]) -> String {
    let text = |event: &Event| match &event.kind {
        EventKind::StreamToken { text } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// L20, L22: schemas before the input, a call cut into single characters, its result as a message; no tag is streamed.
#[tokio::test(flavor = "multi_thread")]
async fn l20_a_call_in_words() {
    let house = House::new(&["probe"]).await;
    let text = format!("I ask. {}", tagged("local", "probe.echo", json!({"text": "hello"})));
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
    let mut session = house.session(config(), script(&replies)).await;
    let mut watching = session.subscribe();
    let output = finished(turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.interactions), (json!("It says hello."), 2));
    let mut all = Vec::new();
    while let Ok(event) = watching.try_recv() {
        all.push(event);
    }
    assert_eq!(streamed(&all), "I ask.It says hello.");
    assert_eq!(seen(&house, &session).await, ["user 2", "assistant 2", "tool 1", "assistant 1"]);
    // The history is in no dialect.
    let messages = view(&house, &session).await;
    assert_eq!(messages[0].parts, [Part::Text("Echo.".into())]);
    assert!(
        matches!(&messages[1].parts[..], [Part::Text(text), Part::ToolCall(call)] if text == "I ask." && call.name == "probe.echo")
    );
    finished(turn(&mut session, "And again.").await);
}

/// L20: a call in a code fence does not run. The model is told once, and whoever only writes about calls can still answer.
#[tokio::test(flavor = "multi_thread")]
async fn l20_a_call_in_a_code_fence_is_told() {
    let house = House::new(&["probe"]).await;
    let fenced = format!("Here:\n```\n{}\n```", tagged("local", "probe.echo", json!({"text": "hello"})));
    let told = ["quoted_call", "do not run"];
    let replies = [
        json!({"text": fenced}),
        json!({"text": tagged("local", "probe.echo", json!({"text": "hello"})), "expect": {"last_contains": told}}),
        json!({"text": fenced}),
    ];
    let mut session = house.session(config(), script(&replies)).await;
    let output = finished(turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.interactions), (json!(fenced), 3));
    let about = format!("```\n{}\n```", tagged("local", "no.such", json!({})));
    let mut session = house.session(config(), script(&[json!({"text": about})])).await;
    assert_eq!(finished(turn(&mut session, "How?").await).interactions, 1, "there is no such tool to call");
}

/// L20, seed d "Tool Execution Flow": what cannot be read, and what is not there, is told and fed back.
#[tokio::test(flavor = "multi_thread")]
async fn l20_d_errors_are_fed_back() {
    let house = House::new(&["probe"]).await;
    let replies = [
        json!({"text": "<tool>{\"server_name\": \"local\",</tool>"}),
        json!({"text": "<tool>{\"server_name\": \"local\"}</tool>", "expect": {"roles": ["user", "assistant", "user"], "last_contains": "parse_error"}}),
        json!({"text": tagged("service", "probe.echo", json!({"text": "x"})), "expect": {"last_contains": ["missing_field", "tool_name"]}}),
        json!({"text": tagged("local", "probe.echo", json!({"txt": 1})), "expect": {"last_contains": ["Error of `probe.echo`", "`service` has no tool `probe.echo`"]}}),
        json!({"text": "Done.", "expect": {"last_contains": "required"}}),
    ];
    let mut session = house.session(config(), script(&replies)).await;
    finished(turn(&mut session, "Echo.").await);
    let types = event_types(&house, &session).await;
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
    let codes: Vec<String> = events(&house, &session)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::Error { code, .. } => Some(code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["parse_error", "missing_field"]);
    let results = results(&house, &session).await;
    assert!(results.iter().all(|(_, is_error, _)| *is_error) && results.len() == 2, "{results:?}");
}

/// L4, L20: in the last call the tools are withheld: no schema is sent, and no call of the reply runs or is shown.
#[tokio::test(flavor = "multi_thread")]
async fn l4_tools_are_withheld_in_words() {
    let house = House::new(&["probe"]).await;
    let call = tagged("local", "probe.echo", json!({"text": "hello"}));
    let last = json!({"text": format!("As far as I know.\n{call}"), "expect": {"lacks": "## tool-schemas", "contains": "Echo."}});
    let mut config = config();
    config.bounds.max_interactions = 1;
    let mut session = house.session(config, script(&[saying(&call), last])).await;
    let output = finished(turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.limit_reached), (json!("As far as I know."), true));
    assert_eq!(results(&house, &session).await.len(), 1);
}

/// L20 over the wire: no `tools`, and within a turn each request begins with the bytes of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn l20_over_the_wire() {
    const CALL: &str =
        r#"<tool>{"server_name": "local", "tool_name": "probe.echo", "arguments": {"text": "hi"}}</tool>"#;
    let house = House::new(&["probe"]).await;
    let server = ChatServer::start([Answer::Text(CALL), Answer::Text("It says hi.")]).await;
    let model = local(&server.base_url).model("local/tiny", house.directory.path()).unwrap();
    let agent = Agent::new(config(), model, house.generation().await).unwrap();
    let mut session = Session::open(&house.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let input = Some(TurnInput::Text("Say hi.".into()));
    let result = session.run(input, CancellationToken::new()).await.unwrap();
    assert_eq!(finished(result).data, json!("It says hi."));
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.get("tools").is_none()));
    let last = requests[1]["messages"].as_array().unwrap();
    assert_eq!(last.last().unwrap()["role"], "user");
    assert!(requests[1].to_string().contains("Result of `probe.echo`"), "{}", requests[1]);
}
