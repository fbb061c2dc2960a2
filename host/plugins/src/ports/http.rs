//! The port with which the embedder answers the HTTP requests of plugins instead of the network.

use agent_core::message::Digest;
use serde::{Deserialize, Serialize};

/// Answers the HTTP requests of guests instead of the network.
#[async_trait::async_trait]
pub trait HttpPort: Send + Sync {
    /// Returns the complete response. Dropping the future cancels the request.
    async fn answer(&self, question: HttpQuestion) -> Result<HttpAnswer, HttpRefusal>;
}

/// A request as it would be sent, including its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuestion {
    /// Name of the plugin that sends the request.
    pub plugin: String,
    /// Id of the call that sends the request.
    pub call: String,
    /// Method, in capital letters.
    pub method: String,
    /// Complete URL.
    pub url: String,
    /// Headers with names in lower case. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    /// Digest of the headers that the guest itself set, without trace headers.
    pub own_headers: Digest,
    /// Complete body.
    pub body: Vec<u8>,
}

/// The response to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code from 100 to 599.
    pub status: u16,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// Body, which is incomplete if `ending` is [`HttpEnding::Broken`].
    pub body: Vec<u8>,
    /// Whether the body is complete.
    pub ending: HttpEnding,
}

/// How a response ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpEnding {
    /// The response is complete.
    #[default]
    Whole,
    /// The connection broke before the end of the body.
    Broken,
}

/// The reason why there is no response, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpRefusal {
    /// The request is not granted.
    Denied,
    /// The address is not public and not granted.
    AddressDenied,
    /// The name has no address.
    NoSuchName,
    /// The server refused the connection.
    ConnectionRefused,
    /// The connection broke before the response.
    ConnectionBroken,
    /// The response did not arrive in time.
    Timeout,
}
