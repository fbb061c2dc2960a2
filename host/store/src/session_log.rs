//! Sessions as a log: one commit per transition, whole or not at all (D2, D6), and what can be read of it.

use crate::StoreError;
use agent_core::change::{CallRecord, Change, HiddenMessage};
use agent_core::event::Event;
use agent_core::message::{CallId, MessageId, Role, StoredMessage};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most items that one read returns; larger limits are taken as this.
pub const MAX_PAGE: usize = 10_000;

/// Bytes after which a page of messages, events or records ends, even if fewer items than its limit were read. A page that has
/// no items is the only sign that there are no more.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// State of a session that is being written by an import or a fork, or whose import or fork was interrupted. Such a session can
/// be listed and deleted, but it cannot be opened or found by a search, and it is never the latest one.
pub const INCOMPLETE: &str = "incomplete";

/// Deepest nesting of stored JSON, what wraps a value in its message, call or record included. Deeper JSON could be
/// written and not read again.
pub const MAX_JSON_DEPTH: usize = 127;

/// The sessions, what happened in them, and who may add to it.
#[async_trait]
pub trait SessionLog: Send + Sync {
    /// Takes the session's lease and hands over its state. The lease of a dead process is taken over at once; that of
    /// a living one, or one that this store holds already, gives [`StoreError::Busy`]. A session in the state [`INCOMPLETE`]
    /// gives [`StoreError::Incomplete`].
    async fn open(&self, session: &str, mode: OpenMode, meta: SessionMeta) -> Result<OpenedSession, StoreError>;

    /// Gives the lease back. A lease that is lost already needs no release.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// The only write to a session (D6): all of `commit` or nothing, and only under the lease and on the revision that
    /// the caller has seen. Returns the new revision once it is durable.
    async fn commit(&self, lease: &Lease, expected_revision: u64, commit: Commit) -> Result<u64, StoreError>;

    /// Messages, hidden ones too. A page ends after [`MAX_PAGE_BYTES`]. Of [`MessageRange::Ids`] in the order asked for; an id that is not there is
    /// [`StoreError::NoMessage`].
    async fn messages(&self, session: &str, range: MessageRange) -> Result<Vec<StoredMessage>, StoreError>;

    /// Messages that have left the view, in order, those after `after` and at most `limit`.
    async fn hidden(&self, session: &str, after: MessageId, limit: usize) -> Result<Vec<HiddenMessage>, StoreError>;

    /// Calls, in the order in which they were first committed. Ids that are not there are left out.
    async fn calls(&self, session: &str, filter: CallFilter) -> Result<Vec<CallRecord>, StoreError>;

    /// Durable events with a number above `after`, in order, at most `limit`. A page ends after [`MAX_PAGE_BYTES`].
    async fn events(&self, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, StoreError>;

    /// Step records, in the order in which they were committed. A page ends after [`MAX_PAGE_BYTES`].
    async fn records(&self, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, StoreError>;

    /// Sessions that pass the filter, the last changed first, at most `limit`.
    async fn sessions(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionSummary>, StoreError>;

    /// Subject of the agent's session that changed last, of those with a commit that no other agent has delegated.
    async fn latest(&self, agent: &str) -> Result<Option<String>, StoreError>;

    /// Snapshots of sessions whose turn is open, with their subjects, behind the subject `after` and by subject, at most
    /// `limit`. Views that are stored in pieces are left out.
    async fn unfinished(&self, after: &str, limit: usize) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Removes the session with everything in it, what is remembered of it (D4), and the blobs that nothing else refers to:
    /// none of it can be read in the store's files any more. Refused with [`StoreError::Busy`] while anybody alive has it
    /// open.
    async fn delete(&self, session: &str) -> Result<Deletion, StoreError>;

    /// Messages of all sessions that hold every word of the query, nearest first, at most `limit`. All characters but
    /// letters and digits separate words; no word, no hits.
    async fn search_messages(&self, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError>;

    /// Messages of one session that have left its view since there was no room for them (L27), and hold any word of the
    /// query, nearest first, at most `limit`. What was taken back or superseded is not found.
    async fn search_evicted(&self, session: &str, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError>;
}

/// What is expected of a session that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must not exist.
    CreateNew,
    /// It must exist.
    Existing,
    /// It is made where it does not exist.
    Either,
}

/// What a new session is created with. An existing one keeps its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMeta {
    /// The agent's configured name.
    pub agent: String,
    /// Where the host knows one.
    pub user: Option<String>,
    /// Subject of the session that delegated the work (L16).
    pub delegated_by: Option<String>,
}

/// The right to write to a session, until it is released or taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session's subject.
    pub session: String,
    /// One more at each opening.
    pub epoch: u64,
}

/// A session as it is when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedSession {
    /// To commit with.
    pub lease: Lease,
    /// Of the last commit; 0 before the first.
    pub revision: u64,
    /// The run's JSON of the last commit.
    pub snapshot: Option<Vec<u8>>,
    /// As it was created with.
    pub meta: SessionMeta,
    /// The last message; 0 before the first.
    pub last_message: MessageId,
    /// The last durable event; 0 before the first.
    pub last_event: u64,
}

/// One transition of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// The run's JSON, opaque here.
    pub snapshot: Vec<u8>,
    /// The part of it that grows with the history.
    pub view: StoredView,
    /// What the transition changed. Messages and events must carry exactly the next numbers.
    pub change: Change,
    /// What the step was made of (D1).
    pub records: Vec<StepRecord>,
    /// Texts that the records refer to by [`crate::digest_of`]; each is stored once over all sessions.
    pub texts: Vec<String>,
    /// What lists show.
    pub status: Status,
}

