//! The port through which the embedder responds to the HTTP requests of plugins, instead of the network.

use agent_core::message::Digest;
use serde::{Deserialize, Serialize};

/// Responds to the HTTP requests of guests, which are then not sent to the network.
#[async_trait::async_trait]
pub trait HttpPort: Send + Sync {
    /// Returns the complete response to a request. Dropping the future cancels the request.
    async fn answer(&self, question: HttpPortRequest) -> Result<HttpPortResponse, HttpRefusal>;
}

/// An HTTP request as it would be sent, including its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPortRequest {
    /// Name of the plugin that sends the request.
    pub plugin: String,
    /// Id of the call that sends the request.
    pub call: String,
    /// HTTP method, in capital letters.
    pub method: String,
    /// Complete URL, with its query.
    pub url: String,
    /// Headers of the request, with names in lower case. Headers whose values are not text are omitted.
    pub headers: Vec<(String, String)>,
    /// Digest of the headers that the guest itself set. The digest does not cover the trace headers that the host adds.
    pub own_headers: Digest,
    /// Complete body of the request.
    pub body: Vec<u8>,
}

/// The response to the HTTP request of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpPortResponse {
    /// Status code from 100 to 599.
    pub status: u16,
    /// Names and values of the headers, in order.
    pub headers: Vec<(String, String)>,
    /// Bytes of the response's body. The body is incomplete if `ending` is [`BodyCompleteness::Broken`].
    pub body: Vec<u8>,
    /// Whether the body is complete.
    pub ending: BodyCompleteness,
}

/// Whether the body of a response is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyCompleteness {
    /// The body was received to its end.
    #[default]
    Whole,
    /// The connection broke before the end of the body.
    Broken,
}

/// The reason why a request has no response, as it is reported to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpRefusal {
    /// No grant allows the request.
    Denied,
    /// The server's address is not public, and no grant allows requests to this address.
    AddressDenied,
    /// The host name has no address.
    NoSuchName,
    /// The server refused the connection.
    ConnectionRefused,
    /// The connection broke before the response arrived.
    ConnectionBroken,
    /// The response did not arrive in time.
    Timeout,
}
