//! Turns that block until they are cancelled: one turn for each kind of operation for which a turn can wait. The code
//! in this file measures how long the cancellation of these turns takes (L29). This file is included by the test
//! programs that need it.

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

/// The time that a test waits after the start of an operation, so that the operation is certainly blocked.
const SETTLED: Duration = Duration::from_millis(60);
/// A delay in milliseconds that is longer than any test.
const FOREVER: u64 = 60_000;

/// A turn that blocks in one kind of operation.
pub(crate) struct BlockedTurn {
    /// A description of the operation, which completes the phrase "cancelled while …".
    pub(crate) operation: &'static str,
    pub(crate) agent: Arc<Agent>,
    /// The input of each turn of the session.
    input: String,
    /// The number of turns that run and end normally in the session before the blocked turn.
    earlier_turns: u32,
    /// The checkpoint after which the turn blocks, and how many times the turn passes this checkpoint before it blocks.
    checkpoint: (&'static str, u32),
}

/// A session whose turn was cancelled, and the duration of the cancellation.
pub(crate) struct CancelledTurn {
    pub(crate) session: Session,
    pub(crate) result: TurnResult,
    pub(crate) duration: Duration,
}

/// Creates blocked turns. The fields contain a folder for model scripts, a generation with the plugins `probe`,
/// `bad-validator` and `stateful-builder`, and the path of the tests' MCP server.
pub(crate) struct BlockedTurns<'w> {
    pub(crate) folder: &'w Path,
    pub(crate) generation: Generation,
    pub(crate) mcp_server: &'w Path,
}

impl BlockedTurn {
    /// Runs the turn in a new session, and cancels it while it is blocked.
    pub(crate) async fn cancel_while_blocked(&self, host: &Host) -> CancelledTurn {
        let (started, passed) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
        let observer = {
            let (started, passed, (blocking_checkpoint, times)) = (started.clone(), passed.clone(), self.checkpoint);
            Arc::new(move |checkpoint: Checkpoint<'_>| {
                if checkpoint.to_string() == blocking_checkpoint && passed.fetch_add(1, Ordering::Relaxed) + 1 == times
                {
                    started.notify_one();
                }
            })
        };
        let host = Host { checkpoint: Some(observer), ..host.clone() };
        let mut session = Session::open(&host, self.agent.clone(), OpenSession::New).await.expect("the session opens");
        for _ in 0..self.earlier_turns {
            let result = session
                .run(Some(TurnInput::Text(self.input.clone())), CancellationToken::new())
                .await
                .expect("the earlier turn ends");
            assert!(matches!(result, TurnResult::Finished(_)), "{}: {result:?}", self.operation);
        }
        passed.store(0, Ordering::Relaxed);
        let cancel = CancellationToken::new();
        let running = session.run(Some(TurnInput::Text(self.input.clone())), cancel.clone());
        let cancelling = async {
            started.notified().await;
            tokio::time::sleep(SETTLED).await;
            let requested_at = Instant::now();
            cancel.cancel();
            requested_at
        };
        let ending = async { (running.await, Instant::now()) };
        let ((result, ended), requested_at) = tokio::join!(ending, cancelling);
        let result = result.expect("the turn ends");
        CancelledTurn { session, result, duration: ended.duration_since(requested_at) }
    }
}

/// Returns a text that is so long that a few copies of it fill a small context window.
fn long_text() -> String {
    format!("Work. {}", "and so on ".repeat(1_000))
}

