//! Limits of the host and of single calls. All limits apply by default, and an error that is caused by a limit names
//! this limit (P8). The lists [`CALL_LIMITS`] and [`HOST_LIMITS`] contain the configurable limits. This file contains
//! the fixed limits.

mod call;
mod host;
mod reached;

pub use call::{CALL_LIMITS, CallLimits, FUEL};
pub use host::{HOST_LIMITS, HOST_STACK_KIB, HostLimits};
pub(crate) use host::{
    MAX_CORE_INSTANCES, MAX_LOADING_INSTANCES, MAX_MEMORIES, MAX_MEMORY, MAX_PURE_CALLS, MAX_TABLE_ELEMENTS,
    MAX_TABLES, MIB,
};
pub use reached::Limit;

use std::time::Duration;

/// Maximum size of one media item in a result, in bytes.
pub const RESULT_MEDIA_ITEM_BYTES: usize = 4 * MIB;
/// Maximum total size of all media items that one call creates, in bytes.
pub const NEW_MEDIA_BYTES: usize = 32 * MIB;
/// Maximum size of one read or write of a media item, in bytes.
pub const MEDIA_CHUNK_BYTES: usize = MIB;
/// Maximum size of an error text that the host reports when a call fails, in bytes.
pub(crate) const REASON_BYTES: usize = 4 * 1024;
/// Maximum size of a context builder's state, in bytes.
pub const STATE_BYTES: usize = 64 * 1024;
/// Maximum size of a tool's description, in bytes. A longer description is cut.
pub const DESCRIPTION_BYTES: usize = 2 * 1024;
/// Maximum number of tools of one component.
pub const TOOLS: usize = 1_024;
/// Maximum size of a `wasi:keyvalue` key and of a bucket's name, in bytes.
pub const KEY_BYTES: usize = 1024;
/// Maximum size of a `wasi:keyvalue` value, in bytes.
pub const VALUE_BYTES: usize = MIB;
/// Number of bytes that a plugin may store in `wasi:keyvalue` if its grant does not set a number.
pub const KEY_VALUE_BYTES: u64 = 10 * MIB as u64;
/// Maximum number of keys in one page of a `wasi:keyvalue` listing.
pub(crate) const KEYS_PER_PAGE: usize = 1_000;
/// Maximum number of keys in one batch operation of `wasi:keyvalue`.
pub(crate) const BATCH_KEYS: usize = 1_000;
/// Maximum number of key-value operations in one call. Each write is a transaction that blocks all other writers.
pub(crate) const KEY_VALUE_OPERATIONS: u64 = 10_000;
/// Maximum total size of the values in one batch operation of `wasi:keyvalue`, in bytes.
pub(crate) const BATCH_BYTES: usize = 4 * MIB;
/// Maximum number of compare-and-swap handles that a guest may have open at the same time.
pub(crate) const CAS_VALUES: usize = 16;
/// Maximum total size of the texts in a plugin's request to the agent's model, in bytes.
pub const MODEL_REQUEST_BYTES: usize = MIB;
/// Maximum number of messages in a plugin's request to the agent's model.
pub const MODEL_REQUEST_MESSAGES: usize = 64;
/// Maximum number of tokens of the agent's model that a plugin may be granted for a turn.
pub const MODEL_TOKENS: u64 = 100_000_000;
/// Maximum size of a manifest's JSON, in bytes.
pub const MANIFEST_BYTES: usize = 64 * 1024;

/// Maximum nesting depth of arrays and objects in a guest's JSON.
pub(crate) const JSON_DEPTH: usize = 64;
/// Maximum number of messages in a prompt that a context builder returns.
pub(crate) const PROMPT_MESSAGES: usize = 1_000;
/// Maximum number of sections that a context builder returns for a prompt or for a step.
pub(crate) const SECTIONS: usize = 256;
/// Maximum size of a section's name, in bytes.
pub(crate) const SECTION_NAME_BYTES: usize = 128;
/// Maximum value of `seen-count` in a message that a guest returns. A larger value is lowered to this maximum.
pub(crate) const SEEN_COUNT: u32 = 1_000_000;
/// Number of bytes by which the default of `lifted_kib` exceeds `result_kib`. This number is enough for the two media
/// items of 4 MiB that a tool's result may contain.
pub(crate) const LIFTED_BESIDE_RESULT: usize = 2 * RESULT_MEDIA_ITEM_BYTES;
/// Number of bytes by which the default of `lifted_kib` exceeds `result_kib` for plugin kinds whose results contain
/// no media.
pub(crate) const LIFTED_BESIDE_TEXT: usize = 3 * MIB;
/// Default number of bytes that a generic function may pass to the host in one host call or as its result. The default
/// is large because the host's representation of a value needs more memory than the value in the guest, which may be a
/// single byte.
pub(crate) const GENERIC_LIFTED_BYTES: usize = 32 * MIB;
/// Maximum size of the JSON arguments of a generic function, in bytes.
pub(crate) const GENERIC_ARGUMENT_BYTES: usize = MIB;
/// Maximum wall time of a call to the `definitions` function of a component.
pub(crate) const DEFINITIONS_TIME: Duration = Duration::from_secs(10);
