//! Requests that the host sends to context builders, output validators and media policies, and the responses of these
//! plugins. The types mirror the WIT contract.

pub use crate::model::Lifecycle;

use crate::message::{Media, Message, Role, TurnInput};
use crate::model::Model;
use crate::tool::Violation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Position of a call in a distributed trace (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The `traceparent` header, which has the form `00-<32 hex>-<16 hex>-<2 hex>`.
    pub traceparent: String,
    /// The `tracestate` header with vendor-specific data. `None` means that the header is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// The agent, session, user and turn that a plugin works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of the agent in the configuration.
    pub agent: String,
    /// The subject, a string that identifies the session.
    pub session: String,
    /// Id (subject) of the session that delegated the work. `None` means that the work was not delegated.
    pub delegated_by: Option<String>,
    /// The user to whom the session belongs. `None` means that the host does not know the user.
    pub user: Option<String>,
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// Trace context of the call to the plugin.
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
    /// Name of the section. The name identifies the section in all steps and turns.
    pub name: String,
    /// Text of the section.
    pub text: String,
    /// Whether the text stays the same from step to step. Sections whose text stays the same come first in the prompt.
    pub stability: Stability,
}

/// Whether the messages of earlier turns are sent to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// The messages of earlier turns are sent before the messages of this turn.
    #[default]
    Keep,
    /// The messages of earlier turns are not sent in this turn.
    LeaveOut,
}

/// The description of a tool that a context builder receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderTool {
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Tokens that the tool's definition uses in the prompt.
    pub tokens: u32,
}

/// A fact from long-term memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recollection {
    /// Id of the memory.
    pub id: String,
    /// The remembered text.
    pub text: String,
    /// Time at which the memory was written, in RFC 3339 and UTC.
    pub written: String,
    /// Similarity to the turn's input, at most 1. A higher score means a closer match.
    pub score: f32,
}

/// Earlier messages, their summary and long-term memories, for a context builder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuilderMemory {
    /// Messages of earlier turns, oldest first.
    pub history: Vec<Message>,
    /// Number of messages of earlier turns that are not in `history`.
    pub hidden: u32,
    /// Summary of the messages of earlier turns that are not in `history`. `None` means that these messages have
    /// no summary.
    pub summary: Option<String>,
    /// Facts from long-term memory, closest match first.
    pub recollections: Vec<Recollection>,
}

/// Token budget of a prompt. The host counts the tokens for the model of the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens that system text and messages may use together.
    pub available: u32,
    /// Tokens reserved for the reply.
    pub reserved: u32,
    /// Tokens of the tool definitions.
    pub tools: u32,
}

/// Request to a context builder at the beginning of a turn (L2). [`BuiltPrompt`] is the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderRequest {
    /// Why the prompt is built.
    pub lifecycle: Lifecycle,
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model to which the prompt is sent.
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

/// A context builder's response to a [`BuilderRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuiltPrompt {
    /// System sections. The host first sends the sections whose text stays the same, and then the other sections.
    /// Otherwise, the host keeps the order of the sections.
    pub system: Vec<Section>,
    /// Whether the messages of earlier turns are sent to the model.
    pub history: History,
    /// Messages that begin this turn. If the list is empty, the host makes a message from the input.
    pub messages: Vec<Message>,
    /// State that the host passes to the builder again before each step, at most 64 KiB. `None` means that the builder
    /// has no state.
    pub state: Option<Vec<u8>>,
}

/// Request to a context builder before each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRequest {
    /// Why the prompt is built.
    pub lifecycle: Lifecycle,
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model to which the prompt is sent.
    pub model: Model,
    /// Number of model calls of this turn so far.
    pub step: u32,
    /// Number of model calls that the turn may still make, including the model call of this step.
    pub steps_left: u32,
    /// Messages that were added since the previous step.
    pub latest: Vec<Message>,
    /// Token budget of the prompt.
    pub budget: Budget,
    /// State that the builder returned from `init`. `None` means that `init` returned no state.
    pub state: Option<Vec<u8>>,
}

