//! A local desktop agent. One MCP server extracts the text of seven screenshots, and another MCP server renames the
//! files. The two MCP servers are real child processes that work on a real folder. The model stops early, refuses,
//! and sends an empty reply, and the context window is too small for the whole task (L4, L7, L9, L13, L23, L26, L27,
//! L30, I5).

use crate::chat_server::{Answer, ChatServer, local_provider};
use crate::fixture::mcp_server;
use crate::prefilter::EmbeddingServer;
use crate::support::{TestHost, call_reply, events, results, run_turn, text_reply};
use agent_core::change::HideReason;
use agent_core::event::{EndReason, Event, EventKind, NudgeCause};
use agent_core::run::{LoopConfig, Output};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, PlanningModels, ServiceConfig, Session, TurnResult};
use agent_store::{ExportPosition, MessageRange, SessionLog};
use agent_telemetry::{Scrubber, SessionTrace, Span};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;

/// The number of characters of the longest text in a screenshot. The model receives only a part of the longest text.
const LONG_TEXT_CHARACTERS: usize = 11_537;

fn expect_finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

fn screenshot(number: usize) -> String {
    format!("Screenshot 2026-02-11 at 10.0{number}.png")
}

fn new_name(number: usize) -> String {
    format!("Meeting_Notes_{number}.png")
}

fn text_in_screenshot(number: usize) -> String {
    let text = format!("Meeting Notes {number} of the eleventh of February");
    match number {
        2 => format!("{text} {}", "x".repeat(LONG_TEXT_CHARACTERS - text.len() - 1)),
        // The texts are so long that all of them together do not fit into the context window.
        4 | 5 => format!("{text} {}", "words of a page ".repeat(340)),
        _ => text,
    }
}

/// Creates a folder with seven screenshots. In place of image data, the file of a screenshot contains the text that can
/// be read in it.
fn desktop(test_host: &TestHost) -> PathBuf {
    let desktop = test_host.tree().join("Desktop");
    std::fs::create_dir(&desktop).unwrap();
    for number in 1..=7 {
        std::fs::write(desktop.join(screenshot(number)), text_in_screenshot(number)).unwrap();
    }
    desktop
}

fn file_names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Configures the OCR server or the file server for the desktop folder.
fn server(test_host: &TestHost, mode: &str, desktop: &Path) -> ServerConfig {
    let log = test_host.directory.path().join(format!("{mode}-log"));
    let args = [mode.to_owned(), log.display().to_string(), desktop.display().to_string()].to_vec();
    let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
    ServerConfig::new(mode, Transport::Stdio(command))
}

fn desktop_agent(test_host: &TestHost, desktop: &Path) -> AgentConfig {
    let tree = TreeGrant { host: desktop.to_owned(), guest: ".".to_owned(), access: Access::Read };
    AgentConfig {
        bounds: LoopConfig { max_interactions: 40, persistence: true, ..LoopConfig::default() },
        reply_tokens: 1_000,
        host_trees: vec![tree],
        mcp: ["ocr", "filesystem"].map(|mode| server(test_host, mode, desktop)).into(),
        offered_tools: 100,
        ..AgentConfig::new("test")
    }
}

fn ocr_call(number: usize) -> Value {
    call_reply(&[("ocr.extract_text_from_image", json!({"path": screenshot(number)}))])
}

fn rename_call(number: usize) -> Value {
    call_reply(&[("filesystem.move_file", json!({"source": screenshot(number), "destination": new_name(number)}))])
}

fn expecting(mut reply: Value, expectation: Value) -> Value {
    reply["expect"] = expectation;
    reply
}

