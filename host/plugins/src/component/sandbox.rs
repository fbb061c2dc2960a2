//! The sandbox: the engine with its limits, cache and plugin store, shared by all plugins of the process.

use super::compiler::{self, CompilerCommand};
use super::engine_context::{CodeFolders, EngineContexts, SandboxError};
use super::plugin::LoadedPlugin;
use super::plugin_store::{PluginStore, PluginStoreError};
use super::quarantine::Quarantine;
use super::verifier::{ComponentVerifier, VerifierPair};
use crate::capabilities::http::{NameResolver, Network, SystemResolver};
use crate::execution::admission::Admission;
use crate::execution::engine::Metering;
use crate::execution::observer::{CallObserver, SandboxLoad};
use crate::execution::runner::CallRunner;
use crate::execution::scheduler::Scheduler;
use crate::file_trees::{HostTree, ProtectedPath, ScratchFolders, ScratchQuota, ScratchTrees, TreeHost, TreeProblem};
use crate::grants::TreeGrant;
use crate::limits::{HostLimits, MIB};
use crate::recording::files::{ReplayTreeError, ReplayTrees};
use crate::recording::host_calls::HostCallLog;
use crate::sync::lock;
use agent_core::message::Digest;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tokio::sync::Semaphore;

/// Number of components that are compiled at the same time. Each compilation already uses all processors.
const CONCURRENT_COMPILATIONS: usize = 2;

/// The configuration of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxOptions {
    /// Directory for compiled code. If None, all components are compiled again at every start.
    pub cache_directory: Option<PathBuf>,
    /// Directory of compiled code that was installed together with the program, which [`Sandbox::install_code`] has
    /// written. The host uses this code only if nobody except root and the user of this process can write to it. If
    /// None, there is no such code.
    pub installed_code: Option<PathBuf>,
    /// Directory of the plugin store. If None, a suspended turn cannot continue after one of its plugins has changed.
    pub store_directory: Option<PathBuf>,
    /// Directory for the files of rehearsals and replays. No grant covers it, and only the current user should have
    /// access to it. If None, these files are in a folder in the system's temporary folder, where plugins of other
    /// sandboxes may have access to them.
    pub scratch_directory: Option<PathBuf>,
    /// Command that starts the compiler process. If None, components are compiled in the host process, where a
    /// malicious component can attack the parser and the compiler. Use None only if all components are trusted.
    pub compiler: Option<CompilerCommand>,
    /// Limits that all calls share.
    pub limits: HostLimits,
    /// Resolver of host names for `wasi:http`. If None, the system's resolver is used.
    pub resolver: Option<Arc<dyn NameResolver>>,
    /// Verifier that decides whether a component in a plugin folder or in the plugin store may be used. If None, all
    /// components may be used.
    pub verifier: Option<Arc<dyn ComponentVerifier>>,
}

/// Loads plugins and calls them. A sandbox is cheap to clone. The engine stops when the last clone is dropped.
///
/// ```
/// use agent_core::message::CallId;
/// use agent_core::plugin::{Scope, TraceContext};
/// use agent_core::tool::{ToolDone, ToolOutcome};
/// use agent_plugins::{
///     CallLimits, Grants, PluginSetup, Ports, Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest,
/// };
/// use std::time::Duration;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let component = wat::parse_str(
///     r#"(component
///          (core module $code (func (export "double") (param i32) (result i32)
///            (i32.mul (local.get 0) (i32.const 2))))
///          (core instance $code (instantiate $code))
///          (func (export "double") (param "number" u32) (result u32) (canon lift (core func $code "double"))))"#,
/// )?;
/// let sandbox = Sandbox::new(SandboxOptions::default())?;
/// let plugin = sandbox.load_bytes("numbers", component).await?;
/// let tool = &plugin.tools()[0].name;
/// assert_eq!(tool, "double");
///
/// // The plugin gets no grants, and the default limits apply to the call.
/// let setup = PluginSetup::new(plugin.clone(), Grants::default(), CallLimits::default());
/// let scope = Scope {
///     agent: "helper".to_owned(),
///     session: "helper/1".to_owned(),
///     delegated_by: None,
///     user: None,
///     turn: 1,
///     trace: TraceContext { traceparent: String::new(), tracestate: None },
/// };
/// let context =
///     ToolCallContext { id: CallId("1.1.1".to_owned()), attempt: 1, time_limit: Duration::from_secs(5), scope };
/// let request = ToolCallRequest { name: tool, args: r#"{"number": 21}"#.to_owned(), context };
/// let report = sandbox.call_tool(&setup, request, &Ports::default()).await;
/// let Ok(ToolOutcome::Done(ToolDone { structured, .. })) = report.result? else { panic!("the tool fails") };
/// assert_eq!(structured, Some(serde_json::json!(42)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
    pub(crate) verifier: Option<Arc<dyn ComponentVerifier>>,
}

