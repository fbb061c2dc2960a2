//! Work that never ends by itself, of every kind that a turn waits for, and how long it takes to be cancelled (L29). Taken into
//! each test program that needs it.

use agent_core::message::TurnInput;
use agent_mcp::{ChildCommand, Keep, ServerConfig, Transport};
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

/// Until what has begun is sure to wait.
const SETTLED: Duration = Duration::from_millis(60);
/// Longer than anything is waited for.
const FOR_EVER: u64 = 60_000;

/// One kind.
pub(crate) struct Work {
    /// As in "cancelled while …".
    pub(crate) what: &'static str,
    pub(crate) agent: Arc<Agent>,
    /// What its turns are asked.
    input: String,
    /// Turns before it, which end.
    before: u32,
    /// The point behind which the work begins, and how often the turn passes it until then.
    point: (&'static str, u32),
}

/// A session whose turn was cancelled, and how long that took.
pub(crate) struct Cancelled {
    pub(crate) session: Session,
    pub(crate) result: TurnResult,
    pub(crate) took: Duration,
}

/// What the work is made of: a folder for scripts, the plugins `probe`, `bad-validator` and `stateful-builder`, and the
/// tests' MCP server.
pub(crate) struct Workshop<'w> {
    pub(crate) folder: &'w Path,
    pub(crate) generation: Generation,
    pub(crate) mcp_server: &'w Path,
}

impl Work {
    /// Runs the turn in a session of its own, and cancels it while the work goes on.
    pub(crate) async fn cancelled(&self, host: &Host) -> Cancelled {
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
            let asked = Instant::now();
            cancel.cancel();
            asked
        };
        let ending = async { (running.await, Instant::now()) };
        let ((result, ended), asked) = tokio::join!(ending, cancelling);
        let result = result.expect("the turn ends");
        Cancelled { session, result, took: ended.duration_since(asked) }
    }
}

/// Long enough that some of them fill a small window.
fn long() -> String {
    format!("Work. {}", "and so on ".repeat(1_000))
}

