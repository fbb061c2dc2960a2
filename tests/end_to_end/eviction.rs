//! Conversations that are longer than the context window. The oldest messages are evicted from the prompt and replaced
//! by a summary, and searches still find the evicted messages. The tests use the real runtime, the real store and the
//! real binary (L22, L26, L27).

use crate::support::{
    TestHost, agent_host, call_reply, event_types, events, records, repository, results, run_turn, text_reply,
};
use agent_core::change::HideReason;
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::run::Output;
use agent_runtime::{AgentConfig, Checkpoint, Host, OpenSession, Session, SummaryWriter, TurnResult};
use agent_store::{MessageRange, Options, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output as ProcessOutput, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const AGENT: [&str; 2] = ["--agent", "tests/agents/long-conversation.toml"];
const QUESTION: &str = "Where is the log kept? Read all of it.";
const ANSWER: &str = "The log is in the blue chest; its key hangs behind the barometer.";

fn expect_finished(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("the turn did not finish: {other:?}"),
    }
}

/// Configures an agent that offers all its tools, so that the remaining context budget does not depend on the prompt.
fn config_offering_all_tools() -> AgentConfig {
    AgentConfig { offered_tools: 100, ..AgentConfig::new("test") }
}

/// Creates a model script that declares a context window of 8,000 tokens.
fn script(replies: &[Value], summaries: &[Value]) -> Value {
    json!({"window": 8_000, "replies": replies, "summaries": summaries})
}

/// Creates a text of about 2,500 tokens that begins with a distinct word.
fn long_text(word: &str) -> String {
    format!("{word} {}", "and so on ".repeat(1_000))
}

/// Returns the event types of the last turn.
async fn events_of_last_turn(test_host: &TestHost, session: &Session) -> Vec<String> {
    let types = event_types(test_host, session).await;
    let start = types.iter().rposition(|kind| kind == "loop_start").expect("a turn");
    types[start..].to_vec()
}

/// L22, L27, L5, D1: The summary is not streamed to watchers. The next prompt contains the summary, and the turn
/// counts the summary's tokens. The model can find evicted messages and read an evicted result.
#[tokio::test(flavor = "multi_thread")]
async fn l27_evicted_messages_are_summarised_and_can_be_found() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut summary = text_reply("The user spoke of a walrus.");
    summary["expect"] = json!({"messages": 1, "tools": [], "contains": ["[user] walrus", "[result of probe.echo]"],
        "system_contains": "Write only the record"});
    let mut reply_after_eviction = call_reply(&[("memory_search", json!({"query": "walrus"}))]);
    reply_after_eviction["expect"] = json!({"lacks": "walrus and", "contains": "otter and", "offers": "memory_search",
        "system_contains": ["## session-summary", "The user spoke of a walrus."]});
    let mut read_result_reply = call_reply(&[("read_result", json!({"call_id": "call_1_1_1"}))]);
    read_result_reply["expect"] =
        json!({"last_contains": ["earlier_in_this_session", "walrus and so on", "\"turn\":1"]});
    let mut final_reply = text_reply("It is all still there.");
    final_reply["expect"] =
        json!({"last_contains": "the echo of old", "system_contains": "The user spoke of a walrus."});
    let replies = [
        call_reply(&[("probe.echo", json!({"text": "the echo of old"}))]),
        text_reply("Noted."),
        reply_after_eviction,
        read_result_reply,
        final_reply,
    ];
    let mut script = script(&replies, &[summary]);
    // If the prompt contains the definitions of all tools, a context window of this size forces the host to evict the
    // first turn but not the second turn.
    script["window"] = json!(8_100);
    let mut session = test_host.session(config_offering_all_tools(), script).await;
    expect_finished(run_turn(&mut session, &long_text("walrus")).await);
    let mut watcher = session.subscribe();
    let output = expect_finished(run_turn(&mut session, &long_text("otter")).await);
    assert_eq!((output.interactions, output.execution_units), (3, 440), "the turn has three calls and a summary");

    let types = events_of_last_turn(&test_host, &session).await;
    assert_eq!(types[..4], ["loop_start", "evicted", "loop_iteration", "context_built"]);
    let mut streamed = String::new();
    while let Ok(event) = watcher.try_recv() {
        if let EventKind::StreamToken { text } = event.kind {
            streamed.push_str(&text);
        }
    }
    assert_eq!(streamed, "It is all still there.", "the summary is not streamed");
    let evicted = events(&test_host, &session).await.into_iter().find_map(|event| match event.kind {
        EventKind::Evicted { messages, by, .. } => Some((messages, by)),
        _ => None,
    });
    let (messages, by) = evicted.expect("an eviction");
    assert_eq!(messages, 4, "the whole first turn is evicted");
    assert!(by.starts_with("scripted/"), "{by}");
    let hidden = test_host.store.hidden(session.subject(), 0, 100).await.unwrap();
    let evicted_ids: Vec<_> = hidden.iter().map(|hidden| (hidden.id, hidden.why)).collect();
    assert_eq!(evicted_ids, [1, 2, 3, 4].map(|id| (id, HideReason::Evicted)));
    let stored = test_host.store.messages(session.subject(), MessageRange::After { id: 0, limit: 100 }).await.unwrap();
    assert_eq!(stored.len(), 10, "nothing is deleted");
    let recorded = records(&test_host, &session, 2).await;
    let summary = recorded.iter().find(|record| record.record.kind == "summary").expect("the summary has a record");
    assert_eq!(summary.record.body["messages"], json!([1, 2, 3, 4]));
    assert!(results(&test_host, &session).await.iter().all(|(_, is_error, _)| !is_error));
}

