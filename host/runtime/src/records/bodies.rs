//! The types of the bodies of step records. The fields are declared in the order that they have in the stored JSON.

use super::MessagePositions;
use agent_core::change::Denial;
use agent_core::message::{CallId, MessageId, TurnInput};
use agent_core::model::{Downscaled, MediaDecision, Model, Reply, StopReason, Usage};
use agent_core::plugin::{Budget, Lifecycle, MediaPosition, PolicyItem, Recollection, TraceContext, Verdict};
use agent_core::run::{Mask, ModelRole, PinnedPlugin};
use agent_core::text_dialect::ToolDialect;
use agent_core::tool::{CallCost, ServiceRequest};
use agent_plugins::{HostCallLog, Timing};
use agent_store::StepRecord;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Kind of the records that describe a plugin's question to the agent's model.
const MODEL_QUESTION_KIND: &str = "host_model";
/// Kind of the record that describes a turn's trace. `agent-telemetry` reads these records.
const TRACE_KIND: &str = "trace";
/// Kind of the record that describes the origin of a fork.
pub(crate) const FORK_KIND: &str = "fork";

/// The body of a step record, with one variant for each kind of record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum StepRecordBody {
    /// The trace to which a turn belongs.
    Trace(TraceRecord),
    /// The plugins, servers, tools and memories with which a turn began.
    Context(Box<ContextRecord>),
    /// The call of an embedding model that selected the tools of a turn, or of the steps of a plan.
    Embedding(EmbeddingRecord),
    /// The call to the context builder that the host makes immediately before a step of the turn.
    StepContext(Box<BuilderCallRecord<StepQuestion>>),
    /// The prompt of a model call, which refers to its system texts by digest and to its messages by position.
    Prompt(Box<PromptRecord>),
    /// The text at the end of a planning model's prompt.
    PlanPrompt(PlanPromptRecord),
    /// A model's reply in the host's format, with the raw response of the provider.
    Reply(Box<ReplyRecord>),
    /// A summary of messages that were removed from the prompt.
    Summary(Box<SummaryRecord>),
    /// The verdict of an output validator.
    Verdict(Box<VerdictRecord>),
    /// The decisions of a media policy.
    MediaPolicy(Box<MediaPolicyRecord>),
    /// The pictures in a prompt that could not be scaled down.
    MediaNotScaled(Vec<UnscaledPicture>),
    /// A plugin's question to the agent's model.
    PluginModel(Box<PluginModelRecord>),
    /// The answers that the host gave to a plugin while the plugin executed a call.
    HostCallLog(Box<HostAnswersRecord>),
    /// The service request that a plugin made during a tool call.
    ServiceRequest(Box<ServiceRequestRecord>),
    /// The event that the host accepted as a service's answer.
    ServiceAnswer(Box<ServiceAnswerRecord>),
    /// The session and message from which a fork was created.
    Fork(Box<ForkRecord>),
}

/// The error for a stored record that this host cannot read, because the kind of the record is unknown or the body of
/// the record does not have the expected fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableRecord;