/// The member `view` of a snapshot's JSON object. It is stored in pieces, so that a commit writes what it changes; who opens the
/// session is given one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StoredView {
    /// The snapshot contains it. Pieces that are stored are removed.
    #[default]
    InSnapshot,
    /// These pieces, and none that were stored before.
    Whole(Vec<ViewPiece>),
    /// These pieces instead of those of the same number; all others stay.
    Changed(Vec<ViewPiece>),
}

/// A piece of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPiece {
    /// Its place among the pieces.
    pub number: u64,
    /// Items of the JSON array, separated by commas. Empty: the piece is removed.
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

/// What lists show of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// One word: `idle`, `running`, `suspended` …
    pub state: String,
    /// The last turn begun, from 1.
    pub turn: u32,
    /// The beginning of the first input. The first title given stands.
    pub title: Option<String>,
}

/// A piece of a step's record (D1): a prompt, parameters, a raw reply, a plugin's answer …
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From 1.
    pub turn: u32,
    /// Model call of the turn, from 1; 0 before the first.
    pub step: u32,
    /// What it is.
    pub kind: String,
    /// Itself.
    pub body: Value,
}

/// A step record with its place and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRecord {
    /// Rises in the order of commits; for reading on.
    pub number: u64,
    /// RFC 3339 in UTC.
    pub time: String,
    /// Itself.
    #[serde(flatten)]
    pub record: StepRecord,
}

/// A durable event with the time of its commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedEvent {
    /// Itself.
    #[serde(flatten)]
    pub event: Event,
    /// RFC 3339 in UTC.
    pub time: String,
}

/// Which messages to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRange {
    /// These; at most [`MAX_PAGE`].
    Ids(Vec<MessageId>),
    /// Those behind a message, oldest first.
    After {
        /// 0: from the beginning.
        id: MessageId,
        /// At most this many.
        limit: usize,
    },
}

/// Which calls to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFilter {
    /// Of this turn.
    Turn(u32),
    /// These; at most [`MAX_PAGE`].
    Ids(Vec<CallId>),
    /// Those without a result.
    Unfinished,
}

/// Which step records to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRange {
    /// Of this turn; at most [`MAX_PAGE`], and not limited in bytes.
    Turn(u32),
    /// Of this kind; at most [`MAX_PAGE`], and not limited in bytes.
    Kind(&'static str),
    /// Of all turns, page by page.
    After {
        /// 0: from the beginning.
        number: u64,
        /// At most this many.
        limit: usize,
    },
}

/// Which sessions to list; what is not set does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// This one.
    pub subject: Option<String>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Of this user.
    pub user: Option<String>,
    /// With [`SessionFilter::user`]: what becomes of sessions of which the user is not known.
    pub unowned: Unowned,
    /// In this state.
    pub state: Option<String>,
    /// Children of this session: those that it delegated work to (L16).
    pub delegated_by: Option<String>,
}

/// What becomes of sessions without a user where those of one user are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unowned {
    /// They are left out.
    #[default]
    Hidden,
    /// They are listed, too.
    Shown,
}

/// A session as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Names the session.
    pub subject: String,
    /// The agent's configured name.
    pub agent: String,
    /// Where the host knows one.
    pub user: Option<String>,
    /// Subject of the session that delegated the work (L16).
    pub delegated_by: Option<String>,
    /// RFC 3339 in UTC.
    pub created: String,
    /// RFC 3339 in UTC.
    pub updated: String,
    /// Commits so far.
    pub revision: u64,
    /// Turns begun.
    pub turns: u32,
    /// Messages appended, hidden ones included.
    pub messages: u64,
    /// As the last commit said; `new` before the first.
    pub state: String,
    /// Id of the living process that has it open: a session that says `running` and is open nowhere was interrupted.
    pub open_in: Option<u32>,
    /// The beginning of the first input.
    pub title: Option<String>,
}

/// What went with a session that was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Memories that were made from it.
    pub memories: u64,
}

/// A message that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageHit {
    /// The session's subject.
    pub session: String,
    /// The message's place in it.
    pub id: MessageId,
    /// The turn that appended it.
    pub turn: u32,
    /// Who speaks.
    pub role: Role,
    /// About 200 characters around the first word found.
    pub excerpt: String,
    /// More is nearer, at most 1.
    pub score: f32,
}
