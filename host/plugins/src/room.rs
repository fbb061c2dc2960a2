//! An engine with what depends on it: the linkers, the cache of compiled code, the thread that ends epochs. A sandbox has
//! one, and a second one whose engine counts fuel as soon as a plugin needs it: counting takes time in every loop, so that
//! nobody pays for it who has not asked.

use crate::cache::CompiledCache;
use crate::engine::{self, AddressSpace, Build, Metering, Ticker};
use crate::limits::HostLimits;
use crate::linkers::Linkers;
use crate::quarantine::Judge;
use crate::record::lock;
use crate::sandbox::SandboxError;
use crate::turns::GuestTurns;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use wasmtime::Engine;

/// An engine and what is made for it.
pub(crate) struct Room {
    pub(crate) engine: Engine,
    pub(crate) metering: Metering,
    pub(crate) space: AddressSpace,
    pub(crate) linkers: Linkers,
    pub(crate) cache: Option<CompiledCache>,
    /// What examines components for it.
    pub(crate) judge: Judge,
    _ticker: Ticker,
}

/// The rooms of a sandbox.
pub(crate) struct Rooms {
    plain: Arc<Room>,
    metered: Mutex<Option<Arc<Room>>>,
    limits: HostLimits,
    cache_directory: Option<PathBuf>,
    turns: Arc<GuestTurns>,
}

impl Room {
    /// What code is compiled for it.
    pub(crate) fn build(&self) -> Build {
        Build { metering: self.metering, space: self.space }
    }

    fn new(
        limits: HostLimits,
        cache_directory: Option<&PathBuf>,
        (metering, turns): (Metering, &Arc<GuestTurns>),
    ) -> Result<Arc<Self>, SandboxError> {
        let engine_error = |error: wasmtime::Error| SandboxError::Engine { reason: format!("{error:#}") };
        let build = Build { metering, space: AddressSpace::Reserved };
        let (engine, space) = match engine::engine(limits, build) {
            Ok(engine) => (engine, AddressSpace::Reserved),
            Err(error) => {
                let small =
                    engine::engine(limits, Build { space: AddressSpace::Small, ..build }).map_err(engine_error)?;
                tracing::warn!(
                    "plugins run slower, since this process may not have the address space that the engine reserves (`ulimit -v`, \
                     or the system's limit): {error:#}"
                );
                (small, AddressSpace::Small)
            }
        };
        let linkers = Linkers::new(&engine).map_err(engine_error)?;
        let compatibility = engine::compatibility_hash(&engine);
        let cache = cache_directory.map(|path| {
            CompiledCache::open(path, compatibility, limits.cache)
                .map_err(|source| SandboxError::Cache { path: path.clone(), source })
        });
        let cache = cache.transpose()?.flatten();
        let turns = Arc::clone(turns);
        let ticker = Ticker::start(engine.clone(), limits.epoch_tick, move || turns.pass_over());
        let ticker = ticker.map_err(SandboxError::Ticker)?;
        let judge = Judge::new(&compatibility, &limits);
        Ok(Arc::new(Self { engine, metering, space, linkers, cache, judge, _ticker: ticker }))
    }
}

impl Rooms {
    pub(crate) fn new(
        limits: HostLimits,
        cache_directory: Option<PathBuf>,
        turns: Arc<GuestTurns>,
    ) -> Result<Self, SandboxError> {
        let plain = Room::new(limits, cache_directory.as_ref(), (Metering::Off, &turns))?;
        Ok(Self { plain, metered: Mutex::default(), limits, cache_directory, turns })
    }

    /// The room for plugins whose fuel is counted, or not.
    pub(crate) fn room(&self, metering: Metering) -> Result<Arc<Room>, SandboxError> {
        if metering == Metering::Off {
            return Ok(Arc::clone(&self.plain));
        }
        let mut metered = lock(&self.metered);
        if let Some(room) = &*metered {
            return Ok(Arc::clone(room));
        }
        let room = Room::new(self.limits, self.cache_directory.as_ref(), (Metering::Fuel, &self.turns))?;
        Ok(Arc::clone(metered.insert(room)))
    }
}
