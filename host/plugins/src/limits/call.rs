//! The limits of single calls. One list contains the configuration keys, defaults, maximum values and documentation of
//! these limits.

use super::{
    GENERIC_LIFTED_BYTES, LIFTED_BESIDE_RESULT, LIFTED_BESIDE_TEXT, MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_MEMORY,
    MAX_TABLE_ELEMENTS, MAX_TABLES, MIB,
};
use crate::identity::Authority;
use agent_core::limits::DefaultLimit::{Is, Off, Words};
use agent_core::limits::LimitRow;
use std::time::Duration;

/// The fuel limit of a call if `fuel` is `true` in the configuration.
pub const FUEL: u64 = 500_000_000;

const KIB: usize = 1024;

/// The limits of one call. [`CALL_LIMITS`] contains the default and the maximum value of each limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Maximum wall time of a tool call, including the time that host functions take.
    pub tool_time: Duration,
    /// Maximum wall time of a context builder's call.
    pub builder_time: Duration,
    /// Maximum wall time of a call to an output validator or media policy.
    pub pure_time: Duration,
    /// Maximum processor time of a call. `None` means that the processor time is limited only by the call's maximum
    /// wall time.
    pub cpu_time: Option<Duration>,
    /// Maximum total size of a call's linear memories, in bytes.
    pub memory: usize,
    /// Maximum fuel of a call: about one unit for each instruction. The same work uses the same fuel on every machine.
    /// `None` means that fuel is not counted. Only code that was compiled for fuel counting counts fuel; it runs
    /// slightly slower. When a call first needs this code, the host compiles the copy of the component in the
    /// plugin store.
    pub fuel: Option<u64>,
    /// Maximum number of core instances that a component may create.
    pub core_instances: usize,
    /// Maximum number of tables of a component.
    pub tables: usize,
    /// Maximum number of memories of a component.
    pub memories: usize,
    /// Maximum number of elements of one table.
    pub table_elements: usize,
    /// Maximum number of bytes that the guest may pass to the host in one host call or as its result. `None` means that
    /// the default for the kind of call applies.
    pub lifted: Option<usize>,
    /// Maximum number of resource handles that may be open at the same time.
    pub handles: usize,
    /// Maximum number of random bytes that the guest may read.
    pub random: u64,
    /// Maximum total size of all headers of a request, and of all headers of its response, in bytes.
    pub headers: usize,
    /// Maximum size of the text and JSON in a result, in bytes.
    pub result: usize,
    /// Maximum number of log lines of a call.
    pub log_lines: u32,
    /// Maximum size of one log line, in bytes.
    pub log_line: usize,
    /// Maximum total size of all log lines of a call, in bytes.
    pub log: usize,
    /// Maximum size of the guest's error text, in bytes.
    pub error: usize,
    /// Maximum number of HTTP requests of a call.
    pub requests: usize,
    /// Maximum number of HTTP requests per minute of one plugin of one agent.
    pub requests_per_minute: usize,
    /// Maximum size of a request's body, in bytes.
    pub request_body: usize,
    /// Maximum size of a response's body, in bytes.
    pub response_body: usize,
    /// Maximum duration of one HTTP request, from its start to the last byte of its response. When the call ends, its
    /// requests also end.
    pub request_time: Duration,
    /// Maximum size of the host's responses that are stored with the call, in bytes. 0: no responses are stored.
    pub recorded: usize,
    /// Maximum number of bytes by which one turn may enlarge a writable tree.
    pub tree_bytes: u64,
    /// Maximum number of files, folders and links that one turn may add to a writable tree.
    pub tree_entries: u64,
}

type Row = LimitRow<CallLimits>;

/// Makes a row of [`CALL_LIMITS`] from a key, a default, bounds, a meaning, an example, and the functions that read and
/// write the field.
macro_rules! row {
    ($key:literal, $default:expr, $least:literal..=$most:expr, $meaning:literal, $example:literal, $get:expr, $set:expr) => {
        Row {
            key: $key,
            default: $default,
            least: $least,
            most: $most,
            meaning: $meaning,
            example: $example,
            get: $get,
            set: $set,
        }
    };
}

/// Makes a row of [`CALL_LIMITS`] whose field is a number of bytes or a count.
macro_rules! sized {
    ($key:literal, $default:literal, $least:literal..=$most:expr, $meaning:literal, $example:literal, $field:ident * $unit:expr) => {
        row!(
            $key,
            Is($default),
            $least..=$most,
            $meaning,
            $example,
            |limits| Some(limits.$field as u64 / $unit as u64),
            |limits, value| limits.$field = (value * $unit as u64) as _
        )
    };
}

/// Makes a row of [`CALL_LIMITS`] whose field is a duration. The duration is configured in milliseconds.
macro_rules! timed {
    ($key:literal, $default:literal, $most:literal, $meaning:literal, $example:literal, $field:ident) => {
        row!(
            $key,
            Is($default),
            1..=$most,
            $meaning,
            $example,
            |limits| Some(milliseconds(limits.$field)),
            |limits, value| limits.$field = Duration::from_millis(value)
        )
    };
}

