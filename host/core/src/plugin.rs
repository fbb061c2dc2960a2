//! What the host asks the plugins of the other three kinds, and what they answer; the WIT contract in the host's words.

use crate::message::{Media, Message, Role, TurnInput};
use crate::model::Model;
use crate::tool::Violation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a call stands in a distributed trace (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// `00-<32 hex>-<16 hex>-<2 hex>`.
    pub traceparent: String,
    /// Vendors' additions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// For whom a plugin works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The agent's configured name.
    pub agent: String,
    /// The session's subject.
    pub session: String,
    /// Subject of the session that delegated the work.
    pub delegated_by: Option<String>,
    /// Where the host knows one.
    pub user: Option<String>,
    /// Number of the turn in its session, from 1.
    pub turn: u32,
    /// The span of this call.
    pub trace: TraceContext,
}

/// Why the prompt is built (L2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// A new input begins a turn.
    #[default]
    Init,
    /// Tool results have come.
    ToolResult,
    /// The output was rejected, or a reply did not end the turn (L19, L23).
    OutputErrorFeedback,
}

/// Whether a section's text stays the same from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// It does: sent first.
    Fixed,
    /// It may change.
    Dynamic,
}

/// A named piece of the system text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Identifies it over steps and turns.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Where it stands.
    pub stability: Stability,
}

/// What a builder wants done with the earlier turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Sent before this turn's messages.
    #[default]
    Keep,
    /// Not sent in this turn.
    LeaveOut,
}

/// A tool as a context builder sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderTool {
    /// As its author wrote it.
    pub name: String,
    /// For the model.
    pub description: String,
    /// Of the arguments.
    pub input_schema: Value,
    /// What offering it costs.
    pub tokens: u32,
}

/// A fact from long-term memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recollection {
    /// Identifies it.
    pub id: String,
    /// What is remembered.
    pub text: String,
    /// RFC 3339 in UTC.
    pub written: String,
    /// Nearness to the input; more is nearer, at most 1.
    pub score: f32,
}

/// What is remembered of earlier turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuilderMemory {
    /// Oldest first.
    pub history: Vec<Message>,
    /// Messages that are not in `history`.
    pub hidden: u32,
    /// Of the hidden ones.
    pub summary: Option<String>,
    /// Nearest first.
    pub recollections: Vec<Recollection>,
}

/// Tokens, as the host counts them for this model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// What system text and messages may use together.
    pub available: u32,
    /// Kept free for the reply.
    pub reserved: u32,
    /// Taken by the tool definitions.
    pub tools: u32,
}

/// What a context builder is asked once a turn (L2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderRequest {
    /// Why.
    pub lifecycle: Lifecycle,
    /// For whom.
    pub scope: Scope,
    /// Which model the prompt is for.
    pub model: Model,
    /// What begins the turn.
    pub input: TurnInput,
    /// Those that the model will be offered.
    pub tools: Vec<BuilderTool>,
    /// Earlier turns and long-term memory.
    pub memory: BuilderMemory,
    /// What may be used.
    pub budget: Budget,
}

/// A builder's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuiltPrompt {
    /// System sections, in order within their stability.
    pub system: Vec<Section>,
    /// What becomes of the earlier turns.
    pub history: History,
    /// Begin this turn. Empty: the host adds the input.
    pub messages: Vec<Message>,
    /// At most 64 KiB, handed to each step.
    pub state: Option<Vec<u8>>,
}

/// What the per-step export is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRequest {
    /// Why.
    pub lifecycle: Lifecycle,
    /// For whom.
    pub scope: Scope,
    /// Which model the prompt is for.
    pub model: Model,
    /// Model calls of this turn so far.
    pub step: u32,
    /// Model calls that may still come, this one included.
    pub steps_left: u32,
    /// Added since the step before.
    pub latest: Vec<Message>,
    /// What may be used.
    pub budget: Budget,
    /// What `init` returned.
    pub state: Option<Vec<u8>>,
}

/// What an output validator is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidatorRequest {
    /// For whom.
    pub scope: Scope,
    /// As the model wrote it, or as an earlier validator changed it.
    pub text: String,
    /// The text as JSON, where it is JSON.
    pub structured: Option<Value>,
    /// The agent's output JSON Schema.
    pub output_schema: Option<Value>,
    /// From 1.
    pub attempt: u32,
    /// 0: a rejection ends the turn.
    pub corrections_left: u32,
    /// The turn so far, oldest first.
    pub turn: Vec<Message>,
}

/// Data that ends a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputData {
    /// Without an output schema.
    Text(String),
    /// With one, or from a validator.
    Json(Value),
}

impl OutputData {
    /// As it goes into the history: the text, or the JSON's text (L13).
    pub fn for_history(&self) -> String {
        match self {
            OutputData::Text(text) => text.clone(),
            OutputData::Json(json) => json.to_string(),
        }
    }
}

/// What a validator decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it is.
    Accept,
    /// In this form.
    AcceptAs(OutputData),
    /// At least one problem, for the model.
    Reject(Vec<Violation>),
}

/// Where a medium stands in the outgoing prompt; all count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MediaPosition {
    /// Oldest first.
    pub message: u32,
    /// Within the message.
    pub part: u32,
    /// Within a tool result's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
}

/// One medium that a policy decides on (P4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyItem {
    /// Where it stands.
    pub position: MediaPosition,
    /// Who sent it.
    pub role: Role,
    /// Model calls in which it has been sent.
    pub seen_count: u32,
    /// What it is.
    pub media: Media,
    /// An earlier decision masks it.
    pub masked: bool,
}

/// What a media policy is asked before each model call whose prompt holds media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// For whom.
    pub scope: Scope,
    /// The model that is about to get the prompt.
    pub model: Model,
    /// Messages in the prompt.
    pub messages: u32,
    /// In order of position.
    pub items: Vec<PolicyItem>,
}

/// Failure of a plugin that is not a tool; it ends the turn or takes the configured fallback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PluginFailure {
    /// Asking again is useless.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The host may ask again once.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}
