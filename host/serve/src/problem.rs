//! Errors of the HTTP API, as problem details (RFC 9457).

use agent_runtime::{RequestError, RequestProblem};
use agent_store::StoreError;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// The body of an error response (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// The HTTP status code.
    #[schema(example = 404)]
    pub status: u16,
    /// A code for programs, such as `not_found`. The same code always has the same status.
    #[schema(example = "not_found")]
    pub code: &'static str,
    /// The name of the status code.
    #[schema(example = "Not Found")]
    pub title: &'static str,
    /// What happened, and what to do.
    #[schema(example = "there is no session `clerk/1` of an agent that this host runs")]
    pub detail: String,
}

/// The error responses of every route, in the document that describes the API.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only the derived description is used")]
pub(crate) enum ApiProblems {
    /// The request cannot be carried out as it is.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Client(Problem),
    /// The host cannot carry out the request now.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Server(Problem),
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl ToString) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { status: status.as_u16(), code, title, detail: detail.to_string() }
    }

    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(crate) fn invalid(detail: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }
}

impl From<RequestError> for Problem {
    fn from(RequestError { kind, message }: RequestError) -> Self {
        let (status, code) = match kind {
            RequestProblem::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            RequestProblem::Conflict => (StatusCode::CONFLICT, "conflict"),
            RequestProblem::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            RequestProblem::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            RequestProblem::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        if kind == RequestProblem::Failed {
            // The message may contain paths of the host's files, which a client must not see.
            tracing::error!(message, "a request failed");
            return Self::new(status, code, "the host failed; the host's log contains the reason");
        }
        Self::new(status, code, message)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSession { .. } | StoreError::Incomplete { .. } => Self::not_found(error),
            // The message names the process, which a client need not know.
            StoreError::Busy { .. } => {
                let detail = "the session is in use; try again later";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
            StoreError::RequestsFull { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error),
            // The message may contain paths of the host's files, which a client must not see.
            error => {
                tracing::error!(%error, "a request failed, because the store failed");
                let detail = "the host cannot read or write its data; the host's log contains the reason";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        // Routes whose errors have another form create it from the problem.
        response.extensions_mut().insert(self);
        response
    }
}
