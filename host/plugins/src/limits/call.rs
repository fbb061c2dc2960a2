//! The limits of single calls: one list of rows, of which defaults, configuration keys and documentation are made.

use super::{
    LIFTED_BESIDE_RESULT, LIFTED_BESIDE_TEXT, MIB, MOST_CORE_INSTANCES, MOST_MEMORIES, MOST_MEMORY,
    MOST_TABLE_ELEMENTS, MOST_TABLES, PLAIN_LIFTED_BYTES,
};
use crate::identity::Authority;
use agent_core::limits::DefaultLimit::{Is, Off, Words};
use agent_core::limits::LimitRow;
use std::time::Duration;

/// Fuel of a call where it is on and no number is given.
pub const FUEL: u64 = 500_000_000;

const KIB: usize = 1024;

/// Bounds of one call. Defaults and largest values stand in [`CALL_LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Wall time of a tool call, host calls included.
    pub tool_time: Duration,
    /// Wall time of a context builder.
    pub builder_time: Duration,
    /// Wall time of an output validator or media policy.
    pub pure_time: Duration,
    /// Processor time of a call. None: as long as its wall time.
    pub cpu_time: Option<Duration>,
    /// All memories of a call together, in bytes.
    pub memory: usize,
    /// Fuel of a call: about one unit for each instruction that it runs, the same for the same work on every machine.
    /// None: it is not counted. Counting takes other compiled code, which is made of the component in the plugin store
    /// when it is first needed and runs somewhat slower.
    pub fuel: Option<u64>,
    /// Core instances.
    pub core_instances: usize,
    /// Tables.
    pub tables: usize,
    /// Memories.
    pub memories: usize,
    /// Elements of one table.
    pub table_elements: usize,
    /// Bytes that the guest hands to the host at once. None: what the kind of call needs.
    pub lifted: Option<usize>,
    /// Resource handles open at once.
    pub handles: usize,
    /// Random bytes.
    pub random: u64,
    /// Bytes of all headers of a request, and of its answer.
    pub headers: usize,
    /// Bytes of text and JSON of a result.
    pub result: usize,
    /// Log lines.
    pub log_lines: u32,
    /// Bytes of one log line.
    pub log_line: usize,
    /// Bytes of all log lines.
    pub log: usize,
    /// Bytes of the guest's error text.
    pub error: usize,
    /// Requests to the outside world.
    pub requests: usize,
    /// Requests of one agent's plugin in a minute.
    pub requests_per_minute: usize,
    /// Bytes of a request's body.
    pub request_body: usize,
    /// Bytes of an answer's body.
    pub response_body: usize,
    /// One request from its begin to its answer's last byte; the call's own end comes first where it is nearer.
    pub request_time: Duration,
    /// Bytes of the host's answers to the guest that are kept with the call. 0: none are kept.
    pub recorded: usize,
    /// Bytes that a turn of an agent may add to a tree that it may write, more than were there when the turn began.
    pub tree_bytes: u64,
    /// Files, folders and links that it may add there.
    pub tree_entries: u64,
}

type Row = LimitRow<CallLimits>;

/// One row: key, default, bounds and meaning, an example, and the field with its unit.
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

/// A row whose field is a number of so many bytes, or of things.
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

/// A row whose field is a time in milliseconds.
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

