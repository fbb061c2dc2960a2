//! The configuration of the wasmtime engine, and the ticker that interrupts running guests.

use crate::limits::{self, HostLimits};
use std::hash::{Hash, Hasher};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Strategy, WasmBacktraceDetails,
};

/// Number of bytes of each WebAssembly memory that stay resident between calls, if the kernel can report which pages
/// were changed. If the kernel cannot report changed pages, keeping memory resident costs more time than it saves.
const KEEP_RESIDENT: usize = limits::MIB;
/// Number of bytes of each WebAssembly table that stay resident between calls: enough for a table with the default
/// maximum number of elements.
const KEEP_TABLE_RESIDENT: usize = 10_000 * size_of::<usize>();

/// Maximum size of a memory whose initial content is always compiled into one image, in bytes. A larger memory gets an
/// image only if its data segments fill at least half of the memory. A component with a few bytes of data therefore
/// cannot produce an image of gigabytes (row 37).
const SPARSE_IMAGE: u64 = limits::MIB as u64;

/// Version of the code cache. The version must be incremented when this crate changes how it uses compiled code or
/// which facts about a component it stores.
const CACHE_LAYOUT: u32 = 5;

/// The WIT text of the plugin contract. The text is part of the engine's hash, because the facts that are stored with
/// compiled code depend on the contract.
const CONTRACT: [&str; 8] = [
    include_str!("../../../../wit/types.wit"),
    include_str!("../../../../wit/tool.wit"),
    include_str!("../../../../wit/context-builder.wit"),
    include_str!("../../../../wit/output-validator.wit"),
    include_str!("../../../../wit/media-policy.wit"),
    include_str!("../../../../wit/media-store.wit"),
    include_str!("../../../../wit/worlds.wit"),
    include_str!("../../../../wit/model/host-model.wit"),
];

/// Whether compiled code counts the instructions that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Metering {
    /// The code does not count instructions.
    Off,
    /// The code counts instructions as fuel.
    Fuel,
}

/// Whether the engine reserves address space for all instances that may exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressSpace {
    /// The engine reserves several TiB of address space. Calls start quickly, and the compiled code needs no
    /// bounds checks.
    Reserved,
    /// The engine does not reserve address space, because the process may not have enough. Memories are allocated for
    /// each call, and the compiled code checks bounds.
    Small,
}

/// The engine options that, together with the limits, determine the compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeOptions {
    pub(crate) metering: Metering,
    pub(crate) space: AddressSpace,
}

/// Creates an engine with enough slots for all instances that may exist at the same time: one slot for each permit of
/// each lane.
pub(crate) fn engine(limits: HostLimits, options: CodeOptions) -> wasmtime::Result<Engine> {
    engine_with_slots(
        limits.concurrent_calls.max(1) + limits::MAX_PURE_CALLS + limits::MAX_LOADING_INSTANCES,
        limits,
        options,
    )
}

/// Creates an engine with this number of slots for instances. Compiled code does not depend on the number of slots.
pub(crate) fn engine_with_slots(slots: usize, limits: HostLimits, options: CodeOptions) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    match options.space {
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
        .consume_fuel(options.metering == Metering::Fuel)
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .shared_memory(false)
        .max_wasm_stack(limits.wasm_stack)
        .async_stack_size(limits.async_stack)
        .memory_guaranteed_dense_image_size(SPARSE_IMAGE)
        // Except on Windows, only debuggers use unwind information. The unwind information is omitted, because it would
        // be a sixth of the bytes that must be read each time a component is loaded.
        .native_unwind_info(cfg!(windows))
        .generate_address_map(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    Engine::new(&config)
}

fn pool(slots: usize) -> PoolingAllocationConfig {
    let slots = slots as u32;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * limits::MAX_CORE_INSTANCES as u32)
        .total_memories(slots * limits::MAX_MEMORIES as u32)
        .total_tables(slots * limits::MAX_TABLES as u32)
        .total_stacks(slots * 2)
        .total_gc_heaps(slots)
        .max_core_instances_per_component(limits::MAX_CORE_INSTANCES as u32)
        .max_memories_per_component(limits::MAX_MEMORIES as u32)
        .max_tables_per_component(limits::MAX_TABLES as u32)
        .max_memories_per_module(limits::MAX_MEMORIES as u32)
        .max_tables_per_module(limits::MAX_TABLES as u32)
        .max_component_instance_size(4 * limits::MIB)
        .max_core_instance_size(limits::MIB)
        .table_elements(limits::MAX_TABLE_ELEMENTS)
        .max_memory_size(limits::MAX_MEMORY)
        .max_unused_warm_slots(slots.min(16));
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(KEEP_TABLE_RESIDENT);
    }
    pool
}

/// A hash of everything on which compiled code depends: the version and settings of wasmtime, the processor, the
/// contract, and the version of this crate's code cache.
pub(crate) fn compatibility_hash(engine: &Engine) -> blake3::Hash {
    let mut hasher = Blake3Hasher(blake3::Hasher::new());
    CACHE_LAYOUT.hash(&mut hasher);
    CONTRACT.hash(&mut hasher);
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize()
}

/// A hasher for the engine's compatibility hash. The hash of an engine does not change when the program is started
/// again. The hash is long enough to identify the engine in a directory name.
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

/// The thread that advances the engine's epoch. Dropping the ticker stops the thread.
pub(crate) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts a thread that advances the engine's epoch once per interval `tick` and calls `on_tick` each time.
    pub(crate) fn start(engine: Engine, tick: Duration, on_tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("plugin-epochs".into()).spawn(move || {
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                engine.increment_epoch();
                on_tick();
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
