//! What outlives a turn: sessions, blobs, key-value and memories, as four traits, and SQLite behind them (D1, D2, D6).
//! Alone knows SQL. The conformance suite says what each store must do.

mod blobs;
pub mod conformance;
mod error;
mod key_value;
mod memories;
mod session_log;
mod sqlite;

pub use blobs::{Blobs, MAX_BLOB_BYTES, MAX_READ_BYTES, MediaDescription, digest_of};
pub use error::StoreError;
pub use key_value::{Bucket, KeyValue, MAX_KEY_BYTES, MAX_VALUE_BYTES, Swap};
pub use memories::{MAX_MEMORY_BYTES, Memories, Memory, MemoryKind, RememberedFact};
pub use session_log::{
    CallFilter, Commit, Lease, MAX_JSON_DEPTH, MAX_PAGE, MessageHit, MessageRange, OpenMode, OpenedSession,
    RecordRange, SessionFilter, SessionLog, SessionMeta, SessionSummary, Status, StepRecord, StoredRecord, TimedEvent,
};
pub use sqlite::{Options, SqliteStore, Stats, Synchronous};

/// All that the host keeps.
pub trait Store: SessionLog + Blobs + KeyValue + Memories {}

impl<T: SessionLog + Blobs + KeyValue + Memories> Store for T {}
