//! Storage of everything that outlives a turn: sessions, outbox, blobs, key-value pairs, memories, approvals, plugin
//! versions and the audit log (D1, D2, D6, O3). Each kind of data has its own trait, and [`SqliteStore`] and
//! [`PostgresStore`] implement all of these traits.
//!
//! No other crate contains SQL. The [`conformance`] suite tests the behaviour that every store must have.

mod announcements;
mod approvals;
mod audit;
mod blobs;
mod budget_ledger;
mod clock;
pub mod conformance;
mod copy;
mod encoding;
mod error;
mod integrity;
mod key_value;
mod memories;
mod monitoring;
mod objects;
mod outbox;
mod postgres;
mod projections;
mod schedules;
mod session_holder;
mod session_index;
mod session_log;
mod session_requests;
mod sqlite;
mod trace_exports;
mod versions;

pub use agent_core::memory::{Memory, MemoryKind};
pub use agent_core::session_state::SessionState;
pub use announcements::{Announcement, Announcements, News};
pub use approvals::{Approvals, NamedRule, StoredGrant};
pub use audit::chain::{AuditChain, ChainHead, ChainProblem, ExportedAuditEntry, StoredAuditEntry};
pub use audit::verify::{AuditAnchor, AuditProblem, VerifiedAudit, verify_lines, verify_store};
pub use audit::{Audit, AuditAction, AuditEntry, MAX_AUDIT_TEXT_BYTES};
pub use blobs::{BlobReference, Blobs, MAX_BLOB_BYTES, MAX_READ_BYTES, MediaDescription, digest_of};
pub use budget_ledger::{BudgetLedger, ChargeFilter, ChargedTo, IntervalCharge};
pub use clock::Clock;
pub use copy::{CopyEnd, CopyError, CopyProgress, CopyReport, copy_store};
pub use error::StoreError;
pub use integrity::Integrity;
pub use key_value::{Bucket, ENTRY_BYTES, KeyValue, MAX_ENTRIES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Swap};
pub use memories::{MAX_MEMORY_BYTES, Memories, MemoryFilter, MemoryScope, StoredMemory};
pub use monitoring::{COMMIT_DURATION_BOUNDS, Monitoring, SessionCount, Undelivered, WriteStatistics};
pub use objects::ObjectStoreAddress;
pub use outbox::{Outbox, OutboxFilter, StoredOutboxItem};
pub use postgres::{CollectedObjects, DatabaseState, Durability, PostgresAddress, PostgresOptions, PostgresStore};
pub use projections::{Projection, ProjectionComparison, Projections, RebuiltProjection, StatusReader};
pub use schedules::{ScheduleState, Schedules};
pub use session_holder::SessionHolder;
pub use session_index::{
    ContinuableSession, ContinuationReason, ListPosition, MessageHit, SearchedSessions, SessionFilter, SessionIndex,
    SessionSummary, SessionUsage, Unowned, UsageTotal,
};
pub use session_log::{
    CallFilter, Charge, Commit, Deletion, Lease, MAX_JSON_DEPTH, MAX_PAGE, MAX_PAGE_BYTES, MessageRange, OpenMode,
    OpenedSession, RecordRange, SessionLog, SessionMeta, Status, StepRecord, StoredRecord, StoredView, TimedEvent,
    ViewPiece,
};
pub use session_requests::{
    ClaimedRequest, LISTED_PER_SESSION, MAX_REQUEST_BYTES, MAX_REQUESTS, MAX_SESSION_REQUEST_BYTES,
    MAX_SESSION_REQUESTS, MAX_STORED_REQUEST_BYTES, RequestAnswer, RequestKey, RequestState, SMALL_REQUEST_BYTES,
    SessionRequests, StoredRequest,
};
pub use sqlite::{Indexes, Options, SqliteStore, Stats, Synchronous};
pub use trace_exports::{ExportPosition, StoredTurn, TraceExports};
pub use versions::{
    PLUGIN_STORE_ORIGIN, PluginSource, PluginVersion, PluginVersions, Rollback, ServedPlugin, StoredTrial, TrialCalls,
    VersionChange, VersionEndReason, VersionFilter,
};

/// A store that implements all storage traits of this crate. With `dyn Store`, code can call the methods of all these
/// traits without importing the traits. Only the code that opens a store needs to name the concrete type of the store.
pub trait Store:
    SessionLog
    + SessionIndex
    + Outbox
    + Schedules
    + Blobs
    + KeyValue
    + Memories
    + Approvals
    + Audit
    + BudgetLedger
    + PluginVersions
    + Projections
    + Integrity
    + TraceExports
    + Monitoring
    + SessionRequests
    + Announcements
    + Clock
{
}

impl<T> Store for T where
    T: SessionLog
        + SessionIndex
        + Outbox
        + Schedules
        + Blobs
        + KeyValue
        + Memories
        + Approvals
        + Audit
        + BudgetLedger
        + PluginVersions
        + Projections
        + Integrity
        + TraceExports
        + Monitoring
        + SessionRequests
        + Announcements
        + Clock
{
}
