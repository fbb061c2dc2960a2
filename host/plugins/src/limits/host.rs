//! The limits on all calls of a sandbox together, and the capacity of the instance pool. One list contains the keys,
//! defaults, maximum values and documentation of the configurable limits.

use agent_core::limits::DefaultLimit::Is;
use agent_core::limits::LimitRow;
use std::time::Duration;

/// The number of bytes in one mebibyte.
pub(crate) const MIB: usize = 1024 * KIB;
const KIB: usize = 1024;

/// Largest value that `memory_mib` can have, converted to bytes. The instance pool reserves this amount of address
/// space in every slot.
pub(crate) const MAX_MEMORY: usize = 256 * MIB;
pub(crate) const MAX_CORE_INSTANCES: usize = 256;
pub(crate) const MAX_TABLES: usize = 64;
pub(crate) const MAX_MEMORIES: usize = 16;
/// Largest value that `table_elements` can have. The instance pool reserves memory for this many elements, and
/// the operating system may count the reserved memory as used.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 20_000;

/// Maximum number of output validators and media policies that run at the same time. A small number is enough, because
/// each of these calls takes only microseconds.
pub(crate) const MAX_PURE_CALLS: usize = 16;
/// Maximum number of instances that run at the same time to check the types of a component or to read its
/// tool definitions.
pub(crate) const MAX_LOADING_INSTANCES: usize = 4;

/// The limits on all calls of one sandbox together. [`HOST_LIMITS`] contains their defaults and maximum values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Maximum total size of all guests' memories, in bytes. Each call reserves its own memory limit when it starts.
    /// One eighth of the total is reserved for output validators and media policies, and one eighth for loading
    /// components, so that long-running tools cannot block these calls.
    pub guest_memory: usize,
    /// Maximum number of calls to tools and context builders that may run at the same time.
    pub concurrent_calls: usize,
    /// Maximum number of calls that may wait to start.
    pub queue: usize,
    /// Size of a guest's stack, in bytes.
    pub wasm_stack: usize,
    /// Size of the stack that a guest shares with the host functions that it calls, in bytes. The stack must be larger
    /// than `wasm_stack`.
    pub async_stack: usize,
    /// Interval at which running guests are interrupted, so that other guests run and limits are checked.
    pub epoch_tick: Duration,
    /// Maximum size of a component, in bytes.
    pub component: u64,
    /// Maximum time for compiling one component. For each 10 MiB of the component's size, the limit increases by this
    /// value. If a child process compiles the component, the limit applies to the total processor time of its threads.
    /// If the host itself compiles the component, the limit applies to the wall time.
    pub compile_time: Duration,
    /// Maximum nesting depth of components, modules and types.
    pub component_nesting: usize,
    /// Maximum number of types in one component. Types inside nested components, modules and other types also count.
    pub component_types: usize,
    /// Maximum number of imports, and maximum number of exports, of a component and of each type in the component.
    pub component_interfaces: usize,
    /// Maximum number of bytes of compiled code for each byte of a component. 16 MiB of compiled code are always
    /// allowed.
    pub compiled_ratio: u64,
    /// Maximum size of one component's compiled code, in bytes.
    pub compiled: u64,
    /// Maximum total size of all compiled code on disk, in bytes.
    pub cache: u64,
}

type Row = LimitRow<HostLimits>;

