//! The changes that one transition of a run makes to the stored session. The store commits either all changes of a
//! transition or none of these changes (D2, D6).

pub use crate::plugin::Denial;

use crate::approval::LastingGrant;
use crate::event::Event;
use crate::memory::Memory;
use crate::message::{CallId, Content, MessageId, Part, Role};
use crate::outgoing_event::OutgoingEvent;
use crate::tool::{CallCost, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The changes of one transition. Each list is in chronological order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Messages that are appended to the session.
    pub messages: Vec<NewMessage>,
    /// Messages that are removed from the prompt. A message that is removed from the prompt stays stored
    /// and searchable.
    pub hidden: Vec<HiddenMessage>,
    /// New tool calls, and changes to existing tool calls.
    pub calls: Vec<CallChange>,
    /// Durable events that the transition emits.
    pub events: Vec<Event>,
    /// Effects that the change requests and that take place outside the session. Each effect happens exactly once (D6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<OutboxItem>,
}

impl Change {
    /// Whether this change contains the result of `call`.
    pub fn finishes(&self, call: &CallId) -> bool {
        self.calls.iter().any(|change| match change {
            CallChange::Requested(record) => record.id == *call && record.result.is_some(),
            CallChange::Finished { id, .. } => id == call,
            CallChange::Moved { .. } | CallChange::Edited { .. } => false,
        })
    }
}

/// An effect outside the session. The effect is stored with the change that requests it. The host performs the effect
/// after the commit and retries the effect if it fails, so the effect must be idempotent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxItem {
    /// Id of the effect within the session. An effect keeps its id when it is retried.
    pub id: String,
    /// The effect to perform.
    pub effect: OutboxEffect,
}

/// The kinds of effects outside the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "body")]
pub enum OutboxEffect {
    /// Send this event to its recipients (I6).
    Event(OutgoingEvent),
    /// Remember this approval beyond the session (L17).
    Allow(LastingGrant),
    /// Store this memory for its user (D4).
    Remember {
        /// Id of the memory. The id is unique across all sessions.
        id: String,
        /// The memory to store. The host has not set the memory's time yet. The store sets the time of the memory to
        /// the time at which the outbox item was stored.
        memory: Memory,
    },
    /// Delete the memories of a turn that the user has undone (D4, D5).
    Forget {
        /// Number of the turn in its session, starting at 1.
        turn: u32,
    },
}

/// A message to append.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewMessage {
    /// Id of the message: one more than the id of the previous message.
    pub id: MessageId,
    /// The turn that appends the message.
    pub turn: u32,
    /// Role of the message's author.
    pub role: Role,
    /// Content of the message.
    pub body: Body,
    /// Estimated tokens of the message as the model sees it.
    pub tokens: u32,
}

/// Content of a message. A message does not contain tool results but refers to the call records that contain them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The parts of the message.
    Parts(Vec<Part>),
    /// The message is the result of the call with this id. The result itself is stored in the call's record.
    ResultOf(CallId),
}

/// A message that is removed from the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenMessage {
    /// Id of the message.
    pub id: MessageId,
    /// Number of model calls in which the message was sent before it was removed.
    pub seen_count: u32,
    /// Why the message is removed.
    #[serde(default, skip_serializing_if = "HideReason::is_superseded")]
    pub why: HideReason,
}

/// Why a message is no longer in the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HideReason {
    /// The message is obsolete. Examples are a rejected answer and an input that was too large for every model.
    #[default]
    Superseded,
    /// The user has undone the turn of the message (D5).
    #[serde(rename = "taken_back")]
    Undone,
    /// The message no longer fitted into the prompt. The message is still valid, and a summary replaces it (L27).
    Evicted,
}

