//! Lists sessions and searches their messages. A store derives session lists and search indexes from the session log.

use crate::{SessionHolder, StoreError};
use agent_core::message::{MessageId, Role};
use agent_core::model::Usage;
use agent_core::session_state::SessionState;
use async_trait::async_trait;
use serde::Serialize;

/// Finds sessions and messages in the logs of all sessions.
#[async_trait]
pub trait SessionIndex: Send + Sync {
    /// Returns up to `limit` sessions that the filter selects, most recently changed first.
    async fn sessions(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionSummary>, StoreError>;

    /// Returns up to `limit` suspended sessions of these agents, the session whose turn stopped first at first. With `user`, only
    /// the sessions of this user are returned. The list continues after the position `after`, which is the position of the
    /// last session of the list before. A session whose turn goes on and stops again moves to the end. At most
    /// [`MAX_PAGE`](crate::MAX_PAGE) agents are allowed.
    async fn suspended(
        &self,
        agents: &[String],
        user: Option<&str>,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<(ListPosition, SessionSummary)>, StoreError>;

    /// Returns the subject of the agent's most recently changed session. Sessions without a commit, and sessions to
    /// which another session delegated work, are ignored.
    async fn latest(&self, agent: &str) -> Result<Option<String>, StoreError>;

    /// Returns the subjects and snapshots of up to `limit` sessions that have an unfinished turn. The sessions are
    /// ordered by subject and start after the subject `after`. Views that are stored in pieces are not included in the
    /// snapshots.
    async fn unfinished(&self, after: &str, limit: usize) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Returns up to `limit` sessions that can continue without an answer from outside (D3, I9), and that no process has
    /// open. `now` is the current time in milliseconds since the Unix epoch. Only sessions of the named agents are
    /// returned. The sessions are ordered by subject and start after the subject `after`.
    async fn continuable(
        &self,
        agents: &[String],
        now: u64,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ContinuableSession>, StoreError>;

    /// Returns the number of the last durable event of each session. Sessions that do not exist are left out. At most
    /// [`MAX_PAGE`](crate::MAX_PAGE) sessions are allowed.
    async fn last_events(&self, sessions: &[String]) -> Result<Vec<(String, u64)>, StoreError>;

    /// Adds up the usage of all sessions of these agents, for each agent and user. With `user`, only the sessions of this
    /// user count. At most [`MAX_PAGE`](crate::MAX_PAGE) totals are returned, ordered by agent and user.
    async fn usage(&self, agents: &[String], user: Option<&str>) -> Result<Vec<UsageTotal>, StoreError>;

    /// Searches the messages of all sessions, as [`SessionIndex::search_messages_of`] does.
    async fn search_messages(&self, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError> {
        self.search_messages_of(&SearchedSessions::default(), query, limit).await
    }

    /// Searches the messages of some sessions. Returns up to `limit` messages that contain every word of the query,
    /// best match first. Words consist of letters and digits; all other characters separate words. A query without
    /// words finds nothing. Messages of other sessions do not count towards any limit.
    async fn search_messages_of(
        &self,
        sessions: &SearchedSessions,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MessageHit>, StoreError>;

    /// Searches the messages that were evicted from the view of one session (L27). Returns up to `limit` messages that
    /// contain at least one word of the query, best match first. Undone and superseded messages are not found.
    async fn search_evicted(&self, session: &str, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError>;
}

/// A session that can continue without an answer from outside, and that no process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuableSession {
    /// Subject that identifies the session.
    pub subject: String,
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user. `None` if the session has none.
    pub user: Option<String>,
    /// Why the session can continue.
    pub reason: ContinuationReason,
}

/// The reason why a session can continue without an answer from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinuationReason {
    /// The time in [`Status::continues_at`](crate::Status::continues_at) has come: the session was interrupted, a
    /// deadline has passed, or a queued prompt can begin a turn.
    Due,
    /// The session waits for a session to which it delegated work, and the turn of that session has ended (L16).
    ChildEnded,
    /// The session works for another session whose turn was cancelled or has failed, so the session's own turn must be
    /// cancelled (L16).
    ParentEnded,
}

/// Selects the sessions to list. A field that is not set does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Selects only the session with this subject.
    pub subject: Option<String>,
    /// Selects only sessions of the agent with this configured name.
    pub agent: Option<String>,
    /// Selects only sessions of the user with this id.
    pub user: Option<String>,
    /// Whether sessions whose user is unknown are listed in addition to the sessions of [`SessionFilter::user`]. Has no
    /// effect if [`SessionFilter::user`] is `None`.
    pub unowned: Unowned,
    /// Selects only sessions in this state.
    pub state: Option<SessionState>,
    /// Selects only sessions to which the session with this subject delegated work (L16).
    pub delegated_by: Option<String>,
}

/// Selects the sessions whose messages are searched. The default selects all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchedSessions {
    /// Configured names of the agents, at most [`MAX_PAGE`](crate::MAX_PAGE). `None` means all agents.
    pub agents: Option<Vec<String>>,
    /// Selects only sessions of the user with this id.
    pub user: Option<String>,
    /// Whether sessions without a user are searched in addition to the sessions of [`SearchedSessions::user`].
    pub unowned: Unowned,
}

/// The position of a session in a list that continues later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    /// The place of the session, by which lists are ordered.
    pub place: i64,
    /// Distinguishes sessions with the same place. 0 in a store whose places are unique.
    pub number: i64,
}

/// Whether a list of one user's sessions contains sessions without a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unowned {
    /// Sessions without a user are not listed.
    #[default]
    Hidden,
    /// Sessions without a user are listed in addition to the sessions of the user.
    Shown,
}

