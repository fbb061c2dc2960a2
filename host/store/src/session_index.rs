//! Lists sessions and searches their messages. A store derives all of this from the session log.

use crate::{SessionHolder, StoreError};
use agent_core::message::{MessageId, Role};
use agent_core::session_state::SessionState;
use async_trait::async_trait;
use serde::Serialize;

/// Finds sessions and messages across the session log.
#[async_trait]
pub trait SessionIndex: Send + Sync {
    /// Returns the sessions that pass the filter, most recently changed first, at most `limit`.
    async fn sessions(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionSummary>, StoreError>;

    /// Returns the subject of the agent's most recently changed session. Sessions without a commit and sessions that another
    /// session delegated are not considered.
    async fn latest(&self, agent: &str) -> Result<Option<String>, StoreError>;

    /// Returns the subjects and snapshots of sessions that have an open turn, ordered by subject: those after the subject
    /// `after`, at most `limit`. Views that are stored in pieces are not included in the snapshots.
    async fn unfinished(&self, after: &str, limit: usize) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Searches the messages of all sessions for those that contain every word of the query, best match first, at most
    /// `limit`. Words consist of letters and digits; all other characters separate them. A query without words finds nothing.
    async fn search_messages(&self, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError>;

    /// Searches the messages of one session that were evicted from its view (L27) for those that contain any word of the
    /// query, best match first, at most `limit`. Undone and superseded messages are not found.
    async fn search_evicted(&self, session: &str, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError>;
}

/// Selects the sessions to list. A field that is not set does not restrict the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only the session with this subject.
    pub subject: Option<String>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions of this user.
    pub user: Option<String>,
    /// If [`SessionFilter::user`] is set: whether to list sessions whose user is not known.
    pub unowned: Unowned,
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Only sessions to which this session delegated work (L16).
    pub delegated_by: Option<String>,
}

/// Whether a list of one user's sessions contains sessions without a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unowned {
    /// They are left out.
    #[default]
    Hidden,
    /// They are listed too.
    Shown,
}

/// A session as shown in lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Subject of the session, which identifies it.
    pub subject: String,
    /// Configured name of the agent.
    pub agent: String,
    /// Id of the user, if the host knows one.
    pub user: Option<String>,
    /// Subject of the session that delegated the work (L16). `None` if no session did.
    pub delegated_by: Option<String>,
    /// Time at which the session was created, as RFC 3339 in UTC.
    pub created: String,
    /// Time of the last commit, as RFC 3339 in UTC.
    pub updated: String,
    /// Number of commits so far.
    pub revision: u64,
    /// Number of turns begun.
    pub turns: u32,
    /// Number of messages appended, including hidden ones.
    pub messages: u64,
    /// State after the last commit. The store reports no derived state: a session that is [`SessionState::Running`] and
    /// open nowhere was interrupted.
    pub state: SessionState,
    /// Who has the session open.
    pub open_in: Option<SessionHolder>,
    /// Start of the first input.
    pub title: Option<String>,
}

/// A message that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageHit {
    /// Subject of the session.
    pub session: String,
    /// Id of the message within the session.
    pub id: MessageId,
    /// Number of the turn that appended the message.
    pub turn: u32,
    /// Role of the message's author.
    pub role: Role,
    /// About 200 characters around the first matching word.
    pub excerpt: String,
    /// Relevance from 0 to 1; higher is better.
    pub score: f32,
}
