//! The limits of a whole sandbox, whoever calls in it: one list of rows, as for single calls; and what the pool of instances has
//! room for.

use agent_core::limits::DefaultLimit::Is;
use agent_core::limits::LimitRow;
use std::time::Duration;

/// One mebibyte.
pub(crate) const MIB: usize = 1024 * KIB;
const KIB: usize = 1024;

/// The most of one call. The pool takes address space for as much in each place; of tables, memory that the system may count.
pub(crate) const MOST_MEMORY: usize = 256 * MIB;
pub(crate) const MOST_CORE_INSTANCES: usize = 256;
pub(crate) const MOST_TABLES: usize = 64;
pub(crate) const MOST_MEMORIES: usize = 16;
pub(crate) const MOST_TABLE_ELEMENTS: usize = 20_000;

/// Validators and policies at once. They run for microseconds.
pub(crate) const PURE_CALLS: usize = 16;
/// Instances for type checks and definitions at once.
pub(crate) const LOADING: usize = 4;

/// Bounds over all calls of one sandbox. Defaults and largest values stand in [`HOST_LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes of guest memory in all. A call counts with its own limit from its start. An eighth is kept for validators and
    /// policies, and an eighth for loading, so that endless tools cannot starve them.
    pub guest_memory: usize,
    /// Calls of tools and context builders at once.
    pub concurrent_calls: usize,
    /// Calls that may wait for a place.
    pub queue: usize,
    /// Bytes of a guest's own stack.
    pub wasm_stack: usize,
    /// Bytes of the stack on which a guest and the host's functions run; more than the guest's own.
    pub async_stack: usize,
    /// How often running guests are interrupted, so that others get their turn and limits are looked at.
    pub epoch_tick: Duration,
    /// Bytes of the largest component that is read.
    pub component: u64,
    /// Time that compiling one component may take, and again for each 10 MiB that it has: of processors, all threads together,
    /// where a child compiles, else by the clock.
    pub compile_time: Duration,
    /// Components, modules and types inside one another.
    pub component_nesting: usize,
    /// Types of one component, nested ones included.
    pub component_types: usize,
    /// Imports, and exports, of a component and of each type in it.
    pub component_interfaces: usize,
    /// Bytes of compiled code for each byte of a component. Every component may have 16 MiB.
    pub compiled_ratio: u64,
    /// Bytes of one component's compiled code.
    pub compiled: u64,
    /// Bytes of all compiled code that is kept on disk.
    pub cache: u64,
}

type Row = LimitRow<HostLimits>;

/// Every limit of the host that can be configured, in order of reading.
pub const HOST_LIMITS: [Row; 14] = [
    Row {
        key: "guest_memory_mib",
        default: Is(2_048),
        least: 512,
        most: 1_048_576,
        meaning: "MiB of all guests' memories together. A call counts with its `memory_mib` from its start; who finds no room waits.",
        example: "4096",
        get: |limits| Some((limits.guest_memory / MIB) as u64),
        set: |limits, value| limits.guest_memory = value as usize * MIB,
    },
    Row {
        key: "concurrent_calls",
        default: Is(64),
        least: 1,
        most: 256,
        meaning: "Calls of tools and context builders at once.",
        example: "32",
        get: |limits| Some(limits.concurrent_calls as u64),
        set: |limits, value| limits.concurrent_calls = value as usize,
    },
    Row {
        key: "queue",
        default: Is(256),
        least: 1,
        most: 65_536,
        meaning: "Calls that wait for a place; further ones fail at once.",
        example: "1024",
        get: |limits| Some(limits.queue as u64),
        set: |limits, value| limits.queue = value as usize,
    },
    Row {
        key: "wasm_stack_kib",
        default: Is(512),
        least: 64,
        most: 8_192,
        meaning: "KiB of a guest's own stack.",
        example: "1024",
        get: |limits| Some((limits.wasm_stack / KIB) as u64),
        set: |limits, value| limits.wasm_stack = value as usize * KIB,
    },
    Row {
        key: "async_stack_kib",
        default: Is(2_048),
        least: 1_024,
        most: 16_384,
        meaning: "KiB of the stack on which a guest and the host's functions run together: 512 more than `wasm_stack_kib`, at least.",
        example: "4096",
        get: |limits| Some((limits.async_stack / KIB) as u64),
        set: |limits, value| limits.async_stack = value as usize * KIB,
    },
    Row {
        key: "epoch_tick_ms",
        default: Is(10),
        least: 1,
        most: 1_000,
        meaning: "Milliseconds after which a running guest is interrupted, so that limits are looked at and others get their turn.",
        example: "5",
        get: |limits| Some(limits.epoch_tick.as_millis() as u64),
        set: |limits, value| limits.epoch_tick = Duration::from_millis(value),
    },
    Row {
        key: "component_mib",
        default: Is(32),
        least: 1,
        most: 256,
        meaning: "MiB of the largest component that is loaded.",
        example: "64",
        get: |limits| Some(limits.component / MIB as u64),
        set: |limits, value| limits.component = value * MIB as u64,
    },
    Row {
        key: "compile_ms",
        default: Is(20_000),
        least: 1_000,
        most: 600_000,
        meaning: "Milliseconds of processor time for compiling one component, all its threads together, and as much again for each 10 MiB \
                  that it has; ten times that by the clock.",
        example: "60000",
        get: |limits| Some(limits.compile_time.as_millis() as u64),
        set: |limits, value| limits.compile_time = Duration::from_millis(value),
    },
    Row {
        key: "component_nesting",
        default: Is(100),
        least: 10,
        most: 1_000,
        meaning: "Levels of components, modules and types inside one another.",
        example: "200",
        get: |limits| Some(limits.component_nesting as u64),
        set: |limits, value| limits.component_nesting = value as usize,
    },
    Row {
        key: "component_types",
        default: Is(100_000),
        least: 1_000,
        most: 1_000_000,
        meaning: "Types of one component, with those of the components, modules and types in it.",
        example: "200000",
        get: |limits| Some(limits.component_types as u64),
        set: |limits, value| limits.component_types = value as usize,
    },
    Row {
        key: "component_interfaces",
        default: Is(1_000),
        least: 100,
        most: 10_000,
        meaning: "Imports, and exports, of a component and of each component and interface in it.",
        example: "2000",
        get: |limits| Some(limits.component_interfaces as u64),
        set: |limits, value| limits.component_interfaces = value as usize,
    },
    Row {
        key: "compiled_ratio",
        default: Is(64),
        least: 8,
        most: 1_024,
        meaning: "Bytes of compiled code that a component may have for each of its own; every component may have 16 MiB.",
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
        meaning: "MiB of all compiled code that is kept in the data folder. What was used least recently is deleted first, and nothing \
                  that is in use.",
        example: "8192",
        get: |limits| Some(limits.cache / MIB as u64),
        set: |limits, value| limits.cache = value * MIB as u64,
    },
];

/// Least that the common stack has beside the guest's own, for the host's functions.
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

    // Each row reads and writes one field of its own, and no default is out of its own bounds.
    #[test]
    fn each_row_is_one_field() {
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
        // The table of limits-and-threats.md.
        let table = "guest_memory_mib 2048, concurrent_calls 64, queue 256, wasm_stack_kib 512, async_stack_kib 2048, \
            epoch_tick_ms 10, component_mib 32, compile_ms 20000, component_nesting 100, component_types 100000, \
            component_interfaces 1000, compiled_ratio 64, compiled_mib 512, cache_mib 4096";
        assert_eq!(shown.join(", "), table);
    }
}
