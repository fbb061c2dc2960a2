//! Limits of the host and of single calls: all on by default, each named in the error that it causes (P8).

use std::fmt;
use std::time::Duration;

/// One mebibyte.
pub(crate) const MIB: usize = 1024 * 1024;

/// Largest component that is read.
pub const COMPONENT_BYTES: u64 = 32 * MIB as u64;
/// Most that `CallLimits::memory` may be.
pub const LARGEST_MEMORY: usize = 256 * MIB;
/// Most that a wall-time limit may be.
pub const LONGEST_WALL_TIME: Duration = Duration::from_secs(120);
/// How often running guests are interrupted, so that others get their turn and limits are looked at.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// A tool result's text, JSON and structured result together.
pub const RESULT_TEXT_BYTES: usize = MIB;
/// One medium that stands in a result itself.
pub const RESULT_MEDIUM_BYTES: usize = 4 * MIB;
/// Media in the making of one call together.
pub const NEW_MEDIA_BYTES: usize = 32 * MIB;
/// One read or write of a medium.
pub const MEDIA_CHUNK_BYTES: usize = MIB;
/// A guest's error text.
pub const ERROR_TEXT_BYTES: usize = 4 * 1024;
/// State of a context builder.
pub const STATE_BYTES: usize = 64 * 1024;
/// Log lines of one call.
pub const LOG_LINES: u32 = 1_000;
/// One log line.
pub const LOG_LINE_BYTES: usize = 4 * 1024;
/// All log lines of one call.
pub const LOG_BYTES: usize = 256 * 1024;
/// What is shown of a tool's description.
pub const DESCRIPTION_BYTES: usize = 2 * 1024;
/// Tools of one component.
pub const TOOLS: usize = 1_024;
/// Requests of one call to the outside world.
pub const REQUESTS: usize = 32;
/// Requests of one agent's plugin in a minute.
pub const REQUESTS_PER_MINUTE: usize = 60;
/// A request's body.
pub const REQUEST_BODY_BYTES: usize = MIB;
/// A response's body.
pub const RESPONSE_BODY_BYTES: usize = 10 * MIB;
/// All headers of a request or response.
pub const HEADER_BYTES: usize = 32 * 1024;
/// One request from its begin to its answer's last byte; the call's own end comes first where it is nearer.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);
/// A key of `wasi:keyvalue`, and a bucket's name.
pub const KEY_BYTES: usize = 1024;
/// A value of `wasi:keyvalue`.
pub const VALUE_BYTES: usize = MIB;
/// What a plugin may keep in `wasi:keyvalue` where the grant names no quota.
pub const KEY_VALUE_BYTES: u64 = 10 * MIB as u64;
/// Keys of one page, and of one batch.
pub(crate) const KEY_PAGE: usize = 1_000;
pub(crate) const VALUES_AT_ONCE: usize = 1_000;
/// Values that a guest may hold for a swap at once.
pub(crate) const SEEN_VALUES: usize = 16;
/// Texts of a question to the host's model.
pub const QUESTION_BYTES: usize = MIB;
/// Messages of one.
pub const QUESTION_MESSAGES: usize = 64;
/// Most tokens of the host's model that a plugin may be granted in a turn.
pub const MODEL_TOKENS: u64 = 100_000_000;
/// A manifest's JSON.
pub const MANIFEST_BYTES: usize = 64 * 1024;

/// Levels of arrays and objects in a guest's JSON.
pub(crate) const JSON_DEPTH: usize = 64;
/// Messages of a built prompt.
pub(crate) const PROMPT_MESSAGES: usize = 1_000;
/// Sections of a built prompt or of a step.
pub(crate) const SECTIONS: usize = 256;
/// A section's name.
pub(crate) const SECTION_NAME_BYTES: usize = 128;
/// Most that a guest's count of the calls in which a message was sent may be.
pub(crate) const SEEN_COUNT: u32 = 1_000_000;
pub(crate) const WASM_STACK_BYTES: usize = 512 * 1024;
pub(crate) const ASYNC_STACK_BYTES: usize = 2 * MIB;
pub(crate) const CORE_INSTANCES: usize = 64;
pub(crate) const TABLES: usize = 64;
pub(crate) const MEMORIES: usize = 16;
pub(crate) const TABLE_ELEMENTS: usize = 10_000;
pub(crate) const HANDLES: usize = 1_000;
pub(crate) const RANDOM_BYTES: u64 = 64 * 1024;
/// Data lifted from a guest in one host call, or as its result: two media of 4 MiB and the text.
pub(crate) const LIFTED_BYTES: usize = 2 * RESULT_MEDIUM_BYTES + RESULT_TEXT_BYTES;
/// The same for kinds whose results hold no media.
pub(crate) const LIFTED_BYTES_WITHOUT_MEDIA: usize = 4 * MIB;
/// The same for plain functions: their values take room for their types, so that a byte counts as one value.
pub(crate) const PLAIN_LIFTED_BYTES: usize = 32 * MIB;
/// JSON text of a plain function's arguments.
pub(crate) const PLAIN_ARGUMENT_BYTES: usize = MIB;
/// Wall time for a component's `definitions`.
pub(crate) const DEFINITIONS_TIME: Duration = Duration::from_secs(10);