/// L27: If no model writes a summary, or the model's summary is unusable, the host writes the summary itself, and the
/// turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn l27_the_host_writes_the_summary_if_no_model_can() {
    let failing = json!({"text": "", "error": {"status": 500, "message": "broken"}});
    let mut empty = text_reply("");
    empty["usage"] = json!({"prompt_tokens": 1_000, "completion_tokens": 0});
    let calls = call_reply(&[("read_result", json!({"call_id": "x"}))]);
    for (writer, summaries, units) in [
        (SummaryWriter::Extract, vec![text_reply("Nobody asks for this.")], 110),
        (SummaryWriter::Model, vec![], 110),
        (SummaryWriter::Model, vec![failing], 110),
        (SummaryWriter::Model, vec![empty], 1_110),
        (SummaryWriter::Model, vec![calls], 220),
    ] {
        let test_host = TestHost::new(&[]).await;
        let mut reply_after_eviction = text_reply("Done.");
        reply_after_eviction["expect"] = json!({"system_contains": ["Asked: walrus and", "Answered: Noted."]});
        let config = AgentConfig { summary: writer, ..config_offering_all_tools() };
        let mut session =
            test_host.session(config, script(&[text_reply("Noted."), reply_after_eviction], &summaries)).await;
        expect_finished(run_turn(&mut session, &long_text("walrus")).await);
        let output = expect_finished(run_turn(&mut session, &long_text("otter")).await);
        assert_eq!(output.execution_units, units, "{summaries:?}");
        let by = events(&test_host, &session).await.into_iter().find_map(|event| match event.kind {
            EventKind::Evicted { by, .. } => Some(by),
            _ => None,
        });
        assert_eq!(by.as_deref(), Some("extract"), "{summaries:?}");
    }
}

