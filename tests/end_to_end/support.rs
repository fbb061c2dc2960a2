//! Shared test support: the built components, [`TestHost`] for running sessions, and helpers that read what a session
//! stored.

pub(crate) use crate::program::agent_host;
use agent_core::event::{Event, EventKind};
use agent_core::message::{Message, TurnInput};
use agent_core::view::shown_message;
use agent_devkit::build::{Project, Toolchain, build_projects, projects_in};
use agent_plugins::{Generation, Grants, HostLimits, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Downscaler, Host, OpenSession, PluginAllowance, Session, TurnResult};
use agent_store::{MessageRange, Options, SessionLog, SqliteStore, StoredRecord};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Returns the root folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("host/app is two levels deep")
}

/// Environment variable with the folder of the built components. A test process sets this variable for the test
/// processes that it starts.
pub(crate) const BUILT_COMPONENTS: &str = "AGENT_HOST_BUILT_COMPONENTS";

/// Returns the folder that contains all plugins and fixtures as `NAME.wasm`. The first call builds all of these
/// components, with the code of `plugin build`.
pub(crate) fn components() -> &'static Path {
    static COMPONENTS: OnceLock<PathBuf> = OnceLock::new();
    COMPONENTS.get_or_init(|| {
        if let Some(built) = std::env::var_os(BUILT_COMPONENTS) {
            return PathBuf::from(built);
        }
        let out = scratch().join("components");
        std::fs::create_dir_all(&out).expect("the target directory is writable");
        let mut projects: Vec<Project> = projects_in(&repository().join("plugins")).expect("plugins can be read");
        projects.extend(projects_in(&repository().join("tests/fixtures")).expect("fixtures can be read"));
        // A separate thread runs the build, because the caller may already be inside an async runtime.
        let build = std::thread::spawn({
            let out = out.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(build_projects(&toolchain(), &projects, &out, &|_| {})).map(|_| ())
            }
        });
        build.join().expect("the build does not panic").unwrap_or_else(|error| panic!("{error}"));
        out
    })
}

/// Returns a call id without the suffix that makes it unique across sessions.
pub(crate) fn base_call_id(id: &str) -> String {
    let call = agent_core::message::CallId(id.to_owned());
    let name = id.rsplit_once('_').map_or(id, |(name, _)| name);
    if call.is_named(name) { name.to_owned() } else { id.to_owned() }
}

pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

pub(crate) fn toolchain() -> Toolchain {
    Toolchain { cargo: Some(cargo()), rustup: Some(PathBuf::from("rustup")), ..Toolchain::default() }
}

/// Returns the folder for built components and compiled code. This folder is kept between test runs.
pub(crate) fn scratch() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    target.join("end-to-end")
}

/// Compiled code that tests share. A new data folder receives the code that earlier tests compiled. When this value is
/// dropped, compiled code that was added to the data folder is shared with later tests. The files are hard links,
/// because a data folder must not contain symbolic links.
pub(crate) struct SharedCompiledCode {
    cache: PathBuf,
}

impl SharedCompiledCode {
    /// Creates the data folder with access for its owner only.
    pub(crate) fn in_data(data: &Path) -> Self {
        let cache = data.join("cache");
        make_private(&cache);
        link_files(Self::shared(), &cache);
        Self { cache }
    }

    /// Returns the folder with the shared code and its key. A sandbox can use it as its cache.
    pub(crate) fn shared() -> &'static Path {
        static SHARED: OnceLock<PathBuf> = OnceLock::new();
        SHARED.get_or_init(|| {
            let shared = scratch().join("kept-code");
            make_private(&shared);
            // Creates the key, so that all data folders of this process get the same one.
            let options = SandboxOptions { cache_directory: Some(shared.clone()), ..SandboxOptions::default() };
            drop(Sandbox::new(options).expect("the sandbox starts"));
            shared
        })
    }
}

impl Drop for SharedCompiledCode {
    fn drop(&mut self) {
        let key = |folder: &Path| std::fs::read(folder.join("key")).ok();
        // The key is shared together with the compiled code, because the host accepts compiled code only if it was
        // written with the host's current key.
        if key(Self::shared()) == key(&self.cache) {
            link_files(&self.cache, Self::shared());
        }
    }
}

