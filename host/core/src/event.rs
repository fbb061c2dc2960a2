//! What a session tells those who watch it: one closed set of events (L30).

use crate::approval::ApprovalWord;
use crate::change::Denial;
use crate::message::{CallId, Digest};
use crate::model::Usage;
use crate::plan::PlanStep;
use crate::tool::{CallCost, ToolSource, Traits, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event with its place. Durable events have a number of their own and are committed with the state; provisional
/// ones (streamed text and thinking) count behind the durable event before them and are never stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The session's subject.
    pub session: String,
    /// From 1.
    pub turn: u32,
    /// Of the durable event, from 1 in its session.
    pub sequence: u64,
    /// Of a provisional event, from 1 behind the durable one: together they read `sequence.n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered without a tool call, and the answer was accepted.
    Answered,
    /// `task_completion` ended it with a result that was accepted (L18).
    Completed,
    /// `converse` ended it with a message (L18).
    Converse,
    /// It had asked a question that nobody answered in time (L18).
    Asked,
    /// At the bound of interactions or of the window, with a last answer.
    Limit,
    /// Somebody stopped it.
    Cancelled,
    /// A typed error.
    Error,
}

/// What a turn waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredSuspension")]
pub struct Suspension {
    /// In call order, at least one.
    pub waits: Vec<Wait>,
}

/// One call that waits for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Which.
    pub call: CallId,
    /// As its author wrote it.
    #[serde(default)]
    pub name: String,
    /// For what.
    #[serde(flatten)]
    pub cause: WaitCause,
}

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum WaitCause {
    /// A decision: it had started when the host died and cannot be repeated unasked (D3).
    OutcomeUnknown,
    /// Somebody's leave (L17).
    Approval,
    /// A service's response (L10).
    Service {
        /// CloudEvent type of the request.
        event_type: String,
        /// Milliseconds since 1970 when the host answers `unavailable` itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
        /// A stored text: what the answer must be, by its type, as it was agreed when the request went out (I6).
        /// None: anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emits: Option<Digest>,
    },
    /// Another agent's output (L16).
    Agent {
        /// Subject of its session.
        session: String,
    },
    /// The user's answer (L18).
    Answer {
        /// What was asked.
        question: String,
        /// Milliseconds since 1970 when the turn ends without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
}

impl WaitCause {
    /// Milliseconds since 1970 when it is waited for no longer.
    pub fn expires_at(&self) -> Option<u64> {
        match self {
            WaitCause::Service { expires_at, .. } | WaitCause::Answer { expires_at, .. } => *expires_at,
            WaitCause::OutcomeUnknown | WaitCause::Approval | WaitCause::Agent { .. } => None,
        }
    }
}

impl Suspension {
    /// The calls whose outcome is unknown.
    pub fn unknown(&self) -> impl Iterator<Item = &Wait> {
        self.waits.iter().filter(|wait| wait.cause == WaitCause::OutcomeUnknown)
    }
}

/// Also as the first version wrote it, which knew one cause.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredSuspension {
    Waits { waits: Vec<Wait> },
    First { calls: Vec<CallId> },
}

impl From<StoredSuspension> for Suspension {
    fn from(stored: StoredSuspension) -> Self {
        let unknown = |call| Wait { call, name: String::new(), cause: WaitCause::OutcomeUnknown };
        match stored {
            StoredSuspension::Waits { waits } => Self { waits },
            StoredSuspension::First { calls } => Self { waits: calls.into_iter().map(unknown).collect() },
        }
    }
}

/// Why a reply was not taken as the end (L23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NudgeCause {
    /// It says itself that something is left to do.
    Incomplete,
    /// It refuses or asks instead of doing.
    Deflection,
    /// It is empty.
    Empty,
    /// The third empty one in a row: tools are withheld, so that it must say something.
    ForcedSummary,
}

/// What an error has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorScope {
    /// The turn, for good.
    #[default]
    Turn,
    /// A call that a reply wrote and nobody could read: the model is told, and the turn goes on (L20).
    Reply,
}

impl ErrorScope {
    fn is_turn(&self) -> bool {
        *self == ErrorScope::Turn
    }
}

/// One call of an approval request, with all that somebody needs to decide about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalItem {
    /// Which.
    pub call: CallId,
    /// As its author wrote it.
    pub name: String,
    /// Of the plugin's component, or of the definition where the tool comes from elsewhere. The answer is bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What the request's records add, which the run itself does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<ApprovalDetails>,
}

