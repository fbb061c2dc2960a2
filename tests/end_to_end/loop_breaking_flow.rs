//! The agent loop with loop-breaking tools, which are the tools that end a turn (L18, L19, L28): tool calls,
//! `task_completion`, questions and reminders. The tests also cover the nudges that make a model continue its work
//! (L23). The tests use the real runtime and the real binary.

mod drawn;

use crate::support::{
    TestHost, agent_host, base_call_id, call_reply, event_types, events, repository, results, run_turn, script,
    text_reply, visible_messages,
};
use agent_core::event::{EndReason, EventKind};
use agent_core::loop_break::Finish;
use agent_core::message::{CallId, Part, Role};
use agent_core::run::{LoopConfig, Output, TurnError};
use agent_core::text_dialect::ToolDialect;
use agent_runtime::{AgentConfig, OpenSession, Session, TurnResult, question};
use serde_json::{Value, json};
use std::process::Stdio;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn finishing_by_tool() -> AgentConfig {
    let mut config = AgentConfig::new("test");
    config.bounds = LoopConfig { finish: Finish::Tool, ..LoopConfig::default() };
    config
}

fn expect_finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

async fn continue_turn(session: &mut Session) -> TurnResult {
    session.run(None, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the types of the session's events, without the events that every step has.
async fn turn_events(test_host: &TestHost, session: &Session) -> Vec<String> {
    let mut types = event_types(test_host, session).await;
    types.retain(|kind| !["loop_iteration", "context_built", "stream_complete"].contains(&kind.as_str()));
    types
}

/// A regular tool is called, its result is added to the history, the model is called again, and `task_completion` ends
/// the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l18_task_completion_ends_a_turn_after_a_regular_tool() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut first = call_reply(&[("probe.echo", json!({"text": "hello"}))]);
    first["expect"] = json!({"offers": ["task_completion", "ask_question", "converse"]});
    let script = script(&[first, call_reply(&[("task_completion", json!({"result": "It says hello."}))])]);
    let mut session = test_host.session(finishing_by_tool(), script).await;
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.finish, &output.data), (EndReason::Completed, &json!("It says hello.")));
    let types = event_types(&test_host, &session).await;
    let step = ["loop_iteration", "context_built", "stream_complete", "tool_call", "tool_result"];
    let expected: Vec<&str> = ["loop_start"].iter().chain(&step).chain(&step).chain(&["loop_end"]).copied().collect();
    assert_eq!(types, expected);
    let roles: Vec<Role> = visible_messages(&test_host, &session).await.iter().map(|message| message.role).collect();
    let expected = [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::Tool, Role::Assistant];
    assert_eq!(roles, expected);
}

