//! The wasmtime engine: every limit set explicitly, instances from a pool, a ticker that interrupts running guests.

use crate::limits::{self, HostLimits};
use std::hash::{Hash, Hasher};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Strategy, WasmBacktraceDetails,
};

/// Bytes of each memory that stay resident between calls, where the kernel can tell which pages were touched. Without
/// that, keeping memory resident costs more than it saves.
const KEEP_RESIDENT: usize = limits::MIB;
/// The same of each table: as many elements as it may have by default.
const KEEP_TABLE_RESIDENT: usize = 10_000 * size_of::<usize>();

/// Memory whose first contents are prepared as one image when a component is compiled, however few of its bytes are given. Larger
/// memories get an image only if at least half of it is given, so that a few bytes cannot ask for gigabytes of code (row 37).
const SPARSE_IMAGE: u64 = limits::MIB as u64;

/// Counts up in the hash when this crate changes how it uses the engine's artifacts, or what it finds in a component.
const CACHE_LAYOUT: u32 = 5;

/// The contract: what is kept beside compiled code was checked against exactly this text.
const CONTRACT: [&str; 8] = [
    include_str!("../../../wit/types.wit"),
    include_str!("../../../wit/tool.wit"),
    include_str!("../../../wit/context-builder.wit"),
    include_str!("../../../wit/output-validator.wit"),
    include_str!("../../../wit/media-policy.wit"),
    include_str!("../../../wit/media-store.wit"),
    include_str!("../../../wit/worlds.wit"),
    include_str!("../../../wit/model/host-model.wit"),
];

/// Whether an engine's code counts the instructions that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Metering {
    /// It does not.
    Off,
    /// As fuel.
    Fuel,
}

/// Whether the engine reserves address space for all instances that may exist at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressSpace {
    /// It does, several TiB: then calls begin quickly, and code needs no checks of bounds.
    Reserved,
    /// It does not, since the process may not have so much: memories are made for each call, and code checks bounds.
    Small,
}

/// What compiled code depends on beside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Build {
    pub(crate) metering: Metering,
    pub(crate) space: AddressSpace,
}

/// The engine for as many instances as may exist at once: each has a place in a lane.
pub(crate) fn engine(limits: HostLimits, build: Build) -> wasmtime::Result<Engine> {
    engine_of(limits.concurrent_calls.max(1) + limits::PURE_CALLS + limits::LOADING, limits, build)
}

/// The same engine for as many instances as are said. What is compiled for it does not depend on their number.
pub(crate) fn engine_of(slots: usize, limits: HostLimits, build: Build) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    match build.space {
        AddressSpace::Reserved => {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots)));
        }
        AddressSpace::Small => {
            config
                .allocation_strategy(InstanceAllocationStrategy::OnDemand)
                .memory_reservation(0)
                .memory_guard_size(0)
                .memory_reservation_for_growth(limits::MIB as u64)
                .gc_heap_reservation(0)
                .gc_heap_guard_size(0);
        }
    }
    config
        .strategy(Strategy::Cranelift)
        .epoch_interruption(true)
        .consume_fuel(build.metering == Metering::Fuel)
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .shared_memory(false)
        .max_wasm_stack(limits.wasm_stack)
        .async_stack_size(limits.async_stack)
        .memory_guaranteed_dense_image_size(SPARSE_IMAGE)
        // For debuggers only, and a sixth of what every load has to read and copy.
        .native_unwind_info(cfg!(windows))
        .generate_address_map(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    Engine::new(&config)
}

fn pool(slots: usize) -> PoolingAllocationConfig {
    let slots = slots as u32;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * limits::MOST_CORE_INSTANCES as u32)
        .total_memories(slots * limits::MOST_MEMORIES as u32)
        .total_tables(slots * limits::MOST_TABLES as u32)
        .total_stacks(slots * 2)
        .total_gc_heaps(slots)
        .max_core_instances_per_component(limits::MOST_CORE_INSTANCES as u32)
        .max_memories_per_component(limits::MOST_MEMORIES as u32)
        .max_tables_per_component(limits::MOST_TABLES as u32)
        .max_memories_per_module(limits::MOST_MEMORIES as u32)
        .max_tables_per_module(limits::MOST_TABLES as u32)
        .max_component_instance_size(4 * limits::MIB)
        .max_core_instance_size(limits::MIB)
        .table_elements(limits::MOST_TABLE_ELEMENTS)
        .max_memory_size(limits::MOST_MEMORY)
        .max_unused_warm_slots(slots.min(16));
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(KEEP_TABLE_RESIDENT);
    }
    pool
}

/// Identifies what compiled code depends on: wasmtime's version, its settings, the processor, the
/// contract, and this crate's layout.
pub(crate) fn compatibility_hash(engine: &Engine) -> blake3::Hash {
    let mut hasher = Blake3Hasher(blake3::Hasher::new());
    CACHE_LAYOUT.hash(&mut hasher);
    CONTRACT.hash(&mut hasher);
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize()
}

/// Lets the engine's own hash flow into a hash that is stable and long enough to name a directory by.
struct Blake3Hasher(blake3::Hasher);

impl Hasher for Blake3Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash = self.0.finalize();
        u64::from_le_bytes(std::array::from_fn(|index| hash.as_bytes()[index]))
    }
}

/// The thread that ends each epoch. It stops when this is dropped.
pub(crate) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Begins ticking, and does this at each tick.
    pub(crate) fn start(engine: Engine, tick: Duration, at_each: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("plugin-epochs".into()).spawn(move || {
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                engine.increment_epoch();
                at_each();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