/// Every configurable limit of a call, in the order of the documentation.
pub const CALL_LIMITS: [Row; 27] = [
    timed!(
        "tool_wall_ms",
        30_000,
        120_000,
        "Maximum duration of a tool call in milliseconds. The duration includes the time that the tool waits in host \
         calls.",
        "5000",
        tool_time
    ),
    timed!(
        "builder_wall_ms",
        2_000,
        120_000,
        "Maximum duration of a context builder's call in milliseconds.",
        "4000",
        builder_time
    ),
    timed!(
        "validator_wall_ms",
        250,
        120_000,
        "Maximum duration of a call to an output validator or media policy in milliseconds.",
        "500",
        pure_time
    ),
    row!(
        "cpu_ms",
        Words("as long as the wall time"),
        1..=120_000,
        "Maximum processor time of a call in milliseconds.",
        "1000",
        |limits| limits.cpu_time.map(milliseconds),
        |limits, value| limits.cpu_time = Some(Duration::from_millis(value))
    ),
    sized!("memory_mib", 64, 1..=256, "Maximum total size of a call's linear memories in MiB.", "128", memory * MIB),
    row!(
        "fuel",
        Off,
        1..=1_000_000_000_000,
        "Maximum fuel of a call: about one unit for each instruction. The same work uses the same fuel on \
         every machine. `true` means 500000000. Counting makes the call slightly slower and needs \
         separately compiled code.",
        "2000000000",
        |limits| limits.fuel,
        |limits, value| limits.fuel = (value > 0).then_some(value)
    ),
    sized!(
        "core_instances",
        64,
        1..=MAX_CORE_INSTANCES as u64,
        "Maximum number of core instances that a component may create.",
        "100",
        core_instances * 1
    ),
    sized!("tables", 64, 1..=MAX_TABLES as u64, "Maximum number of tables of a component.", "32", tables * 1),
    sized!("memories", 16, 1..=MAX_MEMORIES as u64, "Maximum number of memories of a component.", "4", memories * 1),
    sized!(
        "table_elements",
        10_000,
        1..=MAX_TABLE_ELEMENTS as u64,
        "Maximum number of elements of one table.",
        "20000",
        table_elements * 1
    ),
    row!(
        "lifted_kib",
        Words(
            "8 MiB plus `result_kib` for tools and context builders, 3 MiB plus `result_kib` for validators and policies, 32 MiB for generic functions"
        ),
        1..=65_536,
        "Maximum size of the data that the plugin may pass to the host in one host call or as its result, in KiB.",
        "16384",
        |limits| limits.lifted.map(|bytes| (bytes / KIB) as u64),
        |limits, value| limits.lifted = Some(value as usize * KIB)
    ),
    sized!(
        "handles",
        1_000,
        1..=10_000,
        "Maximum number of resource handles that may be open at the same time.",
        "2000",
        handles * 1
    ),
    sized!(
        "random_kib",
        64,
        1..=16_384,
        "Maximum amount of random data that a call may read, in KiB.",
        "1024",
        random * KIB
    ),
    sized!(
        "header_kib",
        32,
        1..=256,
        "Maximum total size of all headers of a request, and of all headers of its response, in KiB.",
        "64",
        headers * KIB
    ),
    sized!(
        "result_kib",
        1_024,
        1..=8_192,
        "Maximum size of the text and JSON in a result, in KiB.",
        "2048",
        result * KIB
    ),
    sized!(
        "log_lines",
        1_000,
        1..=100_000,
        "Maximum number of log lines of a call. Further lines are counted and dropped.",
        "5000",
        log_lines * 1
    ),
    sized!(
        "log_line_kib",
        4,
        1..=64,
        "Maximum size of one log line in KiB. Longer lines are cut.",
        "8",
        log_line * KIB
    ),
    sized!("log_kib", 256, 1..=16_384, "Maximum total size of all log lines of a call in KiB.", "1024", log * KIB),
    sized!(
        "error_kib",
        4,
        1..=64,
        "Maximum size of the plugin's error text in KiB. A longer text is cut.",
        "8",
        error * KIB
    ),
    sized!("requests", 32, 1..=1_000, "Maximum number of HTTP requests of one call.", "100", requests * 1),
    sized!(
        "requests_per_minute",
        60,
        1..=6_000,
        "Maximum number of HTTP requests that all calls of one plugin of an agent may send per minute.",
        "120",
        requests_per_minute * 1
    ),
    sized!(
        "request_body_kib",
        1_024,
        1..=65_536,
        "Maximum size of a request's body in KiB.",
        "4096",
        request_body * KIB
    ),
    sized!(
        "response_body_kib",
        10_240,
        1..=262_144,
        "Maximum size of a response's body in KiB.",
        "51200",
        response_body * KIB
    ),
    timed!(
        "request_ms",
        30_000,
        120_000,
        "Maximum duration of one HTTP request, from its start to the last byte of its response, in \
         milliseconds. The end of the call also ends the request.",
        "10000",
        request_time
    ),
    sized!(
        "recorded_kib",
        512,
        0..=16_384,
        "Maximum size of the host's responses (web pages, stored values, files, time, random numbers) that \
         are stored with a call for `replay`, in KiB. With 0, no responses are stored.",
        "0",
        recorded * KIB
    ),
    sized!(
        "tree_mib",
        1_024,
        1..=1_048_576,
        "Maximum number of MiB that a turn may add to a writable directory. Removing files frees space again.",
        "4096",
        tree_bytes * MIB
    ),
    sized!(
        "tree_entries",
        10_000,
        1..=100_000_000,
        "Maximum number of files, folders and links that the calls of one turn may add to a writable \
         directory. Removing entries frees space for new ones.",
        "100000",
        tree_entries * 1
    ),
];

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for CallLimits {
    fn default() -> Self {
        let mut limits = Self::ZERO;
        CALL_LIMITS.iter().for_each(|row| row.reset(&mut limits));
        limits
    }
}

