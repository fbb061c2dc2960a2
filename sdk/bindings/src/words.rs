//! Constructors and helpers for the generated types of `types.wit` and `media-store.wit`.

use crate::imports::agent_host::plugin::media_store;
use crate::imports::agent_host::plugin::types::{Content, Failure, Media, Message, Part, Role, ToolCall, ToolResult};
use serde::de::DeserializeOwned;

impl Message {
    /// Creates a message with one text part. The message is marked as not yet seen by any model.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], seen_count: 0 }
    }

    /// Returns all text parts, joined with line breaks. The result is empty if the message has no text part.
    pub fn texts(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl ToolCall {
    /// Parses the arguments as `T`, for example `serde_json::Value`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.arguments)
    }
}

impl ToolResult {
    /// Returns all texts and JSON texts of the result, joined with line breaks.
    pub fn texts(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text(text) | Content::Json(text) => Some(text.as_str()),
            Content::Media(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl Media {
    /// Returns `true` if the MIME type is that of an image.
    pub fn is_image(&self) -> bool {
        self.mime_type.starts_with("image/")
    }
}

impl Failure {
    /// Creates the failure of a plugin that cannot process the input of the call. The message should explain what a
    /// valid input is.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::InvalidInput(message.into())
    }

    /// Creates the failure that a plugin returns if an external service that it needs does not respond. The host may
    /// retry the call once.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(message.into())
    }

    /// Creates a failure whose reason is neither invalid input nor an unavailable service.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Returns the message of the failure.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidInput(message) | Self::Unavailable(message) | Self::Failed(message) => message,
        }
    }
}

impl media_store::Error {
    /// Returns a description of the error for users and models.
    pub fn message(&self) -> String {
        match self {
            Self::NotFound => "no media item of this session has this digest".to_owned(),
            Self::OutOfRange => "the range starts after the end of the media item".to_owned(),
            Self::Failed(message) => format!("the media store failed: {message}"),
            Self::TooLarge(message) => format!("the media item is too large: {message}"),
        }
    }
}
