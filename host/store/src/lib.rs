//! What outlives a turn: sessions, outbox, blobs, key-value, memories, approvals, versions of plugins and the audit log, a
//! trait each, and SQLite behind them (D1, D2, D6, O3).
//! Alone knows SQL. The conformance suite says what each store must do.

mod approvals;
mod audit;
mod blobs;
pub mod conformance;
mod error;
mod key_value;
mod memories;
mod outbox;
mod projections;
mod session_log;
mod sqlite;
mod versions;

pub use agent_core::memory::{Memory, MemoryKind};
pub use approvals::{Approvals, NamedRule, StoredGrant};
pub use audit::{Audit, AuditEntry, Deed};
pub use blobs::{BlobReference, Blobs, MAX_BLOB_BYTES, MAX_READ_BYTES, MediaDescription, digest_of};
pub use error::StoreError;
pub use key_value::{Bucket, ENTRY_BYTES, KeyValue, MAX_ENTRIES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Swap};
pub use memories::{MAX_MEMORY_BYTES, MadeBy, Memories, MemoryFilter, RememberedFact};
pub use outbox::{Outbox, OutboxFilter, StoredOutboxItem};
pub use projections::{Comparison, Projection, Projections, ReadStatus, Rebuilt};
pub use session_log::{
    CallFilter, Commit, Deletion, INCOMPLETE, Lease, MAX_JSON_DEPTH, MAX_PAGE, MAX_PAGE_BYTES, MessageHit,
    MessageRange, OpenMode, OpenedSession, RecordRange, SessionFilter, SessionLog, SessionMeta, SessionSummary, Status,
    StepRecord, StoredRecord, StoredView, TimedEvent, Unowned, ViewPiece,
};
pub use sqlite::{Indexes, Options, SqliteStore, Stats, Synchronous};
pub use versions::{
    CountedTrial, PluginVersion, PluginVersions, Rollback, STORED, ServedPlugin, StoredTrial, Succession, VersionEnd,
    VersionFilter,
};

/// All that the host keeps.
pub trait Store:
    SessionLog + Outbox + Blobs + KeyValue + Memories + Approvals + Audit + PluginVersions + Projections
{
}

impl<T> Store for T where
    T: SessionLog + Outbox + Blobs + KeyValue + Memories + Approvals + Audit + PluginVersions + Projections
{
}
