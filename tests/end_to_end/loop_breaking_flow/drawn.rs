//! The complete loop with loop-breaking tools: the order of its events (including the events of the model's thinking),
//! all six ways in which the loop can end, and the messages of a request.

use super::{continue_turn, expect_finished, finishing_by_tool, turn_events};
use crate::chat_server::{Answer, ChatServer, local_provider};
use crate::fixture::{ServerLog, mcp_server};
use crate::support::{TestHost, call_reply, run_turn, script, text_reply};
use agent_core::event::{EndReason, Event, EventKind};
use agent_core::message::TurnInput;
use agent_core::run::{AtLimit, TurnError};
use agent_core::text_dialect::ToolDialect;
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, PlanningModels, Session, TurnResult, question};
use agent_store::{Memories, Memory, MemoryKind};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

fn with_thinking(thoughts: &str, mut reply: Value) -> Value {
    reply["thinking"] = json!(thoughts);
    reply
}

/// Returns the types of the events that a watcher received. Consecutive events of the same type are listed only once,
/// and `context_budget` events are left out.
fn received_event_types(watching: &mut Receiver<Event>) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    while let Ok(event) = watching.try_recv() {
        let kind = serde_json::to_value(&event.kind).unwrap()["type"].as_str().unwrap().to_owned();
        if kind != "context_budget" && types.last() != Some(&kind) {
            types.push(kind);
        }
    }
    types
}

/// L30, L21, L18, L19: The events are in the right order. Thinking comes before each call, and a call comes before its
/// result. A reply without a call comes before the reminder that follows it. The loop-breaking tool comes before the
/// end of the turn.
#[tokio::test(flavor = "multi_thread")]
async fn l30_the_events_of_a_turn_are_in_order() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut second = with_thinking("Done, I think.", text_reply("It says hello."));
    second["expect"] = json!({"roles": ["user", "assistant", "tool"], "lacks": "Let me see."});
    let mut third = call_reply(&[("task_completion", json!({"result": "It says hello."}))]);
    third["expect"] =
        json!({"roles": ["user", "assistant", "tool", "assistant", "user"], "last_contains": "task_completion"});
    let first = with_thinking("Let me see.", call_reply(&[("probe.echo", json!({"text": "hello"}))]));
    let mut session = test_host.session(finishing_by_tool(), script(&[first, second, third])).await;
    let mut watching = session.subscribe();
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    assert_eq!((output.data, output.finish), (json!("It says hello."), EndReason::Completed));
    let thought = ["thinking_start", "thinking_content", "thinking_end"];
    let step = ["loop_iteration", "context_built"];
    let expected = [
        &["loop_start"][..],
        &step,
        &thought,
        &["stream_complete", "tool_call", "tool_result"],
        &step,
        &thought,
        &["stream_token", "stream_complete", "no_tool_call"],
        &step,
        &["stream_complete", "tool_call", "tool_result", "loop_end"],
    ];
    assert_eq!(received_event_types(&mut watching), expected.concat());
}

/// L21: The order of the events is the same if the model's thinking comes in separate fields of the response, as some
/// providers send it.
#[tokio::test(flavor = "multi_thread")]
async fn l21_thinking_in_provider_fields_causes_the_same_events() {
    let test_host = TestHost::new(&["probe"]).await;
    let call = json!([{"index": 0, "id": "c", "type": "function",
        "function": {"name": "probe_echo", "arguments": "{\"text\":\"hello\"}"}}]);
    for field in ["reasoning_content", "reasoning"] {
        let thoughts = || [json!({field: "Let me "}), json!({field: "see."})];
        let calls = [&thoughts()[..], &[json!({"tool_calls": call})]].concat();
        let says = [&thoughts()[..], &[json!({"content": "It says hello."})]].concat();
        let server = ChatServer::start([Answer::Deltas(calls, "tool_calls"), Answer::Deltas(says, "stop")]).await;
        let model = local_provider(&server.base_url).model("local/tiny", test_host.directory.path()).unwrap();
        let agent = Agent::new(AgentConfig::new("test"), Models::new(model, []), test_host.generation().await).unwrap();
        let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
        let mut watching = session.subscribe();
        let output = expect_finished(run_turn(&mut session, "Echo.").await);
        assert_eq!(output.data, json!("It says hello."), "{field}");
        let (mut thought, mut types) = (String::new(), Vec::new());
        while let Ok(event) = watching.try_recv() {
            let kind = serde_json::to_value(&event.kind).unwrap()["type"].as_str().unwrap().to_owned();
            if let EventKind::ThinkingContent { text } = event.kind {
                thought += &text;
            }
            if kind != "context_budget" && types.last() != Some(&kind) {
                types.push(kind);
            }
        }
        assert_eq!(thought, "Let me see.Let me see.", "{field}");
        let step = ["loop_iteration", "context_built", "thinking_start", "thinking_content", "thinking_end"];
        let expected = [
            &["loop_start"][..],
            &step,
            &["stream_complete", "tool_call", "tool_result"],
            &step,
            &["stream_token", "stream_complete", "loop_end"],
        ];
        assert_eq!(types, expected.concat(), "{field}");
        assert_eq!(server.requests().len(), 2);
    }
}

