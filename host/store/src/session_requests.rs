//! Requests to sessions that another process has open (F2). The sender stores a request, and the process that has the
//! session open handles it and stores the answer.

use crate::{Lease, StoreError};
use async_trait::async_trait;
use std::time::Duration;

/// Maximum size in bytes of the content of a request or of an answer.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;
/// Maximum number of requests to one session that have no answer yet.
pub const MAX_SESSION_REQUESTS: u64 = 16;
/// Maximum size in bytes of the requests to one session and of their answers.
pub const MAX_SESSION_REQUEST_BYTES: u64 = 96 << 20;
/// Maximum number of requests in a store.
pub const MAX_REQUESTS: u64 = 4_096;
/// Maximum size in bytes of the requests in a store and of their answers.
pub const MAX_STORED_REQUEST_BYTES: u64 = 512 << 20;
/// Requests up to this size in bytes are stored even if larger requests have reached a limit in bytes. So a turn can be cancelled
/// while prompts with attachments wait.
pub const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// Maximum number of requests to one session that one query returns.
pub const LISTED_PER_SESSION: usize = 4;
/// Time in microseconds for which the answer to a request is kept after the request has expired: one minute. A request that no
/// process has begun to handle is deleted when it expires.
pub(crate) const KEPT_AFTER_EXPIRY: i64 = 60_000_000;

/// Identifies a request to a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Subject of the session.
    pub session: String,
    /// Id that the sender has chosen. A session has no two requests with the same id.
    pub id: String,
}

/// A stored request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// The request.
    pub key: RequestKey,
    /// Configured name of the session's agent.
    pub agent: String,
    /// The user to whom the session belongs. `None` if it belongs to nobody.
    pub user: Option<String>,
    /// Size of the content in bytes.
    pub bytes: u64,
}

/// A request that this process has begun to handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRequest {
    /// Content of the request.
    pub content: String,
    /// Time until the request expires.
    pub valid_for: Duration,
}

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// No process has begun to handle the request.
    Waiting,
    /// A process has begun to handle the request.
    Claimed,
    /// The session has handled the request. The text is the content of the answer.
    Answered(String),
    /// There is no such request: it was withdrawn, it expired, or its session was deleted.
    Gone,
}

/// The answer to a request, which is stored together with the commit that carries the request out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestAnswer {
    /// Id of the request.
    pub id: String,
    /// Content of the answer.
    pub content: String,
}

/// Stores requests to sessions and their answers. The store does not interpret their content.
#[async_trait]
pub trait SessionRequests: Send + Sync {
    /// Stores a request, which no process begins to handle after the time `valid_for`. Storing a request with an id that the
    /// session already has changes nothing. Fails with [`StoreError::NoSession`] if the session does not exist, with
    /// [`StoreError::TooLarge`] if the content has more than [`MAX_REQUEST_BYTES`] bytes, and with
    /// [`StoreError::RequestsFull`] if the requests to the session or in the store have reached a limit. Requests that are stored
    /// at the same moment do not see each other, so together they may exceed a limit.
    async fn post_request(&self, key: &RequestKey, content: &str, valid_for: Duration) -> Result<(), StoreError>;

    /// Returns up to `limit` requests without an answer: those to sessions of these agents that this store has open, or that no
    /// process has open. At most [`LISTED_PER_SESSION`] requests of each session are returned. The oldest request of each agent
    /// and user comes first, then the second of each, and so on, so that nobody's requests hide those of others.
    async fn pending_requests(&self, agents: &[String], limit: usize) -> Result<Vec<StoredRequest>, StoreError>;

    /// Begins to handle a request to a session that this store has open, and returns the content of the request. Returns `None`
    /// if the request needs not be handled: it has an answer, has expired, was withdrawn, or another process has the session.
    async fn claim_request(&self, key: &RequestKey) -> Result<Option<ClaimedRequest>, StoreError>;

    /// Stores the answer to a request, and removes the content of the request. Nothing happens if there is no such request, or
    /// if it has an answer already.
    async fn answer_request(&self, key: &RequestKey, answer: &str) -> Result<(), StoreError>;

    /// Returns how far a request has come.
    async fn request_state(&self, key: &RequestKey) -> Result<RequestState, StoreError>;

    /// Removes a request that waits or that has an answer, and returns the state that it had. A claimed request stays.
    async fn withdraw_request(&self, key: &RequestKey) -> Result<RequestState, StoreError>;

    /// Removes a request, because nobody waits for its answer any more. A process that handles it already goes on.
    async fn remove_request(&self, key: &RequestKey) -> Result<(), StoreError>;

    /// Returns those of the leases that are no longer valid, because another process has taken their sessions over.
    async fn lost_leases(&self, leases: &[Lease]) -> Result<Vec<Lease>, StoreError>;
}

/// What stored requests and their answers occupy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Occupied {
    /// Number of requests without an answer.
    pub(crate) session_requests: u64,
    pub(crate) session_bytes: u64,
    /// Number of all requests.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Occupied {
    /// Refuses a further request with a content of this size if it would exceed a limit.
    pub(crate) fn check_room(&self, session: &str, size: usize) -> Result<(), StoreError> {
        let is_small = size <= SMALL_REQUEST_BYTES;
        let exceeds = |bytes: u64, limit: u64| !is_small && bytes.saturating_add(size as u64) > limit;
        let whose = || format!("the session `{session}`");
        let full = |whose: String, limit: String| Err(StoreError::RequestsFull { whose, limit });
        if self.session_requests >= MAX_SESSION_REQUESTS {
            return full(whose(), format!("{MAX_SESSION_REQUESTS} requests to it"));
        }
        if exceeds(self.session_bytes, MAX_SESSION_REQUEST_BYTES) {
            return full(whose(), format!("requests with up to {} MiB", MAX_SESSION_REQUEST_BYTES >> 20));
        }
        if self.requests >= MAX_REQUESTS {
            return full("the database".to_owned(), format!("{MAX_REQUESTS} requests"));
        }
        if exceeds(self.bytes, MAX_STORED_REQUEST_BYTES) {
            return full(
                "the database".to_owned(),
                format!("requests with up to {} MiB", MAX_STORED_REQUEST_BYTES >> 20),
            );
        }
        Ok(())
    }
}
