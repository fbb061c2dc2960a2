//! Requests to plugins that are not tools (context builders, output validators, media policies) and their answers.
//! They mirror the WIT contract in the host's types.

pub use crate::model::Lifecycle;

use crate::message::{Media, Message, Role, TurnInput};
use crate::model::Model;
use crate::tool::Violation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Position of a call in a distributed trace (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The `traceparent` header: `00-<32 hex>-<16 hex>-<2 hex>`.
    pub traceparent: String,
    /// The `tracestate` header with vendor-specific data. None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// The agent, session, user and turn that a plugin works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of the agent in the configuration.
    pub agent: String,
    /// Subject of the session, which identifies it.
    pub session: String,
    /// Subject of the session that delegated the work. None: the work was not delegated.
    pub delegated_by: Option<String>,
    /// The user. None: the host does not know one.
    pub user: Option<String>,
    /// Number of the turn in its session, from 1.
    pub turn: u32,
    /// The span of this call.
    pub trace: TraceContext,
}

/// Whether a section's text stays the same from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// The text stays the same, so it is sent first.
    Fixed,
    /// The text may change.
    Dynamic,
}

/// A named section of the system text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Name that identifies the section over steps and turns.
    pub name: String,
    /// Text of the section.
    pub text: String,
    /// Whether the text stays the same, which decides where the section is placed.
    pub stability: Stability,
}

/// What a context builder does with the earlier turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// They are sent before this turn's messages.
    #[default]
    Keep,
    /// They are not sent in this turn.
    LeaveOut,
}

/// A tool as a context builder sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderTool {
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Tokens that it costs to offer the tool.
    pub tokens: u32,
}

/// A fact from long-term memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recollection {
    /// Id of the memory.
    pub id: String,
    /// The remembered text.
    pub text: String,
    /// When it was written, in RFC 3339 and UTC.
    pub written: String,
    /// Similarity to the input, at most 1. A higher score is nearer.
    pub score: f32,
}

/// What is remembered of earlier turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuilderMemory {
    /// Messages, oldest first.
    pub history: Vec<Message>,
    /// Number of messages that are not in `history`.
    pub hidden: u32,
    /// Summary of the hidden messages. None: there is none.
    pub summary: Option<String>,
    /// Facts from long-term memory, nearest first.
    pub recollections: Vec<Recollection>,
}

/// Token budget as the host counts it for this model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens that system text and messages may use together.
    pub available: u32,
    /// Tokens reserved for the reply.
    pub reserved: u32,
    /// Tokens of the tool definitions.
    pub tools: u32,
}

/// Request to a context builder at the beginning of a turn (L2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderRequest {
    /// Why the prompt is built.
    pub lifecycle: Lifecycle,
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model that the prompt is for.
    pub model: Model,
    /// The input that begins the turn.
    pub input: TurnInput,
    /// Tools that the model will be offered.
    pub tools: Vec<BuilderTool>,
    /// Earlier turns and long-term memory.
    pub memory: BuilderMemory,
    /// Token budget of the prompt.
    pub budget: Budget,
}

/// A context builder's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuiltPrompt {
    /// System sections, in order within their stability.
    pub system: Vec<Section>,
    /// What to do with the earlier turns.
    pub history: History,
    /// Messages that begin this turn. Empty: the host adds the input.
    pub messages: Vec<Message>,
    /// State that is passed to each step, at most 64 KiB.
    pub state: Option<Vec<u8>>,
}

/// Request to a context builder before each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRequest {
    /// Why the prompt is built.
    pub lifecycle: Lifecycle,
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model that the prompt is for.
    pub model: Model,
    /// Number of model calls of this turn so far.
    pub step: u32,
    /// Model calls that the turn may still make, including this one.
    pub steps_left: u32,
    /// Messages that were added since the previous step.
    pub latest: Vec<Message>,
    /// Token budget of the prompt.
    pub budget: Budget,
    /// State that `init` returned. None: there is none.
    pub state: Option<Vec<u8>>,
}

/// Request to an output validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidatorRequest {
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The output as the model wrote it, or as an earlier validator changed it.
    pub text: String,
    /// The text parsed as JSON. None: it is not JSON.
    pub structured: Option<Value>,
    /// JSON Schema of the agent's output. None: the agent has no schema.
    pub output_schema: Option<Value>,
    /// Number of the attempt at an output, from 1.
    pub attempt: u32,
    /// Number of corrections that are left. At 0, a rejection ends the turn.
    pub corrections_left: u32,
    /// Messages of the turn so far, oldest first.
    pub turn: Vec<Message>,
}

/// Data that ends a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputData {
    /// Text, if the agent has no output schema.
    Text(String),
    /// JSON, if the agent has an output schema or a validator returned it.
    Json(Value),
}

impl OutputData {
    /// The data as it is written to the history: the text, or the JSON as text (L13).
    pub fn for_history(&self) -> String {
        match self {
            OutputData::Text(text) => text.clone(),
            OutputData::Json(json) => json.to_string(),
        }
    }
}

/// A validator's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Accept the output unchanged.
    Accept,
    /// Accept the output in this form.
    AcceptAs(OutputData),
    /// Reject the output, with at least one problem for the model.
    Reject(Vec<Violation>),
}

/// Position of a medium in the outgoing prompt. All indices start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MediaPosition {
    /// Index of the message, oldest first.
    pub message: u32,
    /// Index of the part within the message.
    pub part: u32,
    /// Index within a tool result's content. None: the part itself is the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
}

/// One medium that a media policy decides about (P4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyItem {
    /// Position of the medium in the prompt.
    pub position: MediaPosition,
    /// Role of the message that contains it.
    pub role: Role,
    /// Number of model calls in which it has been sent.
    pub seen_count: u32,
    /// Description of the medium.
    pub media: Media,
    /// Whether an earlier decision masks the medium.
    pub masked: bool,
}

/// Request to a media policy before each model call whose prompt contains media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model that is about to get the prompt.
    pub model: Model,
    /// Number of messages in the prompt.
    pub messages: u32,
    /// The media in order of position.
    pub items: Vec<PolicyItem>,
}

/// Failure of a plugin that is not a tool. It ends the turn, or the configured fallback is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PluginFailure {
    /// The input is invalid. A retry does not help.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The plugin is temporarily unavailable. The host may retry once.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
}

/// Something that a plugin requested and was not granted (P6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The plugin, as `name@digest`.
    pub plugin: String,
    /// What the plugin requested.
    pub thing: String,
    /// What to add to the configuration to grant it.
    pub grant: String,
}

impl Denial {
    /// Describes a denial in the text of a tool's error.
    pub fn in_error(thing: &str, grant: &str) -> String {
        format!("This plugin is not granted {thing}. To allow it, {grant}")
    }
}
