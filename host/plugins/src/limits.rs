//! Limits of the host and of single calls: all on by default, each named in the error that it causes (P8). Those that can be
//! configured stand in the lists [`CALL_LIMITS`] and [`HOST_LIMITS`]; what is fixed stands here.

mod call;
mod host;
mod reached;

pub use call::{CALL_LIMITS, CallLimits, FUEL};
pub use host::{HOST_LIMITS, HOST_STACK_KIB, HostLimits};
pub(crate) use host::{
    LOADING, MIB, MOST_CORE_INSTANCES, MOST_MEMORIES, MOST_MEMORY, MOST_TABLE_ELEMENTS, MOST_TABLES, PURE_CALLS,
};
pub use reached::Limit;

use std::time::Duration;

/// One medium that stands in a result itself.
pub const RESULT_MEDIUM_BYTES: usize = 4 * MIB;
/// Media in the making of one call together.
pub const NEW_MEDIA_BYTES: usize = 32 * MIB;
/// One read or write of a medium.
pub const MEDIA_CHUNK_BYTES: usize = MIB;
/// Text of the host's own that tells why something was refused.
pub(crate) const REASON_BYTES: usize = 4 * 1024;
/// State of a context builder.
pub const STATE_BYTES: usize = 64 * 1024;
/// What is shown of a tool's description.
pub const DESCRIPTION_BYTES: usize = 2 * 1024;
/// Tools of one component.
pub const TOOLS: usize = 1_024;
/// A key of `wasi:keyvalue`, and a bucket's name.
pub const KEY_BYTES: usize = 1024;
/// A value of `wasi:keyvalue`.
pub const VALUE_BYTES: usize = MIB;
/// What a plugin may keep in `wasi:keyvalue` where the grant names no quota.
pub const KEY_VALUE_BYTES: u64 = 10 * MIB as u64;
/// Keys of one page, and of one batch.
pub(crate) const KEY_PAGE: usize = 1_000;
pub(crate) const VALUES_AT_ONCE: usize = 1_000;
/// Uses of values in one call: each write is a transaction of its own, which everybody else waits for.
pub(crate) const VALUE_USES: u64 = 10_000;
/// Values of one batch together.
pub(crate) const VALUES_BYTES: usize = 4 * MIB;
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
/// What a guest hands to the host at once beside its result: the two media of 4 MiB that a tool's result may hold.
pub(crate) const LIFTED_BESIDE_RESULT: usize = 2 * RESULT_MEDIUM_BYTES;
/// The same for kinds whose results hold no media.
pub(crate) const LIFTED_BESIDE_TEXT: usize = 3 * MIB;
/// Handed over at once by plain functions: their values take room for their types, so that a byte counts as one value.
pub(crate) const PLAIN_LIFTED_BYTES: usize = 32 * MIB;
/// JSON text of a plain function's arguments.
pub(crate) const PLAIN_ARGUMENT_BYTES: usize = MIB;
/// Wall time for a component's `definitions`.
pub(crate) const DEFINITIONS_TIME: Duration = Duration::from_secs(10);