/// Returns the model's replies for six turns.
fn six_turns() -> Vec<Value> {
    let echo = || call_reply(&[("probe.echo", json!({"text": "hello"}))]);
    let mut answered = call_reply(&[("task_completion", json!({"result": "By the red door."}))]);
    answered["expect"] = json!({"last_contains": "The red one."});
    let mut replies = vec![
        echo(),
        call_reply(&[("task_completion", json!({"result": "Done."}))]),
        call_reply(&[("ask_question", json!({"question": "Which door?"}))]),
        answered,
        call_reply(&[("converse", json!({"message": "Nice to meet you."}))]),
        echo(),
        text_reply("Let me think."),
        echo(),
    ];
    // If the fifth turn is not cancelled in time, it fails with the error "no such model". The sixth turn uses the same
    // reply and also fails with this error.
    let words: Vec<String> = (0..100).map(|number| format!("word{number} ")).collect();
    replies.push(json!({"chunks": words, "delay_ms": 20, "error": {"status": 400, "message": "no such model"}}));
    replies
}

/// A session can continue after a turn has ended in any of the six ways (L4, L18, L29, L30).
#[tokio::test(flavor = "multi_thread")]
async fn l18_a_session_continues_after_each_way_to_end_a_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = finishing_by_tool();
    (config.bounds.max_interactions, config.bounds.at_limit) = (3, AtLimit::Error);
    let mut session = test_host.session(config, script(&six_turns())).await;
    let mut ends = Vec::new();

    // 1. `task_completion`: the agent has finished its task. Before that, the agent called a regular tool, and this
    // call did not end the loop.
    let output = expect_finished(run_turn(&mut session, "Echo.").await);
    ends.push((output.finish, output.data));
    // 2. `ask_question`: the agent needs the user's input, and continues with the user's answer.
    let TurnResult::Suspended(suspension) = run_turn(&mut session, "Open the door.").await else {
        panic!("the turn does not ask a question")
    };
    let (call, question_text) = question(&suspension).expect("a question is open");
    assert_eq!(question_text, "Which door?");
    session.answer(call.clone(), "The red one.".to_owned()).await.unwrap();
    let output = expect_finished(continue_turn(&mut session).await);
    ends.push((output.finish, output.data));
    // 3. `converse`: the agent ends the turn to chat with the user.
    let output = expect_finished(run_turn(&mut session, "Hello.").await);
    ends.push((output.finish, output.data));
    let expected = [
        (EndReason::Completed, json!("Done.")),
        (EndReason::Completed, json!("By the red door.")),
        (EndReason::Converse, json!("Nice to meet you.")),
    ];
    assert_eq!(ends, expected);
    // 4. The interaction limit: the turn fails when it has made a tool call, received a reminder, and made another
    //   tool call.
    let result = run_turn(&mut session, "Echo for ever.").await;
    let TurnResult::Failed(error @ TurnError::InteractionsExhausted { interactions: 3, .. }) = &result else {
        panic!("{result:?}")
    };
    assert!(error.to_string().contains("interactions exhausted"), "{error}");
    // 5. The user stops the agent while a reply is streamed.
    assert_eq!(cancelled_turn(&mut session).await, TurnResult::Cancelled);
    // 6. An error of the model that cannot be retried.
    let result = run_turn(&mut session, "Go on.").await;
    assert!(matches!(result, TurnResult::Failed(TurnError::ModelFailed { .. })), "{result:?}");

    let types = turn_events(&test_host, &session).await;
    let turns: Vec<&[String]> = types.split_inclusive(|kind| kind == "loop_end").collect();
    let expected: [&[&str]; 6] = [
        &["loop_start", "tool_call", "tool_result", "tool_call", "tool_result", "loop_end"],
        &["loop_start", "tool_call", "suspended", "tool_result", "resumed", "tool_call", "tool_result", "loop_end"],
        &["loop_start", "tool_call", "tool_result", "loop_end"],
        &["loop_start", "tool_call", "tool_result", "no_tool_call", "tool_call", "tool_result", "error", "loop_end"],
        &["loop_start", "stream_clear", "loop_end"],
        &["loop_start", "stream_clear", "error", "loop_end"],
    ];
    assert_eq!(turns, expected);
}