/// L18, L12: The turn's result is checked against the output schema. If the result violates the schema, the call that
/// contains it gets an error result that describes the violation.
#[tokio::test(flavor = "multi_thread")]
async fn l18_checks_the_result_against_the_output_schema() {
    let test_host = TestHost::new(&[]).await;
    let mut config = finishing_by_tool();
    config.output_schema = Some(json!({
        "type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}},
    }));
    let complete = |result: Value| call_reply(&[("task_completion", json!({ "result": result }))]);
    let script = script(&[
        complete(json!({"n": "three"})),
        call_reply(&[("task_completion", json!({}))]),
        complete(json!({"n": 3})),
    ]);
    let mut session = test_host.session(config, script).await;
    let output = expect_finished(run_turn(&mut session, "Count.").await);
    assert_eq!((output.finish, &output.data, output.interactions), (EndReason::Completed, &json!({"n": 3}), 3));
    let results = results(&test_host, &session).await;
    assert!(results[0].1 && results[0].2.contains("/n"), "{results:?}");
    assert!(results[1].1 && results[1].2.contains("invalid_arguments"), "L8: {results:?}");
    assert_eq!(
        turn_events(&test_host, &session).await,
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
    let test_host = TestHost::new(&[]).await;
    let replies = [
        call_reply(&[("converse", json!({"message": "Hello."}))]),
        call_reply(&[("converse", json!({"message": "Still here."}))]),
    ];
    let mut session = test_host.session(finishing_by_tool(), script(&replies)).await;
    let output = expect_finished(run_turn(&mut session, "Hi.").await);
    assert_eq!((output.finish, &output.data), (EndReason::Converse, &json!("Hello.")));
    assert_eq!(expect_finished(run_turn(&mut session, "You there?").await).data, json!("Still here."));
}

/// L18: A question suspends the turn, and the turn stays suspended if the host restarts. The model gets the user's
/// answer as the result of the call that asked the question.
#[tokio::test(flavor = "multi_thread")]
async fn l18_a_question_is_answered_in_another_process() {
    let test_host = TestHost::new(&["probe"]).await;
    let ask = call_reply(&[
        ("ask_question", json!({"question": "Which year?"})),
        ("probe.echo", json!({"text": "meanwhile"})),
    ]);
    let mut done = call_reply(&[("task_completion", json!({"result": "1984"}))]);
    done["expect"] = json!({"last_contains": "meanwhile", "contains": "in 1984"});
    let agent = test_host.agent(finishing_by_tool(), script(&[ask, done])).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Find it.").await else {
        panic!("the turn does not ask a question")
    };
    let (call, question_text) = question(&suspension).expect("a question is open");
    assert_eq!((base_call_id(&call.0).as_str(), question_text), ("call_1_1_1", "Which year?"));
    let subject = session.subject().to_owned();
    session.close().await.unwrap();

    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert!(matches!(continue_turn(&mut session).await, TurnResult::Suspended(_)), "the turn still waits");
    let call = CallId("call_1_1_1".to_owned());
    assert!(
        session.answer(CallId("call_1_1_2".to_owned()), "no".to_owned()).await.is_err(),
        "this call asked no question"
    );
    session.answer(call.clone(), "in 1984".to_owned()).await.unwrap();
    assert!(session.answer(call, "in 1985".to_owned()).await.is_err(), "a second answer changes nothing");
    assert_eq!(expect_finished(continue_turn(&mut session).await).data, json!("1984"));
    assert_eq!(
        turn_events(&test_host, &session).await,
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

/// A reply without a tool call causes an event, a reminder, and the next model call.
#[tokio::test(flavor = "multi_thread")]
async fn l19_a_reply_without_a_tool_call_causes_a_reminder() {
    let test_host = TestHost::new(&[]).await;
    let mut done = call_reply(&[("task_completion", json!({"result": "Done."}))]);
    done["expect"] =
        json!({"roles": ["user", "assistant", "user"], "seen_counts": [1, 1, 0], "last_contains": "task_completion"});
    let mut session = test_host.session(finishing_by_tool(), script(&[text_reply("I think it is 4."), done])).await;
    assert_eq!(expect_finished(run_turn(&mut session, "2 + 2?").await).finish, EndReason::Completed);
    assert_eq!(
        turn_events(&test_host, &session).await,
        ["loop_start", "no_tool_call", "tool_call", "tool_result", "loop_end"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn l19_five_replies_without_a_tool_call_are_a_typed_error() {
    let test_host = TestHost::new(&[]).await;
    let replies: Vec<Value> = (0..5).map(|_| text_reply("Let me think.")).collect();
    let mut session = test_host.session(finishing_by_tool(), script(&replies)).await;
    let TurnResult::Failed(error) = run_turn(&mut session, "Do it.").await else { panic!("the turn did not fail") };
    assert_eq!(error, TurnError::NoToolCall { replies: 5 });
}

/// L18, L19, L20: The loop treats calls in the XML text dialect like native tool calls. The loop finds
/// a tool by its name and the name of its server. Invalid JSON is an error and counts as a reply without a tool call.
/// An unknown tool is reported. The loop-breaking tool ends the loop.
#[tokio::test(flavor = "multi_thread")]
async fn l20_runs_the_tool_flow_in_the_text_dialect() {
    let tagged = |server: &str, tool: &str, arguments: Value| {
        text_reply(&format!(
            "<tool>{}</tool>",
            json!({"server_name": server, "tool_name": tool, "arguments": arguments})
        ))
    };
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = finishing_by_tool();
    config.tool_dialect = ToolDialect::Text;
    config.offered_tools = 100;
    let replies = [
        text_reply("<tool>{\"server_name\": \"local\", </tool>"),
        text_reply("Let me think."),
        tagged("mcp", "probe.echo", json!({"text": "hello"})),
        tagged("local", "probe.echo", json!({"text": "hello"})),
        tagged("local", "task_completion", json!({"result": "It says hello."})),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
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
    assert_eq!(turn_events(&test_host, &session).await, expected);
}

/// L19, L20: Calls that cannot be parsed count as replies without a tool call. Five replies in a row without a readable
/// tool call end the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l19_unreadable_calls_count_as_no_tool_call() {
    let test_host = TestHost::new(&[]).await;
    let broken = text_reply("<tool>{</tool>");
    let replies = [broken.clone(), text_reply("Let me think."), broken.clone(), broken.clone(), broken];
    let mut config = finishing_by_tool();
    config.tool_dialect = ToolDialect::Text;
    let mut session = test_host.session(config, script(&replies)).await;
    let TurnResult::Failed(error) = run_turn(&mut session, "Do it.").await else { panic!("the turn did not fail") };
    assert_eq!(error, TurnError::NoToolCall { replies: 5 });
}

/// L19, L28: If a tool fails in the same way each time, the model gets a warning after the third failure, then the tool
/// is disabled, and the turn ends after the fifth failure.
#[tokio::test(flavor = "multi_thread")]
async fn l28_disables_a_tool_that_keeps_failing() {
    let test_host = TestHost::new(&["probe"]).await;
    let failing_call = || call_reply(&[("read_file", json!({"path": "absent"}))]);
    let mut session = test_host
        .session(
            finishing_by_tool(),
            script(&[failing_call(), failing_call(), failing_call(), failing_call(), failing_call()]),
        )
        .await;
    let TurnResult::Failed(error) = run_turn(&mut session, "Read.").await else { panic!("the turn did not fail") };
    assert!(matches!(error, TurnError::SameError { replies: 5, .. }), "{error}");
    let results = results(&test_host, &session).await;
    assert!(results[2].2.starts_with("[the same call") && results[2].2.ends_with(&results[0].2), "{results:?}");
    assert!(results[3].2.contains("is off for the rest of this turn"), "{results:?}");
    let disabled = events(&test_host, &session).await;
    assert_eq!(disabled.iter().filter(|event| matches!(event.kind, EventKind::ToolDisabled { .. })).count(), 1);
}

/// L23: An unfinished reply, a refusal and an empty reply each cause a nudge. After the last nudge, the host forces the
/// model to write a summary without tools.
#[tokio::test(flavor = "multi_thread")]
async fn l23_unfinished_replies_cause_nudges_and_a_forced_summary() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    config.bounds = LoopConfig { persistence: true, max_interactions: 40, ..LoopConfig::default() };
    let expecting = |mut reply: Value, expect: Value| {
        reply["expect"] = expect;
        reply
    };
    let replies = [
        call_reply(&[("probe.echo", json!({"text": "renamed"}))]),
        text_reply("I've renamed 3 files. There are 4 remaining..."),
        expecting(text_reply("I can't do that."), json!({"last_contains": "You stopped before finishing"})),
        expecting(json!({"text": ""}), json!({"last_contains": "Continue executing the task"})),
        json!({"text": ""}),
        json!({"text": ""}),
        expecting(
            text_reply("I processed 5 of 7 screenshots..."),
            json!({"tools": [], "last_contains": "No tools can be called"}),
        ),
    ];
    let mut session = test_host.session(config, script(&replies)).await;
    let output = expect_finished(run_turn(&mut session, "Rename the screenshots.").await);
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
    assert_eq!(turn_events(&test_host, &session).await, expected);
    let texts = visible_messages(&test_host, &session).await;
    let is_stored = |text: &str| texts.iter().any(|message| message.parts.contains(&Part::Text(text.to_owned())));
    assert!(
        is_stored("I've renamed 3 files. There are 4 remaining...") && is_stored("I can't do that."),
        "replies are stored"
    );
}

/// A user that runs the binary with the agents of `tests/agents` and a temporary data folder.
struct CliUser {
    data: TempDir,
}

impl CliUser {
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = agent_host();
        command.current_dir(repository()).args(arguments).arg("--data").arg(self.data.path().join("data"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// L18, L19: The example agent `finish-with-tool` runs unchanged. The agent gets a reminder, asks a question that is
/// answered by another process, and corrects its output.
#[test]
fn l18_the_finish_with_tool_example_runs_unchanged() {
    const AGENT: [&str; 2] = ["--agent", "tests/agents/finish-with-tool.toml"];
    let user = CliUser { data: tempfile::tempdir().unwrap() };
    let (code, stdout, stderr) = user.run(&[&AGENT[..], &["Plan my visit."]].concat());
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    assert!(stderr.contains("? Which day do you come?") && stderr.contains("session answer"), "{stderr}");
    assert!(stderr.contains("the reply called no tool"), "{stderr}");
    let (_, shown, _) = user.run(&["session", "show"]);
    assert!(shown.contains("waits for your answer"), "{shown}");
    let session = shown.split_whitespace().next().unwrap().to_owned();
    let (code, _, stderr) = user.run(&["session", "answer", &session, "On Monday, for three hours."]);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = user.run(&["session", "answer", &session, "Or Tuesday."]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("is not waiting for an answer"), "{stderr}");
    let (code, stdout, stderr) = user.run(&[&AGENT[..], &["--continue", "--json"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let output: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&output["data"], &output["finish"]), (&json!({"day": "Monday", "hours": 3}), &json!("completed")));
    assert!(stdout.contains("\"output_rejected\""), "{stdout}");
}

/// L18: If a session has asked the user a question, the next prompt to the session is used as the answer.
#[test]
fn l18_the_next_prompt_answers_the_question() {
    const AGENT: [&str; 2] = ["--agent", "tests/agents/finish-with-tool.toml"];
    let user = CliUser { data: tempfile::tempdir().unwrap() };
    user.run(&[&AGENT[..], &["Plan my visit."]].concat());
    let (code, stdout, stderr) = user.run(&[&AGENT[..], &["--continue", "On Monday, for three hours."]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("\"hours\": 3"), "{stdout}");
}

/// L23: The example agent `persistence` runs unchanged.
#[test]
fn l23_the_persistence_example_runs_unchanged() {
    let user = CliUser { data: tempfile::tempdir().unwrap() };
    let (code, stdout, stderr) = user.run(&["--agent", "tests/agents/persistence.toml", "Rename all screenshots."]);
    assert_eq!((code, stdout.trim()), (Some(0), "All 7 screenshots have been renamed."), "{stderr}");
    for line in ["refuses or asks", "leaves work undone", "the reply is empty"] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
}

/// L18: The loop-breaking tools exist only if the agent is configured to end its turns with a tool call.
#[tokio::test(flavor = "multi_thread")]
async fn l18_loop_breaking_tools_exist_only_if_the_agent_finishes_by_tool() {
    let test_host = TestHost::new(&[]).await;
    let mut completion_call = call_reply(&[("task_completion", json!({"result": "x"}))]);
    completion_call["expect"] = json!({"withholds": ["task_completion", "ask_question", "converse"]});
    let mut session =
        test_host.session(AgentConfig::new("test"), script(&[completion_call, text_reply("Well.")])).await;
    assert_eq!(expect_finished(run_turn(&mut session, "Go.").await).finish, EndReason::Answered);
    assert!(turn_events(&test_host, &session).await.contains(&"tool_not_found".to_owned()));
}