/// What a call that must be allowed would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDetails {
    /// Where the tool comes from.
    pub source: ToolSource,
    /// With these it would run.
    pub arguments: Value,
    /// What the tool says that it does to the world.
    pub traits: Traits,
    /// The key of the configuration that asks for an approval, or that the tool itself does.
    pub because: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum EventKind {
    /// A turn begins.
    LoopStart {
        /// The agent's configured name.
        agent: String,
        /// `name@digest` of its plugins.
        plugins: Vec<String>,
    },
    /// A step begins.
    LoopIteration {
        /// Of the turn, from 1.
        step: u32,
        /// The last one: tools are withheld.
        last: bool,
    },
    /// What the step will send is settled.
    ContextBuilt {
        /// Of the turn, from 1.
        step: u32,
        /// In the prompt.
        messages: u32,
        /// Names of the system sections, in order.
        sections: Vec<String>,
        /// How many tools the model is offered, where not all of them (L25).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offered_tools: Option<u32>,
    },
    /// Tokens of the window: before each step, and at the end with the answer, before that is said to be whole (L26).
    ContextBudget {
        /// The model's window.
        total: u32,
        /// System text.
        system: u32,
        /// Tool definitions, measured.
        tools: u32,
        /// Kept for the reply.
        reserved: u32,
        /// Messages.
        messages: u32,
        /// What is left.
        remaining: u32,
    },
    /// The model begins to think (L21).
    ThinkingStart,
    /// A piece of its thinking.
    ThinkingContent {
        /// The piece.
        text: String,
    },
    /// It has thought.
    ThinkingEnd,
    /// A piece of its reply.
    StreamToken {
        /// The piece.
        text: String,
    },
    /// What was streamed of the reply so far is void.
    StreamClear,
    /// The reply is whole.
    StreamComplete {
        /// Its text.
        text: String,
        /// `provider/model` that answered.
        model: String,
        /// As the provider counted.
        usage: Usage,
    },
    /// A model did not answer and is asked again (M3).
    Retry {
        /// `provider/model`.
        model: String,
        /// The try that follows, from 2.
        attempt: u32,
        /// Waited before it, in milliseconds.
        wait_ms: u64,
        /// What happened.
        reason: String,
    },
    /// A model did not answer for good, and the next one of the chain is asked (M3).
    ModelFallback {
        /// `provider/model`.
        from: String,
        /// `provider/model`, or `fallback_text`.
        to: String,
        /// What happened.
        reason: String,
    },
    /// A call is about to run. Or it was refused or denied before it could: then its attempt is 0, and its error follows.
    ToolCall {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
        /// As the model wrote them.
        arguments: Value,
        /// From 1.
        attempt: u32,
    },
    /// A call succeeded.
    ToolResult {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
        /// As the model is shown it.
        content: String,
        /// What it cost.
        cost: CallCost,
    },
    /// A call failed, or was refused before it ran.
    ToolResultError {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
        /// As the model is shown it.
        content: String,
        /// What it cost.
        cost: CallCost,
    },
    /// The model called what is not there.
    ToolNotFound {
        /// Which.
        call: CallId,
        /// As the model wrote it.
        name: String,
    },
    /// A call of higher priority ran first (L6).
    ToolDeferred {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
    },
    /// The same call has failed the same way in three replies: the tool is off for the rest of the turn (L28).
    ToolDisabled {
        /// The third.
        call: CallId,
        /// As its author wrote it.
        name: String,
    },
    /// In the mode of loop-breaking tools a reply called no tool (L19).
    NoToolCall {
        /// In a row.
        count: u32,
        /// What the model is told.
        reminder: String,
    },
    /// A reply was not taken as the end, and the model goes on (L23).
    Nudge {
        /// Why.
        cause: NudgeCause,
        /// Of this cause, from 1.
        attempt: u32,
        /// What the model is told.
        text: String,
    },
    /// The oldest messages have left the prompt; they stay stored and are summarised (L27).
    Evicted {
        /// How many.
        messages: u32,
        /// Their estimated tokens.
        tokens: u32,
        /// Estimated tokens of the session summary now.
        summary_tokens: u32,
        /// `provider/model` that wrote the summary; `extract` where the host did.
        #[serde(default)]
        by: String,
    },
    /// The planner has made a plan (L24).
    Plan {
        /// In order.
        steps: Vec<PlanStep>,
    },
    /// There is no plan any more; one model goes on with what is there (L24).
    PlanFallback {
        /// Why.
        reason: String,
    },
    /// Somebody must allow these calls (L17). One request for all calls of a reply.
    ApprovalRequested {
        /// In call order.
        calls: Vec<ApprovalItem>,
    },
    /// Somebody has decided about a call (L17).
    ApprovalResolved {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
        /// How.
        verdict: ApprovalWord,
    },
    /// The turn has another version of a plugin than the turn before it (P10).
    PluginSwapped {
        /// Its name.
        plugin: String,
        /// What the turn before had. None: the plugin was not there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Digest>,
        /// What this turn has. None: the plugin is not there any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Digest>,
    },
    /// The turn has an earlier version of a plugin than its file holds: that one was taken back (P10).
    PluginRolledBack {
        /// Its name.
        plugin: String,
        /// What was taken back.
        from: Digest,
        /// What this turn has.
        to: Digest,
    },
    /// A plugin wanted what it is not granted, or a model what its agent may not do (P6).
    Denied {
        /// The call that wanted it. None: a context builder, between calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Who, what, and what to add to the configuration.
        #[serde(flatten)]
        denial: Denial,
    },
    /// A validator or the output schema said no (L12).
    OutputRejected {
        /// Who: a plugin, or `output schema`.
        by: String,
        /// From 1.
        attempt: u32,
        /// What is wrong.
        problems: Vec<Violation>,
    },
    /// The turn waits.
    Suspended {
        /// For what.
        #[serde(flatten)]
        suspension: Suspension,
    },
    /// It goes on.
    Resumed,
    /// It is not known whether a call had its effect (D3).
    OutcomeUnknown {
        /// Which.
        call: CallId,
        /// As its author wrote it.
        name: String,
    },
    /// Something failed. Where it is the turn, `loop_end` follows.
    Error {
        /// For programs.
        code: String,
        /// For people.
        message: String,
        /// What failed.
        #[serde(default, skip_serializing_if = "ErrorScope::is_turn")]
        scope: ErrorScope,
    },
    /// The turn is over. Exactly once a turn, and last.
    LoopEnd {
        /// Why.
        reason: EndReason,
    },
}

impl EventKind {
    /// Streamed text and thinking are provisional: a later durable event makes them redundant.
    pub fn is_provisional(&self) -> bool {
        matches!(
            self,
            Self::ThinkingStart | Self::ThinkingContent { .. } | Self::ThinkingEnd | Self::StreamToken { .. }
        )
    }
}

/// A plugin by name and digest, as errors and events name it.
pub fn plugin_at_digest(name: &str, digest: &Digest) -> String {
    format!("{name}@{}", digest.short())
}
