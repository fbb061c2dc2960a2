//! What the generated types of `types.wit` and `media-store.wit` can do: constructors, and JSON texts parsed.

use crate::imports::agent_host::plugin::media_store;
use crate::imports::agent_host::plugin::types::{Content, Failure, Media, Message, Part, Role, ToolCall, ToolResult};
use serde::de::DeserializeOwned;

impl Message {
    /// A message of one text that no model has seen yet.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], seen_count: 0 }
    }

    /// All text parts, one after another with a line break between. Empty where there are none.
    pub fn texts(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl ToolCall {
    /// The arguments as `T`, for example `serde_json::Value`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.arguments)
    }
}

impl ToolResult {
    /// All text and JSON of the result, one after another with a line break between.
    pub fn texts(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text(text) | Content::Json(text) => Some(text.as_str()),
            Content::Media(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl Media {
    /// Whether the MIME type is an image's.
    pub fn is_image(&self) -> bool {
        self.mime_type.starts_with("image/")
    }
}

impl Failure {
    /// The input is not what the plugin was made for: says what was expected.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::InvalidInput(message.into())
    }

    /// Something outside did not answer; the host may ask again once.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(message.into())
    }

    /// Anything else.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The message inside.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidInput(message) | Self::Unavailable(message) | Self::Failed(message) => message,
        }
    }
}

impl media_store::Error {
    /// The error as a sentence.
    pub fn message(&self) -> String {
        match self {
            Self::NotFound => "no medium of this session has this digest".to_owned(),
            Self::OutOfRange => "the range begins behind the medium's end".to_owned(),
            Self::Failed(message) => format!("the media store failed: {message}"),
            Self::TooLarge(message) => format!("the medium is too large: {message}"),
        }
    }
}
