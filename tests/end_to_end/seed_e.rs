//! The local desktop agent, step by step as the seed text draws it: seven screenshots are read by an OCR server and renamed
//! by a file server, both MCP over real child processes, on a real folder; with a model that tires, deflects and falls silent,
//! in a window that the work does not fit into (L4, L7, L9, L13, L23, L26, L27, L30, I5).

use crate::chat_server::{Answer, ChatServer, local};
use crate::fixture::mcp_server;
use crate::prefilter::EmbeddingServer;
use crate::support::{House, calling, events, results, saying, turn};
use agent_core::change::Departure;
use agent_core::event::{EndReason, Event, EventKind, NudgeCause};
use agent_core::run::{LoopConfig, Output};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, PlanningModels, ServiceConfig, Session, TurnResult};
use agent_store::{MessageRange, SessionLog};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;

/// Characters of the longest picture's text: more than the model is shown.
const LONG_TEXT: usize = 11_537;

fn finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

fn screenshot(number: usize) -> String {
    format!("Screenshot 2026-02-11 at 10.0{number}.png")
}

fn name(number: usize) -> String {
    format!("Meeting_Notes_{number}.png")
}

fn seen_in(number: usize) -> String {
    let text = format!("Meeting Notes {number} of the eleventh of February");
    match number {
        2 => format!("{text} {}", "x".repeat(LONG_TEXT - text.len() - 1)),
        // Pages full of text, so that the window gets tight.
        4 | 5 => format!("{text} {}", "words of a page ".repeat(340)),
        _ => text,
    }
}

/// A folder with seven screenshots. What stands in one of them is the file's content.
fn desktop(house: &House) -> PathBuf {
    let desktop = house.tree().join("Desktop");
    std::fs::create_dir(&desktop).unwrap();
    for number in 1..=7 {
        std::fs::write(desktop.join(screenshot(number)), seen_in(number)).unwrap();
    }
    desktop
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The OCR server or the file server on the desktop.
fn server(house: &House, mode: &str, desktop: &Path) -> ServerConfig {
    let diary = house.directory.path().join(format!("{mode}-diary"));
    let args = [mode.to_owned(), diary.display().to_string(), desktop.display().to_string()].to_vec();
    let command = ChildCommand { command: mcp_server().display().to_string(), args, ..ChildCommand::default() };
    ServerConfig::new(mode, Transport::Stdio(command))
}

fn agent(house: &House, desktop: &Path) -> AgentConfig {
    let tree = TreeGrant { host: desktop.to_owned(), guest: ".".to_owned(), access: Access::Read };
    AgentConfig {
        bounds: LoopConfig { max_interactions: 40, persistence: true, ..LoopConfig::default() },
        reply_tokens: 1_000,
        host_trees: vec![tree],
        mcp: ["ocr", "filesystem"].map(|mode| server(house, mode, desktop)).into(),
        offered_tools: 100,
        ..AgentConfig::new("test")
    }
}

fn ocr(number: usize) -> Value {
    calling(&[("ocr.extract_text_from_image", json!({"path": screenshot(number)}))])
}

fn rename(number: usize) -> Value {
    calling(&[("filesystem.move_file", json!({"source": screenshot(number), "destination": name(number)}))])
}

fn expecting(mut reply: Value, expectation: Value) -> Value {
    reply["expect"] = expectation;
    reply
}

/// The model's words: it tires at the fourth screenshot, deflects, falls silent once, and comes to the end.
fn work() -> Vec<Value> {
    let go_on = json!({"last_contains": "Continue with what remains"});
    let mut replies = vec![calling(&[("list_directory", json!({"path": "."}))])];
    replies.push(expecting(ocr(1), json!({"last_contains": screenshot(7)})));
    replies.push(expecting(rename(1), json!({"last_contains": seen_in(1)})));
    replies.push(ocr(2));
    let cut = format!("[cut: the first 6000 of {LONG_TEXT} characters");
    replies.push(expecting(rename(2), json!({"last_contains": cut})));
    replies.extend([ocr(3), rename(3), ocr(4)]);
    replies.push(saying("I've renamed 3 files. There are 4 remaining..."));
    replies.push(expecting(saying("I don't have access to the rest of your files."), go_on));
    replies.push(expecting(rename(4), json!({"last_contains": "Continue executing the task"})));
    replies.extend([ocr(5), rename(5), saying("")]);
    replies.push(expecting(ocr(6), json!({"last_contains": "Your reply was empty"})));
    replies.push(rename(6));
    replies.push(expecting(
        ocr(7),
        json!({"system_contains": ["session-summary", "Three files are renamed.", "Files touched"]}),
    ));
    replies.push(rename(7));
    replies.push(saying("All screenshots have been renamed successfully."));
    replies
}

/// All that is told of a turn to those who watch it; pieces of one text count once.
fn story(watching: &mut Receiver<Event>) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(event) = watching.try_recv() {
        let json = serde_json::to_value(&event.kind).expect("an event serialises");
        told.push(json["type"].as_str().expect("events are tagged with their type").to_owned());
    }
    told.dedup_by(|next, before| next == before && next == "stream_token");
    told
}

