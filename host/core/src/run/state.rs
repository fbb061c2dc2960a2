//! What a run remembers: enough to go on anywhere, and nothing that grows with the history.

use super::batch::Batch;
use super::effort::Effort;
use super::end::TurnEnd;
use super::eviction::AfterEviction;
use super::planning::{Asked, Plan};
use super::repetition::Repetition;
use super::{Action, Validation};
use crate::approval::LastingGrant;
use crate::event::{Event, EventKind};
use crate::loop_break::Finish;
use crate::message::{CallId, Digest, MessageId, Role, TurnInput};
use crate::model::Usage;
use crate::plugin::{Budget, History, Lifecycle, OutputData, Section, TraceContext};
use crate::summary::HistorySummary;
use crate::tool::ModelUse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The version of the state's shape. A released shape stays readable.
const VERSION: u32 = 1;

/// One session's state (L1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    version: u32,
    /// The session's subject.
    pub session: String,
    /// The agent's configured name.
    pub agent: String,
    /// What the ids of this session's calls end with, since they are keys outside of it, too: a tool's idempotency key, a
    /// service event's id. Empty: ids are unique in the session only, as in states stored before there was an ending.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id_ending: String,
    /// Subject of the session that delegated the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<String>,
    /// Names of the agents above this one, the outermost first (L16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegation: Vec<String>,
    /// What somebody has allowed for the rest of the session (L17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<LastingGrant>,
    /// Successful model calls of the whole session: the clock of the seen counts (L3).
    pub model_calls: u64,
    /// Place of the next message.
    pub next_message: MessageId,
    /// Number of the last durable event.
    pub sequence: u64,
    /// Turns begun so far.
    pub turns: u32,
    /// What the model is sent of the history, oldest first.
    pub view: Vec<Entry>,
    /// Media that are masked, for good (P4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// Questions that plugins have asked the host's model: the place of the next one (P5).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asks: u64,
    /// What stands for the messages that have left the view for it (L27).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<HistorySummary>,
    /// The open turn, or the last one.
    pub turn: Option<Turn>,
}

/// A message in the view. Its seen count is `first` and the model calls since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which message.
    pub id: MessageId,
    /// The turn that appended it.
    pub turn: u32,
    /// Seen count with which it started: 1 for what the model wrote, else 0.
    pub first: u32,
    /// [`Run::model_calls`] when it came.
    pub since: u64,
    /// Estimated tokens of what the model is shown.
    pub tokens: u32,
    /// Who speaks: decides what may leave the view together. None: stored by a host that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// A medium that is sent as a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// In this message.
    pub message: MessageId,
    /// In this part of it.
    pub part: u32,
    /// Which of a tool result's media, from 0: texts before it may be shown shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// In its place.
    pub text: String,
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

/// The bounds of a turn, taken from the agent when the turn begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopConfig {
    /// Model calls of a turn (L4). Default 10.
    pub max_interactions: u32,
    /// What happens at the bound (L4). Default: finish.
    pub at_limit: AtLimit,
    /// Rejected outputs that the model may correct (L12). Default 2.
    pub max_corrections: u32,
    /// Calls of a batch that run at once (L9). Default 4.
    pub parallel_calls: u32,
    /// Characters of a tool result that the model is shown (L26). Default 6,000.
    pub result_characters: u32,
    /// Tokens that must remain before a step (L26). Default 1,500.
    pub minimum_remaining: u32,
    /// Percent of the history budget, which is the window less all but the messages, beyond which the oldest messages
    /// leave the prompt (L27). Default 80.
    pub evict_at: u32,
    /// Percent of it down to which they leave. Default 50.
    pub evict_to: u32,
    /// How often work may be handed down from agent to agent, counted from the one that a person asks (L16). Default 4.
    pub max_depth: u32,
    /// What ends the turn (L18). Default: a reply without a tool call.
    pub finish: Finish,
    /// Whether replies that give up too early are answered by the host (L23). Default: not.
    pub persistence: bool,
    /// Milliseconds that a question of `ask_question` waits for its answer. Default: until it comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_within_ms: Option<u64>,
    /// For whom the turn works: the request's user, else the agent's (D4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The output when no model answers (M3). Default: none, so that the turn ends with `model_failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<OutputData>,
    /// Which of its moments the turn tells others by events (I6). Default: none.
    #[serde(skip_serializing_if = "Announced::is_nothing")]
    pub announced: Announced,
}

