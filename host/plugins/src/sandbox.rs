//! The sandbox: one engine with its pool, cache and store, shared by all plugins of the process.

use crate::admission::Admission;
use crate::compiler::{self, CompilerCommand};
use crate::engine::Metering;
use crate::http::{NameResolver, Network, SystemResolver};
use crate::limits::{HostLimits, MIB};
use crate::plugin::LoadedPlugin;
use crate::quarantine::Quarantine;
use crate::record::lock;
use crate::room::Rooms;
use crate::store::PluginStore;
use crate::trees::TreeHost;
use crate::turns::GuestTurns;
use crate::vetting::{Both, Vetting};
use agent_core::message::Digest;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Components compiled at once. Each compiles on all processors already.
const COMPILING: usize = 2;

/// How a sandbox is set up.
#[derive(Clone, Debug, Default)]
pub struct SandboxOptions {
    /// Where compiled code is kept. None: every start compiles.
    pub cache_directory: Option<PathBuf>,
    /// Where components are kept by digest. None: a suspended turn cannot find a plugin that has changed.
    pub store_directory: Option<PathBuf>,
    /// Where components are examined and compiled. None: in this process, which then bears what they do to a parser or a
    /// compiler; only for components that are trusted.
    pub compiler: Option<CompilerCommand>,
    /// Bounds over all calls.
    pub limits: HostLimits,
    /// Finds the addresses of names for `wasi:http`. None: the system's resolver.
    pub resolver: Option<Arc<dyn NameResolver>>,
    /// Says which files of a plugin folder may serve. None: all.
    pub vetting: Option<Arc<dyn Vetting>>,
}

/// A sandbox that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine refused its settings, or the system gave it no address space.
    #[error("the WebAssembly engine cannot start: {reason}")]
    Engine {
        /// What it said.
        reason: String,
    },
    /// The cache directory is not usable.
    #[error("the directory for compiled code {} is not usable: {source}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread that interrupts guests cannot start.
    #[error("the thread that interrupts plugins cannot start: {0}")]
    Ticker(std::io::Error),
}

/// Loads plugins and calls them. Cheap to clone; the last clone stops the engine.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
    pub(crate) vetting: Option<Arc<dyn Vetting>>,
}

pub(crate) struct Shared {
    pub(crate) rooms: Rooms,
    pub(crate) admission: Admission,
    pub(crate) turns: Arc<GuestTurns>,
    pub(crate) network: Arc<Network>,
    pub(crate) compiling: Arc<Semaphore>,
    /// MiB of memory for all that compile at once.
    pub(crate) compile_memory: Arc<Semaphore>,
    pub(crate) limits: HostLimits,
    pub(crate) quarantine: Option<Quarantine>,
    /// How often guests are interrupted.
    pub(crate) epoch_tick: Duration,
    /// Bytes of the largest component that is read.
    pub(crate) largest_component: u64,
    /// Bytes of a guest's own stack, for the error that it causes.
    pub(crate) wasm_stack: usize,
    pub(crate) compiler: Option<CompilerCommand>,
    pub(crate) store: Option<PluginStore>,
    pub(crate) trees: TreeHost,
    loaded: Mutex<HashMap<LoadedKey, Weak<LoadedPlugin>>>,
}

/// A component without a manifest takes its name from the file, so the same bytes may be two plugins.
type LoadedKey = (Digest, String, Metering);

impl Sandbox {
    /// Starts the engine. Once per process is enough.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let turns = GuestTurns::new(options.limits.epoch_tick);
        let quarantine = options.cache_directory.as_deref().map(Quarantine::new);
        let rooms = Rooms::new(options.limits, options.cache_directory, Arc::clone(&turns))?;
        let shared = Shared {
            rooms,
            admission: Admission::new(options.limits),
            turns,
            network: Arc::new(Network::new(options.resolver.unwrap_or_else(|| Arc::new(SystemResolver)))),
            compiling: Arc::new(Semaphore::new(COMPILING)),
            compile_memory: Arc::new(Semaphore::new(compiler::MOST_MEMORY / MIB)),
            limits: options.limits,
            quarantine,
            epoch_tick: options.limits.epoch_tick,
            largest_component: options.limits.component,
            wasm_stack: options.limits.wasm_stack,
            compiler: options.compiler,
            store: options.store_directory.map(PluginStore::new),
            trees: TreeHost::default(),
            loaded: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), vetting: options.vetting })
    }

    /// The same engine for an agent whose components another vetting is asked about, after that of this one.
    #[must_use]
    pub fn vetted_by(&self, vetting: Arc<dyn Vetting>) -> Self {
        let vetting = match self.vetting.clone() {
            Some(first) => Arc::new(Both { first, second: vetting }),
            None => vetting,
        };
        Self { shared: Arc::clone(&self.shared), vetting: Some(vetting) }
    }

    /// The plugin store, if there is one.
    pub fn store(&self) -> Option<&PluginStore> {
        self.shared.store.as_ref()
    }
}

impl Shared {
    /// The same plugin, if it is loaded already.
    pub(crate) fn loaded(&self, digest: &Digest, file_name: &str, metering: Metering) -> Option<Arc<LoadedPlugin>> {
        lock(&self.loaded).get(&(digest.clone(), file_name.to_owned(), metering))?.upgrade()
    }

    /// Remembers a plugin for as long as somebody holds it.
    pub(crate) fn remember(&self, file_name: &str, plugin: &Arc<LoadedPlugin>) {
        let mut loaded = lock(&self.loaded);
        loaded.retain(|_, plugin| plugin.strong_count() > 0);
        let key = (plugin.digest().clone(), file_name.to_owned(), plugin.room.metering);
        loaded.insert(key, Arc::downgrade(plugin));
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sandbox").field("store", &self.shared.store).finish_non_exhaustive()
    }
}