/// Every limit of a call that can be configured, in order of reading.
pub const CALL_LIMITS: [Row; 27] = [
    timed!(
        "tool_wall_ms",
        30_000,
        120_000,
        "Milliseconds of a tool call from its begin to its end, also while it waits in a host call.",
        "5000",
        tool_time
    ),
    timed!("builder_wall_ms", 2_000, 120_000, "The same of a context builder.", "4000", builder_time),
    timed!("validator_wall_ms", 250, 120_000, "The same of an output validator or a media policy.", "500", pure_time),
    row!(
        "cpu_ms",
        Words("as long as the wall time"),
        1..=120_000,
        "Milliseconds of processor time.",
        "1000",
        |limits| limits.cpu_time.map(milliseconds),
        |limits, value| limits.cpu_time = Some(Duration::from_millis(value))
    ),
    sized!("memory_mib", 64, 1..=256, "MiB of all its memories together.", "128", memory * MIB),
    row!(
        "fuel",
        Off,
        1..=1_000_000_000_000,
        "Instructions that it may run, counted: the same work takes the same fuel on every machine. `true` is 500000000. \
         Counting makes it somewhat slower, and takes other compiled code.",
        "2000000000",
        |limits| limits.fuel,
        |limits, value| limits.fuel = (value > 0).then_some(value)
    ),
    sized!(
        "core_instances",
        64,
        1..=MOST_CORE_INSTANCES as u64,
        "Core instances that the component is made of.",
        "100",
        core_instances * 1
    ),
    sized!("tables", 64, 1..=MOST_TABLES as u64, "Its tables.", "32", tables * 1),
    sized!("memories", 16, 1..=MOST_MEMORIES as u64, "Its memories.", "4", memories * 1),
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
        "KiB that it hands to the host at once, in one host call or as its result.",
        "16384",
        |limits| limits.lifted.map(|bytes| (bytes / KIB) as u64),
        |limits, value| limits.lifted = Some(value as usize * KIB)
    ),
    sized!("handles", 1_000, 1..=10_000, "Resource handles open at once.", "2000", handles * 1),
    sized!("random_kib", 64, 1..=16_384, "KiB of random numbers.", "1024", random * KIB),
    sized!(
        "header_kib",
        32,
        1..=256,
        "KiB of all headers of a request, and of those of its answer.",
        "64",
        headers * KIB
    ),
    sized!("result_kib", 1_024, 1..=8_192, "KiB of text and JSON in a result, which is stored.", "2048", result * KIB),
    sized!("log_lines", 1_000, 1..=100_000, "Log lines; further ones are counted and left out.", "5000", log_lines * 1),
    sized!("log_line_kib", 4, 1..=64, "KiB of one log line; longer ones are cut.", "8", log_line * KIB),
    sized!("log_kib", 256, 1..=16_384, "KiB of all log lines together.", "1024", log * KIB),
    sized!("error_kib", 4, 1..=64, "KiB of its error text, which is cut there.", "8", error * KIB),
    sized!("requests", 32, 1..=1_000, "Requests of one call to the outside world.", "100", requests * 1),
    sized!(
        "requests_per_minute",
        60,
        1..=6_000,
        "Requests of all the agent's calls of the plugin in a minute.",
        "120",
        requests_per_minute * 1
    ),
    sized!("request_body_kib", 1_024, 1..=65_536, "KiB of a request's body.", "4096", request_body * KIB),
    sized!("response_body_kib", 10_240, 1..=262_144, "KiB of an answer's body.", "51200", response_body * KIB),
    timed!(
        "request_ms",
        30_000,
        120_000,
        "Milliseconds of one request, from its begin to its answer's last byte; never past the call's end.",
        "10000",
        request_time
    ),
    sized!(
        "recorded_kib",
        512,
        0..=16_384,
        "KiB of what the host answered it (pages, kept values, files, time, random numbers) that are stored with a call, for `replay`; 0: nothing.",
        "0",
        recorded * KIB
    ),
    sized!(
        "tree_mib",
        1_024,
        1..=1_048_576,
        "MiB that the calls of a turn add to a tree that they may write; what they remove comes back.",
        "4096",
        tree_bytes * MIB
    ),
    sized!(
        "tree_entries",
        10_000,
        1..=100_000_000,
        "Files, folders and links that the calls of a turn add to a tree that they may write; what they remove comes back.",
        "100000",
        tree_entries * 1
    ),
];

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for CallLimits {
    fn default() -> Self {
        let mut limits = Self::NOTHING;
        CALL_LIMITS.iter().for_each(|row| row.reset(&mut limits));
        limits
    }
}

impl CallLimits {
    const NOTHING: Self = Self {
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

    /// With nothing above what the host allows.
    pub(crate) fn bounded(mut self) -> Self {
        CALL_LIMITS.iter().for_each(|row| row.bound(&mut self));
        self
    }

    /// As much room as any configuration could give: for looking at a component before it is known what an agent gives it.
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

    /// Bytes that a guest hands over at once, in a call of that authority.
    pub(crate) fn lifted(&self, authority: Authority) -> usize {
        self.lifted.unwrap_or(match authority {
            Authority::Granted => LIFTED_BESIDE_RESULT + self.result,
            Authority::Inert => LIFTED_BESIDE_TEXT + self.result,
        })
    }

    /// The same for plain functions.
    pub(crate) fn plain_lifted(&self) -> usize {
        self.lifted.unwrap_or(PLAIN_LIFTED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each row reads and writes one field of its own, and no default is out of its own bounds.
    #[test]
    fn each_row_is_one_field() {
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

    // The table of limits-and-threats.md.
    #[test]
    fn defaults_are_those_of_the_table() {
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
