//! The limits of single calls, as one list of rows that gives defaults, configuration keys and documentation.

use super::{
    LIFTED_BESIDE_RESULT, LIFTED_BESIDE_TEXT, MIB, MOST_CORE_INSTANCES, MOST_MEMORIES, MOST_MEMORY,
    MOST_TABLE_ELEMENTS, MOST_TABLES, PLAIN_LIFTED_BYTES,
};
use crate::identity::Authority;
use agent_core::limits::DefaultLimit::{Is, Off, Words};
use agent_core::limits::LimitRow;
use std::time::Duration;

/// Fuel of a call if fuel is on and no number is given.
pub const FUEL: u64 = 500_000_000;

const KIB: usize = 1024;

/// The limits of one call. [`CALL_LIMITS`] contains their defaults and maximum values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Wall time of a tool call, including host calls.
    pub tool_time: Duration,
    /// Wall time of a context builder.
    pub builder_time: Duration,
    /// Wall time of an output validator or media policy.
    pub pure_time: Duration,
    /// Processor time of a call. None: the same as its wall time.
    pub cpu_time: Option<Duration>,
    /// Bytes of all memories of a call together.
    pub memory: usize,
    /// Fuel of a call: about one unit for each instruction, and the same for the same work on every machine. None: fuel is
    /// not counted. Counting needs separately compiled code, which is compiled from the component in the plugin store when it
    /// is first needed and runs slightly slower.
    pub fuel: Option<u64>,
    /// Number of core instances.
    pub core_instances: usize,
    /// Number of tables.
    pub tables: usize,
    /// Number of memories.
    pub memories: usize,
    /// Number of elements of one table.
    pub table_elements: usize,
    /// Bytes that the guest may pass to the host at once. None: the default of the kind of call.
    pub lifted: Option<usize>,
    /// Number of resource handles that may be open at once.
    pub handles: usize,
    /// Random bytes that the guest may read.
    pub random: u64,
    /// Bytes of all headers of a request, and of all headers of its response.
    pub headers: usize,
    /// Bytes of text and JSON in a result.
    pub result: usize,
    /// Number of log lines.
    pub log_lines: u32,
    /// Bytes of one log line.
    pub log_line: usize,
    /// Bytes of all log lines.
    pub log: usize,
    /// Bytes of the guest's error text.
    pub error: usize,
    /// Number of HTTP requests of a call.
    pub requests: usize,
    /// Number of HTTP requests of one agent's plugin in a minute.
    pub requests_per_minute: usize,
    /// Bytes of a request's body.
    pub request_body: usize,
    /// Bytes of a response's body.
    pub response_body: usize,
    /// Time of one request from its start to the last byte of its response. The end of the call also ends the request.
    pub request_time: Duration,
    /// Bytes of the host's answers that are stored with the call. 0: none are stored.
    pub recorded: usize,
    /// Bytes that one turn may add to a writable tree, compared with the start of the turn.
    pub tree_bytes: u64,
    /// Files, folders and links that one turn may add to a writable tree.
    pub tree_entries: u64,
}

type Row = LimitRow<CallLimits>;

/// A row of the list: key, default, bounds, meaning, example, and the functions that read and write the field.
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

/// A row whose field is a number of bytes or a count.
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

