//! The loop with loop-breaking tools, step by step as the seed text draws it (L18, L19, L28), and persistence of effort (L23)
//! with its nudges, over the real runtime and the real binary.

mod drawn;

use crate::support::{House, calling, event_types, events, repository, results, saying, script, short, turn, view};
use agent_core::event::{EndReason, EventKind};
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Part, Role};
use agent_core::run::{LoopConfig, Output, TurnError};
use agent_core::text_dialect::ToolDialect;
use agent_runtime::{AgentConfig, OpenSession, Session, TurnResult, question};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn by_tool() -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.bounds = LoopConfig { finish: Finish::Tool, ..LoopConfig::default() };
    config
}

fn finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

async fn go_on(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The events of a turn without the step's own.
async fn told(house: &House, session: &Session) -> Vec<String> {
    let mut types = event_types(house, session).await;
    types.retain(|kind| !["loop_iteration", "context_built", "stream_complete"].contains(&kind.as_str()));
    types
}

/// The drawing's way with a regular tool, and its end by `task_completion`: call, result, history, the next call of the model.
#[tokio::test(flavor = "multi_thread")]
async fn l18_a_regular_tool_then_task_completion() {
    let house = House::new(&["probe"]).await;
    let mut first = calling(&[("probe.echo", json!({"text": "hello"}))]);
    first["expect"] = json!({"offers": ["task_completion", "ask_question", "converse"]});
    let script = script(&[first, calling(&[("task_completion", json!({"result": "It says hello."}))])]);
    let mut session = house.session(by_tool(), script).await;
    let output = finished(turn(&mut session, "Echo.").await);
    assert_eq!((output.finish, &output.data), (EndReason::Completed, &json!("It says hello.")));
    let types = event_types(&house, &session).await;
    let step = ["loop_iteration", "context_built", "stream_complete", "tool_call", "tool_result"];
    let expected: Vec<&str> = ["loop_start"].iter().chain(&step).chain(&step).chain(&["loop_end"]).copied().collect();
    assert_eq!(types, expected);
    let roles: Vec<Role> = view(&house, &session).await.iter().map(|message| message.role).collect();
    let expected = [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::Tool, Role::Assistant];
    assert_eq!(roles, expected);
}

/// L18, L12: the result passes the output schema; what is wrong comes back as the call's error result.
#[tokio::test(flavor = "multi_thread")]
async fn l18_a_result_against_the_output_schema() {
    let house = House::new(&[]).await;
    let mut config = by_tool();
    config.output_schema = Some(json!({
        "type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}},
    }));
    let complete = |result: Value| calling(&[("task_completion", json!({ "result": result }))]);
    let script = script(&[
        complete(json!({"n": "three"})),
        calling(&[("task_completion", json!({}))]),
        complete(json!({"n": 3})),
    ]);
    let mut session = house.session(config, script).await;
    let output = finished(turn(&mut session, "Count.").await);
    assert_eq!((output.finish, &output.data, output.interactions), (EndReason::Completed, &json!({"n": 3}), 3));
    let results = results(&house, &session).await;
    assert!(results[0].1 && results[0].2.contains("/n"), "{results:?}");
    assert!(results[1].1 && results[1].2.contains("invalid_arguments"), "L8: {results:?}");
    assert_eq!(
        told(&house, &session).await,
        [
            "loop_start",
            "tool_call",
            "tool_result_error",
            "output_rejected",
            "stream_clear",
            "tool_call",
            "tool_result_error",
            "tool_call",
            "tool_result",
            "loop_end"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn l18_converse_ends_the_turn_with_a_message() {
    let house = House::new(&[]).await;
    let replies = [
        calling(&[("converse", json!({"message": "Hello."}))]),
        calling(&[("converse", json!({"message": "Still here."}))]),
    ];
    let mut session = house.session(by_tool(), script(&replies)).await;
    let output = finished(turn(&mut session, "Hi.").await);
    assert_eq!((output.finish, &output.data), (EndReason::Converse, &json!("Hello.")));
    assert_eq!(finished(turn(&mut session, "You there?").await).data, json!("Still here."));
}

/// L18: a question suspends the turn over a restart, and the answer goes to the model as the call's result.
#[tokio::test(flavor = "multi_thread")]
async fn l18_a_question_and_its_answer_in_another_process() {
    let house = House::new(&["probe"]).await;
    let ask =
        calling(&[("ask_question", json!({"question": "Which year?"})), ("probe.echo", json!({"text": "meanwhile"}))]);
    let mut done = calling(&[("task_completion", json!({"result": "1984"}))]);
    done["expect"] = json!({"last_contains": "meanwhile", "contains": "in 1984"});
    let agent = house.agent(by_tool(), script(&[ask, done])).await;
    let mut session = Session::open(&house.host(), agent.clone(), OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = turn(&mut session, "Find it.").await else { panic!("it asks") };
    let (call, asked) = question(&suspension).expect("there is a question");
    assert_eq!((short(&call.0).as_str(), asked), ("call_1_1_1", "Which year?"));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(go_on(&mut session).await, TurnResult::Suspended(_)), "it still waits");
    let call = CallId("call_1_1_1".to_owned());
    assert!(session.answer(CallId("call_1_1_2".to_owned()), "no".to_owned()).await.is_err(), "nothing was asked there");
    session.answer(call.clone(), "in 1984".to_owned()).await.unwrap();
    assert!(session.answer(call, "in 1985".to_owned()).await.is_err(), "a second answer changes nothing");
    assert_eq!(finished(go_on(&mut session).await).data, json!("1984"));
    assert_eq!(
        told(&house, &session).await,
        [
            "loop_start",
            "tool_call",
            "tool_result",
            "tool_call",
            "suspended",
            "tool_result",
            "resumed",
            "tool_call",
            "tool_result",
            "loop_end"
        ]
    );
}

/// The drawing's other way: no tool call, the event, the reminder, and on.
#[tokio::test(flavor = "multi_thread")]
async fn l19_a_reply_without_a_tool_call_is_reminded() {
    let house = House::new(&[]).await;
    let mut done = calling(&[("task_completion", json!({"result": "Done."}))]);
    done["expect"] =
        json!({"roles": ["user", "assistant", "user"], "seen_counts": [1, 1, 0], "last_contains": "task_completion"});
    let mut session = house.session(by_tool(), script(&[saying("I think it is 4."), done])).await;
    assert_eq!(finished(turn(&mut session, "2 + 2?").await).finish, EndReason::Completed);
    assert_eq!(told(&house, &session).await, ["loop_start", "no_tool_call", "tool_call", "tool_result", "loop_end"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l19_five_replies_without_a_tool_call_are_a_typed_error() {
    let house = House::new(&[]).await;
    let replies: Vec<Value> = (0..5).map(|_| saying("Let me think.")).collect();
    let mut session = house.session(by_tool(), script(&replies)).await;
    let TurnResult::Failed(error) = turn(&mut session, "Do it.").await else { panic!("it has failed") };
    assert_eq!(error, TurnError::NoToolCall { replies: 5 });
}

/// L18, L19, L20: the drawing with its own words: the tool of the XML is looked up by server, unreadable JSON is an error
/// and then no tool call, a tool that is not there is told, and the loop-breaking tool of the XML ends the loop.
#[tokio::test(flavor = "multi_thread")]
async fn l20_the_tool_execution_flow_in_words() {
    let tagged = |server: &str, tool: &str, arguments: Value| {
        saying(&format!("<tool>{}</tool>", json!({"server_name": server, "tool_name": tool, "arguments": arguments})))
    };
    let house = House::new(&["probe"]).await;
    let mut config = by_tool();
    config.tool_dialect = ToolDialect::Text;
    config.offered_tools = 100;
    let replies = [
        saying("<tool>{\"server_name\": \"local\", </tool>"),
        saying("Let me think."),
        tagged("mcp", "probe.echo", json!({"text": "hello"})),
        tagged("local", "probe.echo", json!({"text": "hello"})),
        tagged("local", "task_completion", json!({"result": "It says hello."})),
    ];
    let mut session = house.session(config, script(&replies)).await;
    let output = finished(turn(&mut session, "Echo.").await);
    assert_eq!((output.finish, &output.data), (EndReason::Completed, &json!("It says hello.")));
    let expected = [
        "loop_start",
        "stream_clear",
        "error",
        "no_tool_call",
        "no_tool_call",
        "tool_not_found",
        "tool_call",
        "tool_result",
        "tool_call",
        "tool_result",
        "loop_end",
    ];
    assert_eq!(told(&house, &session).await, expected);
}

/// L19, L20: calls that cannot be read are no tool calls; five in a row are too many, whatever kind they are.
#[tokio::test(flavor = "multi_thread")]
async fn l19_calls_that_cannot_be_read_count() {
    let house = House::new(&[]).await;
    let broken = saying("<tool>{</tool>");
    let replies = [broken.clone(), saying("Let me think."), broken.clone(), broken.clone(), broken];
    let mut config = by_tool();
    config.tool_dialect = ToolDialect::Text;
    let mut session = house.session(config, script(&replies)).await;
    let TurnResult::Failed(error) = turn(&mut session, "Do it.").await else { panic!("it has failed") };
    assert_eq!(error, TurnError::NoToolCall { replies: 5 });
}

/// L19, L28: a real tool that fails alike each time: warned at the third, off, and the end at the fifth.
#[tokio::test(flavor = "multi_thread")]
async fn l28_a_tool_that_keeps_failing_is_turned_off() {
    let house = House::new(&["probe"]).await;
    let bad = || calling(&[("read_file", json!({"path": "absent"}))]);
    let mut session = house.session(by_tool(), script(&[bad(), bad(), bad(), bad(), bad()])).await;
    let TurnResult::Failed(error) = turn(&mut session, "Read.").await else { panic!("it has failed") };
    assert!(matches!(error, TurnError::SameError { replies: 5, .. }), "{error}");
    let results = results(&house, &session).await;
    assert!(results[2].2.starts_with("[the same call") && results[2].2.ends_with(&results[0].2), "{results:?}");
    assert!(results[3].2.contains("is off for the rest of this turn"), "{results:?}");
    let disabled = events(&house, &session).await;
    assert_eq!(disabled.iter().filter(|event| matches!(event.kind, EventKind::ToolDisabled { .. })).count(), 1);
}

/// L23: what seed e draws: a tired model, a deflection, silence, and the forced summary without tools.
#[tokio::test(flavor = "multi_thread")]
async fn l23_nudges_and_a_forced_summary() {
    let house = House::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    config.bounds = LoopConfig { persistence: true, max_interactions: 40, ..LoopConfig::default() };
    let expecting = |mut reply: Value, expect: Value| {
        reply["expect"] = expect;
        reply
    };
    let replies = [
        calling(&[("probe.echo", json!({"text": "renamed"}))]),
        saying("I've renamed 3 files. There are 4 remaining..."),
        expecting(saying("I can't do that."), json!({"last_contains": "You stopped before finishing"})),
        expecting(json!({"text": ""}), json!({"last_contains": "Continue executing the task"})),
        json!({"text": ""}),
        json!({"text": ""}),
        expecting(
            saying("I processed 5 of 7 screenshots..."),
            json!({"tools": [], "last_contains": "No tools can be called"}),
        ),
    ];
    let mut session = house.session(config, script(&replies)).await;
    let output = finished(turn(&mut session, "Rename the screenshots.").await);
    assert_eq!((output.finish, output.limit_reached), (EndReason::Answered, false));
    assert_eq!(output.data, json!("I processed 5 of 7 screenshots..."));
    let expected = [
        "loop_start",
        "tool_call",
        "tool_result",
        "stream_clear",
        "nudge",
        "stream_clear",
        "nudge",
        "nudge",
        "nudge",
        "nudge",
        "loop_end",
    ];
    assert_eq!(told(&house, &session).await, expected);
    let texts = view(&house, &session).await;
    let said = |text: &str| texts.iter().any(|message| message.parts.contains(&Part::Text(text.to_owned())));
    assert!(said("I've renamed 3 files. There are 4 remaining...") && said("I can't do that."), "replies are stored");
}

/// A folder, and the binary in it, with the agents of `tests/agents`.
struct Person {
    data: TempDir,
}

impl Person {
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(repository()).args(arguments).arg("--data").arg(self.data.path().join("data"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// L18, L19: the agent of `tests/agents` as it is written: a reminder, a question over two processes, a correction.
#[test]
fn l18_finish_with_tool_as_it_is_written() {
    const AGENT: [&str; 2] = ["--agent", "tests/agents/finish-with-tool.toml"];
    let person = Person { data: tempfile::tempdir().unwrap() };
    let (code, stdout, stderr) = person.run(&[&AGENT[..], &["Plan my visit."]].concat());
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    assert!(stderr.contains("? Which day do you come?") && stderr.contains("session answer"), "{stderr}");
    assert!(stderr.contains("the reply called no tool"), "{stderr}");
    let (_, shown, _) = person.run(&["session", "show"]);
    assert!(shown.contains("waits for your answer"), "{shown}");
    let session = shown.split_whitespace().next().unwrap().to_owned();
    let (code, _, stderr) = person.run(&["session", "answer", &session, "On Monday, for three hours."]);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = person.run(&["session", "answer", &session, "Or Tuesday."]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("waits for no answer"), "{stderr}");
    let (code, stdout, stderr) = person.run(&[&AGENT[..], &["--continue", "--json"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let output: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&output["data"], &output["finish"]), (&json!({"day": "Monday", "hours": 3}), &json!("completed")));
    assert!(stdout.contains("\"output_rejected\""), "{stdout}");
}

/// L18: what is said to a session that has asked something is the answer.
#[test]
fn l18_the_next_prompt_is_the_answer() {
    const AGENT: [&str; 2] = ["--agent", "tests/agents/finish-with-tool.toml"];
    let person = Person { data: tempfile::tempdir().unwrap() };
    person.run(&[&AGENT[..], &["Plan my visit."]].concat());
    let (code, stdout, stderr) = person.run(&[&AGENT[..], &["--continue", "On Monday, for three hours."]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("\"hours\": 3"), "{stdout}");
}

/// L23: the agent of `tests/agents` as it is written.
#[test]
fn l23_persistence_as_it_is_written() {
    let person = Person { data: tempfile::tempdir().unwrap() };
    let (code, stdout, stderr) = person.run(&["--agent", "tests/agents/persistence.toml", "Rename all screenshots."]);
    assert_eq!((code, stdout.trim()), (Some(0), "All 7 screenshots have been renamed."), "{stderr}");
    for line in ["refuses or asks", "something is left", "the reply is empty"] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
}

/// L18: without the mode there are no such tools.
#[tokio::test(flavor = "multi_thread")]
async fn l18_without_the_mode_the_tools_are_not_there() {
    let house = House::new(&[]).await;
    let mut asked = calling(&[("task_completion", json!({"result": "x"}))]);
    asked["expect"] = json!({"withholds": ["task_completion", "ask_question", "converse"]});
    let mut session = house.session(AgentConfig::new("test"), script(&[asked, saying("Well.")])).await;
    assert_eq!(finished(turn(&mut session, "Go.").await).finish, EndReason::Answered);
    assert!(told(&house, &session).await.contains(&"tool_not_found".to_owned()));
}
