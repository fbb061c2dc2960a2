//! Turns that block until they are cancelled, one for everything that a turn can wait for, and the time that their
//! cancellation takes (L29). Each test program that needs this file includes it.

use agent_core::message::TurnInput;
use agent_mcp::{ChildCommand, KeepConnected, ServerConfig, Transport};
use agent_models::{Embedder, Provider, ProviderConfig, Providers};
use agent_plugins::{CallLimits, Generation, Grants};
use agent_runtime::{
    Agent, AgentConfig, Checkpoint, Delegate, Host, Models, OpenSession, PluginAllowance, Session, TurnResult,
};
use agent_store::Store;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The time after which a started operation is certain to wait.
const SETTLED: Duration = Duration::from_millis(60);
/// Longer than any test waits.
const FOREVER: u64 = 60_000;

/// A turn that blocks in one kind of operation.
pub(crate) struct BlockedTurn {
    /// The operation, which completes the phrase "cancelled while …".
    pub(crate) what: &'static str,
    pub(crate) agent: Arc<Agent>,
    /// The input of its turns.
    input: String,
    /// The number of turns before it, which end normally.
    before: u32,
    /// The checkpoint after which the turn blocks, and how often the turn passes it until then.
    point: (&'static str, u32),
}

/// A session whose turn was cancelled, and how long that took.
pub(crate) struct CancelledTurn {
    pub(crate) session: Session,
    pub(crate) result: TurnResult,
    pub(crate) took: Duration,
}

/// Builds blocked turns with a folder for scripts, the plugins `probe`, `bad-validator` and `stateful-builder`, and the
/// tests' MCP server.
pub(crate) struct BlockedTurns<'w> {
    pub(crate) folder: &'w Path,
    pub(crate) generation: Generation,
    pub(crate) mcp_server: &'w Path,
}

impl BlockedTurn {
    /// Runs the turn in a new session, and cancels it while it is blocked.
    pub(crate) async fn cancel_while_blocked(&self, host: &Host) -> CancelledTurn {
        let (begun, passed) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
        let observer = {
            let (begun, passed, (point, times)) = (begun.clone(), passed.clone(), self.point);
            Arc::new(move |checkpoint: Checkpoint<'_>| {
                if checkpoint.to_string() == point && passed.fetch_add(1, Ordering::Relaxed) + 1 == times {
                    begun.notify_one();
                }
            })
        };
        let host = Host { checkpoint: Some(observer), ..host.clone() };
        let mut session = Session::open(&host, self.agent.clone(), OpenSession::New).await.expect("a new session");
        for _ in 0..self.before {
            let result = session
                .run(Some(TurnInput::Text(self.input.clone())), CancellationToken::new())
                .await
                .expect("a turn before");
            assert!(matches!(result, TurnResult::Finished(_)), "{}: {result:?}", self.what);
        }
        passed.store(0, Ordering::Relaxed);
        let cancel = CancellationToken::new();
        let running = session.run(Some(TurnInput::Text(self.input.clone())), cancel.clone());
        let cancelling = async {
            begun.notified().await;
            tokio::time::sleep(SETTLED).await;
            let requested_at = Instant::now();
            cancel.cancel();
            requested_at
        };
        let ending = async { (running.await, Instant::now()) };
        let ((result, ended), requested_at) = tokio::join!(ending, cancelling);
        let result = result.expect("the turn ends");
        CancelledTurn { session, result, took: ended.duration_since(requested_at) }
    }
}

/// Long enough that a few of them fill a small window.
fn long_text() -> String {
    format!("Work. {}", "and so on ".repeat(1_000))
}