fn make_private(folder: &Path) {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).expect("a folder");
}

/// Creates hard links to the files of a folder and its subfolders. Existing files are not replaced.
fn link_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            make_private(&to);
            link_files(&from, &to);
        } else {
            let _ = std::fs::hard_link(from, to);
        }
    }
}

/// What a test needs to run sessions: a temporary directory with plugins, a store, a sandbox and an image downscaler.
pub(crate) struct TestHost {
    pub(crate) directory: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) sandbox: Sandbox,
    pub(crate) downscaler: Downscaler,
}

impl TestHost {
    pub(crate) async fn new(plugins: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("plugins")).expect("a fresh directory");
        std::fs::create_dir(directory.path().join("tree")).expect("a fresh directory");
        for plugin in plugins {
            let file = format!("{plugin}.wasm");
            let from = components().join(&file);
            let copied = std::fs::copy(&from, directory.path().join("plugins").join(&file));
            copied.unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        let store = SqliteStore::open(directory.path().join("agent-host.db"), Options::default());
        let options = SandboxOptions {
            cache_directory: Some(SharedCompiledCode::shared().to_owned()),
            installed_code: None,
            store_directory: Some(directory.path().join("store")),
            scratch_directory: Some(directory.path().join("scratch")),
            compiler: None,
            // This time limit is generous, because the compiler is a debug build in tests, and other tests use the
            // processors at the same time.
            limits: HostLimits { compile_time: Duration::from_secs(300), ..HostLimits::default() },
            resolver: None,
            verifier: None,
        };
        let sandbox = Sandbox::new(options).expect("the sandbox starts");
        let store = Arc::new(store.expect("the database opens"));
        Self { store, sandbox, downscaler: Downscaler::default(), directory }
    }

    /// Returns the directory that a test can grant to plugins.
    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    pub(crate) fn host(&self) -> Host {
        Host { downscaler: self.downscaler.clone(), ..Host::new(self.store.clone(), self.sandbox.clone()) }
    }

    pub(crate) async fn generation(&self) -> Generation {
        let (generation, problems) = self.load(&self.directory.path().join("plugins")).await;
        assert!(problems.is_empty(), "{problems:?}");
        generation
    }

    pub(crate) async fn load(&self, directory: &Path) -> (Generation, Vec<String>) {
        let loaded = Generation::load(&self.sandbox, directory, &|_| {}).await;
        let (generation, problems) = loaded.expect("the directory can be read");
        (generation, problems.iter().map(|problem| format!("{}: {}", problem.path.display(), problem.reason)).collect())
    }

    /// Creates an agent whose model returns the replies of the script.
    pub(crate) async fn agent(&self, config: AgentConfig, script: Value) -> Arc<Agent> {
        let file = self.directory.path().join(format!("{}.json", config.name));
        std::fs::write(&file, script.to_string()).expect("the script can be written");
        let name = format!("scripted:{}", file.display());
        let provider = agent_models::provider(&name, self.directory.path()).unwrap_or_else(|error| panic!("{error}"));
        let agent = Agent::new(config, provider, self.generation().await);
        Arc::new(agent.unwrap_or_else(|error| panic!("{error}")))
    }

    pub(crate) async fn session(&self, config: AgentConfig, script: Value) -> Session {
        let agent = self.agent(config, script).await;
        Session::open(&self.host(), agent, OpenSession::New).await.expect("a new session opens")
    }
}

/// Returns a configuration that lets the plugin read and write the test host's tree.
pub(crate) fn with_tree_grant(test_host: &TestHost, plugin: &str) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    let tree = agent_plugins::TreeGrant {
        host: test_host.tree(),
        guest: ".".to_owned(),
        access: agent_plugins::Access::ReadWrite,
    };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert(plugin.to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    config
}

/// Extends the configuration so that the plugin `probe` may call its service and read the media of the conversation.
pub(crate) fn with_events_and_media(mut config: AgentConfig) -> AgentConfig {
    let allowance = config.plugins.entry("probe".to_owned()).or_default();
    allowance.grants.events.insert("com.example.probe.v1".parse().expect("the event type is valid"));
    allowance.grants.media = true;
    config
}

