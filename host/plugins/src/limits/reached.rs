//! A limit that a guest reached, and its description in errors.

use super::MIB;
use std::fmt;
use std::time::Duration;

/// A limit that a guest reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Wall time, including host calls.
    WallTime(Duration),
    /// Processor time of the call.
    CpuTime(Duration),
    /// Units of fuel.
    Fuel(u64),
    /// Bytes of all memories together.
    Memory(usize),
    /// Number of elements of one table.
    TableElements(usize),
    /// Number of core instances.
    Instances(usize),
    /// Number of tables.
    Tables(usize),
    /// Number of memories.
    Memories(usize),
    /// Bytes of the guest's stack, which recursion exceeded.
    Stack(usize),
    /// Number of resource handles that may be open at once.
    Handles(usize),
    /// Random bytes that a call may read.
    RandomBytes(u64),
    /// Bytes of all headers of a request or response.
    Headers(usize),
    /// Bytes passed to the host at once.
    LiftedBytes(usize),
    /// Bytes of text and JSON in a result.
    ResultText(usize),
    /// Bytes of one medium in a result.
    ResultMedium(usize),
    /// Bytes of a context builder's state.
    State(usize),
    /// Number of HTTP requests of one call.
    Requests(usize),
    /// Number of HTTP requests in a minute, and the time until the next one is allowed.
    RequestsPerMinute(usize, Duration),
    /// Bytes of a request's body.
    RequestBody(usize),
    /// Bytes of a response's body.
    ResponseBody(usize),
    /// Time of one HTTP request.
    RequestTime(Duration),
    /// Bytes that a turn may add to a tree.
    TreeBytes(u64),
    /// Files, folders and links that a turn may add to a tree.
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
            Limit::RequestsPerMinute(count, wait) => {
                write!(formatter, "{count} requests per minute; the next one is allowed in {} s", wait.as_secs() + 1)
            }
            Limit::RequestBody(bytes) => write!(formatter, "{} for a request's body", Bytes(*bytes)),
            Limit::ResponseBody(bytes) => write!(formatter, "{} for a response's body", Bytes(*bytes)),
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
    /// Whether it is a limit on HTTP requests.
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

    /// Whether it is a limit on memory, tables or instances, which an agent's configuration may raise.
    pub(crate) fn is_room(self) -> bool {
        matches!(
            self,
            Limit::Memory(_) | Limit::TableElements(_) | Limit::Instances(_) | Limit::Tables(_) | Limit::Memories(_)
        )
    }
}

/// A number of bytes, displayed with its largest exact unit.
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
