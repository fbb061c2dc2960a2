//! A limit that a guest reached, and its description in errors.

use super::MIB;
use std::fmt;
use std::time::Duration;

/// A limit that a guest reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Maximum wall time of the call, including the time that host functions take.
    WallTime(Duration),
    /// Maximum processor time of the call.
    CpuTime(Duration),
    /// Maximum units of fuel of the call.
    Fuel(u64),
    /// Maximum total size of all linear memories of the call, in bytes.
    Memory(usize),
    /// Maximum number of elements of one table.
    TableElements(usize),
    /// Maximum number of core instances that a component may create.
    Instances(usize),
    /// Maximum number of tables that a component may have.
    Tables(usize),
    /// Maximum number of memories that a component may have.
    Memories(usize),
    /// Size of the guest's stack, in bytes. The guest needed more stack, usually because of deep recursion.
    Stack(usize),
    /// Maximum number of resource handles that may be open at the same time.
    Handles(usize),
    /// Maximum number of random bytes that a call may read.
    RandomBytes(u64),
    /// Maximum total size of the headers of a request or response, in bytes.
    Headers(usize),
    /// Maximum number of bytes that a guest may pass to the host, in one host call or in the result of its own call.
    LiftedBytes(usize),
    /// Maximum size of the text and JSON in a result, in bytes.
    ResultText(usize),
    /// Maximum size of one media item in a result, in bytes.
    ResultMediaItem(usize),
    /// Maximum size of a context builder's state, in bytes.
    State(usize),
    /// Maximum number of HTTP requests of one call.
    Requests(usize),
    /// Maximum number of HTTP requests that one plugin of an agent may send per minute, and the time until the next
    /// request is allowed.
    RequestsPerMinute(usize, Duration),
    /// Maximum size of a request's body, in bytes.
    RequestBody(usize),
    /// Maximum size of a response's body, in bytes.
    ResponseBody(usize),
    /// Maximum duration of one HTTP request.
    RequestTime(Duration),
    /// Maximum number of bytes that a turn may add to a granted directory.
    TreeBytes(u64),
    /// Maximum number of files, folders and links that a turn may add to a granted directory.
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
            Limit::LiftedBytes(bytes) => write!(formatter, "{} passed to the host at once", Bytes(*bytes)),
            Limit::ResultText(bytes) => write!(formatter, "{} of text and JSON in a result", Bytes(*bytes)),
            Limit::ResultMediaItem(bytes) => write!(formatter, "{} for a media item in a result", Bytes(*bytes)),
            Limit::State(bytes) => write!(formatter, "{} of state", Bytes(*bytes)),
            Limit::Requests(count) => write!(formatter, "{count} requests in a call"),
            Limit::RequestsPerMinute(count, wait) => {
                let seconds = wait.as_secs() + 1;
                write!(formatter, "{count} requests per minute; the next request is allowed in {seconds} s")
            }
            Limit::RequestBody(bytes) => write!(formatter, "{} for a request's body", Bytes(*bytes)),
            Limit::ResponseBody(bytes) => write!(formatter, "{} for a response's body", Bytes(*bytes)),
            Limit::RequestTime(time) => write!(formatter, "{time:?} for a request"),
            Limit::TreeBytes(bytes) => {
                write!(
                    formatter,
                    "{} more in a directory than at the start of the turn (`tree_mib`)",
                    Bytes(*bytes as usize)
                )
            }
            Limit::TreeEntries(count) => {
                write!(
                    formatter,
                    "{count} more files and folders in a directory than at the start of the turn (`tree_entries`)"
                )
            }
        }
    }
}

impl Limit {
    /// Whether this is a limit on HTTP requests.
    pub(crate) fn is_request_limit(self) -> bool {
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

    /// Whether this is a limit on memory, tables or instances, which an agent's configuration may raise.
    pub(crate) fn is_memory_limit(self) -> bool {
        matches!(
            self,
            Limit::Memory(_) | Limit::TableElements(_) | Limit::Instances(_) | Limit::Tables(_) | Limit::Memories(_)
        )
    }
}

/// A number of bytes that is displayed in the largest unit in which it is a whole number.
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
