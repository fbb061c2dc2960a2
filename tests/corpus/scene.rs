//! Runs attacks in a test host. During an attack, a separate agent (the witness) must still finish its turns.

use crate::support::{BUILT_COMPONENTS, TestHost, call_reply, components, results, run_turn, script, text_reply};
use crate::usage::Usage;
use agent_plugins::{CallLimits, Generation, Grants};
use agent_runtime::{Agent, AgentConfig, OpenSession, PluginAllowance, Session, TurnResult};
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The number of times that each attack is repeated in a normal run of the tests.
const REPEATS: usize = 3;
/// The number of times that each attack is repeated if the environment variable [`EVERY_REPEAT_VARIABLE`] is set. The
/// table of threats requires this number of repeats.
const ALL_REPEATS: usize = 100;
const EVERY_REPEAT_VARIABLE: &str = "AGENT_HOST_EVERY_REPEAT";
/// The number of repeats before the resources are measured. After these repeats, all one-time allocations exist.
const WARM_UP: usize = 2;
/// The longest time that a turn of the witness may take. Only an agent that gets no processor time exceeds this time.
const WITNESS_TIME: Duration = Duration::from_secs(20);
/// The maximum number of turns in one session of the witness.
const WITNESS_TURNS: usize = 200;
/// The time limit for calls that would otherwise never end.
pub(crate) const SHORT_TIME_LIMIT: Duration = Duration::from_millis(300);

/// Runs the test of a row in a separate process, because the resources of the whole process are counted. Other
/// tests of the corpus run at the same time in other processes. Each process runs this test binary, but only
/// the selected test.
pub(crate) fn run_exclusively(test: impl Future<Output = ()>) {
    let thread = std::thread::current();
    match thread.name() {
        // This variable is set in each process that was started to run a single test.
        Some(name) if std::env::var_os(BUILT_COMPONENTS).is_none() => run_in_own_process(name),
        // Without optimisation, the future of a test is too large for several copies on the stack.
        _ => run_in_this_process(Box::pin(test)),
    }
}

#[allow(clippy::print_stdout, reason = "the test harness captures the output")]
fn run_in_own_process(name: &str) {
    let program = std::env::current_exe().expect("a running program has a file");
    let run = Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(BUILT_COMPONENTS, components())
        .output()
        .unwrap_or_else(|error| panic!("the process of the test does not start: {error}"));
    // The test harness shows this output if the test fails, or if the harness does not capture output.
    print!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{name} failed in its own process: {}", run.status);
}