impl StepRecordBody {
    /// Returns the name of the record's kind, as it is stored with the record.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Trace(_) => TRACE_KIND,
            Self::Context(_) => "context",
            Self::Embedding(_) => "embedding",
            Self::StepContext(_) => "step_context",
            Self::Prompt(_) => "prompt",
            Self::PlanPrompt(_) => "plan_prompt",
            Self::Reply(_) => "reply",
            Self::Summary(_) => "summary",
            Self::Verdict(_) => "verdict",
            Self::MediaPolicy(_) => "media_policy",
            Self::MediaNotScaled(_) => "media_not_scaled",
            Self::PluginModel(_) => MODEL_QUESTION_KIND,
            Self::HostCallLog(_) => "host_answers",
            Self::ServiceRequest(_) => "service_request",
            Self::ServiceAnswer(_) => "service_answer",
            Self::Fork(_) => FORK_KIND,
        }
    }

    /// Converts the body to a record that can be stored.
    pub(crate) fn into_record(self, turn: u32, step: u32) -> StepRecord {
        let body = serde_json::to_value(&self).expect("records have only string keys");
        StepRecord { turn, step, kind: self.kind().to_owned(), body }
    }

    /// Parses the body of a stored record. Fields that this host does not know are ignored.
    pub(crate) fn read(record: &StepRecord) -> Result<Self, UnreadableRecord> {
        fn read<T: DeserializeOwned>(body: &Value) -> Result<T, UnreadableRecord> {
            T::deserialize(body).map_err(|_| UnreadableRecord)
        }
        let body = &record.body;
        Ok(match record.kind.as_str() {
            TRACE_KIND => Self::Trace(read(body)?),
            "context" => Self::Context(read(body)?),
            "embedding" => Self::Embedding(read(body)?),
            "step_context" => Self::StepContext(read(body)?),
            "prompt" => Self::Prompt(read(body)?),
            "plan_prompt" => Self::PlanPrompt(read(body)?),
            "reply" => Self::Reply(read(body)?),
            "summary" => Self::Summary(read(body)?),
            "verdict" => Self::Verdict(read(body)?),
            "media_policy" => Self::MediaPolicy(read(body)?),
            "media_not_scaled" => Self::MediaNotScaled(read(body)?),
            MODEL_QUESTION_KIND => Self::PluginModel(read(body)?),
            "host_answers" => Self::HostCallLog(read(body)?),
            "service_request" => Self::ServiceRequest(read(body)?),
            "service_answer" => Self::ServiceAnswer(read(body)?),
            FORK_KIND => Self::Fork(read(body)?),
            _ => return Err(UnreadableRecord),
        })
    }

    /// Returns the id of the call to which a record belongs. Only three kinds of records belong to a call: a
    /// plugin's question to the model, a plugin's service request, and the host's answers to a plugin. Returns
    /// `None` for all other records.
    pub(crate) fn call_of(record: &StepRecord) -> Option<CallId> {
        let is_of_call = [MODEL_QUESTION_KIND, "host_answers", "service_request"].contains(&record.kind.as_str());
        let call = record.body["call"].as_str().filter(|_| is_of_call)?;
        Some(CallId(call.to_owned()))
    }
}

/// The input of a plugin call, or the part of the input that an older host recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Question<Q> {
    /// The record contains the complete input of the plugin call.
    Recorded(Q),
    /// The record does not contain the complete input, because an older host wrote the record. This variant contains
    /// the field's value as it is stored.
    NotRecorded(Value),
}

impl<Q> Default for Question<Q> {
    fn default() -> Self {
        Self::NotRecorded(Value::Null)
    }
}

impl<'de, Q: DeserializeOwned> Deserialize<'de> for Question<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Q::deserialize(&value).map_or_else(|_| Self::NotRecorded(value), Self::Recorded))
    }
}

/// The trace to which a turn belongs (O1). Readers compute the ids of the turn's other spans from this record. It is
/// committed with the turn's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceRecord {
    /// The trace context of the turn. Its span describes the whole turn.
    #[serde(flatten)]
    pub(crate) turn: TraceContext,
    /// The `traceparent` of the span to which the turn belongs: that of the event or request with the turn's input, or of
    /// the call that delegated the work. `None` if the turn begins a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// Id of the first message that the turn appends. All messages of the turn have this id or higher ids.
    pub(crate) first_message: MessageId,
}

/// The plugins, servers, tools and memories with which a turn began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContextRecord {
    /// The call of the context builder at the beginning of the turn. `None` if no plugin built the context.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) builder: Option<BuilderCallRecord<BuilderQuestion>>,
    /// Memories from the user's long-term memory that the turn recalled.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) recollections: Vec<Recollection>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plugins: Option<Vec<PinnedPlugin>>,
    /// For each MCP server, by name, the digest of the server's tool list.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) servers: BTreeMap<String, String>,
    /// Digest of the agent's configuration when the turn began.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) configuration: String,
    /// Names of the tools that were offered to the model in this turn. `None` if all tools were offered.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) offered: Option<Vec<String>>,
}

