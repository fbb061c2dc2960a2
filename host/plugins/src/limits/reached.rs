//! A limit that a guest ran into, as its error names it.

use super::MIB;
use std::fmt;
use std::time::Duration;

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
    /// Core instances.
    Instances(usize),
    /// Tables.
    Tables(usize),
    /// Memories.
    Memories(usize),
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
    /// Requests of one call.
    Requests(usize),
    /// Requests in a minute, and when there is room again.
    RequestsPerMinute(usize, Duration),
    /// Bytes of a request's body.
    RequestBody(usize),
    /// Bytes of an answer's body.
    ResponseBody(usize),
    /// Time of one request.
    RequestTime(Duration),
    /// Bytes that a turn adds to a tree.
    TreeBytes(u64),
    /// Files, folders and links that a turn adds to a tree.
    TreeEntries(u64),
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::WallTime(time) => write!(formatter, "wall time of {time:?}"),
            Limit::CpuTime(time) => write!(formatter, "processor time of {time:?}"),
            Limit::Fuel(fuel) => write!(formatter, "{fuel} units of fuel"),
            Limit::Memory(bytes) => write!(formatter, "memory of {}", Bytes(*bytes)),
            Limit::TableElements(count) => write!(formatter, "table size of {count} elements"),
            Limit::Instances(count) => write!(formatter, "{count} core instances"),
            Limit::Tables(count) => write!(formatter, "{count} tables"),
            Limit::Memories(count) => write!(formatter, "{count} memories"),
            Limit::Stack(bytes) => write!(formatter, "stack of {}", Bytes(*bytes)),
            Limit::Handles(count) => write!(formatter, "{count} resource handles"),
            Limit::RandomBytes(bytes) => write!(formatter, "{} of random numbers", Bytes(*bytes as usize)),
            Limit::Headers(bytes) => write!(formatter, "{} of headers", Bytes(*bytes)),
            Limit::LiftedBytes(bytes) => write!(formatter, "{} handed to the host at once", Bytes(*bytes)),
            Limit::ResultText(bytes) => write!(formatter, "{} of text and JSON in a result", Bytes(*bytes)),
            Limit::ResultMedium(bytes) => write!(formatter, "{} for a medium in a result", Bytes(*bytes)),
            Limit::State(bytes) => write!(formatter, "{} of state", Bytes(*bytes)),
            Limit::Requests(count) => write!(formatter, "{count} requests in a call"),
            Limit::RequestsPerMinute(count, again) => {
                write!(formatter, "{count} requests per minute; there is room again in {} s", again.as_secs() + 1)
            }
            Limit::RequestBody(bytes) => write!(formatter, "{} for a request's body", Bytes(*bytes)),
            Limit::ResponseBody(bytes) => write!(formatter, "{} for an answer's body", Bytes(*bytes)),
            Limit::RequestTime(time) => write!(formatter, "{time:?} for a request"),
            Limit::TreeBytes(bytes) => {
                write!(
                    formatter,
                    "{} more in a tree than at the start of the turn (`tree_mib`)",
                    Bytes(*bytes as usize)
                )
            }
            Limit::TreeEntries(count) => {
                write!(
                    formatter,
                    "{count} more files and folders in a tree than at the start of the turn (`tree_entries`)"
                )
            }
        }
    }
}

impl Limit {
    /// Whether it is one of the requests to the outside world.
    pub(crate) fn is_of_requests(self) -> bool {
        matches!(
            self,
            Limit::Requests(_)
                | Limit::RequestsPerMinute(..)
                | Limit::RequestBody(_)
                | Limit::ResponseBody(_)
                | Limit::RequestTime(_)
                | Limit::Headers(_)
        )
    }

    /// Whether a component asked for more room than a call has by default: an agent may be configured to give it more.
    pub(crate) fn is_room(self) -> bool {
        matches!(
            self,
            Limit::Memory(_) | Limit::TableElements(_) | Limit::Instances(_) | Limit::Tables(_) | Limit::Memories(_)
        )
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
