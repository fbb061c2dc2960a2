//! Encodes requests in all wire formats (M1). The same request always produces the same bytes.
//!
//! Messages are written after all other fields, oldest first, so that each request of a growing conversation begins
//! with the same bytes as the request before it. The only exceptions are the cache markers of Anthropic Messages, whose
//! position differs between requests.

mod anthropic;
mod body;
mod chat_completions;
mod gemini;
mod media;
mod responses;
mod stored_reply;
mod thinking;
mod writer;

use crate::effort::{Effort, Thinking};
use crate::error::ModelError;
use crate::protocol::Protocol;
use crate::provider::MediaSource;
use agent_core::model::ModelRequest;
use serde::{Deserialize, Serialize};

pub(crate) use chat_completions::{Dialect, is_loopback};

/// The properties of a server and a model that determine how a request is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub(crate) protocol: Protocol,
    /// How the server differs from Chat Completions. The other formats do not use this field.
    pub(crate) dialect: Dialect,
    /// How much the model thinks. `None` leaves the choice to the provider.
    pub(crate) effort: Option<Effort>,
    /// The settings by which a request can control the model's thinking. `None` if the model is unknown.
    pub(crate) thinking: Option<Thinking>,
    /// Whether images are sent. Models that do not accept them receive a description.
    pub(crate) images: bool,
    /// Whether replies are sent back without the provider's data, because the provider rejected them.
    pub(crate) without_replay: bool,
}

/// An encoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// The JSON body.
    pub(crate) body: Vec<u8>,
    /// Notes for the step record (D1). Each note describes stored data that is sent in another form than it was stored
    /// in, or not at all.
    pub(crate) notes: Vec<String>,
    /// Whether the request contains data that the provider attached to an earlier reply.
    pub(crate) has_replay: bool,
}

/// Encodes a request to a model. Media items are read one at a time, so that at most one media item is in memory in
/// addition to the encoded request.
///
/// # Errors
///
/// Returns an error if a media item cannot be read or the request is too large.
pub(crate) async fn encode(
    request: &ModelRequest,
    format: Format,
    media: &dyn MediaSource,
) -> Result<Encoded, ModelError> {
    match format.protocol {
        Protocol::ChatCompletions => chat_completions::encode(request, format, media).await,
        Protocol::Responses => responses::encode(request, format, media).await,
        Protocol::Anthropic => anthropic::encode(request, format, media).await,
        Protocol::Gemini => gemini::encode(request, format, media).await,
    }
}

#[cfg(test)]
mod tests;