/// L27, L22: A model other than the agent's own model may write the summary.
#[tokio::test(flavor = "multi_thread")]
async fn l27_another_model_may_summarise() {
    let test_host = TestHost::new(&[]).await;
    let writer = test_host.directory.path().join("writer.json");
    std::fs::write(
        &writer,
        json!({"replies": [text_reply("x")], "summaries": [text_reply("By another one.")]}).to_string(),
    )
    .unwrap();
    let mut reply_after_eviction = text_reply("Done.");
    reply_after_eviction["expect"] = json!({"system_contains": "By another one."});
    let agent =
        test_host.agent(config_offering_all_tools(), script(&[text_reply("Noted."), reply_after_eviction], &[])).await;
    let mut models = agent.models().clone();
    let name = format!("scripted:{}", writer.display());
    models.summary = Some(agent_models::provider(&name, test_host.directory.path()).unwrap());
    let agent = Arc::new(agent.with_models(models).unwrap());
    let mut session = Session::open(&test_host.host(), agent, OpenSession::New).await.unwrap();
    expect_finished(run_turn(&mut session, &long_text("walrus")).await);
    expect_finished(run_turn(&mut session, &long_text("otter")).await);
}

/// L29: If a turn is cancelled while a summary is written, all messages are kept, and the next turn evicts messages.
#[tokio::test(flavor = "multi_thread")]
async fn l29_a_turn_can_be_cancelled_while_a_summary_is_written() {
    let test_host = TestHost::new(&[]).await;
    let mut slow = text_reply("The user spoke of a walrus.");
    slow["delay_ms"] = json!(60_000);
    let replies = [text_reply("Noted."), text_reply("Done.")];
    let agent = test_host.agent(config_offering_all_tools(), script(&replies, &[slow])).await;
    let cancel = CancellationToken::new();
    let (model_calls, token) = (AtomicU32::new(0), cancel.clone());
    let observer = move |checkpoint: Checkpoint<'_>| {
        // The second model call writes the summary.
        if checkpoint == Checkpoint::BeforeModel && model_calls.fetch_add(1, Ordering::SeqCst) == 1 {
            token.cancel();
        }
    };
    let host = Host { checkpoint: Some(Arc::new(observer)), ..test_host.host() };
    let mut session = Session::open(&host, agent, OpenSession::New).await.unwrap();
    expect_finished(run_turn(&mut session, &long_text("walrus")).await);
    let input = Some(TurnInput::Text(long_text("otter")));
    let result = session.run(input, cancel).await.unwrap();
    assert_eq!(result, TurnResult::Cancelled);
    assert_eq!(session.state().view.len(), 3, "the input is stored, and no message is evicted");
    assert!(session.state().summary.is_none());
    assert_eq!(events_of_last_turn(&test_host, &session).await, ["loop_start", "loop_end"]);
    session.close().await.unwrap();

    let config = AgentConfig { summary: SummaryWriter::Extract, ..config_offering_all_tools() };
    let agent = test_host.agent(config, script(&replies, &[])).await;
    let subject = test_host.store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0).subject;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    expect_finished(run_turn(&mut session, "And now?").await);
    assert_eq!(events_of_last_turn(&test_host, &session).await[1], "evicted");
}

/// L27: In 200 turns with the real store, every request fits into the window, and the stored state stays small.
#[tokio::test(flavor = "multi_thread")]
async fn l27_the_state_of_a_long_conversation_stays_small() {
    let test_host = TestHost::new(&[]).await;
    let replies: Vec<Value> = (0..200).map(|turn| text_reply(&format!("Answer {turn}."))).collect();
    let config = AgentConfig { summary: SummaryWriter::Extract, ..config_offering_all_tools() };
    let mut session = test_host.session(config, script(&replies, &[])).await;
    let mut sizes = Vec::new();
    for number in 0..200 {
        let prompt = format!("Question {number}: {}", "more words ".repeat(20 + number * 7 % 90));
        expect_finished(run_turn(&mut session, &prompt).await);
        sizes.push(session.state().snapshot().len());
    }
    let largest = |from: usize, until: usize| *sizes[from..until].iter().max().unwrap();
    assert!(largest(100, 200) < largest(50, 100) + 1_000, "{} bytes, then {}", largest(50, 100), largest(100, 200));
    let evictions = session.state().summary.as_ref().expect("evictions").evictions;
    assert!((5..100).contains(&evictions), "{evictions}");
    for event in events(&test_host, &session).await {
        if let EventKind::ContextBudget { remaining, .. } = event.kind {
            assert!(remaining >= 1_500, "{remaining}");
        }
    }
    let hits = test_host.store.search_evicted(session.subject(), "Question 3", 3).await.unwrap();
    assert!(hits.iter().any(|hit| hit.excerpt.starts_with("Question 3:")), "{hits:?}");
}