/// Returns the replies of the scripted model: the model stops at the fourth screenshot, refuses, sends one empty reply,
/// and finishes.
fn model_replies() -> Vec<Value> {
    let expect_nudge = json!({"last_contains": "Continue with what remains"});
    let mut replies = vec![call_reply(&[("list_directory", json!({"path": "."}))])];
    replies.push(expecting(ocr_call(1), json!({"last_contains": screenshot(7)})));
    replies.push(expecting(rename_call(1), json!({"last_contains": text_in_screenshot(1)})));
    replies.push(ocr_call(2));
    let cut = format!("[cut: the first 6000 of {LONG_TEXT_CHARACTERS} characters");
    replies.push(expecting(rename_call(2), json!({"last_contains": cut})));
    replies.extend([ocr_call(3), rename_call(3), ocr_call(4)]);
    replies.push(text_reply("I've renamed 3 files. There are 4 remaining..."));
    replies.push(expecting(text_reply("I don't have access to the rest of your files."), expect_nudge));
    replies.push(expecting(rename_call(4), json!({"last_contains": "Continue executing the task"})));
    replies.extend([ocr_call(5), rename_call(5), text_reply("")]);
    replies.push(expecting(ocr_call(6), json!({"last_contains": "Your reply was empty"})));
    replies.push(rename_call(6));
    replies.push(expecting(
        ocr_call(7),
        json!({"system_contains": ["session-summary", "Three files are renamed.", "Files touched"]}),
    ));
    replies.push(rename_call(7));
    replies.push(text_reply("All screenshots have been renamed successfully."));
    replies
}

/// Returns the types of all events that the watcher has received. Consecutive chunks of a text count as one event.
fn received_event_types(watching: &mut Receiver<Event>) -> Vec<String> {
    let mut types = Vec::new();
    while let Ok(event) = watching.try_recv() {
        let json = serde_json::to_value(&event.kind).expect("an event serialises");
        types.push(json["type"].as_str().expect("events are tagged with their type").to_owned());
    }
    types.dedup_by(|next, before| next == before && next == "stream_token");
    types
}

/// The types of the events at the start of each step.
const STEP_EVENTS: [&str; 3] = ["loop_iteration", "context_budget", "context_built"];
/// The types of the events that follow [`STEP_EVENTS`] in a step in which the model calls a tool.
const CALL_EVENTS: [&str; 3] = ["stream_complete", "tool_call", "tool_result"];
/// The types of the events that follow [`STEP_EVENTS`] in a step in which the model sends a text that is not an answer.
const NUDGED_TEXT_EVENTS: [&str; 4] = ["stream_token", "stream_complete", "stream_clear", "nudge"];
/// The types of the events that follow [`STEP_EVENTS`] in a step in which the model sends an empty reply.
const EMPTY_REPLY_EVENTS: [&str; 2] = ["stream_complete", "nudge"];
/// The types of the events that follow [`STEP_EVENTS`] in a step in which the model sends the answer.
const ANSWER_EVENTS: [&str; 4] = ["stream_token", "context_budget", "stream_complete", "loop_end"];

