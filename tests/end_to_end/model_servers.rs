//! Third-party model servers over HTTP: tools, parallel calls, busy servers, slow servers and random faults.

use crate::peers::{node_peer, python_peer};
use crate::support::{TestHost, event_types, events, results, run_turn};
use agent_core::event::EventKind;
use agent_core::run::{Output, TurnError};
use agent_models::{Provider, ProviderConfig, Providers, RetryPolicy, Secret, Timeouts};
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A server on loopback that is stopped when this value is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(mut command: Command, port: u16) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the peer starts");
        let server = Self { child, port };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "the server accepts no connections");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Starts the third-party model server aimock, which answers requests from these fixtures. Returns `None` if aimock
    /// is not installed.
    fn aimock(test_host: &TestHost, fixtures: &Value, flags: &[&str]) -> Option<Self> {
        let program = node_peer("llmock")?;
        let (port, file) = (free_port(), test_host.directory.path().join("fixtures.json"));
        std::fs::write(&file, fixtures.to_string()).unwrap();
        let mut command = Command::new(program);
        command.args(["--strict", "--log-level", "silent", "-p", &port.to_string(), "-f"]).arg(file).args(flags);
        Some(Self::start(command, port))
    }

    /// Starts the third-party model server stubllm, which answers requests from these fixtures. Returns `None` if
    /// stubllm is not installed.
    fn stubllm(test_host: &TestHost, fixtures: &Value) -> Option<Self> {
        let program = python_peer("stubllm")?;
        let (port, file) = (free_port(), test_host.directory.path().join("fixtures.json"));
        std::fs::write(&file, fixtures.to_string()).unwrap();
        let mut command = Command::new(program);
        command.args(["serve", "--log-level", "critical", "--port", &port.to_string(), "--fixture-file"]).arg(file);
        Some(Self::start(command, port))
    }

    fn models(&self, attempts: u32) -> Models {
        let config = ProviderConfig {
            name: "openai".to_owned(),
            base_url: format!("http://127.0.0.1:{}/v1", self.port),
            key: Some(Secret::new("test-key")),
            key_advice: "set a key".to_owned(),
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            models: Default::default(),
        };
        let providers = Providers::new(vec![config]);
        let provider: Arc<dyn Provider> = providers.model("openai/gpt-mock", Path::new(".")).expect("a model");
        let mut models = Models::from(provider);
        models.retry = RetryPolicy { attempts, initial_wait: Duration::from_millis(10), ..RetryPolicy::default() };
        models
    }

    async fn session(&self, test_host: &TestHost, attempts: u32) -> Session {
        let agent = Agent::new(AgentConfig::new("test"), self.models(attempts), test_host.generation().await).unwrap();
        Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port on which no server listens at the moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    listener.local_addr().expect("an address").port()
}

fn finished_output(result: TurnResult) -> Output {
    match result {
        TurnResult::Finished(output) => output,
        other => panic!("{other:?}"),
    }
}

/// Returns the text argument that the tool `probe.echo` received and returned.
fn echoed_text(result: &str) -> Value {
    serde_json::from_str::<Value>(result).expect("the probe answers with JSON")["text"].clone()
}

/// Runs a turn, and returns the result of the turn and the events that a watcher of the session received.
async fn streamed_events(session: &mut Session, prompt: &str) -> (TurnResult, Vec<EventKind>) {
    let mut watching = session.subscribe();
    let result = run_turn(session, prompt).await;
    let mut received = Vec::new();
    while let Ok(event) = watching.try_recv() {
        received.push(event.kind);
    }
    (result, received)
}

fn tools() -> Value {
    let call = |text: &str| json!({"name": "probe_echo", "arguments": {"text": text}});
    json!({"fixtures": [
        {"match": {"userMessage": "echo twice", "hasToolResult": false}, "response": {"toolCalls": [call("one"), call("two")]}},
        {"match": {"userMessage": "echo twice", "hasToolResult": true}, "response": {
            "content": "Both words are back: one, two.", "reasoning": "They came back.",
        }},
        {"match": {"userMessage": "tell me"}, "response": {"content": "A story of many words that takes its time."}},
    ]})
}