/// Request to an output validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidatorRequest {
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The output as the model wrote it, or as an earlier validator changed it.
    pub text: String,
    /// The text of the output, parsed as JSON. `None` means that the text is not JSON.
    pub structured: Option<Value>,
    /// JSON Schema of the agent's output. `None` means that the agent has no schema.
    pub output_schema: Option<Value>,
    /// Number of this attempt to produce an output, starting at 1.
    pub attempt: u32,
    /// Number of times that the model may still correct a rejected output. If the number is 0, a rejection ends
    /// the turn.
    pub corrections_left: u32,
    /// Messages of the turn so far, oldest first.
    pub turn: Vec<Message>,
}

/// The output of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputData {
    /// Text, if the agent has no output schema.
    Text(String),
    /// JSON, if the agent has an output schema or if a validator returned JSON.
    Json(Value),
}

impl OutputData {
    /// The output in the form that is written to the history: a text unchanged, and JSON data as JSON text (L13).
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
    /// Accept the output, but replace it by this data.
    AcceptAs(OutputData),
    /// Reject the output. The list contains at least one problem, which is sent to the model.
    Reject(Vec<Violation>),
}

/// Position of a media item in the prompt. All indices start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MediaPosition {
    /// Index of the message in the prompt. The oldest message has the index 0.
    pub message: u32,
    /// Index of the part within the message.
    pub part: u32,
    /// Index within a tool result's content. `None` means that the part itself is the media item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
}

/// A media item about which a media policy decides (P4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyItem {
    /// Position of the media item in the prompt.
    pub position: MediaPosition,
    /// Role of the message that contains the media item.
    pub role: Role,
    /// Number of model calls in which the media item has been sent.
    pub seen_count: u32,
    /// Description of the media item.
    pub media: Media,
    /// Whether an earlier decision masks the media item.
    pub masked: bool,
}

/// Request to a media policy. The host sends such a request before each model call whose prompt contains media items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// The agent, session, user and turn that the plugin works for.
    pub scope: Scope,
    /// The model that will receive the prompt.
    pub model: Model,
    /// Number of messages in the prompt.
    pub messages: u32,
    /// The media items, sorted by position.
    pub items: Vec<PolicyItem>,
}

/// Failure of a plugin that is not a tool. The turn ends, or the host uses the configured fallback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PluginFailure {
    /// The input is invalid. A retry does not help.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The plugin is temporarily unavailable. The host may retry once.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// A failure that is neither an invalid input nor a temporary unavailability.
    #[error("{0}")]
    Failed(String),
}

/// The beginning of the sentences about a denial in a tool's error message.
const NOT_GRANTED: &str = "This plugin is not granted";

/// A plugin's request that the host denied because the configuration does not contain the necessary grant (P6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The plugin, as `name@digest`.
    pub plugin: String,
    /// Description of the denied request, such as `reading the media of the conversation`.
    pub thing: String,
    /// Instruction on what to add to the configuration to grant the request.
    pub grant: String,
}

impl Denial {
    /// Returns the sentences about a denial that are added to a tool's error message.
    pub fn in_error(thing: &str, grant: &str) -> String {
        format!("{NOT_GRANTED} {thing}. To allow it, {grant}")
    }

    /// Returns the part of a tool's error message before the sentences about denials.
    ///
    /// ```
    /// use agent_core::plugin::Denial;
    ///
    /// let error = format!("no such tree\n{}", Denial::in_error("reading files", "pass --grant text:read=DIR"));
    /// assert_eq!(Denial::before_in_error(&error), "no such tree");
    /// assert_eq!(Denial::before_in_error("no such tree"), "no such tree");
    /// ```
    pub fn before_in_error(error: &str) -> &str {
        error.split_once(&format!("\n{NOT_GRANTED} ")).map_or(error, |(before, _)| before)
    }
}
