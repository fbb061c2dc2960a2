//! What goes to a model and what comes back, in no provider's dialect.

use crate::message::{Dimensions, Media, Message, Replay};
use crate::plugin::Lifecycle;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which model a prompt is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The configured provider's kind: `scripted`, `offline`, `openai` …
    pub provider: String,
    /// Its own name of the model.
    pub name: String,
    /// Context window in tokens.
    pub window: u32,
}

impl std::fmt::Display for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.provider, self.name)
    }
}

/// Tokens that a provider counted. They add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Of the reply.
    #[serde(default)]
    pub completion_tokens: u64,
}

impl Usage {
    /// Prompt and completion together: the default execution units (L5).
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

/// A tool as the model is offered it: its name is already in the provider's alphabet (L14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// In the provider's alphabet.
    pub name: String,
    /// As its author wrote it; never sent to a provider.
    pub author_name: String,
    /// At most 2 KiB.
    pub description: String,
    /// JSON Schema of the arguments, without the host's reserved fields (L15).
    pub input_schema: Value,
}

/// What a media policy decided about one medium (P4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaDecision {
    /// Sent as it is.
    Keep,
    /// This text is sent in its place.
    Mask(String),
    /// Sent at most so large, sides in proportion.
    Downscale(Dimensions),
}

/// A medium in the outgoing prompt that is sent smaller than it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downscaled {
    /// Which.
    pub media: Media,
    /// At most.
    pub to: Dimensions,
}

/// The outgoing copy: what one model call sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Who gets it.
    pub model: Model,
    /// Why the prompt was built (L2). No provider is sent it.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// System text in named sections, what changes rarely first (L22). They are joined by blank lines.
    pub system: Vec<String>,
    /// Oldest first; masked media are text already.
    pub messages: Vec<Message>,
    /// Media to be sent smaller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub downscaled: Vec<Downscaled>,
    /// Empty where tools are withheld.
    pub tools: Vec<OfferedTool>,
    /// JSON Schema of the output (L12). None: free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Most tokens of the reply.
    pub max_tokens: u32,
}

/// A call as the model wrote it, before the host gave it an id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// The provider's id; some give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// In the provider's alphabet.
    pub name: String,
    /// JSON text as the model wrote it; empty means no arguments.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said everything.
    Stop,
    /// It wants tools to run.
    ToolCalls,
    /// It ran into the limit of its reply.
    Length,
    /// The provider's filter cut it.
    ContentFilter,
}

/// One whole reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What it wrote, without its thinking.
    pub text: String,
    /// In the order in which it wrote them.
    pub calls: Vec<RequestedCall>,
    /// Why it stopped.
    pub stop: StopReason,
    /// As the provider counted.
    pub usage: Usage,
    /// `provider/model` that answered.
    pub model: String,
    /// What the provider wants back with this reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// A piece of a reply while it is being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Text for the user.
    Text(String),
    /// Thinking begins (L21).
    ThinkingStart,
    /// A piece of thinking.
    Thinking(String),
    /// Thinking is over.
    ThinkingEnd,
    /// What was streamed of this reply so far is void.
    Clear,
}
