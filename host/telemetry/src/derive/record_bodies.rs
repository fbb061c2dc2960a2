//! The parts of the stored step records from which spans are built. `agent-runtime` defines and tests the stored JSON of
//! the records. Fields of newer and older hosts may differ, so every field that is not essential has a default.

use agent_core::model::{Model, Reply, Usage};
use agent_core::plugin::Verdict;
use agent_core::tool::CallCost;
use agent_store::StoredRecord;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses the body of a record. Returns `None` if the record does not have this form.
pub(crate) fn body_of<T: DeserializeOwned>(record: &StoredRecord) -> Option<T> {
    T::deserialize(&record.record.body).ok()
}

/// The record `trace`: the trace to which the turn belongs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TraceBody {
    #[serde(flatten)]
    pub(crate) turn: agent_core::plugin::TraceContext,
    pub(crate) parent: Option<String>,
    pub(crate) first_message: Option<u64>,
}

/// The record `prompt`: the prompt of a model call.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Prompt {
    pub(crate) model: Model,
    #[serde(default)]
    pub(crate) max_tokens: Option<u32>,
    /// Digests of the system texts.
    #[serde(default)]
    pub(crate) system: Vec<String>,
    #[serde(default)]
    pub(crate) messages: Positions,
    /// Digest of the list of tools.
    #[serde(default)]
    pub(crate) tool_list: Option<String>,
    /// When the prompt was sent, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) sent_at: Option<u64>,
}

/// References to messages: the id of each message, and a number that is not used here.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Positions {
    Each(Vec<(u64, i64)>),
    Blocks { blocks: Vec<String>, rest: Vec<(u64, i64)> },
}

impl Default for Positions {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

/// The record `reply`: a model's reply.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReplyBody {
    pub(super) reply: Reply,
}

/// The record `plan_prompt`: the role of the model.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PlanPromptBody {
    #[serde(default)]
    pub(super) asked: Value,
}

/// The records `step_context` and `media_policy`, and the field `builder` of the record `context`: a call of a plugin.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PluginCall {
    #[serde(default)]
    pub(super) plugin: String,
    #[serde(default)]
    pub(super) answer: Value,
    #[serde(default)]
    pub(super) host: PluginSurroundings,
    #[serde(default)]
    pub(super) cost: CallCost,
}

/// The answers of the host to a plugin that is not a tool.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PluginSurroundings {
    #[serde(default)]
    pub(super) answers: Value,
}

/// The record `verdict`: the verdict of an output validator.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct VerdictBody {
    #[serde(default)]
    pub(super) plugin: String,
    #[serde(default)]
    pub(super) asked: Value,
    pub(super) answer: Verdict,
    #[serde(default)]
    pub(super) cost: CallCost,
}

/// The record `summary`: a summary of messages that left the prompt.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SummaryBody {
    pub(super) by: String,
    #[serde(default)]
    pub(super) problem: Option<String>,
    /// Digest of the summary.
    pub(crate) summary: String,
}

/// The record `embedding`: the call of an embedding model.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct EmbeddingBody {
    pub(super) model: String,
    #[serde(default)]
    pub(super) took_ms: u64,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// The record `host_model`: a plugin's question to the model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct QuestionBody {
    #[serde(default)]
    pub(super) plugin: String,
    pub(super) call: String,
    #[serde(default)]
    pub(crate) question: StoredQuestion,
    #[serde(default)]
    pub(super) reply: Option<QuestionReply>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) timing: Option<Timing>,
}

/// A question, with the digests of its texts.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StoredQuestion {
    #[serde(default)]
    pub(crate) system: Option<String>,
    #[serde(default)]
    pub(crate) messages: Vec<(String, String)>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct QuestionReply {
    pub(super) text: String,
    pub(super) usage: Usage,
    pub(super) model: String,
}

/// When a recorded action began, and how long it took.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Timing {
    pub(super) started_us: u64,
    pub(super) took_us: u64,
}

/// The record `host_answers`: the answers of the host to a plugin that ran a tool call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HostAnswersBody {
    pub(super) call: String,
    pub(super) host: Value,
}

/// The record `service_request`: a plugin's request to a service.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServiceRequestBody {
    pub(super) call: String,
    pub(super) request: Value,
}

/// The record `service_answer`: the event that answered a call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServiceAnswerBody {
    pub(super) call: String,
    #[serde(default)]
    pub(super) trace: Option<agent_core::plugin::TraceContext>,
}
