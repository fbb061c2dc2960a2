//! The session log: each transition of a session is one commit, stored completely or not at all (D2, D6).

use crate::{RequestAnswer, StoreError};
use agent_core::change::{CallRecord, Change, HiddenMessage};
use agent_core::cost::TurnCost;
use agent_core::event::Event;
use agent_core::message::{CallId, MessageId, StoredMessage};
use agent_core::session_state::SessionState;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of items that one read returns. A larger limit is reduced to this number.
pub const MAX_PAGE: usize = 10_000;

/// Size in bytes after which a page of messages, events or records ends, even if the page has fewer items than its
/// limit. Only an empty page means that there are no more items.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// Maximum nesting depth of stored JSON, including the levels that the message, call or record adds around a value. A
/// store could write JSON with more levels, but could not read such JSON.
pub const MAX_JSON_DEPTH: usize = 127;

/// Reads and writes the logs of all sessions. A process needs the lease of a session to write to the session's log.
#[async_trait]
pub trait SessionLog: Send + Sync {
    /// Returns whether processes on other machines may use the sessions, too. These processes have other files, such as
    /// other copies of plugins.
    fn is_shared_by_machines(&self) -> bool {
        false
    }

    /// Acquires the session's lease and returns the session's state. The lease of a process that has exited is taken
    /// over: without waiting in SQLite, and in PostgreSQL when the lease has expired or the store was closed. Fails with [`StoreError::Busy`] if a running process,
    /// including this process, has the lease. Fails with [`StoreError::Incomplete`] if the session is in the
    /// state [`SessionState::Incomplete`].
    async fn open(&self, session: &str, mode: OpenMode, meta: SessionMeta) -> Result<OpenedSession, StoreError>;

    /// Releases the lease. Releasing a lease that is no longer valid changes nothing.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Stores the whole commit, or nothing if an error occurs. A commit is the only way to write to a session (D6). A
    /// commit requires a valid lease and the session's current revision. Waits until the commit is durable, and returns
    /// the new revision.
    async fn commit(&self, lease: &Lease, expected_revision: u64, commit: Commit) -> Result<u64, StoreError>;

    /// Returns the selected messages of the session, including hidden messages. A page ends early if the items of the
    /// page have more than [`MAX_PAGE_BYTES`] bytes. For [`MessageRange::Ids`], the messages are in the order of the
    /// ids, and the method fails with [`StoreError::NoMessage`] if one of the ids does not exist.
    async fn messages(&self, session: &str, range: MessageRange) -> Result<Vec<StoredMessage>, StoreError>;

    /// Returns the snapshot of the session's run from its last commit, without the parts of the view that are stored
    /// separately. Returns `None` before the first commit. Reading the snapshot needs no lease.
    async fn snapshot(&self, session: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns up to `limit` messages that are no longer in the view and whose id is above `after`, ordered by id.
    async fn hidden(&self, session: &str, after: MessageId, limit: usize) -> Result<Vec<HiddenMessage>, StoreError>;

    /// Returns the selected calls in the order in which they were first committed. Ids of calls that do not exist
    /// are skipped.
    async fn calls(&self, session: &str, filter: CallFilter) -> Result<Vec<CallRecord>, StoreError>;

    /// Returns up to `limit` durable events whose number is above `after`, in order. A page ends early if the items of
    /// the page have more than [`MAX_PAGE_BYTES`] bytes.
    async fn events(&self, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, StoreError>;

    /// Returns the selected step records in commit order. A page ends early if the items of the page have more than
    /// [`MAX_PAGE_BYTES`] bytes.
    async fn records(&self, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, StoreError>;

    /// Deletes the session with all of its data, its memories (D4), and the blobs that no other session refers to. In
    /// SQLite, the data is overwritten, so that the store's files no longer contain it. Fails with [`StoreError::Busy`] while a
    /// running process has the session open.
    async fn delete(&self, session: &str) -> Result<Deletion, StoreError>;
}

/// Whether [`SessionLog::open`] creates the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create the session. The session must not exist yet.
    CreateNew,
    /// Open an existing session. Fails if the session does not exist.
    Existing,
    /// Open the session, or create it if it does not exist.
    Either,
}

/// Metadata of a new session. An existing session keeps the metadata that it was created with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMeta {
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user. `None` if the host does not know the user.
    pub user: Option<String>,
    /// Id (subject) of the session that delegated work to this session (L16). `None` if no session delegated work to
    /// this session.
    pub delegated_by: Option<String>,
}

/// The exclusive right to write to a session. The right ends when the lease is released or another owner takes it over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Subject that identifies the session.
    pub session: String,
    /// Number that increases by one each time the session is opened.
    pub epoch: u64,
}

/// The lease of a session, and the state that the session had when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedSession {
    /// The lease to pass to [`SessionLog::commit`].
    pub lease: Lease,
    /// Revision after the last commit, or 0 before the first commit.
    pub revision: u64,
    /// Snapshot of the session's run as JSON, from the last commit. `None` before the first commit.
    pub snapshot: Option<Vec<u8>>,
    /// Metadata that the session was created with.
    pub meta: SessionMeta,
    /// Id of the last message, or 0 if there are no messages.
    pub last_message: MessageId,
    /// Number of the last durable event, or 0 if there are no durable events.
    pub last_event: u64,
}

