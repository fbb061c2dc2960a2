//! A wasmtime engine and the objects that depend on it: the linkers, the cache of compiled code and the thread
//! that advances epochs. A sandbox starts with one context, whose engine does not count fuel, because counting
//! slows down every loop. When the fuel of a plugin must be counted, the sandbox creates a second context, whose
//! engine counts fuel.

use super::code_cache::CompiledCache;
use super::installed_code::InstalledCode;
use super::quarantine::ExaminerId;
use crate::execution::engine::{self, AddressSpace, CodeOptions, Metering, Ticker};
use crate::execution::linkers::Linkers;
use crate::execution::scheduler::Scheduler;
use crate::limits::HostLimits;
use crate::sync::lock;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use wasmtime::Engine;

/// The reason why a sandbox cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// wasmtime refused the settings for the engine, or the system did not provide enough address space.
    #[error("the WebAssembly engine cannot start: {reason}")]
    Engine {
        /// The error message of wasmtime.
        reason: String,
    },
    /// The directory for compiled code cannot be used.
    #[error("the directory for compiled code, {}, cannot be used: {source}", path.display())]
    Cache {
        /// Path of the directory for compiled code.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The thread that interrupts guests cannot start.
    #[error("the thread that interrupts plugins cannot start: {0}")]
    Ticker(std::io::Error),
}

/// A wasmtime engine and the objects that were created for it.
pub(crate) struct EngineContext {
    pub(crate) engine: Engine,
    pub(crate) metering: Metering,
    pub(crate) space: AddressSpace,
    pub(crate) linkers: Linkers,
    pub(crate) cache: Option<CompiledCache>,
    /// Compiled code that was installed together with this program, if there is code for this engine.
    pub(crate) installed_code: Option<InstalledCode>,
    /// Hash of everything on which compiled code for this engine depends.
    pub(crate) compatibility: blake3::Hash,
    /// Identifies this engine, the host version and the limits in entries of the quarantine.
    pub(crate) examiner: ExaminerId,
    _ticker: Ticker,
}

/// The engine contexts of a sandbox: one without metering, and one with metering that is created when it is first
/// needed.
pub(crate) struct EngineContexts {
    unmetered: Arc<EngineContext>,
    metered: Mutex<Option<Arc<EngineContext>>>,
    limits: HostLimits,
    folders: CodeFolders,
    scheduler: Arc<Scheduler>,
}

/// The folders with compiled code. Each of them may be missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeFolders {
    /// The cache, which only the user of this process can access.
    pub(crate) cache: Option<PathBuf>,
    /// The code that was installed together with this program.
    pub(crate) installed: Option<PathBuf>,
}

impl EngineContext {
    /// Returns the options for compiling code for this engine.
    pub(crate) fn code_options(&self) -> CodeOptions {
        CodeOptions { metering: self.metering, space: self.space }
    }

    fn new(
        limits: HostLimits,
        folders: &CodeFolders,
        (metering, scheduler): (Metering, &Arc<Scheduler>),
    ) -> Result<Arc<Self>, SandboxError> {
        let engine_error = |error: wasmtime::Error| SandboxError::Engine { reason: format!("{error:#}") };
        let options = CodeOptions { metering, space: AddressSpace::Reserved };
        let (engine, space) = match engine::engine(limits, options) {
            Ok(engine) => (engine, AddressSpace::Reserved),
            Err(error) => {
                let small = engine::engine(limits, CodeOptions { space: AddressSpace::Small, ..options })
                    .map_err(engine_error)?;
                tracing::warn!(
                    "plugins run more slowly, because this process cannot reserve the address space that the engine needs (see \
                                        `ulimit -v` and the limits of the system): {error:#}"
                );
                (small, AddressSpace::Small)
            }
        };
        let linkers = Linkers::new(&engine).map_err(engine_error)?;
        let compatibility = engine::compatibility_hash(&engine);
        let cache = folders.cache.as_ref().map(|path| {
            CompiledCache::open(path, compatibility, limits.cache)
                .map_err(|source| SandboxError::Cache { path: path.clone(), source })
        });
        let cache = cache.transpose()?.flatten();
        let installed_code =
            folders.installed.as_ref().and_then(|path| InstalledCode::open(path, compatibility, limits.cache));
        let scheduler = Arc::clone(scheduler);
        let ticker = Ticker::start(engine.clone(), limits.epoch_tick, move || scheduler.expire_offers());
        let ticker = ticker.map_err(SandboxError::Ticker)?;
        let examiner = ExaminerId::new(&compatibility, &limits);
        Ok(Arc::new(Self {
            engine,
            metering,
            space,
            linkers,
            cache,
            installed_code,
            compatibility,
            examiner,
            _ticker: ticker,
        }))
    }
}

impl EngineContexts {
    pub(crate) fn new(
        limits: HostLimits,
        folders: CodeFolders,
        scheduler: Arc<Scheduler>,
    ) -> Result<Self, SandboxError> {
        let unmetered = EngineContext::new(limits, &folders, (Metering::Off, &scheduler))?;
        Ok(Self { unmetered, metered: Mutex::default(), limits, folders, scheduler })
    }

    /// Returns the engine context for `metering`, which determines whether the engine counts fuel.
    pub(crate) fn get(&self, metering: Metering) -> Result<Arc<EngineContext>, SandboxError> {
        if metering == Metering::Off {
            return Ok(Arc::clone(&self.unmetered));
        }
        let mut metered = lock(&self.metered);
        if let Some(context) = &*metered {
            return Ok(Arc::clone(context));
        }
        let context = EngineContext::new(self.limits, &self.folders, (Metering::Fuel, &self.scheduler))?;
        Ok(Arc::clone(metered.insert(context)))
    }
}