/// A row whose field is a time, configured in milliseconds.
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
        "Milliseconds that a tool call may take from start to end, including the time it waits in host calls.",
        "5000",
        tool_time
    ),
    timed!(
        "builder_wall_ms",
        2_000,
        120_000,
        "Milliseconds that a context builder's call may take from start to end.",
        "4000",
        builder_time
    ),
    timed!(
        "validator_wall_ms",
        250,
        120_000,
        "Milliseconds that the call of an output validator or media policy may take from start to end.",
        "500",
        pure_time
    ),
    row!(
        "cpu_ms",
        Words("as long as the wall time"),
        1..=120_000,
        "Milliseconds of processor time that a call may use.",
        "1000",
        |limits| limits.cpu_time.map(milliseconds),
        |limits, value| limits.cpu_time = Some(Duration::from_millis(value))
    ),
    sized!("memory_mib", 64, 1..=256, "MiB of all memories of a call together.", "128", memory * MIB),
    row!(
        "fuel",
        Off,
        1..=1_000_000_000_000,
        "Number of instructions that a call may execute; the same work uses the same fuel on every machine. `true` means \
         500000000. Counting makes the call slightly slower and needs separately compiled code.",
        "2000000000",
        |limits| limits.fuel,
        |limits, value| limits.fuel = (value > 0).then_some(value)
    ),
    sized!(
        "core_instances",
        64,
        1..=MOST_CORE_INSTANCES as u64,
        "Core instances that the component may create.",
        "100",
        core_instances * 1
    ),
    sized!("tables", 64, 1..=MOST_TABLES as u64, "Tables that the component may have.", "32", tables * 1),
    sized!("memories", 16, 1..=MOST_MEMORIES as u64, "Memories that the component may have.", "4", memories * 1),
    sized!(
        "table_elements",
        10_000,
        1..=MOST_TABLE_ELEMENTS as u64,
        "Elements of one table.",
        "20000",
        table_elements * 1
    ),
    row!(
        "lifted_kib",
        Words(
            "8 MiB and `result_kib` for tools and context builders, 3 MiB and `result_kib` for validators and policies, 32 MiB for plain functions"
        ),
        1..=65_536,
        "KiB that the plugin may pass to the host at once, in one host call or as its result.",
        "16384",
        |limits| limits.lifted.map(|bytes| (bytes / KIB) as u64),
        |limits, value| limits.lifted = Some(value as usize * KIB)
    ),
    sized!("handles", 1_000, 1..=10_000, "Resource handles that may be open at once.", "2000", handles * 1),
    sized!("random_kib", 64, 1..=16_384, "KiB of random numbers that a call may read.", "1024", random * KIB),
    sized!(
        "header_kib",
        32,
        1..=256,
        "KiB of all headers of a request, and of all headers of its response.",
        "64",
        headers * KIB
    ),
    sized!("result_kib", 1_024, 1..=8_192, "KiB of text and JSON in a result.", "2048", result * KIB),
    sized!(
        "log_lines",
        1_000,
        1..=100_000,
        "Log lines of a call; further lines are counted and dropped.",
        "5000",
        log_lines * 1
    ),
    sized!("log_line_kib", 4, 1..=64, "KiB of one log line; longer lines are cut.", "8", log_line * KIB),
    sized!("log_kib", 256, 1..=16_384, "KiB of all log lines of a call together.", "1024", log * KIB),
    sized!("error_kib", 4, 1..=64, "KiB of the plugin's error text; a longer text is cut.", "8", error * KIB),
    sized!("requests", 32, 1..=1_000, "HTTP requests that one call may send.", "100", requests * 1),
    sized!(
        "requests_per_minute",
        60,
        1..=6_000,
        "HTTP requests that all calls of the agent's plugin may send in a minute.",
        "120",
        requests_per_minute * 1
    ),
    sized!("request_body_kib", 1_024, 1..=65_536, "KiB of a request's body.", "4096", request_body * KIB),
    sized!("response_body_kib", 10_240, 1..=262_144, "KiB of a response's body.", "51200", response_body * KIB),
    timed!(
        "request_ms",
        30_000,
        120_000,
        "Milliseconds of one HTTP request, from its start to the last byte of its response; it never outlasts the call.",
        "10000",
        request_time
    ),
    sized!(
        "recorded_kib",
        512,
        0..=16_384,
        "KiB of the host's answers (web pages, stored values, files, time, random numbers) that are stored with a call for \
         `replay`; 0 stores nothing.",
        "0",
        recorded * KIB
    ),
    sized!(
        "tree_mib",
        1_024,
        1..=1_048_576,
        "MiB that the calls of a turn may add to a tree that they can write to; removing files frees space again.",
        "4096",
        tree_bytes * MIB
    ),
    sized!(
        "tree_entries",
        10_000,
        1..=100_000_000,
        "Files, folders and links that the calls of a turn may add to a tree that they can write to; removing some makes room again.",
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

    /// Lowers every limit to the maximum of its row.
    pub(crate) fn bounded(mut self) -> Self {
        CALL_LIMITS.iter().for_each(|row| row.bound(&mut self));
        self
    }

    /// Raises the limits on memory and instances to their maximum, to inspect a component before an agent's limits are known.
    pub(crate) fn roomy(self) -> Self {
        Self {
            memory: MOST_MEMORY,
            core_instances: MOST_CORE_INSTANCES,
            tables: MOST_TABLES,
            memories: MOST_MEMORIES,
            table_elements: MOST_TABLE_ELEMENTS,
            ..self
        }
    }

    /// Bytes that a guest may pass to the host at once, in a call with that authority.
    pub(crate) fn lifted(&self, authority: Authority) -> usize {
        self.lifted.unwrap_or(match authority {
            Authority::Granted => LIFTED_BESIDE_RESULT + self.result,
            Authority::Inert => LIFTED_BESIDE_TEXT + self.result,
        })
    }

    /// Bytes that a plain function may pass to the host at once.
    pub(crate) fn plain_lifted(&self) -> usize {
        self.lifted.unwrap_or(PLAIN_LIFTED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each row reads and writes exactly one field, and every default is within its bounds.
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

    // The values of the specification's table of limits.
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