/// The call of an embedding model that selected the tools of a turn, or of the steps of a plan (L24, L25).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmbeddingRecord {
    /// Name of the model as `provider/model`.
    pub(crate) model: String,
    /// Number of texts that were compared with the tools. The model may also have been asked for the vectors of tools.
    pub(crate) texts: usize,
    pub(crate) took_ms: u64,
    /// Why the tools were selected by their words instead. `None` if the model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A call to a context builder, with the context builder's input and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "Q: DeserializeOwned"))]
pub(crate) struct BuilderCallRecord<Q> {
    /// The plugin that was called, as `name@digest`.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) asked: Question<Q>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) host: BuilderSurroundings,
    #[serde(default)]
    pub(crate) answer: Value,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cost: CallCost,
}

/// What the host answered to a context builder's host calls, and which accesses it denied to the context builder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuilderSurroundings {
    pub(crate) answers: Option<Box<HostCallLog>>,
    #[serde(default)]
    pub(crate) denials: Vec<Denial>,
}

/// The input of a context builder at the beginning of a turn. Long texts are stored as digests, and
/// messages as positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuilderQuestion {
    pub(crate) model: Model,
    pub(crate) input: TurnInput,
    /// Digest of the JSON text that lists the tools for the context builder.
    pub(crate) tools: String,
    pub(crate) messages: MessagePositions,
    pub(crate) result_characters: usize,
    pub(crate) hidden: u32,
    /// Digest of the text that summarises earlier messages. `None` if the session has no summary.
    pub(crate) summary: Option<String>,
    pub(crate) budget: Budget,
}

/// The input of a context builder before a step. The record contains positions instead of the messages themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepQuestion {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) model: Model,
    pub(crate) step: u32,
    pub(crate) steps_left: u32,
    pub(crate) messages: MessagePositions,
    pub(crate) result_characters: usize,
    pub(crate) budget: Budget,
}

/// The prompt of a model call. The record contains digests instead of system texts and tool definitions, and positions
/// instead of messages. The request can be rebuilt from the record and from the texts and messages of the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PromptRecord {
    pub(crate) model: Model,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) max_tokens: u32,
    /// Digests of the prompt's system texts.
    pub(crate) system: Vec<String>,
    pub(crate) messages: MessagePositions,
    pub(crate) result_characters: u32,
    pub(crate) left_out: Vec<CallId>,
    pub(crate) masked: Vec<Mask>,
    pub(crate) downscaled: Vec<Downscaled>,
    /// Names of the tools that were offered to the model. The names are spelled as the tools' authors wrote them.
    pub(crate) tools: Vec<String>,
    /// Digest of the text that contains the tools' definitions and names. `None` in records of earlier hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_list: Option<String>,
    /// Digests of the texts that describe the tools to the model, if the model writes its calls as text (L20).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_sections: Vec<String>,
    /// Whether each media item has a label, by which the model refers to the item in tool calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) labels: bool,
    pub(crate) tool_dialect: ToolDialect,
    pub(crate) output_schema: Option<Value>,
    /// The text at the end of the prompt, if this is the last model call of the turn (L4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_call: Option<String>,
    /// When the prompt was sent, in milliseconds since the Unix epoch. `None` in records of earlier hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_at: Option<u64>,
}

/// The text that the host adds at the end of a planning model's prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanPromptRecord {
    pub(crate) asked: ModelRole,
    pub(crate) text: String,
}

/// A model's reply in the host's format, and the raw response of the provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplyRecord {
    pub(crate) reply: Reply,
    pub(crate) raw: Value,
}

/// A summary of messages that were removed from the prompt, and how the summary was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SummaryRecord {
    pub(crate) messages: Vec<MessageId>,
    /// Name of the model that wrote the summary, or `extract` if the host extracted the summary from the messages.
    pub(crate) by: String,
    /// The reason why the summary model's summary was not used. `None` if the summary was used, or if no model was
    /// asked for a summary.
    pub(crate) problem: Option<String>,
    /// Digests of the texts in the summary model's prompt.
    pub(crate) prompt: Vec<String>,
    /// Digest of the summary's text.
    pub(crate) summary: String,
    pub(crate) raw: Option<Value>,
}

