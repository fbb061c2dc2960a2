//! Types for the JSON of one event of a stream, and for a complete response. Strings without escapes are not copied.
//! Parts that are rarely needed are not parsed until they are used.

use super::super::lenient_fields::{Count, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event. The type of an event determines which of these fields are set.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    /// Position of the output item in the response.
    pub(super) output_index: Count,
    /// Id of the output item, which can change from event to event.
    #[serde(borrow)]
    pub(super) item_id: Text<'a>,
    /// A piece of text, thinking, a refusal, or the arguments of a call.
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
    /// The output item of `response.output_item.added` and `response.output_item.done`.
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    /// The response, whose fields are complete only in the last event.
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
}

/// A response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseFields<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    /// `completed`, `incomplete`, `failed`, `cancelled`, `queued` or `in_progress`.
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The `incomplete_details` field of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    /// `max_output_tokens` or `content_filter`.
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

/// The `usage` field of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    /// Tokens of the prompt, including tokens that were read from or written to the prompt cache.
    pub(super) input_tokens: Count,
    pub(super) input_tokens_details: Option<InputDetails>,
    /// Tokens of the reply, including the thinking.
    pub(super) output_tokens: Count,
    pub(super) output_tokens_details: Option<OutputDetails>,
}

/// The `input_tokens_details` field of the usage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InputDetails {
    pub(super) cached_tokens: Count,
    pub(super) cache_write_tokens: Count,
}

/// The `output_tokens_details` field of the usage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) reasoning_tokens: Count,
}