impl CallLimits {
    const ZERO: Self = Self {
        tool_time: Duration::ZERO,
        builder_time: Duration::ZERO,
        pure_time: Duration::ZERO,
        cpu_time: None,
        memory: 0,
        fuel: None,
        core_instances: 0,
        tables: 0,
        memories: 0,
        table_elements: 0,
        lifted: None,
        handles: 0,
        random: 0,
        headers: 0,
        result: 0,
        log_lines: 0,
        log_line: 0,
        log: 0,
        error: 0,
        requests: 0,
        requests_per_minute: 0,
        request_body: 0,
        response_body: 0,
        request_time: Duration::ZERO,
        recorded: 0,
        tree_bytes: 0,
        tree_entries: 0,
    };

    /// Lowers each limit that exceeds the maximum in its row of [`CALL_LIMITS`] to that maximum.
    pub(crate) fn bounded(mut self) -> Self {
        CALL_LIMITS.iter().for_each(|row| row.bound(&mut self));
        self
    }

    /// Raises the limits on memory and instances to their maximum values, so that a component can be inspected before
    /// the limits of an agent are known.
    pub(crate) fn with_maximum_memory(self) -> Self {
        Self {
            memory: MAX_MEMORY,
            core_instances: MAX_CORE_INSTANCES,
            tables: MAX_TABLES,
            memories: MAX_MEMORIES,
            table_elements: MAX_TABLE_ELEMENTS,
            ..self
        }
    }

    /// Returns the maximum number of bytes that a guest may pass to the host in one host call or in its result. The
    /// maximum depends on the authority of the guest's call.
    pub(crate) fn lifted(&self, authority: Authority) -> usize {
        self.lifted.unwrap_or(match authority {
            Authority::Granted => LIFTED_BESIDE_RESULT + self.result,
            Authority::Inert => LIFTED_BESIDE_TEXT + self.result,
        })
    }

    /// Maximum number of bytes that a generic function may pass to the host in one host call or as its result.
    pub(crate) fn generic_lifted(&self) -> usize {
        self.lifted.unwrap_or(GENERIC_LIFTED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each default must be the value in the specification and must be within its bounds.
    #[test]
    fn each_row_reads_and_writes_one_field() {
        for row in &CALL_LIMITS {
            let mut limits = CallLimits::default();
            if let Is(value) = row.default {
                assert_eq!((row.get)(&limits), Some(value), "{row:?}");
                assert!((row.least..=row.most).contains(&value), "{row:?}");
            }
            (row.set)(&mut limits, row.most);
            assert_eq!((row.get)(&limits), Some(row.most), "{row:?}");
            for other in CALL_LIMITS.iter().filter(|other| other.key != row.key) {
                assert_eq!(
                    (other.get)(&limits),
                    (other.get)(&CallLimits::default()),
                    "{} changes {}",
                    row.key,
                    other.key
                );
            }
            (row.set)(&mut limits, row.most + 1);
            assert_eq!((row.get)(&limits.bounded()), Some(row.most), "{row:?}");
        }
    }

    // The expected values are those in the table of limits in the specification.
    #[test]
    fn defaults_match_the_documented_table() {
        let limits = CallLimits::default();
        assert_eq!(limits.lifted(Authority::Inert), 4 * MIB);
        assert_eq!(limits.lifted(Authority::Granted), 9 * MIB);
        let shown: Vec<_> =
            CALL_LIMITS.iter().filter_map(|row| Some(format!("{} {}", row.key, (row.get)(&limits)?))).collect();
        let table = "tool_wall_ms 30000, builder_wall_ms 2000, validator_wall_ms 250, memory_mib 64, core_instances 64, tables 64, \
            memories 16, table_elements 10000, handles 1000, random_kib 64, header_kib 32, result_kib 1024, log_lines 1000, \
            log_line_kib 4, log_kib 256, error_kib 4, requests 32, requests_per_minute 60, request_body_kib 1024, \
            response_body_kib 10240, request_ms 30000, recorded_kib 512, tree_mib 1024, tree_entries 10000";
        assert_eq!(shown.join(", "), table);
    }
}
