//! The session log: each transition of a session is one commit, stored completely or not at all (D2, D6).

use crate::StoreError;
use agent_core::change::{CallRecord, Change, HiddenMessage};
use agent_core::event::Event;
use agent_core::message::{CallId, MessageId, StoredMessage};
use agent_core::session_state::SessionState;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of items that one read returns. Larger limits are reduced to this.
pub const MAX_PAGE: usize = 10_000;

/// Bytes after which a page of messages, events or records ends, even if it has fewer items than its limit. Only an empty
/// page means that there are no more items.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// Maximum nesting of stored JSON, including the levels that wrap a value in its message, call or record. Deeper JSON could be
/// written but not read back.
pub const MAX_JSON_DEPTH: usize = 127;

/// The log of all sessions, and the leases that allow writing to them.
#[async_trait]
pub trait SessionLog: Send + Sync {
    /// Takes the session's lease and returns the session's state. The lease of a dead process is taken over at once. A lease
    /// of a living process, or one that this store already holds, gives [`StoreError::Busy`]. A session in the state
    /// [`SessionState::Incomplete`] gives [`StoreError::Incomplete`].
    async fn open(&self, session: &str, mode: OpenMode, meta: SessionMeta) -> Result<OpenedSession, StoreError>;

    /// Releases the lease. Releasing a lease that is no longer valid changes nothing.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Stores all of `commit` or nothing. This is the only way to write to a session (D6). It requires a valid lease and the
    /// session's current revision. Returns the new revision once it is durable.
    async fn commit(&self, lease: &Lease, expected_revision: u64, commit: Commit) -> Result<u64, StoreError>;

    /// Returns messages, including hidden ones. A page ends after [`MAX_PAGE_BYTES`]. [`MessageRange::Ids`] returns them in
    /// the requested order; a missing id gives [`StoreError::NoMessage`].
    async fn messages(&self, session: &str, range: MessageRange) -> Result<Vec<StoredMessage>, StoreError>;

    /// Returns the messages that have left the view, in order: those after `after`, at most `limit`.
    async fn hidden(&self, session: &str, after: MessageId, limit: usize) -> Result<Vec<HiddenMessage>, StoreError>;

    /// Returns calls in the order in which they were first committed. Missing ids are skipped.
    async fn calls(&self, session: &str, filter: CallFilter) -> Result<Vec<CallRecord>, StoreError>;

    /// Returns durable events with a number above `after` in order, at most `limit`. A page ends after [`MAX_PAGE_BYTES`].
    async fn events(&self, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, StoreError>;

    /// Returns step records in commit order. A page ends after [`MAX_PAGE_BYTES`].
    async fn records(&self, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, StoreError>;

    /// Deletes the session with everything in it, its memories (D4), and the blobs that no other session refers to. The data
    /// is overwritten, so that the store's files no longer contain it. Gives [`StoreError::Busy`] while a living process has
    /// the session open.
    async fn delete(&self, session: &str) -> Result<Deletion, StoreError>;
}

/// Whether opening a session creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create the session; it must not exist yet.
    CreateNew,
    /// Open the session; it must exist.
    Existing,
    /// Open the session, or create it if it does not exist.
    Either,
}

/// Metadata that a new session is created with. An existing session keeps its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMeta {
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user, if the host knows one.
    pub user: Option<String>,
    /// Subject of the session that delegated the work (L16). `None` if no session did.
    pub delegated_by: Option<String>,
}

/// The right to write to a session, until it is released or taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Subject of the session.
    pub session: String,
    /// Number that increases by one each time the session is opened.
    pub epoch: u64,
}

/// A session's lease and its state at the time of opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedSession {
    /// The lease to commit with.
    pub lease: Lease,
    /// Revision after the last commit; 0 before the first.
    pub revision: u64,
    /// Snapshot of the run as JSON, from the last commit. `None` before the first.
    pub snapshot: Option<Vec<u8>>,
    /// Metadata that the session was created with.
    pub meta: SessionMeta,
    /// Id of the last message; 0 before the first.
    pub last_message: MessageId,
    /// Number of the last durable event; 0 before the first.
    pub last_event: u64,
}