fn call_reply(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

impl BlockedTurns<'_> {
    /// One blocked turn of each kind.
    pub(crate) async fn all(&self) -> Vec<BlockedTurn> {
        let streaming = json!({"text": "Wait.", "delay_ms": FOREVER});
        let of_model = |reply: &Value| json!({ "replies": [reply] });
        let plain = || AgentConfig::new("worker");
        let mut all = vec![
            self.blocked_turn("the model streams", plain(), of_model(&streaming), ("before-model", 1)),
            self.blocked_turn(
                "a guest computes",
                plain(),
                of_model(&call_reply("probe.spin", json!({}))),
                ("before-call:probe.spin", 1),
            ),
            self.blocked_turn(
                "a guest sleeps in a host call",
                plain(),
                of_model(&call_reply("probe.sleep", json!({"ms": FOREVER}))),
                ("before-call:probe.sleep", 1),
            ),
            self.blocked_turn(
                "a validator runs",
                self.with_slow_validator(),
                of_model(&json!({"text": "spin"})),
                ("after-commit:reply", 1),
            ),
            self.builder(),
            self.blocked_turn(
                "the next try is waited for",
                plain(),
                of_model(
                    &json!({"text": "Wait", "error": {"status": 503, "message": "busy", "retry_after_ms": 20_000}}),
                ),
                ("after-commit:model_failed", 1),
            ),
            self.blocked_turn(
                "an MCP server's tool runs",
                self.with_mcp_server("good"),
                of_model(&call_reply("desk.hang", json!({}))),
                ("before-call:desk.hang", 1),
            ),
        ];
        all.push(self.summary());
        all.push(self.embeddings().await);
        let (streaming, computing) = (of_model(&streaming), of_model(&call_reply("probe.spin", json!({}))));
        all.push(self.delegated("another agent's model streams", streaming, ("before-model", 2)));
        all.push(self.delegated("another agent's guest computes", computing, ("before-call:probe.spin", 1)));
        all
    }

    fn model(&self, script: &Value) -> Arc<dyn Provider> {
        let name = format!("{}.json", uuid::Uuid::new_v4());
        std::fs::write(self.folder.join(&name), script.to_string()).expect("the script is written");
        agent_models::provider(&format!("scripted:{name}"), self.folder).expect("a script")
    }

    fn blocked_turn(
        &self,
        what: &'static str,
        config: AgentConfig,
        script: Value,
        point: (&'static str, u32),
    ) -> BlockedTurn {
        let agent = Agent::new(config, self.model(&script), self.generation.clone()).expect("an agent");
        BlockedTurn { what, agent: Arc::new(agent), input: long_text(), before: 0, point }
    }

    fn with_slow_validator(&self) -> AgentConfig {
        let limits = CallLimits { pure_time: Duration::from_secs(60), ..CallLimits::default() };
        let mut config = AgentConfig::new("worker");
        config.validators = vec!["bad-validator".to_owned()];
        config.plugins.insert("bad-validator".to_owned(), PluginAllowance { limits, ..PluginAllowance::default() });
        config
    }

    /// A context builder that asks the agent's model.
    fn builder(&self) -> BlockedTurn {
        let limits = CallLimits { builder_time: Duration::from_secs(60), ..CallLimits::default() };
        let grants = Grants { model_tokens: Some(100_000), ..Grants::default() };
        let mut config = AgentConfig::new("worker");
        config.context_builder = Some("stateful-builder".to_owned());
        let allowance = PluginAllowance { grants, limits, ..PluginAllowance::default() };
        config.plugins.insert("stateful-builder".to_owned(), allowance);
        let answer = json!({"text": "word", "delay_ms": FOREVER});
        let script = json!({"replies": [{"text": "unused"}], "answers": [answer]});
        let work = self.blocked_turn("a context builder asks the model", config, script, ("after-commit:start", 1));
        BlockedTurn { input: "ask the model".to_owned(), ..work }
    }

    fn with_mcp_server(&self, mode: &str) -> AgentConfig {
        let command = ChildCommand {
            command: self.mcp_server.display().to_string(),
            args: vec![mode.to_owned()],
            ..ChildCommand::default()
        };
        let mut server = ServerConfig::new("desk", Transport::Stdio(command));
        server.keep = KeepConnected::Always;
        AgentConfig { mcp: vec![server], ..AgentConfig::new("worker") }
    }

    fn summary(&self) -> BlockedTurn {
        let slow = json!({"text": "They talked.", "delay_ms": FOREVER});
        let output_text = json!({"text": "Noted."});
        let script = json!({"window": 8_000, "replies": [output_text, output_text], "summaries": [slow]});
        let config = AgentConfig { offered_tools: 100, ..AgentConfig::new("worker") };
        BlockedTurn { before: 1, ..self.blocked_turn("a summary is written", config, script, ("before-model", 1)) }
    }

    /// A server that accepts the request and never answers, as long as this process lives.
    async fn embeddings(&self) -> BlockedTurn {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                open.push(connection);
            }
        });
        let provider = ProviderConfig {
            name: "local".into(),
            base_url,
            key: None,
            key_advice: String::new(),
            headers: vec![],
            timeouts: Default::default(),
            models: Default::default(),
        };
        let embedder: Embedder = Providers::new(vec![provider]).embedder("local/embedder").expect("an embedder");
        let mut models = Models::new(self.model(&json!({"replies": [{"text": "unused"}]})), []);
        models.embedder = Some(Arc::new(embedder));
        let config = AgentConfig { offered_tools: 1, ..AgentConfig::new("worker") };
        let agent = Agent::new(config, models, self.generation.clone()).expect("an agent");
        let point = ("after-commit:start", 1);
        BlockedTurn { what: "tools are embedded", agent: Arc::new(agent), input: long_text(), before: 0, point }
    }

    fn delegated(&self, what: &'static str, script: Value, point: (&'static str, u32)) -> BlockedTurn {
        let child = self.blocked_turn(what, AgentConfig::new("below"), script, point).agent;
        let mut config = AgentConfig::new("worker");
        let delegate = Delegate { agent: child.into(), description: "Works.".to_owned(), input_schema: None };
        config.delegates.insert("below".to_owned(), delegate);
        self.blocked_turn(what, config, json!({"replies": [call_reply("below", json!({"task": "Work."}))]}), point)
    }
}

/// Stops the MCP servers that were kept.
pub(crate) async fn stop_servers(all: &[BlockedTurn]) {
    for work in all {
        work.agent.servers().shutdown().await;
    }
}

/// The last event of a session's turn as JSON, to check that it was cancelled.
pub(crate) async fn last_event(store: &dyn Store, session: &str) -> Option<String> {
    let events = store.events(session, 0, 10_000).await.expect("events are there");
    events.last().and_then(|event| serde_json::to_string(&event.event.kind).ok())
}