impl HideReason {
    /// The name of the reason in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            HideReason::Superseded => "superseded",
            HideReason::Undone => "taken_back",
            HideReason::Evicted => "evicted",
        }
    }

    /// Parses a name that [`HideReason::as_str`] returned. `None` means that the name is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Superseded, Self::Undone, Self::Evicted].into_iter().find(|why| why.as_str() == text)
    }

    fn is_superseded(&self) -> bool {
        *self == HideReason::Superseded
    }
}

/// The state of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The call has not been dispatched.
    Waiting,
    /// The call has not been dispatched because a user must approve it first (L17).
    #[serde(rename = "asking")]
    AwaitingApproval,
    /// The call was sent to a service, an agent or the user, and the response has not arrived (L10).
    Outstanding,
    /// The store has recorded that the call is about to run. The call may be running.
    Started,
    /// The call was running when the host stopped, and the host must not repeat it without asking the user (D3).
    OutcomeUnknown,
    /// The call has a result.
    Finished,
}

impl CallState {
    /// The name of the state in events and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            CallState::Waiting => "waiting",
            CallState::AwaitingApproval => "asking",
            CallState::Outstanding => "outstanding",
            CallState::Started => "started",
            CallState::OutcomeUnknown => "outcome_unknown",
            CallState::Finished => "finished",
        }
    }
}

/// A change to a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "only a few values exist at a time, and they are not buffered")]
pub enum CallChange {
    /// A reply of the model requested this call.
    Requested(CallRecord),
    /// The state of the call changed, and the call has no result yet.
    Moved {
        /// Id of the tool call.
        id: CallId,
        /// The new state.
        state: CallState,
        /// How often the call has been dispatched so far.
        attempt: u32,
    },
    /// A user edited the arguments before the call ran (L17). The model's message keeps the original arguments.
    Edited {
        /// Id of the tool call.
        id: CallId,
        /// The arguments with which the call runs.
        arguments: Value,
    },
    /// The call has a result, and its state is now [`CallState::Finished`]. Each call finishes exactly once.
    Finished {
        /// Id of the tool call.
        id: CallId,
        /// The complete result.
        result: CallResult,
    },
}

/// One tool call of a session, from the reply that requested it to its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Id of the call, unique in the session.
    pub id: CallId,
    /// Number of the turn that made the call.
    pub turn: u32,
    /// Number of the model call that requested this tool call. The model calls of a turn are numbered, starting at 1.
    pub step: u32,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// Where the tool comes from. `None` means that the tool does not exist.
    pub source: Option<ToolSource>,
    /// The arguments as the model wrote them.
    pub arguments: Value,
    /// The arguments as a user edited them during approval (L17). `None` means that the user did not edit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Value>,
    /// The state of the call.
    pub state: CallState,
    /// How often the call has been dispatched so far.
    pub attempt: u32,
    /// The result of the call. `None` means that the call has not finished.
    pub result: Option<CallResult>,
}

impl CallRecord {
    /// The arguments with which the call runs: the user's edited arguments or, if the user did not edit them, the
    /// model's arguments.
    pub fn effective_arguments(&self) -> &Value {
        self.edited.as_ref().unwrap_or(&self.arguments)
    }
}

/// The complete result of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The content in the order in which the tool returned it.
    pub content: Vec<Content>,
    /// The result as structured data. `None` means that the tool returned no structured data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether the model is told that the call failed.
    pub is_error: bool,
    /// Cost of the attempt that produced the result. The cost is zero for a call that never ran.
    #[serde(default)]
    pub cost: CallCost,
    /// Requests that the plugin made during the call and that the host denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Whether the tool still existed when the host was about to run the call.
    #[serde(default, skip_serializing_if = "ToolAvailability::is_available")]
    pub tool: ToolAvailability,
}

/// Whether the tool of a call exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolAvailability {
    /// The tool exists.
    #[default]
    #[serde(rename = "there")]
    Available,
    /// The tool existed when the model called it, and was removed before the call ran (L7).
    #[serde(rename = "gone")]
    Removed,
}

impl ToolAvailability {
    fn is_available(&self) -> bool {
        *self == Self::Available
    }
}