/// M1, L14, L21: A turn runs parallel calls, streams an answer with thinking, and reports the token usage that the
/// server counted.
#[tokio::test(flavor = "multi_thread")]
async fn m1_a_turn_with_aimock_runs_parallel_calls_and_gets_an_answer() {
    let test_host = TestHost::new(&["probe"]).await;
    let Some(server) = Server::aimock(&test_host, &tools(), &["--chunk-size", "5"]) else { return };
    let mut session = server.session(&test_host, 1).await;
    let (result, received) = streamed_events(&mut session, "echo twice").await;
    let output = finished_output(result);
    assert_eq!(output.data, json!("Both words are back: one, two."));
    assert_eq!((output.model.as_str(), output.interactions), ("openai/gpt-mock", 2));
    assert!(output.usage.prompt_tokens > 0 && output.usage.completion_tokens > 0, "{:?}", output.usage);
    let results: Vec<Value> =
        results(&test_host, &session).await.iter().map(|(_, _, text)| echoed_text(text)).collect();
    assert_eq!(results, ["one", "two"]);
    let pieces = received.iter().filter_map(|kind| match kind {
        EventKind::StreamToken { text } => Some(text.as_str()),
        _ => None,
    });
    let pieces: Vec<&str> = pieces.collect();
    assert!(pieces.len() > 2, "the answer is streamed in pieces: {pieces:?}");
    assert_eq!(pieces.concat(), "Both words are back: one, two.");
    let thinking = received.iter().filter_map(|kind| match kind {
        EventKind::ThinkingContent { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(thinking.collect::<String>(), "They came back.");
    assert!(received.contains(&EventKind::ThinkingStart) && received.contains(&EventKind::ThinkingEnd));
}

/// M3: The host repeats a request to a server that is always busy until no attempts are left, and the turn then fails
/// with the server's message.
#[tokio::test(flavor = "multi_thread")]
async fn m3_a_turn_fails_if_aimock_is_always_busy() {
    let test_host = TestHost::new(&[]).await;
    let Some(server) = Server::aimock(&test_host, &tools(), &["--chaos-ratelimit", "1"]) else { return };
    let mut session = server.session(&test_host, 3).await;
    let TurnResult::Failed(TurnError::ModelFailed { message, .. }) = run_turn(&mut session, "tell me").await else {
        panic!()
    };
    assert!(message.contains("429"), "{message}");
    let waits = events(&test_host, &session).await.into_iter().filter_map(|event| match event.kind {
        EventKind::Retry { wait_ms, .. } => Some(wait_ms),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1000, 1000], "the waits follow the server's `Retry-After` header");
}

/// M3, row 31: If the model server causes random faults, a turn ends with a complete answer or with an error, but never
/// with a truncated answer.
#[tokio::test(flavor = "multi_thread")]
async fn m3_answers_are_complete_despite_random_faults_of_aimock() {
    let test_host = TestHost::new(&[]).await;
    let chaos = ["--chunk-size", "3", "--chaos-drop", "0.3", "--chaos-malformed", "0.2", "--chaos-disconnect", "0.3"];
    let Some(server) = Server::aimock(&test_host, &tools(), &chaos) else { return };
    let mut answers = 0;
    for _ in 0..30 {
        let mut session = server.session(&test_host, 6).await;
        match run_turn(&mut session, "tell me").await {
            TurnResult::Finished(output) => {
                assert_eq!(output.data, json!("A story of many words that takes its time."));
                answers += 1;
            }
            TurnResult::Failed(TurnError::ModelFailed { .. }) => {}
            other => panic!("{other:?}"),
        }
        session.close().await.unwrap();
    }
    assert!(answers > 0, "some turns succeed within six attempts");
}

/// L29: A cancelled turn immediately stops reading a slow stream.
#[tokio::test(flavor = "multi_thread")]
async fn l29_cancels_a_slow_stream_of_aimock() {
    let test_host = TestHost::new(&[]).await;
    let slow = ["--latency", "400", "--chunk-size", "2"];
    let Some(server) = Server::aimock(&test_host, &tools(), &slow) else { return };
    let mut session = server.session(&test_host, 1).await;
    let mut watching = session.subscribe();
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    tokio::spawn(async move {
        while let Ok(event) = watching.recv().await {
            if matches!(event.kind, EventKind::StreamToken { .. }) {
                cancelling.cancel();
            }
        }
    });
    let input = agent_core::message::TurnInput::Text("tell me".to_owned());
    let result = session.run(Some(input), cancel).await.unwrap();
    assert_eq!(result, TurnResult::Cancelled);
    let types = event_types(&test_host, &session).await;
    assert_eq!(types[types.len() - 2..], ["stream_clear", "loop_end"]);
}

/// M3, M1: A turn succeeds with the server program stubllm, which refuses two requests, then returns a tool call, and
/// then returns the answer.
#[tokio::test(flavor = "multi_thread")]
async fn m3_retries_stubllm_that_is_busy_twice() {
    let test_host = TestHost::new(&["probe"]).await;
    let busy = json!({"http_status": 429, "error_message": "Rate limit exceeded."});
    let arguments = json!({"text": "hello"}).to_string();
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "probe_echo", "arguments": arguments}});
    let fixtures = json!({"fixtures": [{
        "name": "all", "match": {"provider": "openai"},
        "sequence": [busy, busy, {"tool_calls": [call], "finish_reason": "tool_calls"}, {"content": "Success after retry!"}],
    }]});
    let Some(server) = Server::stubllm(&test_host, &fixtures) else { return };
    let mut session = server.session(&test_host, 4).await;
    let output = finished_output(run_turn(&mut session, "Hello?").await);
    assert_eq!((output.data, output.interactions), (json!("Success after retry!"), 2));
    assert_eq!(echoed_text(&results(&test_host, &session).await[0].2), "hello");
    let types = event_types(&test_host, &session).await;
    assert_eq!(types.iter().filter(|kind| *kind == "retry").count(), 2);
}

/// M5: If a server refuses the API key, the error contains the server's reason, and the host does not repeat
/// the request.
#[tokio::test(flavor = "multi_thread")]
async fn m5_reports_that_stubllm_refuses_the_key() {
    let test_host = TestHost::new(&[]).await;
    let refused = json!({"http_status": 401, "error_message": "Incorrect API key provided."});
    let fixtures = json!({"fixtures": [{"name": "all", "match": {"provider": "openai"}, "response": refused}]});
    let Some(server) = Server::stubllm(&test_host, &fixtures) else { return };
    let mut session = server.session(&test_host, 4).await;
    let TurnResult::Failed(TurnError::ModelFailed { message, .. }) = run_turn(&mut session, "Hello?").await else {
        panic!()
    };
    for part in ["401", "Incorrect API key provided", "set a key"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!event_types(&test_host, &session).await.contains(&"retry".to_owned()));
}
