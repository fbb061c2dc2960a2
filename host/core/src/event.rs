//! The events that a session emits (L30).

use crate::approval::ApprovalOutcome;
use crate::budget::ExceededBudget;
use crate::cost::TurnCost;
use crate::message::{CallId, Digest};
use crate::model::Usage;
use crate::plan::PlanStep;
use crate::plugin::Denial;
use crate::tool::{CallCost, ToolSource, Traits, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event with its position in the session.
///
/// A durable event has its own sequence number and is committed together with the state. A provisional event (streamed
/// text or thinking) is never stored. A provisional event has the sequence number of the preceding durable event, and a
/// second number that distinguishes it from other provisional events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The subject, a string that identifies the session.
    pub session: String,
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// Sequence number of the event or, for a provisional event, of the preceding durable event. The durable events of
    /// a session are numbered, starting at 1.
    pub sequence: u64,
    /// Number of the provisional event among those that follow the same durable event, starting at 1. Events are
    /// displayed as `sequence.provisional`. `None` means that the event is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<u32>,
    /// The type of the event and its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model answered without a tool call, and the answer was accepted.
    Answered,
    /// `task_completion` ended the turn with a result that was accepted (L18).
    Completed,
    /// `converse` ended the turn with a message (L18).
    Converse,
    /// The model asked a question, and the user did not answer in time (L18).
    #[serde(rename = "asked")]
    QuestionExpired,
    /// The turn reached its maximum number of interactions or filled the context window, and ended with a last answer.
    Limit,
    /// The turn was cancelled.
    Cancelled,
    /// The turn failed with an error.
    Error,
}

/// The calls for which a suspended turn waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredSuspension")]
pub struct Suspension {
    /// The waiting calls, in call order. The list is never empty.
    pub waits: Vec<Wait>,
}

/// One call that is waiting for an external decision or answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Id of the tool call.
    pub call: CallId,
    /// Name of the tool as its author wrote it.
    #[serde(default)]
    pub name: String,
    /// The external decision or response for which the call waits.
    #[serde(flatten)]
    pub cause: WaitCause,
}

/// The external decision or response for which a call waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum WaitCause {
    /// A user's decision whether to repeat the call. The call had started when the host stopped, and the host must not
    /// repeat the call without asking the user (D3).
    OutcomeUnknown,
    /// A user's approval (L17).
    Approval {
        /// Time at which the host denies the call, in milliseconds since the Unix epoch. `None` means that the call waits
        /// indefinitely.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
    /// A service's response (L10).
    Service {
        /// CloudEvent type of the request.
        event_type: String,
        /// Time at which the host ends the call with the error `unavailable`, in milliseconds since the Unix epoch.
        /// `None` means that the call waits indefinitely.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
        /// Digest of a stored text that lists the valid responses by event type, as they were configured when the
        /// request was sent (I6). `None` means that any response is valid.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emits: Option<Digest>,
    },
    /// The output of the agent to which the call delegates (L16).
    Agent {
        /// Subject of the agent's session.
        session: String,
    },
    /// The result of a tool that belongs to the program that began the turn (I3).
    Client,
    /// The user's answer (L18).
    Answer {
        /// The question that the model asked.
        question: String,
        /// Time at which the turn ends without an answer, in milliseconds since the Unix epoch. `None` means that the
        /// turn waits indefinitely.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
}

impl WaitCause {
    /// Time at which the wait ends, in milliseconds since the Unix epoch. `None` means that the wait has no time limit.
    pub fn expires_at(&self) -> Option<u64> {
        match self {
            WaitCause::Service { expires_at, .. }
            | WaitCause::Answer { expires_at, .. }
            | WaitCause::Approval { expires_at } => *expires_at,
            WaitCause::OutcomeUnknown | WaitCause::Agent { .. } | WaitCause::Client => None,
        }
    }
}

impl Suspension {
    /// Returns the waits for users' decisions about calls whose outcome is unknown.
    pub fn unknown(&self) -> impl Iterator<Item = &Wait> {
        self.waits.iter().filter(|wait| wait.cause == WaitCause::OutcomeUnknown)
    }
}

/// A stored suspension. The first version of the host stored only the ids of the waiting calls, because at that time a
/// call could only wait for a decision about its unknown outcome.
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

/// The reason why the host did not accept a reply without a tool call as the end of the turn (L23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NudgeCause {
    /// The reply states that work is left to do.
    Incomplete,
    /// The reply refuses or asks a question instead of acting.
    Deflection,
    /// The reply is empty.
    Empty,
    /// The reply is the third empty reply in a row. The host withholds the tools so that the model writes a summary.
    ForcedSummary,
}

/// Whether an error has ended the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorScope {
    /// The error has ended the turn permanently.
    #[default]
    Turn,
    /// The error only concerns a call that the host could not parse. The model receives the error, and the turn
    /// continues (L20).
    Reply,
}

impl ErrorScope {
    fn is_turn(&self) -> bool {
        *self == ErrorScope::Turn
    }
}