/// Moments of a turn that are events for others (I6). They belong to the turn, since whoever answers or cancels it later need
/// not know the agent's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Announced {
    /// How it ended.
    pub completions: Emission,
    /// That calls wait for approval.
    pub approvals: Emission,
}

impl Announced {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether something that happens in a session is an event for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emission {
    /// It is not.
    #[default]
    Silent,
    /// It is.
    Emitted,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            max_interactions: 10,
            at_limit: AtLimit::Finish,
            max_corrections: 2,
            parallel_calls: 4,
            result_characters: 6_000,
            minimum_remaining: 1_500,
            evict_at: 80,
            evict_to: 50,
            max_depth: 4,
            finish: Finish::Text,
            persistence: false,
            answer_within_ms: None,
            user: None,
            fallback: None,
            announced: Announced::default(),
        }
    }
}

/// What happens when the interactions are spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtLimit {
    /// One last call without tools answers.
    #[default]
    Finish,
    /// The turn ends with `interactions_exhausted`.
    Error,
}

/// Whether a prompt fits into the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Fits,
    Not,
}

/// Tokens of the window (L26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBudget {
    /// The model's window.
    pub window: u32,
    /// System text.
    pub system: u32,
    /// Tool definitions, measured.
    pub tools: u32,
    /// Kept for the reply.
    pub reserved: u32,
}

impl PromptBudget {
    /// What is left beside messages of so many tokens.
    pub fn remaining(&self, messages: u32) -> u32 {
        [self.system, self.tools, self.reserved, messages].into_iter().fold(self.window, u32::saturating_sub)
    }

    /// Whether messages of so many tokens leave less room for a step than it must have. No room is always too little.
    pub(super) fn is_full(&self, messages: u32, config: &LoopConfig) -> bool {
        self.remaining(messages) < config.minimum_remaining.max(1)
    }

    /// Whether the prompt of the last call, which offers no tools, leaves any room at all.
    pub(super) fn fits_without_tools(&self, messages: u32) -> Fit {
        let prompt = self.system.saturating_add(self.reserved).saturating_add(messages);
        if prompt < self.window { Fit::Fits } else { Fit::Not }
    }

    /// As plugins see it.
    pub fn for_plugins(&self) -> Budget {
        let available = self.window.saturating_sub(self.tools).saturating_sub(self.reserved);
        Budget { available, reserved: self.reserved, tools: self.tools }
    }
}

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
    /// So far (L5).
    pub execution_units: u64,
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
    /// How its replies without a tool call have been (L19, L23).
    #[serde(default)]
    pub(super) effort: Effort,
    /// How its calls have failed (L19, L28).
    #[serde(default)]
    pub(super) repetition: Repetition,
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

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn first_attempt() -> u32 {
    1
}

