//! Third-party model servers over HTTP: tools, parallel calls, busy servers, slow servers and random faults.

use crate::media::attach;
use crate::peers::{node_peer, python_peer, python_with};
use crate::support::{TestHost, event_types, events, repository, results, run_turn};
use agent_core::event::EventKind;
use agent_core::message::{Part, TurnInput};
use agent_core::run::{Output, TurnError};
use agent_models::{Protocol, Provider, ProviderConfig, Providers, RetryPolicy, Secret, Timeouts};
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

    /// Configures the provider `openai`: this server, in this wire format.
    fn providers(&self, protocol: Protocol) -> Providers {
        let version = if protocol == Protocol::Gemini { "v1beta" } else { "v1" };
        let config = ProviderConfig {
            name: "openai".to_owned(),
            base_url: format!("http://127.0.0.1:{}/{version}", self.port),
            key: Some(Secret::new("test-key")),
            key_advice: "set a key".to_owned(),
            headers: Vec::new(),
            protocol,
            timeouts: Timeouts::default(),
            models: Default::default(),
        };
        Providers::new(vec![config])
    }

    /// Returns the models that talk to the server in this wire format.
    fn models(&self, attempts: u32, protocol: Protocol) -> Models {
        let providers = self.providers(protocol);
        let provider: Arc<dyn Provider> = providers.model("openai/gpt-mock", Path::new(".")).expect("a model");
        let mut models = Models::from(provider);
        models.retry = RetryPolicy { attempts, initial_wait: Duration::from_millis(10), ..RetryPolicy::default() };
        models
    }

    async fn session(&self, test_host: &TestHost, attempts: u32) -> Session {
        self.session_in(test_host, attempts, Protocol::ChatCompletions).await
    }

    /// Opens a session whose model talks to the server in this wire format.
    async fn session_in(&self, test_host: &TestHost, attempts: u32, protocol: Protocol) -> Session {
        let models = self.models(attempts, protocol);
        let agent = Agent::new(AgentConfig::new("test"), models, test_host.generation().await).unwrap();
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
        {"match": {"userMessage": "count words", "hasToolResult": false}, "response": {
            "toolCalls": [call("one")], "reasoning": "I need the tool.",
        }},
        {"match": {"userMessage": "count words", "hasToolResult": true}, "response": {"content": "{\"words\": 1}"}},
        {"match": {"userMessage": "tell me"}, "response": {"content": "A story of many words that takes its time."}},
    ]})
}

/// M1, L14, L21: In each wire format, a turn runs parallel calls, streams an answer with thinking, and reports the
/// token usage that the server counted.
#[tokio::test(flavor = "multi_thread")]
async fn m1_a_turn_with_aimock_runs_parallel_calls_and_gets_an_answer() {
    let test_host = TestHost::new(&["probe"]).await;
    let Some(server) = Server::aimock(&test_host, &tools(), &["--chunk-size", "5"]) else { return };
    for protocol in Protocol::ALL {
        let mut session = server.session_in(&test_host, 1, protocol).await;
        let (result, received) = streamed_events(&mut session, "echo twice").await;
        let output = finished_output(result);
        assert_eq!(output.data, json!("Both words are back: one, two."), "{protocol}");
        assert_eq!((output.model.as_str(), output.interactions), ("openai/gpt-mock", 2), "{protocol}");
        assert!(output.usage.prompt_tokens > 0 && output.usage.completion_tokens > 0, "{:?}", output.usage);
        let results: Vec<Value> =
            results(&test_host, &session).await.iter().map(|(_, _, text)| echoed_text(text)).collect();
        assert_eq!(results, ["one", "two"], "{protocol}");
        let pieces = received.iter().filter_map(|kind| match kind {
            EventKind::StreamToken { text } => Some(text.as_str()),
            _ => None,
        });
        let pieces: Vec<&str> = pieces.collect();
        assert!(pieces.len() > 2, "{protocol}: the answer is streamed in pieces: {pieces:?}");
        assert_eq!(pieces.concat(), "Both words are back: one, two.", "{protocol}");
        let thinking = received.iter().filter_map(|kind| match kind {
            EventKind::ThinkingContent { text } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(thinking.collect::<String>(), "They came back.", "{protocol}");
        assert!(received.contains(&EventKind::ThinkingStart) && received.contains(&EventKind::ThinkingEnd));
        session.close().await.unwrap();
    }
}

/// M1, M4: The recorded requests of a conversation with tools, thinking, an image and structured output are valid
/// according to the types of the providers' own clients. The recordings answer the same conversation again without the
/// server.
#[tokio::test(flavor = "multi_thread")]
async fn m1_recorded_requests_have_the_types_of_the_official_clients() {
    let test_host = TestHost::new(&["probe"]).await;
    let Some(server) = Server::aimock(&test_host, &tools(), &[]) else { return };
    let Some(python) = python_with("anthropic") else { return };
    let script = repository().join("tests/fixtures/check_requests.py");
    for protocol in Protocol::ALL {
        let cassette = format!("{protocol}.jsonl");
        let providers = server.providers(protocol);
        let folder = test_host.directory.path();
        let converse = async |name: &str| {
            let models = Models::from(providers.model(name, folder).expect("a model"));
            let mut config = AgentConfig::new("test");
            config.output_schema = Some(json!({"type": "object", "properties": {"words": {"type": "integer"}}}));
            let agent = Agent::new(config, models, test_host.generation().await).unwrap();
            let mut session = Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap();
            let image =
                attach(&session, include_bytes!("../../host/app/src/commands/model/red.png").to_vec(), "red.png").await;
            let input = TurnInput::Message(vec![Part::Text("count words".to_owned()), Part::Media(image)]);
            let result = session.run(Some(input), CancellationToken::new()).await.unwrap();
            session.close().await.unwrap();
            finished_output(result)
        };
        let recorded = converse(&format!("record:{cassette}:openai/gpt-mock")).await;
        let text = std::fs::read_to_string(folder.join(&cassette)).unwrap();
        assert!(text.lines().count() == 3 && !text.contains("test-key"), "{text}");
        let checked = Command::new(&python).arg(&script).arg(folder.join(&cassette)).output().unwrap();
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(String::from_utf8_lossy(&checked.stdout).trim(), "2", "{protocol}: {errors}");
        let replayed = converse(&format!("replay:{cassette}")).await;
        assert_eq!((replayed.data, replayed.usage), (recorded.data, recorded.usage), "{protocol}");
    }
}

/// M3: If a server is always busy, the host repeats the request until no attempts are left. The turn then fails with
/// the server's message.
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
    for round in 0..32 {
        let protocol = Protocol::ALL[round % Protocol::ALL.len()];
        let mut session = server.session_in(&test_host, 6, protocol).await;
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
    let input = TurnInput::Text("tell me".to_owned());
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
