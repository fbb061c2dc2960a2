//! Types for the JSON of one response, which is an event of a stream or a complete reply. Strings without escapes are
//! not copied, and parts that are rarely needed are not parsed until they are used.

use super::super::lenient_fields::{Bounded, Count, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of candidates that are read. The host requests one.
const MAX_CANDIDATES: usize = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Bounded<Candidate<'a>, MAX_CANDIDATES>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(borrow)]
    pub(super) usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model_version: Text<'a>,
    #[serde(borrow)]
    pub(super) response_id: Text<'a>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

/// The fields of a part that the host interprets.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartFields<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    /// Whether the text is thinking.
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) function_call: Option<&'a RawValue>,
}

/// Why a prompt was blocked.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) block_reason_message: Text<'a>,
}

/// The `usageMetadata` field.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage {
    /// Tokens of the prompt, including tokens that were read from the cache.
    pub(super) prompt_token_count: Count,
    pub(super) cached_content_token_count: Count,
    /// Tokens of the prompt that were added by the provider's own tools.
    pub(super) tool_use_prompt_token_count: Count,
    /// Tokens of the reply without the thinking.
    pub(super) candidates_token_count: Count,
    pub(super) thoughts_token_count: Count,
}