fn calling(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

impl Workshop<'_> {
    /// Every kind.
    pub(crate) async fn all(&self) -> Vec<Work> {
        let streaming = json!({"text": "Wait.", "delay_ms": FOR_EVER});
        let of_model = |reply: &Value| json!({ "replies": [reply] });
        let plain = || AgentConfig::new("worker");
        let mut all = vec![
            self.work("the model streams", plain(), of_model(&streaming), ("before-model", 1)),
            self.work(
                "a guest computes",
                plain(),
                of_model(&calling("probe.spin", json!({}))),
                ("before-call:probe.spin", 1),
            ),
            self.work(
                "a guest sleeps in a host call",
                plain(),
                of_model(&calling("probe.sleep", json!({"ms": FOR_EVER}))),
                ("before-call:probe.sleep", 1),
            ),
            self.work(
                "a validator runs",
                self.validated(),
                of_model(&json!({"text": "spin"})),
                ("after-commit:reply", 1),
            ),
            self.builder(),
            self.work(
                "the next try is waited for",
                plain(),
                of_model(
                    &json!({"text": "Wait", "error": {"status": 503, "message": "busy", "retry_after_ms": 20_000}}),
                ),
                ("after-commit:model_failed", 1),
            ),
            self.work(
                "an MCP server's tool runs",
                self.desk("good"),
                of_model(&calling("desk.hang", json!({}))),
                ("before-call:desk.hang", 1),
            ),
        ];
        all.push(self.summary());
        all.push(self.embeddings().await);
        let (streaming, computing) = (of_model(&streaming), of_model(&calling("probe.spin", json!({}))));
        all.push(self.delegated("another agent's model streams", streaming, ("before-model", 2)));
        all.push(self.delegated("another agent's guest computes", computing, ("before-call:probe.spin", 1)));
        all
    }

    fn model(&self, script: &Value) -> Arc<dyn Provider> {
        let name = format!("{}.json", uuid::Uuid::new_v4());
        std::fs::write(self.folder.join(&name), script.to_string()).expect("the script is written");
        agent_models::provider(&format!("scripted:{name}"), self.folder).expect("a script")
    }

    fn work(&self, what: &'static str, config: AgentConfig, script: Value, point: (&'static str, u32)) -> Work {
        let agent = Agent::new(config, self.model(&script), self.generation.clone()).expect("an agent");
        Work { what, agent: Arc::new(agent), input: long(), before: 0, point }
    }

    fn validated(&self) -> AgentConfig {
        let limits = CallLimits { pure_time: Duration::from_secs(60), ..CallLimits::default() };
        let mut config = AgentConfig::new("worker");
        config.validators = vec!["bad-validator".to_owned()];
        config.plugins.insert("bad-validator".to_owned(), PluginAllowance { limits, ..PluginAllowance::default() });
        config
    }

    /// A context builder that asks the agent's model.
    fn builder(&self) -> Work {
        let limits = CallLimits { builder_time: Duration::from_secs(60), ..CallLimits::default() };
        let grants = Grants { model_tokens: Some(100_000), ..Grants::default() };
        let mut config = AgentConfig::new("worker");
        config.context_builder = Some("stateful-builder".to_owned());
        let allowance = PluginAllowance { grants, limits, ..PluginAllowance::default() };
        config.plugins.insert("stateful-builder".to_owned(), allowance);
        let answer = json!({"text": "word", "delay_ms": FOR_EVER});
        let script = json!({"replies": [{"text": "unused"}], "answers": [answer]});
        let work = self.work("a context builder asks the model", config, script, ("after-commit:start", 1));
        Work { input: "ask the model".to_owned(), ..work }
    }

    fn desk(&self, mode: &str) -> AgentConfig {
        let command = ChildCommand {
            command: self.mcp_server.display().to_string(),
            args: vec![mode.to_owned()],
            ..ChildCommand::default()
        };
        let mut server = ServerConfig::new("desk", Transport::Stdio(command));
        server.keep = Keep::Always;
        AgentConfig { mcp: vec![server], ..AgentConfig::new("worker") }
    }

    fn summary(&self) -> Work {
        let slow = json!({"text": "They talked.", "delay_ms": FOR_EVER});
        let said = json!({"text": "Noted."});
        let script = json!({"window": 8_000, "replies": [said, said], "summaries": [slow]});
        let config = AgentConfig { offered_tools: 100, ..AgentConfig::new("worker") };
        Work { before: 1, ..self.work("a summary is written", config, script, ("before-model", 1)) }
    }

    /// A server that takes the request and never answers, as long as this process lives.
    async fn embeddings(&self) -> Work {
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
        Work { what: "tools are embedded", agent: Arc::new(agent), input: long(), before: 0, point }
    }

    fn delegated(&self, what: &'static str, script: Value, point: (&'static str, u32)) -> Work {
        let below = self.work(what, AgentConfig::new("below"), script, point).agent;
        let mut config = AgentConfig::new("worker");
        let delegate = Delegate { agent: below.into(), description: "Works.".to_owned(), input_schema: None };
        config.delegates.insert("below".to_owned(), delegate);
        self.work(what, config, json!({"replies": [calling("below", json!({"task": "Work."}))]}), point)
    }
}

/// Ends the MCP servers that were kept.
pub(crate) async fn finished(all: &[Work]) {
    for work in all {
        work.agent.servers().shutdown().await;
    }
}

/// The last event of a session's turn, in words; for what must be true of a cancelled one.
pub(crate) async fn last_event(store: &dyn Store, session: &str) -> Option<String> {
    let events = store.events(session, 0, 10_000).await.expect("events are there");
    events.last().and_then(|event| serde_json::to_string(&event.event.kind).ok())
}