/// A call to an output validator, with the validator's verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerdictRecord {
    /// The plugin that was called, as `name@digest`.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) asked: Question<ValidatorQuestion>,
    pub(crate) answer: Verdict,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cost: CallCost,
}

/// The input of an output validator. The positions of the messages are stored instead of the messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ValidatorQuestion {
    pub(crate) text: String,
    pub(crate) structured: Option<Value>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) attempt: u32,
    pub(crate) corrections_left: u32,
    pub(crate) messages: MessagePositions,
    pub(crate) result_characters: usize,
}

/// A call to a media policy, with the policy's decisions on the media of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MediaPolicyRecord {
    /// The plugin that was called, as `name@digest`.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) asked: Question<PolicyQuestion>,
    pub(crate) items: Vec<PolicyItem>,
    pub(crate) answer: Vec<MediaDecision>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cost: CallCost,
}

/// The input of a media policy, except the descriptions of the media, which [`MediaPolicyRecord::items`] contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PolicyQuestion {
    pub(crate) model: Model,
    pub(crate) messages: u32,
}

/// A picture that could not be scaled down, and the text that the model was shown instead of the picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnscaledPicture {
    pub(crate) position: MediaPosition,
    pub(crate) text: String,
}

/// A plugin's question to the agent's model, and the model's answer. If `reply` is `None`, the question was
/// cancelled or failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PluginModelRecord {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plugin: String,
    /// Id of the tool call during which the plugin asked the model, or `turn N` if the plugin asked the model as the
    /// context builder of turn N.
    pub(crate) call: String,
    pub(crate) question: ModelQuestionRecord,
    /// The raw response of the model's provider. `None` if the question was cancelled or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<PluginModelReply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// When the question was asked and answered. `None` in records of earlier hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timing: Option<Timing>,
}

/// The content of a plugin's question to the model, with digests instead of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelQuestionRecord {
    /// Digest of the question's system text. `None` if the question has no system text.
    pub(crate) system: Option<String>,
    /// The role of each message of the question, and the digest of the message's text.
    pub(crate) messages: Vec<(String, String)>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) max_tokens: Option<u32>,
}

/// The model's reply to a plugin's question, in the form in which the plugin received the reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PluginModelReply {
    pub(crate) text: String,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    pub(crate) model: String,
}

/// The answers that the host gave to a plugin while the plugin executed a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostAnswersRecord {
    pub(crate) call: CallId,
    pub(crate) host: Box<HostCallLog>,
}

/// The service request that a plugin made during a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServiceRequestRecord {
    pub(crate) call: CallId,
    pub(crate) request: ServiceRequest,
}

/// The event that the host accepted as a service's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServiceAnswerRecord {
    pub(crate) call: CallId,
    pub(crate) id: String,
    pub(crate) source: String,
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) time: Option<String>,
    pub(crate) trace: Option<TraceContext>,
}

/// The session and message from which a fork was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForkRecord {
    /// Subject of the session from which the fork was created.
    #[serde(default)]
    pub(crate) from: String,
    /// Id of the last message that the fork copied from the original session.
    #[serde(default)]
    pub(crate) at: MessageId,
    #[serde(default)]
    pub(crate) messages: u64,
    /// Sessions in which the fork's turns ran, earliest first.
    #[serde(default)]
    pub(crate) origins: Vec<ForkOrigin>,
    /// Maps the id of each call to the session in which the call ran. Older versions of the host stored this map
    /// instead of `origins`.
    #[serde(default)]
    pub(crate) ran_in: BTreeMap<CallId, String>,
}

/// A session in which some of a fork's turns ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForkOrigin {
    pub(crate) session: String,
    /// Number of the last turn that ran in this session. All earlier turns ran in this session too, unless an earlier
    /// entry of `origins` covers them.
    pub(crate) until_turn: u32,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Deserializes a field. If the stored value does not fit the field's type, for example because a newer host wrote the
/// value, returns the default value of the type.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(T::deserialize(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[cfg(test)]
mod tests;