/// A stored state that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is none (`no_context`).
    #[error("no_context: the session has no stored state, so there is nothing to resume: begin a turn with an input")]
    NoContext,
    /// It is damaged.
    #[error("the stored state cannot be read: {0}")]
    Damaged(#[from] serde_json::Error),
    /// It contradicts itself.
    #[error("the stored state cannot be used: {0}")]
    Inconsistent(&'static str),
    /// It was written by a newer version.
    #[error("the stored state has version {found}; this agent-host reads up to {VERSION}: use the newer agent-host")]
    Newer {
        /// Its version.
        found: u32,
    },
}

impl Run {
    /// A new session.
    pub fn new(session: impl Into<String>, agent: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            session: session.into(),
            agent: agent.into(),
            id_ending: String::new(),
            delegated_by: None,
            delegation: Vec::new(),
            grants: Vec::new(),
            model_calls: 0,
            next_message: 1,
            sequence: 0,
            turns: 0,
            view: Vec::new(),
            masks: Vec::new(),
            asks: 0,
            summary: None,
            turn: None,
        }
    }

    /// The same with ids of its own for what it does from here on. `ending` is one that nobody else has.
    pub fn with_id_ending(mut self, ending: impl Into<String>) -> Self {
        self.id_ending = ending.into();
        self
    }

    /// An id that is unique beyond the session: `name`, and the ending.
    pub fn unique_id(&self, name: &str) -> String {
        match self.id_ending.as_str() {
            "" => name.to_owned(),
            ending => format!("{name}_{ending}"),
        }
    }

    /// The open call that somebody means by `id`, which may leave out the ending; `id` itself where there is none.
    pub fn named_call(&self, id: CallId) -> CallId {
        self.open_calls().find(|open| open.is_named(&id.0)).cloned().unwrap_or(id)
    }

    /// From what [`Run::snapshot`] wrote.
    pub fn restore(snapshot: Option<&[u8]>) -> Result<Self, RestoreError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let snapshot = snapshot.ok_or(RestoreError::NoContext)?;
        let Version { version } = serde_json::from_slice(snapshot)?;
        if version > VERSION {
            return Err(RestoreError::Newer { found: version });
        }
        let run: Self = serde_json::from_slice(snapshot)?;
        run.inspect().map_err(RestoreError::Inconsistent)?;
        Ok(run)
    }

    /// Looks for what no transition leaves behind.
    fn inspect(&self) -> Result<(), &'static str> {
        const MOST: u64 = u32::MAX as u64 / 2;
        let counters = [self.model_calls, self.next_message, self.sequence, self.turns.into(), self.asks];
        if counters.into_iter().any(|counter| counter > MOST) {
            return Err("a counter is out of range");
        }
        let ascending = self.view.windows(2).all(|pair| pair[0].id < pair[1].id);
        let below = self.view.last().is_none_or(|entry| entry.id < self.next_message);
        if !ascending || !below || self.view.iter().any(|entry| entry.since > self.model_calls) {
            return Err("the view holds messages that cannot be there");
        }
        let Some(turn) = &self.turn else { return Ok(()) };
        if u64::from(turn.interactions.max(turn.corrections).max(turn.attempt)) > MOST {
            return Err("a counter is out of range");
        }
        match &turn.phase {
            Phase::Working(batch) if batch.calls.is_empty() || batch.is_done() => Err("a batch waits for nothing"),
            Phase::Working(batch) if batch.calls.iter().any(|call| u64::from(call.attempt) > MOST) => {
                Err("a counter is out of range")
            }
            _ => Ok(()),
        }
    }

    /// The state as it is stored.
    pub fn snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a run has only string keys and finite numbers")
    }

    /// How often a message of the view has been sent (L3).
    pub fn seen_count(&self, entry: &Entry) -> u32 {
        entry.first.saturating_add(u32::try_from(self.model_calls.saturating_sub(entry.since)).unwrap_or(u32::MAX))
    }

    /// The messages that the next model call sends.
    pub fn sent(&self) -> impl Iterator<Item = &Entry> {
        let from = match &self.turn {
            Some(turn) if turn.history == History::LeaveOut && !turn.is_over() => turn.number,
            _ => 0,
        };
        self.view.iter().filter(move |entry| entry.turn >= from)
    }

    /// Whether a turn is open: begun and not ended.
    pub fn is_open(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.is_over())
    }

    /// A durable event of the open turn, with its number.
    pub(super) fn event(&mut self, kind: EventKind) -> Event {
        self.sequence += 1;
        Event { session: self.session.clone(), turn: self.turns, sequence: self.sequence, provisional: None, kind }
    }
}

impl Turn {
    /// How it ended, once it has.
    pub fn end(&self) -> Option<&TurnEnd> {
        match &self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
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