/// Summary of a session, for lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Subject that identifies the session.
    pub subject: String,
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user. `None` if the host does not know the user.
    pub user: Option<String>,
    /// Id (subject) of the session that delegated work to this session (L16). `None` if no session delegated work to
    /// this session.
    pub delegated_by: Option<String>,
    /// Time at which the session was created, as RFC 3339 in UTC.
    pub created: String,
    /// Time of the last commit, as RFC 3339 in UTC.
    pub updated: String,
    /// Number of commits that the session has so far.
    pub revision: u64,
    /// Number of turns of the session that were started.
    pub turns: u32,
    /// Number of messages that were appended to the session, including hidden messages.
    pub messages: u64,
    /// State of the session after its last commit. The store does not change this state when a session is interrupted:
    /// a session was interrupted if its state is [`SessionState::Running`] and `open_in` is `None`.
    pub state: SessionState,
    /// The process that has the session open. `None` if no process has the session open.
    pub open_in: Option<SessionHolder>,
    /// Title: the beginning of the session's first input.
    pub title: Option<String>,
    /// The usage of all turns of the session together.
    pub usage: SessionUsage,
}

/// Model calls of all turns of a session, and their tokens and costs (D1). Turns that were undone are included. Turns
/// of an older host, which did not store this data, are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionUsage {
    /// Number of model calls.
    pub model_calls: u64,
    /// Tokens, and what they cost.
    #[serde(flatten)]
    pub usage: Usage,
}

/// The usage of all sessions of one agent and one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageTotal {
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user. `None` if the host does not know the user.
    pub user: Option<String>,
    /// Number of sessions that have called a model.
    pub sessions: u64,
    /// The usage of all turns of these sessions together.
    #[serde(flatten)]
    pub usage: SessionUsage,
}

/// A message that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageHit {
    /// Subject that identifies the session.
    pub session: String,
    /// Id of the message within the session.
    pub id: MessageId,
    /// Number of the turn that appended the message.
    pub turn: u32,
    /// Role of the message's author.
    pub role: Role,
    /// About 200 characters of the message's text around the first matching word.
    pub excerpt: String,
    /// Relevance of the message, from 0 to 1. A higher number means a better match.
    pub score: f32,
}
