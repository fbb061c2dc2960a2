//! One request to a model and the response to it. This module contains the code that is needed both for reading replies
//! and for reading error responses.

use super::connection::Connection;
use super::transport_error;
use crate::error::{Endpoint, ModelError, WaitingFor};
use agent_core::visible::visible_name;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use std::future::Future;

/// Maximum number of characters of a response that a message quotes.
const MAX_EXCERPT_CHARACTERS: usize = 200;

/// One request to a model and the response to it.
pub(super) struct Exchange<'e> {
    pub(super) connection: &'e Connection,
    /// Name of the model without the provider's name as prefix.
    pub(super) model: &'e str,
    pub(super) endpoint: Endpoint,
}

impl Exchange<'_> {
    /// Returns the next chunk of the response body, or `None` at the end of the body.
    pub(super) async fn next_chunk(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, ModelError> {
        let chunk = self.within_stall_timeout(WaitingFor::NextChunk, response.chunk()).await?;
        chunk.map_err(|error| transport_error::reply_error(self.endpoint.clone(), &error))
    }

    /// Waits for `future`. Returns an error if the future needs more time than the provider's stall timeout.
    pub(super) async fn within_stall_timeout<Output>(
        &self,
        waiting_for: WaitingFor,
        future: impl Future<Output = Output>,
    ) -> Result<Output, ModelError> {
        let limit = self.connection.config.timeouts.stall;
        let stalled = |_| ModelError::Stalled { endpoint: self.endpoint.clone(), waiting_for, limit };
        tokio::time::timeout(limit, future).await.map_err(stalled)
    }

    /// Returns the beginning of `bytes` on one line, without secrets and control characters.
    pub(super) fn excerpt(&self, bytes: &[u8]) -> String {
        // Redact before truncating, because redaction cannot find a key after truncation has removed a part of the key.
        let text = self.connection.redaction.text(String::from_utf8_lossy(bytes).into_owned());
        let words = text.split(|character: char| character.is_whitespace() || character.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        visible_name(&line, MAX_EXCERPT_CHARACTERS)
    }

    /// Creates the error for a response that does not come from a model server.
    pub(super) fn unexpected_response(&self, status: StatusCode, declared: &str, body: &[u8]) -> ModelError {
        let content =
            if declared.is_empty() { "no content type".to_owned() } else { self.excerpt(declared.as_bytes()) };
        let (endpoint, status, excerpt) = (self.endpoint.clone(), status.as_u16(), self.excerpt(body));
        ModelError::UnexpectedResponse { endpoint, status, content, excerpt }
    }

    /// Creates the error for a reply that ended early.
    pub(super) fn connection_lost(&self, message: &str) -> ModelError {
        ModelError::ConnectionLost { endpoint: self.endpoint.clone(), message: message.to_owned() }
    }

    /// Creates the error for a reply that cannot be used.
    pub(super) fn invalid(&self, problem: String) -> ModelError {
        ModelError::InvalidReply { endpoint: self.endpoint.clone(), problem }
    }
}

/// Returns the content type that the response declares, in lower case and without parameters.
pub(super) fn content_type(response: &Response) -> String {
    let value =
        response.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let value = value.unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