/// One call of an approval request, with the data that a user needs to decide about the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalItem {
    /// Id of the tool call.
    pub call: CallId,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// Digest of the plugin's component, or of the tool's definition if the tool does not come from a plugin. The
    /// user's answer is valid only for a tool with this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Details from the stored call record. `None` means that the event comes directly from the run, which does not
    /// store these details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<ApprovalDetails>,
}

/// Details of a call that needs approval, for the user who decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDetails {
    /// Where the tool comes from.
    pub source: ToolSource,
    /// The arguments with which the call would run.
    pub arguments: Value,
    /// The traits that the tool declares.
    pub traits: Traits,
    /// The configuration key that requires the approval, or `the tool itself` if the tool requires it.
    pub because: String,
}

/// The type of an event and its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum EventKind {
    /// A turn begins.
    LoopStart {
        /// Name of the agent in the configuration.
        agent: String,
        /// The plugins of the turn, as `name@digest`.
        plugins: Vec<String>,
    },
    /// Facts from long-term memory were added to the input (D4).
    MemoriesRecalled {
        /// Ids of the memories, the best match first.
        memories: Vec<String>,
    },
    /// A step begins.
    LoopIteration {
        /// Number of the step in its turn, starting at 1.
        step: u32,
        /// Whether this is the last step, in which no tools are offered to the model.
        last: bool,
    },
    /// The prompt of the step is complete.
    ContextBuilt {
        /// Number of the step in its turn, starting at 1.
        step: u32,
        /// Number of messages in the prompt.
        messages: u32,
        /// Names of the system sections, in order.
        sections: Vec<String>,
        /// Number of tools offered to the model. `None` means that all tools are offered (L25).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offered_tools: Option<u32>,
    },
    /// Token usage of the context window. The event is emitted before each step. At the end of the turn, it is
    /// emitted once more, before `stream_complete`, with token counts that include the answer (L26).
    ContextBudget {
        /// Size of the model's context window, in tokens.
        total: u32,
        /// Number of tokens of the system text.
        system: u32,
        /// Estimated number of tokens of the tool definitions.
        tools: u32,
        /// Number of tokens that are reserved for the reply.
        reserved: u32,
        /// Number of tokens of the messages.
        messages: u32,
        /// Number of tokens that are still free.
        remaining: u32,
    },
    /// The model begins to think (L21).
    ThinkingStart,
    /// A piece of the model's thinking.
    ThinkingContent {
        /// Text of the piece.
        text: String,
    },
    /// The model's thinking has ended.
    ThinkingEnd,
    /// A piece of the model's reply.
    StreamToken {
        /// Text of the piece.
        text: String,
    },
    /// All text and thinking that were streamed for the current reply must be discarded.
    StreamClear,
    /// The reply is complete.
    StreamComplete {
        /// Text of the whole reply.
        text: String,
        /// The model that answered, as `provider/model`.
        model: String,
        /// Token counts as the provider reported them.
        usage: Usage,
        /// Estimated number of tokens by which media policies shortened the prompt of the model call (P4).
        #[serde(default, skip_serializing_if = "is_zero")]
        saved_tokens: u64,
    },
    /// A model did not answer, and the host will retry the request (M3).
    Retry {
        /// The model, as `provider/model`.
        model: String,
        /// Number of the next attempt. The first retry has number 2.
        attempt: u32,
        /// Time until the next attempt, in milliseconds.
        wait_ms: u64,
        /// Why the model did not answer.
        reason: String,
    },
    /// All attempts with a model failed, and the host uses the next model of the configured chain (M3).
    ModelFallback {
        /// The model that failed, as `provider/model`.
        from: String,
        /// The next model, as `provider/model`, or `fallback_text` if the host answers with the configured
        /// fallback text.
        to: String,
        /// Why the model did not answer.
        reason: String,
    },
    /// A prompt that arrived while the turn was open was added to the conversation, after its latest message (I9).
    Steered {
        /// Text of the prompt.
        text: String,
    },
    /// A call is about to run. If a call was refused or denied before it ran, `attempt` is 0, and an event with the
    /// call's error follows.
    ToolCall {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
        /// The arguments as the model wrote them.
        arguments: Value,
        /// Number of the attempt, starting at 1.
        attempt: u32,
        /// Whether the client that began the turn runs the call (I3). The turn waits for the client's result.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_client: bool,
    },
    /// A call succeeded.
    ToolResult {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
        /// The result as text, as it is sent to the model.
        content: String,
        /// Resources that the call used.
        cost: CallCost,
    },
    /// A call failed, or was refused before it ran.
    ToolResultError {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
        /// The result as text, as it is sent to the model.
        content: String,
        /// Resources that the call used.
        cost: CallCost,
    },
    /// The model called a tool that does not exist.
    ToolNotFound {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as the model wrote it.
        name: String,
    },
    /// A call did not run because the same reply called a tool with a higher priority (L6).
    ToolDeferred {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
    },
    /// The same call has failed in the same way in three replies, so its tool is disabled for the rest of the turn
    /// (L28).
    ToolDisabled {
        /// Id of the call that failed the third time.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
    },
    /// A reply called no tool although only a loop-breaking tool may end the turn (L19).
    NoToolCall {
        /// Number of consecutive replies without a tool call.
        count: u32,
        /// The text that reminds the model to call a tool.
        reminder: String,
    },
    /// The host did not accept a reply as the end of the turn, and told the model to continue (L23).
    Nudge {
        /// Why the reply was not accepted.
        cause: NudgeCause,
        /// Number of this nudge among the nudges with the same cause, starting at 1.
        attempt: u32,
        /// The text that is sent to the model.
        text: String,
    },
    /// The oldest messages were removed from the prompt. The messages stay stored and are summarised (L27).
    Evicted {
        /// Number of messages that were removed.
        messages: u32,
        /// Estimated tokens of the messages that were removed.
        tokens: u32,
        /// Estimated tokens of the new session summary.
        summary_tokens: u32,
        /// The model that wrote the summary, as `provider/model`, or `extract` if the host wrote the summary.
        #[serde(default)]
        by: String,
    },
    /// The planner has made a plan (L24).
    Plan {
        /// The steps in order.
        steps: Vec<PlanStep>,
    },
    /// The plan was abandoned, and the agent's own model continues with the results so far (L24).
    PlanFallback {
        /// Why the plan was abandoned.
        reason: String,
    },
    /// Calls need a user's approval (L17). One request covers all calls of a reply that need approval.
    ApprovalRequested {
        /// The calls that need approval, in the order of the reply.
        calls: Vec<ApprovalItem>,
        /// Time at which the host denies the calls that nobody has decided about, in milliseconds since the Unix epoch.
        /// `None` means that the calls wait indefinitely.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
    /// A user has decided about a call (L17).
    ApprovalResolved {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
        /// The user's decision.
        verdict: ApprovalOutcome,
    },
    /// The turn uses another version of a plugin than the previous turn (P10).
    PluginSwapped {
        /// Name of the plugin.
        plugin: String,
        /// Digest of the plugin in the previous turn. `None` means that the plugin was not loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Digest>,
        /// Digest of the plugin in this turn. `None` means that the plugin is no longer loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Digest>,
    },
    /// The turn uses an earlier version of a plugin than the version in the plugin's file, because a user rolled the
    /// plugin back (P10).
    PluginRolledBack {
        /// Name of the plugin.
        plugin: String,
        /// Digest of the version in the plugin's file, which the turn does not use.
        from: Digest,
        /// Digest of the version that this turn uses.
        to: Digest,
    },
    /// The host denied a request: a plugin has no grant for it, or the model's agent is not allowed to make it (P6).
    Denied {
        /// The call that made the request. `None` means that the request was made outside of any call, for example by a
        /// context builder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The plugin, its request, and the line that would allow the request if it were in the configuration.
        #[serde(flatten)]
        denial: Denial,
    },
    /// A budget does not allow the next model call, so the turn ends with an error (O4).
    BudgetExceeded {
        /// The budget, what was used of it, and what the next model call may use.
        #[serde(flatten)]
        budget: ExceededBudget,
    },
    /// A validator or the output schema rejected the output (L12).
    OutputRejected {
        /// The plugin that rejected the output, or `output schema`.
        by: String,
        /// Number of the attempt, starting at 1.
        attempt: u32,
        /// The problems of the output.
        problems: Vec<Violation>,
    },
    /// The turn is suspended.
    Suspended {
        /// The calls for which the turn waits.
        #[serde(flatten)]
        suspension: Suspension,
    },
    /// The turn continues after a suspension.
    Resumed,
    /// The host cannot know whether a call had its effect, because the host stopped while the call was running (D3).
    OutcomeUnknown {
        /// Id of the tool call.
        call: CallId,
        /// Name of the tool as its author wrote it.
        name: String,
    },
    /// An error occurred. If the error ended the turn, `loop_end` follows.
    Error {
        /// Machine-readable code of the error.
        code: String,
        /// Message for users.
        message: String,
        /// Whether the error has ended the turn or concerns only one call.
        #[serde(default, skip_serializing_if = "ErrorScope::is_turn")]
        scope: ErrorScope,
    },
    /// The turn is over. This event occurs exactly once per turn, as the last event of the turn.
    LoopEnd {
        /// Why the turn ended.
        reason: EndReason,
        /// Cost of the turn. `None` if the event was stored by an earlier version of the host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<TurnCost>,
    },
}

impl EventKind {
    /// Whether the event is provisional. Streamed text and thinking are provisional, because a later durable event
    /// contains the whole reply.
    pub fn is_provisional(&self) -> bool {
        matches!(
            self,
            Self::ThinkingStart | Self::ThinkingContent { .. } | Self::ThinkingEnd | Self::StreamToken { .. }
        )
    }
}

/// Formats a plugin as `name@digest`, with the short form of the digest. Errors and events use this format.
pub fn plugin_at_digest(name: &str, digest: &Digest) -> String {
    format!("{name}@{}", digest.short())
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
