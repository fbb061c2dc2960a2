//! One turn: its input, the agent's settings to which it is pinned, and its progress.

use super::batch::Batch;
use super::budget::PromptBudget;
use super::config::{AtLimit, ExecutionUnits, LoopConfig};
use super::end::TurnEnd;
use super::eviction::AfterEviction;
use super::persistence::ReplyCounters;
use super::planning::{ModelRole, Plan};
use super::repetition::Repetition;
use super::state::Run;
use super::{Action, Validation};
use crate::cost::TurnCost;
use crate::message::{CallId, Digest, MessageId, Replay, TurnInput};
use crate::model::Usage;
use crate::plugin::{History, Lifecycle, Section, TraceContext};
use crate::tool::{ClientTool, ModelUse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One turn, from an input to an output or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of the turn in its session, starting at 1.
    pub number: u32,
    /// The input that began the turn.
    pub input: TurnInput,
    /// Limits of the turn.
    pub config: LoopConfig,
    /// Plugin versions to which the turn is pinned.
    pub plugins: Vec<PinnedPlugin>,
    /// The agent's settings, other than plugin versions, to which the turn is pinned. `None` means that an older
    /// version of the host began the turn, or the turn was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedAgent>,
    /// Trace context to which the turn belongs.
    pub trace: TraceContext,
    /// Why the next prompt is built.
    pub lifecycle: Lifecycle,
    /// Number of model calls that the turn has made so far (L4).
    pub interactions: u32,
    /// Number of the turn's outputs that have been rejected so far (L12).
    pub corrections: u32,
    /// Number of execution units that the turn has used so far, rounded down (L5).
    pub execution_units: u64,
    /// Fraction of an execution unit that the turn has used in addition to `execution_units`, in millionths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unit_millionths: u32,
    /// Tokens that the turn has used so far.
    pub usage: Usage,
    /// Estimated number of tokens by which media policies have shortened the turn's prompts so far (P4).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved_tokens: u64,
    /// Model calls that each plugin has made through the host so far, and their tokens (P5). The field `usage` includes
    /// these tokens.
    #[serde(default, rename = "asked", skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_model_use: BTreeMap<String, ModelUse>,
    /// The model that answered last, as `provider/model`.
    pub model: String,
    /// Index of the current model in the agent's chain of models (M3).
    #[serde(default, rename = "place")]
    pub model_index: u32,
    /// Number of the current attempt at the model call, starting at 1.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// System sections that `init` returned. The sections are restored when the turn is resumed (L2).
    pub sections: Vec<Section>,
    /// Whether the messages of earlier turns are sent to the model.
    pub history: History,
    /// State that `init` returned and that the context builder receives before each step. `None` means that `init`
    /// returned no state.
    #[serde(default, with = "hex_bytes", skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<u8>>,
    /// Token budget of the prompt, without the tokens of the session summary.
    pub budget: PromptBudget,
    /// The id of the last message with which the turn began, plus 1. The number is 0 if these messages have not been
    /// appended yet.
    #[serde(default)]
    pub begun_until: MessageId,
    /// Id of the first message that was not yet in the prompt of the previous step.
    pub latest_from: MessageId,
    /// Ids of the messages with the last rejected output and its feedback. `None` means that the view contains no
    /// such messages.
    pub rejected: Option<[MessageId; 2]>,
    /// Id of the latest `task_completion` call whose result was rejected. The id is only set if the message also
    /// contains other calls and therefore stays in the view (L12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_call: Option<CallId>,
    /// The numbers of replies without a tool call (L19, L23).
    #[serde(default)]
    pub(super) effort: ReplyCounters,
    /// The numbers of failures of the turn's calls (L19, L28).
    #[serde(default)]
    pub(super) repetition: Repetition,
    /// Whether the model was told that calls in code do not run (L20).
    #[serde(default, rename = "told_of_quoted", skip_serializing_if = "std::ops::Not::not")]
    pub told_about_quoted_calls: bool,
    /// Names of the tools that are offered to the model, as the tools' authors wrote them (L25). `None` means that all
    /// tools are offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Vec<String>>,
    /// The plan of the turn (L24). `None` means that the turn has no plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The provider's data of the reply that is being validated. `None` if the reply has no data of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replay: Option<Replay>,
    pub(super) phase: Phase,
}

/// The phase of a turn, which determines the next action of the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Building,
    Summarising { messages: Vec<MessageId>, then: AfterEviction },
    Calling { last: bool },
    Working(Batch),
    Validating { text: String, last: bool },
    Ended(TurnEnd),
}

/// A plugin version to which a turn is pinned (P10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPlugin {
    /// Name of the plugin.
    pub name: String,
    /// Digest of the plugin's component.
    pub digest: Digest,
    /// The digest of the version in the plugin's file, if a user has rolled the plugin back so that the turn uses the
    /// version with `digest` instead of the version in the file. `None` means that the turn uses the version in the
    /// plugin's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Digest>,
}

impl PinnedPlugin {
    /// Pins a plugin to the version in the plugin's file, which has this digest.
    pub fn new(name: impl Into<String>, digest: Digest) -> Self {
        Self { name: name.into(), digest, instead_of: None }
    }
}

