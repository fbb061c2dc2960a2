//! Requests to sessions that another process has open (F2). The sender stores a request, and the process that has the
//! session open handles it and stores the answer.

use crate::{Lease, StoreError};
use async_trait::async_trait;
use std::time::Duration;

/// Maximum size in bytes of the content of a request or of an answer.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Identifies a request to a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Subject of the session.
    pub session: String,
    /// Id that the sender has chosen. A session has no two requests with the same id.
    pub id: String,
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
    /// session already has changes nothing. Fails with [`StoreError::NoSession`] if the session does not exist, and with
    /// [`StoreError::TooLarge`] if the content has more than [`MAX_REQUEST_BYTES`] bytes.
    async fn post_request(&self, key: &RequestKey, content: &str, valid_for: Duration) -> Result<(), StoreError>;

    /// Returns up to `limit` requests without an answer, oldest first: those to sessions of these agents that this store has
    /// open, or that no process has open.
    async fn pending_requests(&self, agents: &[String], limit: usize) -> Result<Vec<RequestKey>, StoreError>;

    /// Begins to handle a request to a session that this store has open, and returns the content of the request. Returns `None`
    /// if the request needs not be handled: it has an answer, has expired, was withdrawn, or another process has the session.
    async fn claim_request(&self, key: &RequestKey) -> Result<Option<String>, StoreError>;

    /// Stores the answer to a request, in place of an earlier answer. Nothing happens if there is no such request.
    async fn answer_request(&self, key: &RequestKey, answer: &str) -> Result<(), StoreError>;

    /// Returns how far a request has come.
    async fn request_state(&self, key: &RequestKey) -> Result<RequestState, StoreError>;

    /// Removes a request that waits or that has an answer, and returns the state that it had. A claimed request stays.
    async fn withdraw_request(&self, key: &RequestKey) -> Result<RequestState, StoreError>;

    /// Returns those of the leases that are no longer valid, because another process has taken their sessions over.
    async fn lost_leases(&self, leases: &[Lease]) -> Result<Vec<Lease>, StoreError>;
}
