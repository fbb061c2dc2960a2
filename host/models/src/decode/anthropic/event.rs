//! Types for the JSON of one event of a stream. Strings without escapes are not copied, and parts that are rarely
//! needed are not parsed until they are used.

use super::super::lenient_fields::{Count, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event. Which fields it has depends on its type.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    /// Index of the content block that the event starts, continues or ends.
    pub(super) index: Count,
    /// The message of `message_start`, which has no content yet.
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    /// The content block of `content_block_start`.
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    /// The change that a `content_block_delta` or `message_delta` event contains.
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// The usage of `message_delta`, whose counts are those of the whole reply.
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    /// The changes that the provider made to the request, in `message_delta`.
    #[serde(borrow)]
    pub(super) input_transformations: Option<&'a RawValue>,
}

/// A change of a content block or of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) partial_json: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
}

/// A complete message, or the message of `message_start`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageFields<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_transformations: Option<&'a RawValue>,
}

/// The `usage` field.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    /// Prompt tokens that were neither read from the cache nor written to it.
    pub(super) input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    /// Tokens of the reply, including the thinking.
    pub(super) output_tokens: Count,
    pub(super) output_tokens_details: Option<OutputDetails>,
}

/// The `output_tokens_details` field of the usage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) thinking_tokens: Count,
}