fn call_reply(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

impl BlockedTurns<'_> {
    /// Returns one blocked turn for each kind of operation.
    pub(crate) async fn all(&self) -> Vec<BlockedTurn> {
        let streaming = json!({"text": "Wait.", "delay_ms": FOREVER});
        let model_script = |reply: &Value| json!({ "replies": [reply] });
        let plain = || AgentConfig::new("worker");
        let mut turns = vec![
            self.blocked_turn("the model streams", plain(), model_script(&streaming), ("before-model", 1)),
            self.blocked_turn(
                "a guest computes",
                plain(),
                model_script(&call_reply("probe.spin", json!({}))),
                ("before-call:probe.spin", 1),
            ),
            self.blocked_turn(
                "a guest sleeps in a host call",
                plain(),
                model_script(&call_reply("probe.sleep", json!({"ms": FOREVER}))),
                ("before-call:probe.sleep", 1),
            ),
            self.blocked_turn(
                "a validator runs",
                self.with_slow_validator(),
                model_script(&json!({"text": "spin"})),
                ("after-commit:reply", 1),
            ),
            self.builder(),
            self.blocked_turn(
                "the turn waits before it repeats a model call",
                plain(),
                model_script(
                    &json!({"text": "Wait", "error": {"status": 503, "message": "busy", "retry_after_ms": 20_000}}),
                ),
                ("after-commit:model_failed", 1),
            ),
            self.blocked_turn(
                "an MCP server's tool runs",
                self.with_mcp_server("good"),
                model_script(&call_reply("desk.hang", json!({}))),
                ("before-call:desk.hang", 1),
            ),
        ];
        turns.push(self.summary());
        turns.push(self.embeddings().await);
        let (streaming, computing) = (model_script(&streaming), model_script(&call_reply("probe.spin", json!({}))));
        turns.push(self.delegated("another agent's model streams", streaming, ("before-model", 2)));
        turns.push(self.delegated("another agent's guest computes", computing, ("before-call:probe.spin", 1)));
        turns
    }

    fn model(&self, script: &Value) -> Arc<dyn Provider> {
        let name = format!("{}.json", uuid::Uuid::new_v4());
        std::fs::write(self.folder.join(&name), script.to_string()).expect("the script can be written");
        agent_models::provider(&format!("scripted:{name}"), self.folder).expect("the script is valid")
    }

    fn blocked_turn(
        &self,
        operation: &'static str,
        config: AgentConfig,
        script: Value,
        checkpoint: (&'static str, u32),
    ) -> BlockedTurn {
        let agent = Agent::new(config, self.model(&script), self.generation.clone()).expect("an agent");
        BlockedTurn { operation, agent: Arc::new(agent), input: long_text(), earlier_turns: 0, checkpoint }
    }

    fn with_slow_validator(&self) -> AgentConfig {
        let limits = CallLimits { pure_time: Duration::from_secs(60), ..CallLimits::default() };
        let mut config = AgentConfig::new("worker");
        config.validators = vec!["bad-validator".to_owned()];
        config.plugins.insert("bad-validator".to_owned(), PluginAllowance { limits, ..PluginAllowance::default() });
        config
    }

    /// Returns a turn whose context builder sends a request to the agent's model and blocks until the model replies.
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
        BlockedTurn {
            earlier_turns: 1,
            ..self.blocked_turn("a summary is written", config, script, ("before-model", 1))
        }
    }

    /// Returns a turn that blocks while the host embeds tools. The embedding server accepts the request, but never
    /// answers it.
    async fn embeddings(&self) -> BlockedTurn {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("the listener has an address"));
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
            protocol: Default::default(),
            timeouts: Default::default(),
            models: Default::default(),
        };
        let embedder: Embedder =
            Providers::new(vec![provider]).embedder("local/embedder").expect("the embedder is valid");
        let mut models = Models::new(self.model(&json!({"replies": [{"text": "unused"}]})), []);
        models.embedder = Some(Arc::new(embedder));
        let config = AgentConfig { offered_tools: 1, ..AgentConfig::new("worker") };
        let agent = Agent::new(config, models, self.generation.clone()).expect("an agent");
        let checkpoint = ("after-commit:start", 1);
        BlockedTurn {
            operation: "tools are embedded",
            agent: Arc::new(agent),
            input: long_text(),
            earlier_turns: 0,
            checkpoint,
        }
    }

    fn delegated(&self, operation: &'static str, script: Value, checkpoint: (&'static str, u32)) -> BlockedTurn {
        let child = self.blocked_turn(operation, AgentConfig::new("below"), script, checkpoint).agent;
        let mut config = AgentConfig::new("worker");
        let delegate = Delegate { agent: child.into(), description: "Works.".to_owned(), input_schema: None };
        config.delegates.insert("below".to_owned(), delegate);
        self.blocked_turn(
            operation,
            config,
            json!({"replies": [call_reply("below", json!({"task": "Work."}))]}),
            checkpoint,
        )
    }
}

/// Stops all MCP servers of the turns' agents.
pub(crate) async fn stop_servers(turns: &[BlockedTurn]) {
    for work in turns {
        work.agent.servers().shutdown().await;
    }
}

/// Returns the last event of a session as JSON, so that tests can check that the turn was cancelled.
pub(crate) async fn last_event(store: &dyn Store, session: &str) -> Option<String> {
    let events = store.events(session, 0, 10_000).await.expect("the events can be read");
    events.last().and_then(|event| serde_json::to_string(&event.event.kind).ok())
}