/// Runs the test on a runtime whose idle threads end soon.
fn run_in_this_process(test: impl Future<Output = ()>) {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _guard = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    components();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.thread_keep_alive(Duration::from_millis(100)).enable_all().build().expect("the runtime starts");
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
    // The runtime does not wait for a thread that hangs, so that other tests can run. A test whose thread hangs has
    // already failed.
    runtime.shutdown_background();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Returns how often each attack is repeated in this run.
pub(crate) fn repeats() -> usize {
    if std::env::var_os(EVERY_REPEAT_VARIABLE).is_some() { ALL_REPEATS } else { REPEATS }
}

/// A test host whose plugins are loaded, and the witness, which is the agent that must not be disturbed by attacks.
pub(crate) struct Scene {
    pub(crate) test_host: TestHost,
    pub(crate) generation: Generation,
    witness: Arc<Agent>,
}

impl Scene {
    /// Creates a scene with these built plugins, and the witness's own plugin.
    pub(crate) async fn new(plugins: &[&str]) -> Self {
        Self::with_components(plugins, &[]).await
    }

    /// Creates a scene with these built plugins, these generated components and the witness's own plugin.
    pub(crate) async fn with_components(plugins: &[&str], guests: &[(&str, Vec<u8>)]) -> Self {
        let names: Vec<_> = ["probe"].iter().chain(plugins.iter().filter(|name| **name != "probe")).copied().collect();
        let test_host = TestHost::new(&names).await;
        for (name, bytes) in guests {
            std::fs::write(test_host.directory.path().join(format!("plugins/{name}.wasm")), bytes)
                .expect("the component can be written");
        }
        Self::in_test_host(test_host).await
    }

    /// Creates a scene in an existing test host.
    pub(crate) async fn in_test_host(test_host: TestHost) -> Self {
        let replies: Vec<_> = (0..WITNESS_TURNS)
            .flat_map(|_| [call_reply(&[("probe.echo", json!({"text": "alive"}))]), text_reply("I go on.")])
            .collect();
        let witness = test_host.agent(AgentConfig::new("witness"), script(&replies)).await;
        let generation = witness.generation().clone();
        Self { test_host, generation, witness }
    }

    /// The test host's folder, which contains all files of the scene.
    pub(crate) fn folder(&self) -> &Path {
        self.test_host.directory.path()
    }

    /// The plugin's identity, `plugin@digest`, which errors contain.
    pub(crate) fn identity(&self, plugin: &str) -> String {
        let plugin = self.generation.plugin(plugin).unwrap_or_else(|| panic!("no plugin {plugin}"));
        format!("{}@{}", plugin.name(), plugin.digest().short())
    }

    /// Opens a new session whose model returns these replies.
    pub(crate) async fn session(&self, config: AgentConfig, replies: &[Value]) -> Session {
        let file = self.folder().join(format!("{}.json", config.name));
        std::fs::write(&file, script(replies).to_string()).expect("the script can be written");
        let provider = agent_models::provider(&format!("scripted:{}", file.display()), self.folder());
        let provider = provider.unwrap_or_else(|error| panic!("{error}"));
        let agent = Agent::new(config, provider, self.generation.clone()).unwrap_or_else(|error| panic!("{error}"));
        Session::open(&self.test_host.host(), Arc::new(agent), OpenSession::New).await.expect("a new session opens")
    }

    /// Makes these calls in one turn, which must finish. Returns for each call whether it failed, and the result text
    /// that the model receives.
    pub(crate) async fn calls(&self, config: AgentConfig, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
        let mut session = self.session(config, &[call_reply(calls), text_reply("Done.")]).await;
        let result = run_turn(&mut session, "Go.").await;
        assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
        let results = results(&self.test_host, &session).await;
        session.close().await.expect("the session closes");
        results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
    }

    /// Makes one call in a new session. Returns whether the call failed, and the result text that the model receives.
    pub(crate) async fn call(&self, config: AgentConfig, name: &str, arguments: Value) -> (bool, String) {
        self.calls(config, &[(name, arguments)]).await.remove(0)
    }

    /// Makes one call in a new session. The call must fail with an error that names the limit, the plugin and the
    /// plugin's digest.
    pub(crate) async fn check_stopped(
        &self,
        config: AgentConfig,
        (plugin, name, arguments): (&str, &str, Value),
        limit: &str,
    ) {
        let call_text = format!("{name} {arguments}");
        let (is_error, text) = self.call(config, name, arguments).await;
        assert!(is_error && text.contains(&self.identity(plugin)) && text.contains(limit), "{call_text}: {text}");
    }

    /// Repeats an attack. During each attack, the witness must finish at least one turn. At the end, the process must
    /// not use more resources than at the start.
    pub(crate) async fn repeat(&self, row: &str, attack: impl AsyncFn(usize)) {
        self.repeat_times(row, repeats(), attack).await;
    }

    /// Repeats an attack `repeats` times.
    #[allow(clippy::print_stderr, reason = "developers read the measurements")]
    pub(crate) async fn repeat_times(&self, row: &str, repeats: usize, attack: impl AsyncFn(usize)) {
        for repeat in 0..WARM_UP {
            self.attack_once(&attack, repeat).await;
        }
        let before = Usage::wait_until_quiet(self.folder()).await;
        let mut turns = 0;
        for repeat in WARM_UP..WARM_UP + repeats {
            turns += self.attack_once(&attack, repeat).await;
        }
        let after = before.wait_until_settled(row, self.folder()).await;
        eprintln!("{row}: {repeats} times, {turns} turns of the witness; before {before}; after {after}");
    }

    /// Runs one attack next to the witness, and returns how many turns the witness finished.
    async fn attack_once(&self, attack: &impl AsyncFn(usize), repeat: usize) -> usize {
        let (is_over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let witness =
            tokio::spawn(run_witness(self.test_host.host(), self.witness.clone(), (is_over.clone(), turns.clone())));
        attack(repeat).await;
        is_over.store(true, Ordering::Relaxed);
        witness.await.unwrap_or_else(|error| panic!("the witness failed: {error}"));
        turns.load(Ordering::Relaxed)
    }
}

/// Runs at least one turn, and further turns until the attack is over.
async fn run_witness(
    host: agent_runtime::Host,
    agent: Arc<Agent>,
    (is_over, turns): (Arc<AtomicBool>, Arc<AtomicUsize>),
) {
    let mut session = Session::open(&host, agent, OpenSession::New).await.expect("the witness's session opens");
    for _ in 0..WITNESS_TURNS {
        let result = tokio::time::timeout(WITNESS_TIME, run_turn(&mut session, "Are you there?")).await;
        let result = result.unwrap_or_else(|_| panic!("a turn of the witness takes longer than {WITNESS_TIME:?}"));
        assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
        turns.fetch_add(1, Ordering::Relaxed);
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    session.close().await.expect("the session closes");
}

/// Returns the configuration of an agent with these grants for the plugin, and a short time limit for calls.
pub(crate) fn with_short_calls(plugin: &str, grants: Grants) -> AgentConfig {
    with_grants(plugin, grants, CallLimits { tool_time: SHORT_TIME_LIMIT, ..CallLimits::default() })
}

/// Returns the configuration of an agent with these grants and limits for the plugin.
pub(crate) fn with_grants(plugin: &str, grants: Grants, limits: CallLimits) -> AgentConfig {
    let mut config = AgentConfig::new("attacker");
    config.plugins.insert(plugin.to_owned(), PluginAllowance { grants, limits, ..PluginAllowance::default() });
    config
}