/// Validators and policies at once. They run for microseconds.
pub(crate) const PURE_CALLS: usize = 16;
/// Instances for type checks and definitions at once.
pub(crate) const LOADING: usize = 4;
/// Memory of the process that compiles one component. Cranelift takes some 20 times a component's size.
pub(crate) const COMPILER_MEMORY: usize = 2048 * MIB;

/// Bounds over all calls of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes of guest memory in all. Default 2 GiB. A call counts with its own limit from its start. An eighth is kept
    /// for validators and policies, and an eighth for loading, so that endless tools cannot starve them.
    pub guest_memory: usize,
    /// Calls of tools and context builders at once. Default 64.
    pub concurrent_calls: usize,
    /// Calls that may wait for a place. Default 256.
    pub queue: usize,
    /// Time that compiling one component may take: of each processor where a child compiles, else by the clock. Default
    /// 20 s.
    pub compile_time: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { guest_memory: 2048 * MIB, concurrent_calls: 64, queue: 256, compile_time: Duration::from_secs(20) }
    }
}

/// Bounds of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Wall time of a tool call, host calls included. Default 30 s, at most 120 s.
    pub tool_time: Duration,
    /// Wall time of a context builder. Default 2 s.
    pub builder_time: Duration,
    /// Wall time of an output validator or media policy. Default 250 ms.
    pub pure_time: Duration,
    /// Processor time of a call. None: as long as its wall time.
    pub cpu_time: Option<Duration>,
    /// All memories of a call together, in bytes. Default 64 MiB, at most 256 MiB.
    pub memory: usize,
    /// Fuel of a call: about one unit for each instruction that it runs, the same for the same work on every machine.
    /// Default: it is not counted. Counting takes other compiled code, which is made of the component in the plugin store
    /// when it is first needed and runs somewhat slower.
    pub fuel: Option<u64>,
}

/// Fuel of a call where it is on and no number is given.
pub const FUEL: u64 = 500_000_000;

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            tool_time: Duration::from_secs(30),
            builder_time: Duration::from_secs(2),
            pure_time: Duration::from_millis(250),
            cpu_time: None,
            memory: 64 * MIB,
            fuel: None,
        }
    }
}

impl CallLimits {
    /// With nothing above what the host allows.
    pub(crate) fn bounded(self) -> Self {
        Self {
            tool_time: self.tool_time.min(LONGEST_WALL_TIME),
            builder_time: self.builder_time.min(LONGEST_WALL_TIME),
            pure_time: self.pure_time.min(LONGEST_WALL_TIME),
            cpu_time: self.cpu_time,
            memory: self.memory.min(LARGEST_MEMORY),
            fuel: self.fuel,
        }
    }
}

/// A limit that stopped a guest, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Wall time, host calls included.
    WallTime(Duration),
    /// Processor time.
    CpuTime(Duration),
    /// Units of fuel.
    Fuel(u64),
    /// Bytes of all memories together.
    Memory(usize),
    /// Elements of one table.
    TableElements(usize),
    /// Core instances, tables or memories.
    Instances,
    /// Bytes of the wasm stack: the guest recursed too deeply.
    Stack(usize),
    /// Resource handles open at once.
    Handles(usize),
    /// Random bytes of the call.
    RandomBytes(u64),
    /// Bytes of a request's headers.
    Headers(usize),
    /// Bytes handed to the host at once.
    LiftedBytes(usize),
    /// Bytes of text and JSON in a result.
    ResultText(usize),
    /// Bytes of one medium in a result.
    ResultMedium(usize),
    /// Bytes of a context builder's state.
    State(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::WallTime(time) => write!(formatter, "wall time of {time:?}"),
            Limit::CpuTime(time) => write!(formatter, "processor time of {time:?}"),
            Limit::Fuel(fuel) => write!(formatter, "{fuel} units of fuel"),
            Limit::Memory(bytes) => write!(formatter, "memory of {}", Bytes(*bytes)),
            Limit::TableElements(count) => write!(formatter, "table size of {count} elements"),
            Limit::Instances => {
                write!(formatter, "{CORE_INSTANCES} core instances, {TABLES} tables and {MEMORIES} memories")
            }
            Limit::Stack(bytes) => write!(formatter, "stack of {}", Bytes(*bytes)),
            Limit::Handles(count) => write!(formatter, "{count} resource handles"),
            Limit::RandomBytes(bytes) => write!(formatter, "{} of random numbers", Bytes(*bytes as usize)),
            Limit::Headers(bytes) => write!(formatter, "{} of headers", Bytes(*bytes)),
            Limit::LiftedBytes(bytes) => write!(formatter, "{} handed to the host at once", Bytes(*bytes)),
            Limit::ResultText(bytes) => write!(formatter, "{} of text and JSON in a result", Bytes(*bytes)),
            Limit::ResultMedium(bytes) => write!(formatter, "{} for a medium in a result", Bytes(*bytes)),
            Limit::State(bytes) => write!(formatter, "{} of state", Bytes(*bytes)),
        }
    }
}

/// A size for people.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(MIB) {
            write!(formatter, "{} MiB", self.0 / MIB)
        } else if self.0.is_multiple_of(1024) {
            write!(formatter, "{} KiB", self.0 / 1024)
        } else {
            write!(formatter, "{} bytes", self.0)
        }
    }
}