/// Returns a model script that consists of these replies.
pub(crate) fn script(replies: &[Value]) -> Value {
    json!({ "replies": replies })
}

/// Returns a scripted reply that calls these tools.
pub(crate) fn call_reply(calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments}));
    json!({"calls": calls.collect::<Vec<_>>(), "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
}

/// Returns a scripted reply that contains only this text.
pub(crate) fn text_reply(text: &str) -> Value {
    json!({"text": text, "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
}

/// Returns a model script in which each reply expects certain messages in its request, written as `role seen-count`
/// (L3). If a request contains other messages, the turn fails, and the error shows the difference.
pub(crate) fn script_expecting_messages<const N: usize>(replies: [Value; N], requests: [&[&str]; N]) -> Value {
    let replies = replies.into_iter().zip(requests).map(|(mut reply, request)| {
        let parts = request.iter().map(|message| message.split_once(' ').expect("a role and a seen count"));
        let (roles, seen): (Vec<&str>, Vec<u32>) =
            parts.map(|(role, seen)| (role, seen.parse::<u32>().unwrap())).unzip();
        reply["expect"]["roles"] = json!(roles);
        reply["expect"]["seen_counts"] = json!(seen);
        reply
    });
    json!({ "replies": replies.collect::<Vec<_>>() })
}

/// Runs one turn to its end.
pub(crate) async fn run_turn(session: &mut Session, prompt: &str) -> TurnResult {
    let input = Some(TurnInput::Text(prompt.to_owned()));
    session.run(input, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns all stored messages of the session's view with their seen counts.
pub(crate) async fn visible_messages(test_host: &TestHost, session: &Session) -> Vec<Message> {
    let entries = &session.state().view;
    let ids = entries.iter().map(|entry| entry.id).collect();
    let messages =
        test_host.store.messages(session.subject(), MessageRange::Ids(ids)).await.expect("the messages can be read");
    let limit = session.state().turn.as_ref().map_or(usize::MAX, |turn| turn.config.result_characters as usize);
    let message_entries = messages.iter().zip(entries);
    message_entries.map(|(message, entry)| shown_message(message, session.state().seen_count(entry), limit)).collect()
}

/// Returns `role seen-count` for each message of the session's view.
pub(crate) async fn view_summary(test_host: &TestHost, session: &Session) -> Vec<String> {
    let messages = visible_messages(test_host, session).await;
    messages.iter().map(|message| format!("{} {}", message.role.as_str(), message.seen_count)).collect()
}

/// Returns all durable events of the session.
pub(crate) async fn events(test_host: &TestHost, session: &Session) -> Vec<Event> {
    let events = test_host.store.events(session.subject(), 0, 10_000).await.expect("the events can be read");
    events.into_iter().map(|timed| timed.event).collect()
}

/// Returns the types of all durable events of the session, without `context_budget` events.
pub(crate) async fn event_types(test_host: &TestHost, session: &Session) -> Vec<String> {
    let events = events(test_host, session).await;
    let events = events.iter().filter(|event| !matches!(event.kind, EventKind::ContextBudget { .. }));
    events
        .map(|event| {
            serde_json::to_value(&event.kind).expect("an event serialises")["type"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// Returns all records that the host stored for the steps of a turn.
pub(crate) async fn records(test_host: &TestHost, session: &Session, turn: u32) -> Vec<StoredRecord> {
    let range = agent_store::RecordRange::Turn(turn);
    test_host.store.records(session.subject(), range).await.expect("the records can be read")
}

/// Returns the stored results of all calls, in the order in which the model made the calls. Each entry contains the
/// tool's name, whether the result is an error, and the text of the result.
pub(crate) async fn results(test_host: &TestHost, session: &Session) -> Vec<(String, bool, String)> {
    let turns = 1..=session.state().turns;
    let mut results = Vec::new();
    for turn in turns {
        let calls = test_host.store.calls(session.subject(), agent_store::CallFilter::Turn(turn)).await.expect("calls");
        results.extend(calls.into_iter().map(|call| {
            let result = call.result.unwrap_or_else(|| panic!("call {} has no result", call.id));
            (call.name, result.is_error, agent_core::view::result_text(&result.content))
        }));
    }
    results
}