/// The settings of an agent, other than plugin versions, to which a turn is pinned (P10). A turn without pinned
/// settings uses the agent's current settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedAgent {
    /// The grants of each plugin, in the sandbox's format. The grants do not contain the values of secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, Value>,
    /// Grants of the host's built-in tools, in the sandbox's format.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub host_grants: Value,
    /// Name of the context builder plugin. `None` means that the host itself builds the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_builder: Option<String>,
    /// Names of the plugins that validate the output, in the order in which the plugins run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validators: Vec<String>,
    /// Name of the media policy plugin for each provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub media_policies: BTreeMap<String, String>,
    /// The digest of each tool definition that comes from neither a plugin nor an MCP server. The keys are the names of
    /// the tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Digest>,
    /// For each MCP tool, the digest of its definition. The outer keys are the names of the servers, and the inner keys
    /// are the names of each server's tools. `None` means that the state comes from an older version of the host, which
    /// did not store these digests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<BTreeMap<String, BTreeMap<String, Digest>>>,
    /// The tools of the client program that began the turn (I3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
}

/// A model call that the driver must make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Number of the step in its turn, starting at 1.
    pub step: u32,
    /// Number of model calls that the turn may still make, including the call of this step.
    pub steps_left: u32,
    /// Whether the host offers no tools to the model, because this call is the last model call of the turn (L4) or the
    /// reply must be a summary (L23).
    pub last: bool,
    /// Why the prompt is built.
    pub lifecycle: Lifecycle,
    /// Index of the model in the agent's chain of models, starting at 0 (M3).
    #[serde(rename = "place")]
    pub model_index: u32,
    /// Number of the attempt of this call, starting at 1.
    pub attempt: u32,
    /// The role of the model in this call (L24).
    #[serde(default, rename = "asked")]
    pub role: ModelRole,
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

fn first_attempt() -> u32 {
    1
}

impl Turn {
    /// Returns how the turn ended. `None` means that the turn is open.
    pub fn end(&self) -> Option<&TurnEnd> {
        match &self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Adds the cost of `calls` model calls, which used `usage`, to the cost of the turn (L5).
    pub(super) fn spend(&mut self, usage: Usage, calls: u64) {
        self.usage += usage;
        let units = ExecutionUnits { whole: self.execution_units, millionths: self.unit_millionths };
        let units = units.plus(&self.config.execution_units, usage, calls);
        (self.execution_units, self.unit_millionths) = (units.whole, units.millionths);
    }

    /// Returns the cost of the turn so far.
    pub fn cost(&self) -> TurnCost {
        let (turn, execution_units) = (self.number, self.units());
        let (interactions, saved_tokens) = (self.interactions, self.saved_tokens);
        TurnCost { turn, execution_units, usage: self.usage, interactions, saved_tokens }
    }

    /// Returns the number of execution units that the turn has used, rounded up (L5).
    pub fn units(&self) -> u64 {
        ExecutionUnits { whole: self.execution_units, millionths: self.unit_millionths }.rounded_up()
    }

    /// Returns the number of model calls that the turn may still make, including the last call that `at_limit =
    /// "finish"` allows after the limit.
    fn steps_left(&self) -> u32 {
        let last = u32::from(self.config.at_limit == AtLimit::Finish);
        self.config.max_interactions.saturating_sub(self.interactions).saturating_add(last).max(1)
    }

    pub(super) fn is_running(&self, id: &CallId) -> bool {
        matches!(&self.phase, Phase::Working(batch) if batch.check_running(id).is_ok())
    }

    /// Whether the turn has ended.
    pub fn is_over(&self) -> bool {
        self.end().is_some()
    }

    pub(super) fn action(&self, run: &Run) -> Action {
        match &self.phase {
            Phase::Building => Action::BuildContext,
            Phase::Summarising { messages, .. } => Action::Summarise(run.summary_plan(messages)),
            Phase::Calling { last } => Action::CallModel(StepPlan {
                step: self.interactions + 1,
                steps_left: if *last || self.effort.summary { 1 } else { self.steps_left() },
                last: *last || self.effort.summary,
                lifecycle: self.lifecycle,
                model_index: self.model_index,
                attempt: self.attempt,
                role: self.model_role(),
            }),
            Phase::Working(batch) => match self.completion() {
                Some(validation) => Action::Validate(validation),
                None => batch.action(self.config.parallel_calls),
            },
            Phase::Validating { text, last } => Action::Validate(Validation {
                text: text.clone(),
                result: None,
                attempt: self.corrections + 1,
                corrections_left: if *last { 0 } else { self.corrections_left() },
            }),
            Phase::Ended(_) => Action::Ended,
        }
    }

    /// Whether the model call that is being made is the last one of the turn (L4). The call offers no tools, and its
    /// text is the output.
    pub fn is_last_call(&self) -> bool {
        matches!(self.phase, Phase::Calling { last: true })
    }

    /// Returns how often the model may still correct a rejected output. Returns 0 if the turn has reached its limit
    /// of interactions and its configuration does not allow a last model call (L4).
    pub(super) fn corrections_left(&self) -> u32 {
        let spent = self.interactions >= self.config.max_interactions;
        match self.config.at_limit {
            AtLimit::Error if spent => 0,
            _ => self.config.max_corrections.saturating_sub(self.corrections),
        }
    }
}

/// Returns the number of model calls that are counted for work outside the turn's steps: 0 if no model was called,
/// otherwise 1.
pub(super) fn counted_calls(usage: Usage) -> u64 {
    u64::from(usage != Usage::default())
}

/// Serializes bytes as hexadecimal text. JSON has no type for bytes, and a list of numbers would be twice as long.
mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(hex::encode).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(hex::decode).transpose().map_err(serde::de::Error::custom)
    }
}