/// One transition of a session, to be stored as a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// Snapshot of the run as JSON. The store does not interpret it.
    pub snapshot: Vec<u8>,
    /// The part of the snapshot that grows with the history.
    pub view: StoredView,
    /// The changes of the transition. Messages and events must have exactly the next numbers.
    pub change: Change,
    /// Records of what the step was made of (D1).
    pub records: Vec<StepRecord>,
    /// Texts that the records refer to by [`crate::digest_of`]. Equal texts are stored once for all sessions.
    pub texts: Vec<String>,
    /// Status for session lists.
    pub status: Status,
}

/// The `view` member of the snapshot's JSON object. It is stored in pieces, so that a commit writes only what it changes. Opening
/// the session joins the pieces into one object again.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StoredView {
    /// The snapshot contains the view. Stored pieces are removed.
    #[default]
    InSnapshot,
    /// The view consists of these pieces only.
    Whole(Vec<ViewPiece>),
    /// These pieces replace stored pieces with the same number; all others stay.
    Changed(Vec<ViewPiece>),
}

/// A piece of a stored view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPiece {
    /// Position of the piece; pieces are joined in ascending order.
    pub number: u64,
    /// Items of the JSON array, separated by commas. An empty piece is removed.
    pub items: Vec<u8>,
}

impl StoredView {
    pub(crate) fn pieces(&self) -> &[ViewPiece] {
        match self {
            Self::InSnapshot => &[],
            Self::Whole(pieces) | Self::Changed(pieces) => pieces,
        }
    }
}

/// Status of a session, for lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State of the session. A session that is [`SessionState::Incomplete`] can be listed and deleted, but it cannot be
    /// opened or found by a search, and it is never the latest session.
    pub state: SessionState,
    /// Number of the last turn that was begun, starting at 1.
    pub turn: u32,
    /// Start of the first input. The first title that is stored for a session is kept.
    pub title: Option<String>,
}

/// A record of what a step was made of (D1), such as a prompt, parameters, a raw reply or a plugin's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the turn, starting at 1.
    pub turn: u32,
    /// Number of the model call within the turn, starting at 1; 0 before the first call.
    pub step: u32,
    /// Kind of the record, such as `prompt`.
    pub kind: String,
    /// Content of the record.
    pub body: Value,
}

/// A stored step record with its number and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRecord {
    /// Number of the record, to continue reading after it. Numbers increase in commit order.
    pub number: u64,
    /// Time of the record's commit, as RFC 3339 in UTC.
    pub time: String,
    /// The record itself; its fields are serialised next to `number`.
    #[serde(flatten)]
    pub record: StepRecord,
}

/// A durable event with the time of its commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedEvent {
    /// The event itself; its fields are serialised next to `time`.
    #[serde(flatten)]
    pub event: Event,
    /// Time of the event's commit, as RFC 3339 in UTC.
    pub time: String,
}

/// Selects messages of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRange {
    /// The messages with these ids; at most [`MAX_PAGE`].
    Ids(Vec<MessageId>),
    /// The messages after a given one, oldest first.
    After {
        /// Id of the message to start after; 0 starts with the first message.
        id: MessageId,
        /// Maximum number of messages.
        limit: usize,
    },
}

/// Selects calls of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFilter {
    /// The calls of this turn.
    Turn(u32),
    /// The calls with these ids; at most [`MAX_PAGE`].
    Ids(Vec<CallId>),
    /// The calls that have no result yet.
    Unfinished,
}

/// Selects step records of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRange {
    /// The records of this turn; at most [`MAX_PAGE`], without a limit in bytes.
    Turn(u32),
    /// The records of this kind; at most [`MAX_PAGE`], without a limit in bytes.
    Kind(&'static str),
    /// The records of all turns, page by page.
    After {
        /// Number of the record to start after; 0 starts with the first record.
        number: u64,
        /// Maximum number of records.
        limit: usize,
    },
}

/// What was deleted together with a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Number of memories that were made from the session.
    pub memories: u64,
}