/// A user that runs the binary with a temporary data folder.
struct CliUser {
    data: TempDir,
}

impl CliUser {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.current_dir(repository()).args(arguments).arg("--data").arg(self.path()).stdin(Stdio::null());
        command
    }

    fn path(&self) -> std::path::PathBuf {
        self.data.path().join("data")
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let ProcessOutput { status, stdout, stderr } = self.command(arguments).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    fn events(&self) -> Vec<String> {
        let (_, lines, _) = self.run(&["session", "show", "--json"]);
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
        lines.lines().map(event).collect()
    }
}

/// L27, I1, D5: The example agent `long-conversation` runs unchanged, and `session search` finds evicted messages.
#[test]
fn l27_the_long_conversation_example_runs_unchanged() {
    let user = CliUser::new();
    let (code, stdout, stderr) = user.run(&[&AGENT[..], &[QUESTION]].concat());
    assert_eq!((code, stdout.trim()), (Some(0), ANSWER), "{stderr}");
    assert!(stderr.contains("earlier messages (") && stderr.contains("summarised them in"), "{stderr}");
    let (code, stdout, stderr) = user.run(&["session", "search", "barometer", "chest"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("turn 1, message 3, tool") && stdout.contains("key behind the barometer"), "{stdout}");
    let (_, stdout, _) = user.run(&["session", "search", "--json", "--limit", "9", "key", "barometer"]);
    let hits = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(hits.into_iter().any(|hit| hit["role"] == json!("tool")), "{stdout}");
    let (code, stdout, stderr) = user.run(&["session", "search", "no-such-word-anywhere"]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(stderr.contains("no message contains all words"), "{stderr}");
}

/// Row 27: If the process is killed before or after the summary is written or committed, the session continues, evicts
/// messages once, and does not lose a message.
#[test]
fn l27_a_turn_killed_while_summarising_is_continued() {
    // The sixth model call writes the summary.
    for point in ["before-model:6", "after-model:6", "before-commit:summarised", "after-commit:summarised"] {
        let user = CliUser::new();
        let mut command = user.command(&[&AGENT[..], &[QUESTION]].concat());
        let killed = command.env("AGENT_HOST_KILL_AT", point).output().unwrap();
        assert_eq!(killed.status.code(), None, "{point}: {}", String::from_utf8_lossy(&killed.stderr));
        let (code, stdout, stderr) = user.run(&[&AGENT[..], &["--continue"]].concat());
        assert_eq!((code, stdout.trim()), (Some(0), ANSWER), "{point}: {stderr}");
        let kinds = user.events();
        assert_eq!(kinds.iter().filter(|kind| *kind == "evicted").count(), 1, "{point}: {kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| *kind == "loop_end").count(), 1, "{point}");
        check_stored(&user.path(), point);
    }
}

/// Checks that the evicted messages are complete pairs of calls and results, and that all messages are still stored.
fn check_stored(data: &Path, context: &str) {
    let store = SqliteStore::open(data.join("agent-host.db"), Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let subject = store.sessions(SessionFilter::default(), 1).await.unwrap().remove(0).subject;
        let hidden = store.hidden(&subject, 0, 100).await.unwrap();
        assert!(!hidden.is_empty() && hidden.len() % 2 == 0, "{context}: {hidden:?}");
        assert!(
            hidden.iter().all(|hidden| hidden.why == HideReason::Evicted && hidden.id > 1),
            "{context}: {hidden:?}"
        );
        let stored = store.messages(&subject, MessageRange::After { id: 0, limit: 100 }).await.unwrap();
        assert_eq!(stored.len(), 16, "{context}: the input, seven calls with results, the answer");
    });
}