/// One transition of a session, which is stored completely or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// Snapshot of the session's run as JSON. The store does not interpret this JSON.
    pub snapshot: Vec<u8>,
    /// The part of the snapshot that grows with the history. The view is stored separately from [`Commit::snapshot`].
    pub view: StoredView,
    /// The changes that the transition makes to messages, calls, events and the outbox. The numbers of messages and
    /// events must continue the stored numbers without gaps.
    pub change: Change,
    /// Records of the step's inputs and outputs (D1).
    pub records: Vec<StepRecord>,
    /// Texts that the records refer to by their digest (see [`crate::digest_of`]). Equal texts are stored once for all
    /// sessions.
    pub texts: Vec<String>,
    /// Status of the session after the transition, for session lists.
    pub status: Status,
    /// To whom the usage of the commit is charged (O4). `None` if it is charged to nobody, because the commit copies or
    /// imports a session.
    pub charge: Option<Charge>,
    /// The answer to the request of another process that this commit carries out (F2). It is stored together with the commit,
    /// so that the request is carried out only once.
    pub answer: Option<RequestAnswer>,
}

/// To whom the usage of a commit is charged (O4): the session, the turns that have delegated the work, the agent and
/// the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The agent of the session.
    pub agent: String,
    /// The user for whom the turn works.
    pub user: Option<String>,
    /// The turns that have delegated the work of the session, each with the subject of its session.
    pub delegators: Vec<(String, u32)>,
    /// Time of work that has not been charged yet, in milliseconds.
    pub milliseconds: u64,
}

/// The `view` member of the snapshot's JSON object. The view is stored in pieces, so that a commit writes only the
/// pieces that it changes. Opening the session joins the pieces and adds the view to the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StoredView {
    /// The snapshot itself contains the view. All stored pieces of the session are removed.
    #[default]
    InSnapshot,
    /// The pieces in this variant are the whole view. All other stored pieces are removed.
    Whole(Vec<ViewPiece>),
    /// The pieces in this variant replace the stored pieces with the same numbers. All other stored pieces are kept.
    Changed(Vec<ViewPiece>),
}

/// A piece of a stored view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPiece {
    /// Position of the piece in the view. Pieces are joined in ascending order of their numbers.
    pub number: u64,
    /// Items of the view's JSON array, separated by commas. If the piece has no items, the stored piece with the same
    /// number is removed.
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

/// The status of a session that is shown in lists of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State of the session. A session that is [`SessionState::Incomplete`] can only be listed and deleted. An
    /// incomplete session cannot be opened, is not found by searches, and is never the latest session.
    pub state: SessionState,
    /// Number of the last turn that was started, counted from 1.
    pub turn: u32,
    /// Title: the beginning of the first input. The store keeps the first title of a session and ignores later titles.
    pub title: Option<String>,
    /// The usage and the cost of the open turn so far. `None` if no turn is open. The event that ends a turn contains
    /// the usage of the whole turn.
    pub open_turn: Option<TurnCost>,
    /// Time from which the session can continue without an answer from outside, in milliseconds since the Unix epoch. 0
    /// means immediately. `None` means that the session can continue only after an answer, a decision or a prompt. While
    /// a process has the session open, that process continues the session.
    pub continues_at: Option<u64>,
}

/// A record of an input or output of a step (D1), such as a prompt, parameters, a model's raw reply or a plugin's
/// reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the turn, starting at 1.
    pub turn: u32,
    /// Number of the model call within the turn, starting at 1; 0 before the first call.
    pub step: u32,
    /// Kind of the record, such as `prompt`.
    pub kind: String,
    /// Content of the record, whose structure depends on `kind`.
    pub body: Value,
}

/// A stored step record with its number and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRecord {
    /// Number that identifies the record. A reader can pass the number of a record to request the records after this
    /// record. The numbers of records increase in commit order.
    pub number: u64,
    /// Time of the record's commit, as RFC 3339 in UTC.
    pub time: String,
    /// The record without its number and time. The fields of the record are serialised next to `number`.
    #[serde(flatten)]
    pub record: StepRecord,
}

/// A durable event with the time of its commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedEvent {
    /// The event without its time. The fields of the event are serialised next to `time`.
    #[serde(flatten)]
    pub event: Event,
    /// Time of the event's commit, as RFC 3339 in UTC.
    pub time: String,
}

/// Selects messages of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRange {
    /// The messages with these ids. At most [`MAX_PAGE`] ids are allowed.
    Ids(Vec<MessageId>),
    /// The messages after the message with the id `id`, oldest first.
    After {
        /// Id of the message before the first returned message. 0 means that the first message is returned first.
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
    /// The calls with these ids. At most [`MAX_PAGE`] ids are allowed.
    Ids(Vec<CallId>),
    /// The calls that have no result yet.
    Unfinished,
}

/// Selects step records of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRange {
    /// The records of this turn. At most [`MAX_PAGE`] records are returned, without a limit on their size in bytes.
    Turn(u32),
    /// The records of this kind. At most [`MAX_PAGE`] records are returned, without a limit on their size in bytes.
    Kind(&'static str),
    /// The records of all turns, page by page.
    After {
        /// The page starts with the record after this number. With 0, the page starts with the first record.
        number: u64,
        /// Maximum number of records.
        limit: usize,
    },
}

/// Counts of the items that were deleted together with a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Number of deleted memories that had been made from the session.
    pub memories: u64,
}
