//! Export of traces (O1). The session log is the queue of the export: spans are built from committed events and records,
//! and the store keeps how far each session was exported.

use crate::{StoreError, StoredRecord, TimedEvent};
use async_trait::async_trait;

/// Stores how far the spans of each session were exported, so that no part of a session is exported twice. Deleting a
/// session also deletes its position.
#[async_trait]
pub trait TraceExports: Send + Sync {
    /// Begins the export of an agent's sessions. If the export of the agent has begun before, nothing changes. Otherwise
    /// everything that is stored now counts as exported.
    async fn begin_trace_export(&self, agent: &str) -> Result<(), StoreError>;

    /// Returns the subjects of up to `limit` sessions of these agents that have events which are not exported. Sessions
    /// that another running store instance exports are left out. The sessions are ordered by subject and start after the
    /// subject `after`.
    async fn unexported_sessions(
        &self,
        agents: &[String],
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError>;

    /// Claims the export of sessions for this store instance, and returns the claimed sessions, each with the position up to
    /// which it was exported. A claim lasts until this store instance is closed. A session is not claimed if another running
    /// store instance has claimed it, or if it does not exist or is incomplete. All claims are one transaction.
    async fn claim_trace_exports(&self, sessions: &[String]) -> Result<Vec<(String, ExportPosition)>, StoreError>;

    /// Stores the positions up to which sessions were exported, in one transaction. Returns the sessions whose position was
    /// not stored, because this store instance has not claimed them or because they were deleted.
    async fn set_export_positions(&self, positions: &[(String, ExportPosition)]) -> Result<Vec<String>, StoreError>;

    /// Counts everything that is stored for a session now as exported.
    async fn skip_trace_export(&self, session: &str) -> Result<(), StoreError>;

    /// Returns the first turn of the session that has events after the position, together with its step records after
    /// the position. Events and records come from the same moment, so that both contain exactly the same commits. Returns
    /// `None` if there are no such events.
    async fn turn_after(&self, session: &str, position: ExportPosition) -> Result<Option<StoredTurn>, StoreError>;
}

/// Position in the log of a session up to which the session was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportPosition {
    /// Number of the last exported event. 0 means that no event was exported.
    pub event: u64,
    /// Number of the last exported step record. 0 means that no record was exported.
    pub record: u64,
    /// Number of the event before the first event of the turn that is being exported.
    pub turn_start: u64,
}

/// A turn of a session, of which a part may have been exported.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTurn {
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// Configured name of the session's agent.
    pub agent: String,
    /// Id of the user. `None` if the host does not know the user.
    pub user: Option<String>,
    /// All events of the turn, including events that were exported.
    pub events: Vec<TimedEvent>,
    /// The step records of the turn that were not exported, and all of its records of the kind `trace`.
    pub records: Vec<StoredRecord>,
    /// Whether the session has events of a later turn.
    pub is_followed: bool,
}