pub(crate) struct Shared {
    pub(crate) engines: EngineContexts,
    pub(crate) runner: CallRunner,
    pub(crate) compiling: Arc<Semaphore>,
    /// Permits for the memory of all compilations that run at the same time. Each permit allows one MiB of memory.
    pub(crate) compile_memory: Arc<Semaphore>,
    pub(crate) limits: HostLimits,
    pub(crate) quarantine: Option<Quarantine>,
    /// Maximum size of a component that is read, in bytes.
    pub(crate) largest_component: u64,
    pub(crate) compiler: Option<CompilerCommand>,
    pub(crate) store: Option<PluginStore>,
    loaded: Mutex<HashMap<LoadedKey, Weak<LoadedPlugin>>>,
}

/// The digest, the file name and the metering of a loaded plugin. A component without a manifest gets its name from the
/// file, so two files with the same bytes may be two plugins.
type LoadedKey = (Digest, String, Metering);

impl Sandbox {
    /// Starts the engine of a new sandbox. A process needs only one sandbox.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let scheduler = Scheduler::new(options.limits.epoch_tick);
        let quarantine = options.cache_directory.as_deref().map(Quarantine::new);
        let folders = CodeFolders { cache: options.cache_directory, installed: options.installed_code };
        let engines = EngineContexts::new(options.limits, folders, Arc::clone(&scheduler))?;
        let runner = CallRunner {
            admission: Admission::new(options.limits),
            scheduler,
            network: Arc::new(Network::new(options.resolver.unwrap_or_else(|| Arc::new(SystemResolver)))),
            trees: TreeHost { scratch: ScratchFolders::new(options.scratch_directory), ..TreeHost::default() },
            epoch_tick: options.limits.epoch_tick,
            wasm_stack: options.limits.wasm_stack,
            observer: OnceLock::new(),
        };
        let shared = Shared {
            engines,
            runner,
            compiling: Arc::new(Semaphore::new(CONCURRENT_COMPILATIONS)),
            compile_memory: Arc::new(Semaphore::new(compiler::MAX_MEMORY / MIB)),
            limits: options.limits,
            quarantine,
            largest_component: options.limits.component,
            compiler: options.compiler,
            store: options.store_directory.map(PluginStore::new),
            loaded: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), verifier: options.verifier })
    }

    /// Calls the observer after each call of a plugin from now on, also in sandboxes that share the engine of this sandbox. Only
    /// the first observer of an engine is used.
    pub fn observe_calls(&self, observer: CallObserver) {
        if self.shared.runner.observer.set(observer).is_err() {
            tracing::debug!("the sandbox already has an observer of calls");
        }
    }

    /// Returns what other machines may know about the origin of a component in the plugin store. `None` if the component is the
    /// user's own plugin, or comes from a place that only this machine can use. Reads a file.
    pub fn shared_statements(&self, digest: &Digest) -> Result<Option<String>, PluginStoreError> {
        let (Some(store), Some(verifier)) = (self.store(), &self.verifier) else { return Ok(None) };
        Ok(store.vouched(digest)?.and_then(|vouched| verifier.shared_statements(&vouched)))
    }

    /// Returns the number of calls that run or wait now.
    pub fn current_load(&self) -> SandboxLoad {
        self.shared.runner.admission.load()
    }

    /// Returns a sandbox that shares the engine of this sandbox and has an additional verifier. A component is used
    /// only if the verifier of this sandbox and the additional verifier allow it. The verifier of this sandbox is
    /// called first.
    #[must_use]
    pub fn verified_by(&self, verifier: Arc<dyn ComponentVerifier>) -> Self {
        let verifier = match self.verifier.clone() {
            Some(first) => Arc::new(VerifierPair { first, second: verifier }),
            None => verifier,
        };
        Self { shared: Arc::clone(&self.shared), verifier: Some(verifier) }
    }

    /// Returns the store that keeps the components of earlier versions. `None` if the sandbox was created without one.
    pub fn store(&self) -> Option<&PluginStore> {
        self.shared.store.as_ref()
    }

    /// Adds paths that no plugin may access. Even a grant of a directory that contains a protected path does not allow
    /// access to this path (P13).
    pub fn protect(&self, paths: impl IntoIterator<Item = ProtectedPath>) {
        self.shared.runner.trees.protected.add(paths);
    }

    /// The protected paths, which plugins cannot access even if a containing directory is granted.
    pub fn protected(&self) -> Vec<ProtectedPath> {
        self.shared.runner.trees.protected.all().to_vec()
    }

    /// Opens granted trees before any guest runs, so that no guest can redirect their paths. Returns the trees that
    /// cannot be opened. This function blocks the current thread.
    pub fn open_trees(&self, trees: &[TreeGrant]) -> Vec<TreeProblem> {
        self.shared.runner.trees.open_all(trees)
    }

    /// Opens a granted tree for the host's own tools. This function blocks the current thread.
    pub fn host_tree(&self, tree: &TreeGrant) -> Result<HostTree, TreeProblem> {
        self.shared.runner.trees.tree(tree)
    }

    /// Creates empty scratch trees, in which a call can change files without an effect on granted trees. This function
    /// blocks the current thread.
    pub fn scratch_trees(&self, trees: usize, quota: ScratchQuota) -> std::io::Result<ScratchTrees> {
        let TreeHost { scratch, protected, .. } = &self.shared.runner.trees;
        scratch.create(protected, trees, quota)
    }
}

