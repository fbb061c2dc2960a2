//! Limits of the host and of single calls. All are on by default, and the error that a limit causes names it (P8). The lists
//! [`CALL_LIMITS`] and [`HOST_LIMITS`] contain the configurable limits; this file contains the fixed ones.

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

/// Maximum bytes of one medium that a result contains.
pub const RESULT_MEDIUM_BYTES: usize = 4 * MIB;
/// Maximum bytes of all new media of one call together.
pub const NEW_MEDIA_BYTES: usize = 32 * MIB;
/// Maximum bytes of one read or write of a medium.
pub const MEDIA_CHUNK_BYTES: usize = MIB;
/// Maximum bytes of the host's text about the reason of a refusal.
pub(crate) const REASON_BYTES: usize = 4 * 1024;
/// Maximum bytes of a context builder's state.
pub const STATE_BYTES: usize = 64 * 1024;
/// Maximum bytes of a tool's description; a longer one is cut.
pub const DESCRIPTION_BYTES: usize = 2 * 1024;
/// Maximum number of tools of one component.
pub const TOOLS: usize = 1_024;
/// Maximum bytes of a `wasi:keyvalue` key and of a bucket's name.
pub const KEY_BYTES: usize = 1024;
/// Maximum bytes of a `wasi:keyvalue` value.
pub const VALUE_BYTES: usize = MIB;
/// Bytes that a plugin may store in `wasi:keyvalue` if the grant gives no quota.
pub const KEY_VALUE_BYTES: u64 = 10 * MIB as u64;
/// Maximum number of keys in one page of a listing.
pub(crate) const KEY_PAGE: usize = 1_000;
/// Maximum number of keys in one batch.
pub(crate) const VALUES_AT_ONCE: usize = 1_000;
/// Maximum number of key-value operations in one call. Each write is a transaction that blocks all other writers.
pub(crate) const VALUE_USES: u64 = 10_000;
/// Maximum bytes of all values in one batch.
pub(crate) const VALUES_BYTES: usize = 4 * MIB;
/// Maximum number of values that a guest may hold for a compare-and-swap at once.
pub(crate) const CAS_VALUES: usize = 16;
/// Maximum bytes of all texts in a question to the agent's model.
pub const QUESTION_BYTES: usize = MIB;
/// Maximum number of messages in a question to the agent's model.
pub const QUESTION_MESSAGES: usize = 64;
/// Maximum number of tokens of the agent's model that a plugin may be granted for a turn.
pub const MODEL_TOKENS: u64 = 100_000_000;
/// Maximum bytes of a manifest's JSON.
pub const MANIFEST_BYTES: usize = 64 * 1024;

/// Maximum nesting depth of arrays and objects in a guest's JSON.
pub(crate) const JSON_DEPTH: usize = 64;
/// Maximum number of messages in a prompt that a context builder returns.
pub(crate) const PROMPT_MESSAGES: usize = 1_000;
/// Maximum number of sections in a built prompt or in a step.
pub(crate) const SECTIONS: usize = 256;
/// Maximum bytes of a section's name.
pub(crate) const SECTION_NAME_BYTES: usize = 128;
/// Maximum of a message's `seen-count` that a guest returns. A larger value is lowered to it.
pub(crate) const SEEN_COUNT: u32 = 1_000_000;
/// Bytes that a guest may pass to the host at once in addition to its result: the two media of 4 MiB that a tool's result may contain.
pub(crate) const LIFTED_BESIDE_RESULT: usize = 2 * RESULT_MEDIUM_BYTES;
/// Bytes that a guest may pass to the host at once in addition to its result, for kinds whose results contain no media.
pub(crate) const LIFTED_BESIDE_TEXT: usize = 3 * MIB;
/// Bytes that a plain function may pass to the host at once. The host's representation of a value is larger than the value, so
/// one byte counts as one value.
pub(crate) const PLAIN_LIFTED_BYTES: usize = 32 * MIB;
/// Maximum bytes of the JSON arguments of a plain function.
pub(crate) const PLAIN_ARGUMENT_BYTES: usize = MIB;
/// Maximum wall time of a component's `definitions`.
pub(crate) const DEFINITIONS_TIME: Duration = Duration::from_secs(10);
