//! Requests to a model, and the model's replies, in a form that does not depend on the provider.

use crate::message::{Dimensions, Media, Message, Replay};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::cost::{TokenDetails, Usage};

/// The model to which a prompt is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Kind of the configured provider, such as `scripted`, `offline` or `openai`.
    pub provider: String,
    /// The name by which the provider knows the model.
    pub name: String,
    /// Size of the context window, in tokens.
    pub window: u32,
}

impl std::fmt::Display for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.provider, self.name)
    }
}

/// A tool that is offered to the model. The tool's name has already been translated to a name that the provider
/// accepts (L14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// Name by which the provider knows the tool.
    pub name: String,
    /// Name of the tool as its author wrote it. The host never sends this name to a provider.
    pub author_name: String,
    /// Description for the model, at most 2 KiB.
    pub description: String,
    /// JSON Schema of the arguments, without the host's reserved fields (L15).
    pub input_schema: Value,
}

/// A media policy's decision about one media item (P4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaDecision {
    /// Send the media item unchanged.
    Keep,
    /// Send this text in place of the media item.
    Mask(String),
    /// Scale the image down to at most this size before it is sent. The image keeps its proportions.
    Downscale(Dimensions),
}

/// An image that is reduced in size before it is sent to the model. The stored image stays unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downscaled {
    /// The stored image.
    pub media: Media,
    /// Maximum size of the image that is sent.
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
    /// The output was rejected, or the host did not accept a reply as the end of the turn (L19, L23).
    OutputErrorFeedback,
}

/// The request that the host sends in one model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The model that receives the request.
    pub model: Model,
    /// The reason why the prompt was built (L2). The reason is not sent to the provider.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// Sections of the system text, each with its name as heading. Sections that rarely change come first (L22). The
    /// provider receives the sections joined by blank lines.
    pub system: Vec<String>,
    /// Messages, oldest first. Media items that a media policy masked have already been replaced by text.
    pub messages: Vec<Message>,
    /// Images in the messages that must be reduced in size before they are sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub downscaled: Vec<Downscaled>,
    /// Tools that the model may call. If the list is empty, the model cannot call any tool.
    pub tools: Vec<OfferedTool>,
    /// JSON Schema of the output (L12). `None` means that the output is free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Maximum number of tokens of the reply.
    pub max_tokens: u32,
}

/// A tool call as the model wrote it, before the host assigns an id to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// Id that the provider assigned. `None` means that the provider assigns no ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Name by which the provider knows the tool.
    pub name: String,
    /// The arguments as the JSON text that the model wrote. The text is empty if the call has no arguments.
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
    /// The provider's content filter cut the reply, or the model refused to answer.
    ContentFilter,
    /// The provider interrupted a long reply. The provider continues the reply when the conversation is sent again.
    Paused,
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
    /// Data that the provider attached to this reply and requires whenever the host sends the reply again. `None` means
    /// that the provider sent no such data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// A piece of a reply that is being streamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// A piece of the reply's text.
    Text(String),
    /// The model begins to think (L21).
    ThinkingStart,
    /// A piece of the model's thinking.
    Thinking(String),
    /// The model's thinking has ended.
    ThinkingEnd,
    /// All text and thinking that were streamed for the current reply must be discarded.
    Clear,
}