/// Every configurable limit of the host, in the order of the documentation.
pub const HOST_LIMITS: [Row; 14] = [
    Row {
        key: "guest_memory_mib",
        default: Is(2_048),
        least: 512,
        most: 1_048_576,
        meaning: "Maximum total size of all guests' memories in MiB. Each call reserves its `memory_mib` when it \
                  starts, and waits if not enough memory is free.",
        example: "4096",
        get: |limits| Some((limits.guest_memory / MIB) as u64),
        set: |limits, value| limits.guest_memory = value as usize * MIB,
    },
    Row {
        key: "concurrent_calls",
        default: Is(64),
        least: 1,
        most: 256,
        meaning: "Maximum number of calls to tools and context builders that may run at the same time.",
        example: "32",
        get: |limits| Some(limits.concurrent_calls as u64),
        set: |limits, value| limits.concurrent_calls = value as usize,
    },
    Row {
        key: "queue",
        default: Is(256),
        least: 1,
        most: 65_536,
        meaning: "Maximum number of calls that may wait to start. Further calls fail immediately.",
        example: "1024",
        get: |limits| Some(limits.queue as u64),
        set: |limits, value| limits.queue = value as usize,
    },
    Row {
        key: "wasm_stack_kib",
        default: Is(512),
        least: 64,
        most: 8_192,
        meaning: "Size of a guest's stack in KiB.",
        example: "1024",
        get: |limits| Some((limits.wasm_stack / KIB) as u64),
        set: |limits, value| limits.wasm_stack = value as usize * KIB,
    },
    Row {
        key: "async_stack_kib",
        default: Is(2_048),
        least: 1_024,
        most: 16_384,
        meaning: "Size in KiB of the stack that a guest shares with the host functions that it calls. The value must \
                  be at least 512 larger than `wasm_stack_kib`.",
        example: "4096",
        get: |limits| Some((limits.async_stack / KIB) as u64),
        set: |limits, value| limits.async_stack = value as usize * KIB,
    },
    Row {
        key: "epoch_tick_ms",
        default: Is(10),
        least: 1,
        most: 1_000,
        meaning: "Interval in milliseconds at which running guests are interrupted, so that the host can check \
                  their limits and run other guests.",
        example: "5",
        get: |limits| Some(limits.epoch_tick.as_millis() as u64),
        set: |limits, value| limits.epoch_tick = Duration::from_millis(value),
    },
    Row {
        key: "component_mib",
        default: Is(32),
        least: 1,
        most: 256,
        meaning: "Maximum size of a component in MiB.",
        example: "64",
        get: |limits| Some(limits.component / MIB as u64),
        set: |limits, value| limits.component = value * MIB as u64,
    },
    Row {
        key: "compile_ms",
        default: Is(20_000),
        least: 1_000,
        most: 600_000,
        meaning: "Maximum processor time for compiling one component, summed over all threads, in milliseconds. The \
                  same time is added for each 10 MiB of the component's size. The limit on wall time is ten times as \
                  long.",
        example: "60000",
        get: |limits| Some(limits.compile_time.as_millis() as u64),
        set: |limits, value| limits.compile_time = Duration::from_millis(value),
    },
    Row {
        key: "component_nesting",
        default: Is(100),
        least: 10,
        most: 1_000,
        meaning: "Maximum nesting depth of components, modules and types.",
        example: "200",
        get: |limits| Some(limits.component_nesting as u64),
        set: |limits, value| limits.component_nesting = value as usize,
    },
    Row {
        key: "component_types",
        default: Is(100_000),
        least: 1_000,
        most: 1_000_000,
        meaning: "Maximum number of types in one component. Types inside nested components, modules and other types \
                  also count.",
        example: "200000",
        get: |limits| Some(limits.component_types as u64),
        set: |limits, value| limits.component_types = value as usize,
    },
    Row {
        key: "component_interfaces",
        default: Is(1_000),
        least: 100,
        most: 10_000,
        meaning: "Maximum number of imports, and maximum number of exports, of a component. The same maximum \
                  applies to each component and interface that is nested in the component.",
        example: "2000",
        get: |limits| Some(limits.component_interfaces as u64),
        set: |limits, value| limits.component_interfaces = value as usize,
    },
    Row {
        key: "compiled_ratio",
        default: Is(64),
        least: 8,
        most: 1_024,
        meaning: "Maximum number of bytes of compiled code for each byte of a component. 16 MiB of compiled code \
                  are always allowed.",
        example: "128",
        get: |limits| Some(limits.compiled_ratio),
        set: |limits, value| limits.compiled_ratio = value,
    },
    Row {
        key: "compiled_mib",
        default: Is(512),
        least: 16,
        most: 4_096,
        meaning: "Maximum size of one component's compiled code in MiB.",
        example: "1024",
        get: |limits| Some(limits.compiled / MIB as u64),
        set: |limits, value| limits.compiled = value * MIB as u64,
    },
    Row {
        key: "cache_mib",
        default: Is(4_096),
        least: 64,
        most: 1_048_576,
        meaning: "Maximum total size of all compiled code in the data folder, in MiB. The least recently used code \
                  is deleted first. Code in use is never deleted.",
        example: "8192",
        get: |limits| Some(limits.cache / MIB as u64),
        set: |limits, value| limits.cache = value * MIB as u64,
    },
];

/// Minimum difference between `async_stack` and `wasm_stack`, in KiB. Host functions need this amount of stack.
pub const HOST_STACK_KIB: u64 = 512;

impl Default for HostLimits {
    fn default() -> Self {
        let mut limits = Self {
            guest_memory: 0,
            concurrent_calls: 0,
            queue: 0,
            wasm_stack: 0,
            async_stack: 0,
            epoch_tick: Duration::ZERO,
            component: 0,
            compile_time: Duration::ZERO,
            component_nesting: 0,
            component_types: 0,
            component_interfaces: 0,
            compiled_ratio: 0,
            compiled: 0,
            cache: 0,
        };
        HOST_LIMITS.iter().for_each(|row| row.reset(&mut limits));
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each default must be the value in the specification and must be within its bounds.
    #[test]
    fn each_row_reads_and_writes_one_field() {
        let mut shown = Vec::new();
        for row in &HOST_LIMITS {
            let mut limits = HostLimits::default();
            let Is(value) = row.default else { panic!("{row:?}") };
            assert_eq!((row.get)(&limits), Some(value), "{row:?}");
            assert!((row.least..=row.most).contains(&value), "{row:?}");
            shown.push(format!("{} {value}", row.key));
            (row.set)(&mut limits, row.most);
            assert_eq!((row.get)(&limits), Some(row.most), "{row:?}");
            for other in HOST_LIMITS.iter().filter(|other| other.key != row.key) {
                assert_eq!(
                    (other.get)(&limits),
                    (other.get)(&HostLimits::default()),
                    "{} changes {}",
                    row.key,
                    other.key
                );
            }
        }
        // The expected values are those in the table of limits in the specification.
        let table = "guest_memory_mib 2048, concurrent_calls 64, queue 256, wasm_stack_kib 512, async_stack_kib 2048, \
            epoch_tick_ms 10, component_mib 32, compile_ms 20000, component_nesting 100, component_types 100000, \
            component_interfaces 1000, compiled_ratio 64, compiled_mib 512, cache_mib 4096";
        assert_eq!(shown.join(", "), table);
    }
}