/// How each step begins.
const STEP: [&str; 3] = ["loop_iteration", "context_budget", "context_built"];
/// How it goes on with a call, with a text that is no answer, with nothing, and with the answer.
const CALL: [&str; 3] = ["stream_complete", "tool_call", "tool_result"];
const NUDGED: [&str; 4] = ["stream_token", "stream_complete", "stream_clear", "nudge"];
const EMPTY: [&str; 2] = ["stream_complete", "nudge"];
const ANSWER: [&str; 4] = ["stream_token", "context_budget", "stream_complete", "loop_end"];

fn expected(steps: &[&[&'static str]]) -> Vec<&'static str> {
    let steps = steps.iter().flat_map(|step| STEP.iter().chain(step.iter())).copied();
    std::iter::once("loop_start").chain(steps).collect()
}

/// The whole drawing without the planner: phases 1 to 5, then the alternate end by a forced summary.
#[tokio::test(flavor = "multi_thread")]
async fn seven_screenshots_are_read_and_renamed() {
    let house = House::new(&[]).await;
    let desktop = desktop(&house);
    let mut replies = work();
    let calls = replies.len();
    let silence = [saying(""), saying(""), saying("")];
    replies.extend(silence);
    let forced = json!({"tools": [], "last_contains": "No tools can be called any more"});
    replies.push(expecting(saying("I processed 7 of 7 screenshots; nothing else was to be done."), forced));
    let summary = expecting(saying("Three files are renamed."), json!({"tools": [], "contains": "[call of ocr."}));
    let script = json!({"window": 8_000, "replies": replies, "summaries": vec![summary; 4]});
    let mut session = house.session(agent(&house, &desktop), script).await;
    let mut watching = session.subscribe();

    let output = finished(turn(&mut session, "Review screenshots on Desktop, extract names, and rename them.").await);
    assert_eq!(output.data, json!("All screenshots have been renamed successfully."));
    assert_eq!((output.finish, output.limit_reached), (EndReason::Answered, false));
    assert_eq!(output.interactions as usize, calls, "the default of 10 would not do");
    assert_eq!(names(&desktop), (1..=7).map(name).collect(), "the files themselves");
    let brought = results(&house, &session).await;
    assert_eq!(brought.len(), 15);
    assert!(brought.iter().all(|(_, is_error, _)| !is_error), "{brought:?}");
    check_story(&story(&mut watching));
    let causes = [NudgeCause::Incomplete, NudgeCause::Deflection, NudgeCause::Empty];
    assert_eq!(nudges(&house, &session).await, causes);
    check_budget(&house, &session).await;
    check_eviction(&house, &session).await;

    let output = finished(turn(&mut session, "And is there anything else to do there?").await);
    assert_eq!(output.data, json!("I processed 7 of 7 screenshots; nothing else was to be done."));
    let causes = nudges(&house, &session).await;
    assert_eq!(causes[3..], [NudgeCause::Empty, NudgeCause::Empty, NudgeCause::ForcedSummary]);
    let told: Vec<String> = story(&mut watching).into_iter().filter(|kind| kind != "evicted").collect();
    assert_eq!(told, expected(&[&EMPTY, &EMPTY, &EMPTY, &ANSWER]));
}

async fn nudges(house: &House, session: &Session) -> Vec<NudgeCause> {
    let events = events(house, session).await.into_iter();
    let causes = events.filter_map(|event| match event.kind {
        EventKind::Nudge { cause, .. } => Some(cause),
        _ => None,
    });
    causes.collect()
}

/// L30: the events in the drawn order, none left out.
fn check_story(told: &[String]) {
    // The listing, three times OCR and rename, and the fourth OCR; it stops in the middle, then it refuses; the fourth rename,
    // OCR and rename of the fifth; it says nothing, of which nothing was streamed; the rest.
    let mut steps: Vec<&[&'static str]> = vec![&CALL[..]; 8];
    steps.extend([&NUDGED[..]; 2]);
    steps.extend([&CALL[..]; 3]);
    steps.push(&EMPTY);
    steps.extend([&CALL[..]; 4]);
    steps.push(&ANSWER);
    let without_eviction: Vec<&String> = told.iter().filter(|kind| *kind != "evicted").collect();
    assert_eq!(without_eviction, expected(&steps));
    // An eviction comes between the results of a batch and the next step.
    for place in (0..told.len()).filter(|place| told[*place] == "evicted") {
        assert_eq!(told[place - 1], "tool_result", "{told:?}");
    }
}

/// L26: before each step, and at the end, the window is reported, and there is room for a step.
async fn check_budget(house: &House, session: &Session) {
    let events = events(house, session).await;
    let remaining = events.iter().filter_map(|event| match event.kind {
        EventKind::ContextBudget { total: 8_000, remaining, .. } => Some(remaining),
        _ => None,
    });
    let remaining: Vec<u32> = remaining.collect();
    let steps = events.iter().filter(|event| matches!(event.kind, EventKind::LoopIteration { .. })).count();
    assert_eq!(remaining.len(), steps + 1);
    assert!(remaining.iter().all(|tokens| *tokens >= 1_500), "{remaining:?}");
}

/// L27: only whole pairs have left, never the input, and all of it is still stored.
async fn check_eviction(house: &House, session: &Session) {
    let evicted = session.state().summary.as_ref().expect("the window is too small for all of it");
    assert!(evicted.files.contains(&screenshot(1)) && evicted.files.contains(&name(1)), "{:?}", evicted.files);
    let hidden = house.store.hidden(session.subject(), 0, 100).await.unwrap();
    assert!(hidden.iter().all(|hidden| hidden.why == Departure::Evicted && hidden.id > 1));
    assert_eq!(session.state().view[0].id, 1, "the input stays");
    let stored = house.store.messages(session.subject(), MessageRange::After { id: 0, limit: 100 }).await.unwrap();
    // The input, 15 calls with their results, two nudged replies, three nudges, the answer.
    assert_eq!(stored.len(), 1 + 30 + 2 + 3 + 1);
}

/// Phase 2b, L25, L24, L26: 67 tools are narrowed to the 15 nearest by their embeddings, over real `/v1/chat/completions` streams: the
/// planner is offered none, the executor those, and who sums up none.
#[tokio::test(flavor = "multi_thread")]
async fn e_67_tools_are_narrowed_to_15() {
    const TOOLS: usize = 67;
    let house = House::new(&["probe"]).await;
    let plan = r#"{"steps": [{"tool": "probe.echo", "task": "repeat the text with the echo tool"}]}"#;
    let call = Answer::Calls("", vec![("probe_echo", json!({"text": "Meeting Notes"}))]);
    let server = ChatServer::start([Answer::Text(plan), call, Answer::Text("I've read the screenshot.")]).await;
    let embeddings = EmbeddingServer::start("200 OK").await;
    let model = local(&server.base_url).model("local/tiny", house.directory.path()).unwrap();
    let mut config = AgentConfig::new("test");
    config.offered_tools = 15;
    let generation = house.generation().await;
    let own = Agent::new(config.clone(), Models::new(model.clone(), []), generation.clone()).unwrap();
    for number in own.registry().offered().len()..TOOLS {
        let mut service = ServiceConfig::new(format!("desktop.job{number}").parse().unwrap());
        service.description = format!("Does job {number} of the desktop.");
        config.services.insert(format!("job{number}"), service);
    }
    let mut models = Models::new(model.clone(), []);
    models.planning = Some(PlanningModels { planner: model.clone(), executor: model });
    models.embedder = Some(embeddings.embedder());
    let agent = Agent::new(config, models, generation).unwrap();
    assert_eq!(agent.registry().offered().len(), TOOLS);
    let mut session = Session::open(&house.host(), Arc::new(agent), OpenSession::New).await.unwrap();
    let mut watching = session.subscribe();
    let output = finished(turn(&mut session, "Review the screenshot, and echo what it says.").await);
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
    let types = story(&mut watching);
    let place =
        |wanted: &str| types.iter().position(|kind| kind == wanted).unwrap_or_else(|| panic!("{wanted}: {types:?}"));
    let order = ["loop_start", "plan", "tool_call", "tool_result", "stream_token", "loop_end"].map(place);
    assert!(order.is_sorted(), "{types:?}");
}
