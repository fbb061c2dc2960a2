//! Types for the JSON of one chunk of a stream or of one complete reply, in the Chat Completions API and its dialects.
//! Strings without escapes are not copied, and fields that are rarely needed are parsed only when they are used.

use super::super::lenient_fields::{Bounded, Content, Count, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of choices that are read. The host requests only one choice.
const MAX_CHOICES: usize = 16;

/// Maximum number of pieces of calls that are read from one chunk. This number is larger than the maximum number of
/// calls in a reply.
const MAX_PIECES: usize = 2048;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    /// Some servers set this field to `error` in a chunk that reports an error.
    #[serde(borrow)]
    pub(super) object: Text<'a>,
    /// Some servers set this field to `error` in a chunk that reports an error.
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) choices: Option<Bounded<Choice<'a>, MAX_CHOICES>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) delta: Option<MessageFields<'a>>,
    /// A complete reply has this field instead of `delta`. One server sends both fields in a stream, and its `message`
    /// repeats all earlier content.
    #[serde(borrow)]
    pub(super) message: Option<MessageFields<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Output of the model: the complete output in a document, or one piece of the output in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageFields<'a> {
    #[serde(borrow)]
    pub(super) content: Content<'a>,
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Bounded<Option<ToolCallDelta<'a>>, MAX_PIECES>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

/// A complete tool call in a document, or one piece of a tool call in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallDelta<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// JSON text in a string, which may arrive in pieces. Some servers send the JSON value directly instead of a string
    /// that contains it.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// JSON object in a `usage` field. Chat Completions and newer APIs use different names for the same counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    pub(super) prompt_tokens: Count,
    pub(super) completion_tokens: Count,
    pub(super) input_tokens: Count,
    pub(super) output_tokens: Count,
    pub(super) prompt_tokens_details: Option<TokenCounts>,
    pub(super) completion_tokens_details: Option<TokenCounts>,
    /// DeepSeek's name for the prompt tokens that were read from the cache.
    pub(super) prompt_cache_hit_tokens: Count,
}

/// JSON object in `prompt_tokens_details` or `completion_tokens_details`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenCounts {
    /// Prompt tokens that were read from the prompt cache.
    pub(super) cached_tokens: Count,
    /// Prompt tokens that were written to the prompt cache.
    pub(super) cache_write_tokens: Count,
    /// Tokens of the reply that are thinking.
    pub(super) reasoning_tokens: Count,
}

/// JSON object in the `x_groq` field, in which Groq sends usage and errors.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroqExtension<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}
