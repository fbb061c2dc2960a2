//! The limits of a whole sandbox, as one list of rows like that of single calls, and the capacity of the instance pool.

use agent_core::limits::DefaultLimit::Is;
use agent_core::limits::LimitRow;
use std::time::Duration;

/// One mebibyte.
pub(crate) const MIB: usize = 1024 * KIB;
const KIB: usize = 1024;

/// Maximum values of one call. The pool reserves address space for this much memory in every slot. For tables, it reserves memory
/// that the operating system may count as used.
pub(crate) const MOST_MEMORY: usize = 256 * MIB;
pub(crate) const MOST_CORE_INSTANCES: usize = 256;
pub(crate) const MOST_TABLES: usize = 64;
pub(crate) const MOST_MEMORIES: usize = 16;
pub(crate) const MOST_TABLE_ELEMENTS: usize = 20_000;

/// Maximum number of output validators and media policies that run at once. Each runs for microseconds.
pub(crate) const PURE_CALLS: usize = 16;
/// Maximum number of instances that check types or read definitions at once.
pub(crate) const LOADING: usize = 4;

/// The limits on all calls of one sandbox together. [`HOST_LIMITS`] contains their defaults and maximum values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes of guest memory in total. Each call reserves its own memory limit when it starts. An eighth is reserved for
    /// output validators and media policies and an eighth for loading, so that long-running tools cannot starve them.
    pub guest_memory: usize,
    /// Number of calls of tools and context builders that may run at once.
    pub concurrent_calls: usize,
    /// Number of calls that may wait to start.
    pub queue: usize,
    /// Bytes of a guest's stack.
    pub wasm_stack: usize,
    /// Bytes of the stack on which a guest and the host's functions run; more than `wasm_stack`.
    pub async_stack: usize,
    /// Interval at which running guests are interrupted, so that other guests run and limits are checked.
    pub epoch_tick: Duration,
    /// Maximum bytes of a component.
    pub component: u64,
    /// Time for compiling one component, plus the same time for each 10 MiB of its size. It is processor time of all threads if
    /// a child process compiles, and wall time otherwise.
    pub compile_time: Duration,
    /// Nesting depth of components, modules and types.
    pub component_nesting: usize,
    /// Number of types in one component, including nested ones.
    pub component_types: usize,
    /// Number of imports, and likewise of exports, of a component and of each type in it.
    pub component_interfaces: usize,
    /// Bytes of compiled code for each byte of a component. 16 MiB are always allowed.
    pub compiled_ratio: u64,
    /// Bytes of one component's compiled code.
    pub compiled: u64,
    /// Bytes of all compiled code on disk.
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
        meaning: "MiB of all guests' memories together. Each call reserves its `memory_mib` when it starts, and waits if there is \
                  not enough left.",
        example: "4096",
        get: |limits| Some((limits.guest_memory / MIB) as u64),
        set: |limits, value| limits.guest_memory = value as usize * MIB,
    },
    Row {
        key: "concurrent_calls",
        default: Is(64),
        least: 1,
        most: 256,
        meaning: "Calls of tools and context builders that may run at once.",
        example: "32",
        get: |limits| Some(limits.concurrent_calls as u64),
        set: |limits, value| limits.concurrent_calls = value as usize,
    },
    Row {
        key: "queue",
        default: Is(256),
        least: 1,
        most: 65_536,
        meaning: "Calls that may wait to start; further calls fail immediately.",
        example: "1024",
        get: |limits| Some(limits.queue as u64),
        set: |limits, value| limits.queue = value as usize,
    },
    Row {
        key: "wasm_stack_kib",
        default: Is(512),
        least: 64,
        most: 8_192,
        meaning: "KiB of a guest's stack.",
        example: "1024",
        get: |limits| Some((limits.wasm_stack / KIB) as u64),
        set: |limits, value| limits.wasm_stack = value as usize * KIB,
    },
    Row {
        key: "async_stack_kib",
        default: Is(2_048),
        least: 1_024,
        most: 16_384,
        meaning: "KiB of the stack on which a guest and the host's functions run together; at least 512 more than `wasm_stack_kib`.",
        example: "4096",
        get: |limits| Some((limits.async_stack / KIB) as u64),
        set: |limits, value| limits.async_stack = value as usize * KIB,
    },
    Row {
        key: "epoch_tick_ms",
        default: Is(10),
        least: 1,
        most: 1_000,
        meaning: "Milliseconds after which a running guest is interrupted, so that the host can check its limits and run other guests.",
        example: "5",
        get: |limits| Some(limits.epoch_tick.as_millis() as u64),
        set: |limits, value| limits.epoch_tick = Duration::from_millis(value),
    },
    Row {
        key: "component_mib",
        default: Is(32),
        least: 1,
        most: 256,
        meaning: "MiB that a component may have to be loaded.",
        example: "64",
        get: |limits| Some(limits.component / MIB as u64),
        set: |limits, value| limits.component = value * MIB as u64,
    },
    Row {
        key: "compile_ms",
        default: Is(20_000),
        least: 1_000,
        most: 600_000,
        meaning: "Milliseconds of processor time, summed over all threads, for compiling one component, plus the same time for \
                  each 10 MiB of its size. The limit on wall time is ten times as long.",
        example: "60000",
        get: |limits| Some(limits.compile_time.as_millis() as u64),
        set: |limits, value| limits.compile_time = Duration::from_millis(value),
    },
    Row {
        key: "component_nesting",
        default: Is(100),
        least: 10,
        most: 1_000,
        meaning: "Nesting depth of components, modules and types.",
        example: "200",
        get: |limits| Some(limits.component_nesting as u64),
        set: |limits, value| limits.component_nesting = value as usize,
    },
    Row {
        key: "component_types",
        default: Is(100_000),
        least: 1_000,
        most: 1_000_000,
        meaning: "Types of one component, including those of nested components, modules and types.",
        example: "200000",
        get: |limits| Some(limits.component_types as u64),
        set: |limits, value| limits.component_types = value as usize,
    },
    Row {
        key: "component_interfaces",
        default: Is(1_000),
        least: 100,
        most: 10_000,
        meaning: "Imports, and likewise exports, of a component and of each component and interface in it.",
        example: "2000",
        get: |limits| Some(limits.component_interfaces as u64),
        set: |limits, value| limits.component_interfaces = value as usize,
    },
    Row {
        key: "compiled_ratio",
        default: Is(64),
        least: 8,
        most: 1_024,
        meaning: "Bytes of compiled code that are allowed for each byte of a component; 16 MiB are always allowed.",
        example: "128",
        get: |limits| Some(limits.compiled_ratio),
        set: |limits, value| limits.compiled_ratio = value,
    },
    Row {
        key: "compiled_mib",
        default: Is(512),
        least: 16,
        most: 4_096,
        meaning: "MiB of one component's compiled code.",
        example: "1024",
        get: |limits| Some(limits.compiled / MIB as u64),
        set: |limits, value| limits.compiled = value * MIB as u64,
    },
    Row {
        key: "cache_mib",
        default: Is(4_096),
        least: 64,
        most: 1_048_576,
        meaning: "MiB of all compiled code that is stored in the data folder. The least recently used code is deleted first; code \
                  in use is never deleted.",
        example: "8192",
        get: |limits| Some(limits.cache / MIB as u64),
        set: |limits, value| limits.cache = value * MIB as u64,
    },
];

/// Minimum KiB by which `async_stack` exceeds `wasm_stack`, for the host's functions.
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

    // Each row reads and writes exactly one field, and every default is within its bounds.
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
        // The values of the specification's table of limits.
        let table = "guest_memory_mib 2048, concurrent_calls 64, queue 256, wasm_stack_kib 512, async_stack_kib 2048, \
            epoch_tick_ms 10, component_mib 32, compile_ms 20000, component_nesting 100, component_types 100000, \
            component_interfaces 1000, compiled_ratio 64, compiled_mib 512, cache_mib 4096";
        assert_eq!(shown.join(", "), table);
    }
}