/// Runs a turn, and cancels it after the first text has been streamed.
async fn cancelled_turn(session: &mut Session) -> TurnResult {
    let (mut watching, cancel) = (session.subscribe(), CancellationToken::new());
    let running = session.run(Some(TurnInput::Text("Count.".into())), cancel.clone());
    let stopping = async {
        while !matches!(watching.recv().await.expect("events come").kind, EventKind::StreamToken { .. }) {}
        cancel.cancel();
    };
    tokio::join!(running, stopping).0.unwrap()
}

/// L22: The request for a step of the second turn contains every possible section, in order.
#[tokio::test(flavor = "multi_thread")]
async fn l22_a_request_contains_every_section_in_order() {
    const ECHO: &str =
        r#"<tool>{"server_name": "local", "tool_name": "probe.echo", "arguments": {"text": "a"}}</tool>"#;
    const PLAN: &str = r#"{"steps": [{"tool": "probe.echo", "task": "echo it"}]}"#;
    let answers = || [Answer::Text(PLAN), Answer::Text(ECHO), Answer::Text("Narcissus.")];
    let server = ChatServer::start(answers().into_iter().chain(answers())).await;
    let test_host = TestHost::new(&["probe"]).await;
    let agent = agent_with_all_sections(&test_host, &server).await;
    let mut session = Session::open(&test_host.host(), agent.clone(), OpenSession::New).await.unwrap();
    for input in ["What is an echo?", "And what is my echo called?"] {
        let result = session.run(Some(TurnInput::Text(input.into())), CancellationToken::new()).await.unwrap();
        assert_eq!(expect_finished(result).data, json!("Narcissus."));
    }
    session.close().await.unwrap();
    agent.servers().shutdown().await;
    let request = &server.bodies()[4];
    assert_eq!(request.get("tools"), None, "the tool schemas are in the messages");
    let request = request["messages"].to_string();
    let sections = [
        // System message: user instructions, agent loop prompt, system capabilities, chain of thought.
        "You know all about echoes.",
        "You work in a loop.",
        "## capabilities",
        "Think of the nymph.",
        // The texts of the conversation history: previous user messages, assistant messages, tool results.
        "What is an echo?",
        "<tool>",
        "Result of `probe.echo`",
        "Narcissus.",
        // The texts of the current turn: tool schemas, tool schemas of MCP servers, tool calling rules, planning
        // context, retrieved memory, input.
        "## tool-schemas",
        "\\\"tool_name\\\":\\\"probe.echo\\\"",
        "## mcp-tool-schemas",
        "\\\"server_name\\\":\\\"desk\\\"",
        "## tool-rules",
        "Echo before you guess.",
        "## planning-context",
        "## retrieved-memory",
        "is called Narcissus",
        "And what is my echo called?",
    ];
    let mut remaining = request.as_str();
    for section in sections {
        let start =
            remaining.find(section).unwrap_or_else(|| panic!("`{section}` is missing or out of order: {request}"));
        remaining = &remaining[start + section.len()..];
    }
    assert_eq!(request.matches("## tool-schemas").count(), 1, "only the current turn has tool schemas: {request}");
}

/// Creates an agent that uses every section of the prompt.
async fn agent_with_all_sections(test_host: &TestHost, server: &ChatServer) -> Arc<Agent> {
    let memory = Memory {
        user: "ada".to_owned(),
        kind: MemoryKind::Final,
        agent: "test".to_owned(),
        session: "earlier".to_owned(),
        turn: 1,
        text: "Ada's echo is called Narcissus.".to_owned(),
        project: None,
        written: None,
    };
    Memories::add(&*test_host.store, "earlier/1/final", memory).await.unwrap();
    let model = local_provider(&server.base_url).model("local/tiny", test_host.directory.path()).unwrap();
    let log = ServerLog { path: test_host.directory.path().join("desk-log") };
    let args = vec!["good".to_owned(), log.path.display().to_string()];
    let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
    let mut config = AgentConfig::new("test");
    config.mcp = vec![ServerConfig::new("desk", Transport::Stdio(command))];
    config.user = Some("ada".to_owned());
    config.tool_dialect = ToolDialect::Text;
    // Every step offers all tools.
    config.offered_tools = 100;
    config.prompt.instructions = Some("You know all about echoes.".to_owned());
    config.prompt.chain_of_thought = Some("Think of the nymph.".to_owned());
    config.prompt.tool_rules = Some("Echo before you guess.".to_owned());
    let mut models = Models::new(model.clone(), []);
    models.planning = Some(PlanningModels { planner: model.clone(), executor: model });
    Arc::new(Agent::new(config, models, test_host.generation().await).unwrap())
}