fn expected_events(steps: &[&[&'static str]]) -> Vec<&'static str> {
    let steps = steps.iter().flat_map(|step| STEP_EVENTS.iter().chain(step.iter())).copied();
    std::iter::once("loop_start").chain(steps).collect()
}

/// The agent renames all screenshots without a planner. The second turn ends with a forced summary.
#[tokio::test(flavor = "multi_thread")]
async fn reads_and_renames_seven_screenshots() {
    let test_host = TestHost::new(&[]).await;
    let desktop = desktop(&test_host);
    let mut replies = model_replies();
    let calls = replies.len();
    let empty_replies = [text_reply(""), text_reply(""), text_reply("")];
    replies.extend(empty_replies);
    let forced = json!({"tools": [], "last_contains": "No tools can be called any more"});
    replies.push(expecting(text_reply("I processed 7 of 7 screenshots; nothing else was to be done."), forced));
    let summary = expecting(text_reply("Three files are renamed."), json!({"tools": [], "contains": "[call of ocr."}));
    let script = json!({"window": 8_000, "replies": replies, "summaries": vec![summary; 4]});
    let mut session = test_host.session(desktop_agent(&test_host, &desktop), script).await;
    let mut watching = session.subscribe();

    let output =
        expect_finished(run_turn(&mut session, "Review screenshots on Desktop, extract names, and rename them.").await);
    assert_eq!(output.data, json!("All screenshots have been renamed successfully."));
    assert_eq!((output.finish, output.limit_reached), (EndReason::Answered, false));
    assert_eq!(
        output.interactions as usize, calls,
        "the turn uses all scripted replies, which are more than the default limit of 10"
    );
    assert_eq!(file_names(&desktop), (1..=7).map(new_name).collect(), "the files are renamed");
    let call_results = results(&test_host, &session).await;
    assert_eq!(call_results.len(), 15);
    assert!(call_results.iter().all(|(_, is_error, _)| !is_error), "{call_results:?}");
    check_event_order(&received_event_types(&mut watching));
    let causes = [NudgeCause::Incomplete, NudgeCause::Deflection, NudgeCause::Empty];
    assert_eq!(nudges(&test_host, &session).await, causes);
    check_budget(&test_host, &session).await;
    check_eviction(&test_host, &session).await;

    let output = expect_finished(run_turn(&mut session, "And is there anything else to do there?").await);
    assert_eq!(output.data, json!("I processed 7 of 7 screenshots; nothing else was to be done."));
    let causes = nudges(&test_host, &session).await;
    assert_eq!(causes[3..], [NudgeCause::Empty, NudgeCause::Empty, NudgeCause::ForcedSummary]);
    let types: Vec<String> = received_event_types(&mut watching).into_iter().filter(|kind| kind != "evicted").collect();
    assert_eq!(
        types,
        expected_events(&[&EMPTY_REPLY_EVENTS, &EMPTY_REPLY_EVENTS, &EMPTY_REPLY_EVENTS, &ANSWER_EVENTS])
    );
}

async fn nudges(test_host: &TestHost, session: &Session) -> Vec<NudgeCause> {
    let events = events(test_host, session).await.into_iter();
    let causes = events.filter_map(|event| match event.kind {
        EventKind::Nudge { cause, .. } => Some(cause),
        _ => None,
    });
    causes.collect()
}

/// L30: The events are in the expected order, and no event is missing.
fn check_event_order(types: &[String]) {
    // The first eight calls list the folder, read and rename three screenshots, and read the fourth screenshot. Then
    // the model stops early, and after a nudge it refuses. Three calls follow, then an empty reply, the last four
    // calls, and the answer.
    let mut steps: Vec<&[&'static str]> = vec![&CALL_EVENTS[..]; 8];
    steps.extend([&NUDGED_TEXT_EVENTS[..]; 2]);
    steps.extend([&CALL_EVENTS[..]; 3]);
    steps.push(&EMPTY_REPLY_EVENTS);
    steps.extend([&CALL_EVENTS[..]; 4]);
    steps.push(&ANSWER_EVENTS);
    let without_eviction: Vec<&String> = types.iter().filter(|kind| *kind != "evicted").collect();
    assert_eq!(without_eviction, expected_events(&steps));
    // An eviction happens between the results of a batch and the next step.
    for index in (0..types.len()).filter(|index| types[*index] == "evicted") {
        assert_eq!(types[index - 1], "tool_result", "{types:?}");
    }
}

/// L26: The context budget is reported before each step and at the end of the turn. The remaining budget is always
/// large enough for a step.
async fn check_budget(test_host: &TestHost, session: &Session) {
    let events = events(test_host, session).await;
    let remaining = events.iter().filter_map(|event| match event.kind {
        EventKind::ContextBudget { total: 8_000, remaining, .. } => Some(remaining),
        _ => None,
    });
    let remaining: Vec<u32> = remaining.collect();
    let steps = events.iter().filter(|event| matches!(event.kind, EventKind::LoopIteration { .. })).count();
    assert_eq!(remaining.len(), steps + 1);
    assert!(remaining.iter().all(|tokens| *tokens >= 1_500), "{remaining:?}");
}

/// L27: Checks that only complete pairs of calls and results were evicted, that the input was not evicted, and that all
/// messages are still stored.
async fn check_eviction(test_host: &TestHost, session: &Session) {
    let evicted = session.state().summary.as_ref().expect("the window is too small for the whole turn");
    assert!(evicted.files.contains(&screenshot(1)) && evicted.files.contains(&new_name(1)), "{:?}", evicted.files);
    let hidden = test_host.store.hidden(session.subject(), 0, 100).await.unwrap();
    assert!(hidden.iter().all(|hidden| hidden.why == HideReason::Evicted && hidden.id > 1));
    assert_eq!(session.state().view[0].id, 1, "the input is not evicted");
    let stored = test_host.store.messages(session.subject(), MessageRange::After { id: 0, limit: 100 }).await.unwrap();
    // The messages are the input, 15 calls with their results, two nudged replies, three nudges, and the answer.
    assert_eq!(stored.len(), 1 + 30 + 2 + 3 + 1);
}

/// L25, L24, L26: In the planning phase, the host uses embeddings to select the 15 of 67 tools that are nearest to the
/// input. The model answers over real `/v1/chat/completions` streams. The planner and the synthesis are offered no
/// tools, and the executor is offered the 15 tools.
#[tokio::test(flavor = "multi_thread")]
async fn l25_narrows_67_tools_to_the_nearest_15() {
    const TOOLS: usize = 67;
    let test_host = TestHost::new(&["probe"]).await;
    let plan = r#"{"steps": [{"tool": "probe.echo", "task": "repeat the text with the echo tool"}]}"#;
    let call = Answer::Calls("", vec![("probe_echo", json!({"text": "Meeting Notes"}))]);
    let server = ChatServer::start([Answer::Text(plan), call, Answer::Text("I've read the screenshot.")]).await;
    let embeddings = EmbeddingServer::start("200 OK").await;
    let model = local_provider(&server.base_url).model("local/tiny", test_host.directory.path()).unwrap();
    let mut config = AgentConfig::new("test");
    config.offered_tools = 15;
    let generation = test_host.generation().await;
    let agent_without_services =
        Agent::new(config.clone(), Models::new(model.clone(), []), generation.clone()).unwrap();
    for number in agent_without_services.registry().offered().len()..TOOLS {
        let mut service = ServiceConfig::new(format!("desktop.job{number}").parse().unwrap());
        service.description = format!("Does job {number} of the desktop.");
        config.services.insert(format!("job{number}"), service);
    }
    let mut models = Models::new(model.clone(), []);
    models.planning = Some(PlanningModels { planner: model.clone(), executor: model });
    models.embedder = Some(embeddings.embedder());
    let agent = Agent::new(config, models, generation).unwrap();
    assert_eq!(agent.registry().offered().len(), TOOLS);
    let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let mut watching = session.subscribe();
    let output = expect_finished(run_turn(&mut session, "Review the screenshot, and echo what it says.").await);
    assert_eq!(output.data, json!("I've read the screenshot."));

    let requests = server.bodies();
    let offered = |request: &Value| -> Vec<String> {
        let tools = request["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let [planner, executor, synthesis] = &requests[..] else { panic!("{} requests", requests.len()) };
    assert!(requests.iter().all(|request| request["stream"] == json!(true)));
    assert_eq!((offered(planner).len(), offered(synthesis).len()), (0, 0));
    let tools = offered(executor);
    assert!(tools.len() == 15 && tools.contains(&"probe_echo".to_owned()), "{tools:?}");
    assert!(
        embeddings.requests().iter().sum::<usize>() >= TOOLS,
        "all tools were compared: {:?}",
        embeddings.requests()
    );
    let types = received_event_types(&mut watching);
    let position =
        |wanted: &str| types.iter().position(|kind| kind == wanted).unwrap_or_else(|| panic!("{wanted}: {types:?}"));
    let order = ["loop_start", "plan", "tool_call", "tool_result", "stream_token", "loop_end"].map(position);
    assert!(order.is_sorted(), "{types:?}");

    // O1: the trace contains both calls of the embedding model: before the first step, and after the plan.
    let mut trace =
        SessionTrace::new(test_host.store.clone(), session.subject(), Scrubber::default(), ExportPosition::default());
    let commits = trace.next().await.unwrap().expect("a turn");
    let spans: Vec<_> = commits.into_iter().flat_map(|commit| commit.spans).collect();
    let parent_of = |span: &Span| {
        let parent = spans.iter().find(|other| Some(other.span_id) == span.parent).expect("a parent");
        assert!(parent.start <= span.start && span.end <= parent.end, "{parent:?} {span:?}");
        parent.name.clone()
    };
    let embedding = spans.iter().filter(|span| span.name.starts_with("embeddings "));
    assert_eq!(embedding.map(parent_of).collect::<Vec<_>>(), ["invoke_agent test", "step 1"]);
}
