//! Requests to a model and its replies, independent of the provider.

use crate::message::{Dimensions, Media, Message, Replay};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The model that a prompt is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Kind of the configured provider, such as `scripted`, `offline` or `openai`.
    pub provider: String,
    /// The provider's name of the model.
    pub name: String,
    /// Context window in tokens.
    pub window: u32,
}

impl std::fmt::Display for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.provider, self.name)
    }
}

/// Token counts that a provider reported. They can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    #[serde(default)]
    pub completion_tokens: u64,
}

impl Usage {
    /// Prompt and completion tokens together, which are the default execution units (L5).
    pub fn total(self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
    }
}

/// A tool as it is offered to the model. Its name is already valid for the provider (L14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// Name of the tool in the provider's alphabet.
    pub name: String,
    /// Name of the tool as its author wrote it. It is never sent to a provider.
    pub author_name: String,
    /// Description for the model, at most 2 KiB.
    pub description: String,
    /// JSON Schema of the arguments, without the host's reserved fields (L15).
    pub input_schema: Value,
}

/// A media policy's decision about one medium (P4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaDecision {
    /// Send the medium unchanged.
    Keep,
    /// Send this text in place of the medium.
    Mask(String),
    /// Send the medium scaled down to at most this size, with its proportions kept.
    Downscale(Dimensions),
}

/// A medium in the prompt that is sent smaller than it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downscaled {
    /// The stored medium.
    pub media: Media,
    /// Maximum size.
    pub to: Dimensions,
}

/// Why the prompt is built (L2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// A new input begins a turn.
    #[default]
    Init,
    /// Tool results have arrived.
    ToolResult,
    /// The output was rejected, or a reply did not end the turn (L19, L23).
    OutputErrorFeedback,
}

/// Everything that one model call sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The model that gets the request.
    pub model: Model,
    /// Why the prompt was built (L2). It is not sent to the provider.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// System text in named sections; sections that rarely change come first (L22). They are joined by blank lines.
    pub system: Vec<String>,
    /// Messages, oldest first. Masked media have already been replaced by text.
    pub messages: Vec<Message>,
    /// Media to send in a smaller size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub downscaled: Vec<Downscaled>,
    /// Tools that the model may call. Empty if tools are withheld.
    pub tools: Vec<OfferedTool>,
    /// JSON Schema of the output (L12). None: free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Maximum number of tokens of the reply.
    pub max_tokens: u32,
}

/// A tool call as the model wrote it, before the host assigns an id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// Id from the provider. None: the provider does not give ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Name of the tool in the provider's alphabet.
    pub name: String,
    /// The arguments as the JSON text that the model wrote. Empty means no arguments.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The reply is complete.
    Stop,
    /// The model wants to call tools.
    ToolCalls,
    /// The reply reached its token limit.
    Length,
    /// The provider's content filter cut the reply.
    ContentFilter,
}

/// One complete reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Text of the reply, without thinking.
    pub text: String,
    /// Tool calls in the order in which the model wrote them.
    pub calls: Vec<RequestedCall>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// Token counts as the provider reported them.
    pub usage: Usage,
    /// The model that answered, as `provider/model`.
    pub model: String,
    /// Data that the provider wants returned with this reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// A piece of a reply that is being streamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Text for the user.
    Text(String),
    /// Thinking begins (L21).
    ThinkingStart,
    /// A piece of thinking.
    Thinking(String),
    /// Thinking has ended.
    ThinkingEnd,
    /// Everything streamed of this reply so far is void.
    Clear,
}