impl ReplayTrees {
    /// Creates the recorded directory trees in a temporary directory, for a replay. Each file that is missing from the
    /// recording is copied from the granted tree with the same name. Returns None if no trees were recorded.
    pub fn create(
        recorded: &HostCallLog,
        granted: &[TreeGrant],
        sandbox: &Sandbox,
    ) -> Result<Option<Self>, ReplayTreeError> {
        Self::create_in(recorded, granted, &sandbox.shared.runner.trees)
    }
}

impl Shared {
    /// Returns the plugin if it is already loaded.
    pub(crate) fn loaded(&self, digest: &Digest, file_name: &str, metering: Metering) -> Option<Arc<LoadedPlugin>> {
        lock(&self.loaded).get(&(digest.clone(), file_name.to_owned(), metering))?.upgrade()
    }

    /// Remembers a loaded plugin until its last reference is dropped, so that it is not loaded a second time.
    pub(crate) fn remember(&self, file_name: &str, plugin: &Arc<LoadedPlugin>) {
        let mut loaded = lock(&self.loaded);
        loaded.retain(|_, plugin| plugin.strong_count() > 0);
        let key = (plugin.digest().clone(), file_name.to_owned(), plugin.engine_context.metering);
        loaded.insert(key, Arc::downgrade(plugin));
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sandbox").field("store", &self.shared.store).finish_non_exhaustive()
    }
}
