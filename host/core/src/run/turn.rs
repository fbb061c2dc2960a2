//! One turn: what it was told, what it keeps of its agent, and how far it is.

use super::batch::Batch;
use super::budget::PromptBudget;
use super::config::{AtLimit, LoopConfig, Units};
use super::effort::Effort;
use super::end::{TurnCost, TurnEnd};
use super::eviction::AfterEviction;
use super::planning::{Asked, Plan};
use super::repetition::Repetition;
use super::state::Run;
use super::{Action, Validation};
use crate::message::{CallId, Digest, MessageId, TurnInput};
use crate::model::Usage;
use crate::plugin::{History, Lifecycle, Section, TraceContext};
use crate::tool::ModelUse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One turn: from an input to an output or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// From 1.
    pub number: u32,
    /// What began it.
    pub input: TurnInput,
    /// Its bounds.
    pub config: LoopConfig,
    /// The generation it is pinned to.
    pub plugins: Vec<PinnedPlugin>,
    /// What else it keeps. None: an older host began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedAgent>,
    /// The trace it belongs to.
    pub trace: TraceContext,
    /// Why the next prompt is built.
    pub lifecycle: Lifecycle,
    /// Model calls so far (L4).
    pub interactions: u32,
    /// Rejected outputs so far (L12).
    pub corrections: u32,
    /// Whole ones, so far (L5).
    pub execution_units: u64,
    /// Millionths of the next one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unit_millionths: u32,
    /// So far.
    pub usage: Usage,
    /// What plugins have asked of the host's model so far, by plugin: it counts in the usage, too (P5).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, ModelUse>,
    /// The model that answered last.
    pub model: String,
    /// Place of the model that is asked, in the agent's chain of models (M3).
    #[serde(default)]
    pub place: u32,
    /// Tries of the model call that is being made, from 1.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// System sections, as `init` returned them; restored on resume (L2).
    pub sections: Vec<Section>,
    /// What the builder wants of the earlier turns.
    pub history: History,
    /// What `init` returned for the steps.
    #[serde(default, with = "hex_bytes", skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<u8>>,
    /// Of the prompt, without the session summary.
    pub budget: PromptBudget,
    /// The first message behind those that the turn began with. 0 before they are there.
    #[serde(default)]
    pub begun_until: MessageId,
    /// The first message that the step before has not seen.
    pub latest_from: MessageId,
    /// Reply and feedback of the last rejected output.
    pub rejected: Option<[MessageId; 2]>,
    /// The call that brought it, where other calls stand in the same message, which stays in the view for them (L12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_call: Option<CallId>,
    /// How its replies without a tool call have been (L19, L23).
    #[serde(default)]
    pub(super) effort: Effort,
    /// How its calls have failed (L19, L28).
    #[serde(default)]
    pub(super) repetition: Repetition,
    /// The model was told that calls in code do not run (L20).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told_of_quoted: bool,
    /// The tools that the model is offered, by their authors' names (L25). None: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Vec<String>>,
    /// While the turn goes by a plan (L24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// How far it is.
    pub(super) phase: Phase,
}

/// How far a turn is.
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

/// A plugin that a turn is pinned to (P10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPlugin {
    /// Its name.
    pub name: String,
    /// Its component.
    pub digest: Digest,
    /// The version that it stands for, which was taken back. None: it is what its file holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Digest>,
}

impl PinnedPlugin {
    /// As its file holds it.
    pub fn new(name: impl Into<String>, digest: Digest) -> Self {
        Self { name: name.into(), digest, instead_of: None }
    }
}

/// What a turn keeps of its agent beside its plugins (P10). A turn of an older host has none, and takes today's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedAgent {
    /// What plugins were granted, by plugin, as the sandbox writes it: without values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, Value>,
    /// What the host's own tools were granted, likewise.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub host_grants: Value,
    /// The plugin that builds the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_builder: Option<String>,
    /// Plugins that validate the output, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validators: Vec<String>,
    /// Plugin by the provider's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub media_policies: BTreeMap<String, String>,
    /// Definitions of the tools that are no plugin's and no MCP server's, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Digest>,
    /// Definitions of the tools of MCP servers, by server and name. None: written by a host that did not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<BTreeMap<String, BTreeMap<String, Digest>>>,
}

/// One model call to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Of the turn, from 1.
    pub step: u32,
    /// Model calls that may still come, this one included.
    pub steps_left: u32,
    /// Tools are withheld: it is the last one (L4), or forced to be a summary (L23).
    pub last: bool,
    /// Why.
    pub lifecycle: Lifecycle,
    /// Place of the model in the agent's chain, from 0 (M3).
    pub place: u32,
    /// Tries of this call, this one included.
    pub attempt: u32,
    /// Who is asked, and what for (L24).
    #[serde(default)]
    pub asked: Asked,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn first_attempt() -> u32 {
    1
}

impl Turn {
    /// How it ended, once it has.
    pub fn end(&self) -> Option<&TurnEnd> {
        match &self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Counts what so many model calls have cost (L5).
    pub(super) fn spend(&mut self, usage: Usage, calls: u64) {
        self.usage += usage;
        let units = Units { whole: self.execution_units, millionths: self.unit_millionths };
        let units = units.and(&self.config.execution_units, usage, calls);
        (self.execution_units, self.unit_millionths) = (units.whole, units.millionths);
    }

    /// What it has cost so far.
    pub fn cost(&self) -> TurnCost {
        let (turn, execution_units) = (self.number, self.units());
        TurnCost { turn, execution_units, usage: self.usage, interactions: self.interactions }
    }

    /// Its execution units: a part of one counts as one (L5).
    pub fn units(&self) -> u64 {
        Units { whole: self.execution_units, millionths: self.unit_millionths }.rounded_up()
    }

    /// Model calls that may still come: the bound's, and the last one behind it.
    fn steps_left(&self) -> u32 {
        let last = u32::from(self.config.at_limit == AtLimit::Finish);
        self.config.max_interactions.saturating_sub(self.interactions).saturating_add(last).max(1)
    }

    pub(super) fn is_running(&self, id: &CallId) -> bool {
        matches!(&self.phase, Phase::Working(batch) if batch.check_running(id).is_ok())
    }

    /// Whether it has ended.
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
                place: self.place,
                attempt: self.attempt,
                asked: self.asked(),
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

    /// None where a rejection would meet the bound of interactions, and no last call is made there (L4).
    pub(super) fn corrections_left(&self) -> u32 {
        let spent = self.interactions >= self.config.max_interactions;
        match self.config.at_limit {
            AtLimit::Error if spent => 0,
            _ => self.config.max_corrections.saturating_sub(self.corrections),
        }
    }
}

/// One model call beside the steps, unless no model answered.
pub(super) fn answered(usage: Usage) -> u64 {
    u64::from(usage != Usage::default())
}

/// Opaque bytes as hexadecimal text: JSON has no bytes, and a list of numbers would be twice as long.
mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        let text = bytes.as_ref().map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        let digits = text.as_bytes().chunks(2).map(|pair| {
            // `from_str_radix` alone would read a sign.
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'));
            pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
        });
        digits.collect::<Option<Vec<u8>>>().map(Some).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))
    }
}
