//! What one transition of a run changes in the stored session. The store commits it whole or not at all (D2, D6).

use crate::approval::LastingGrant;
use crate::event::Event;
use crate::memory::Memory;
use crate::message::{CallId, Content, MessageId, Part, Role};
use crate::outgoing_event::OutgoingEvent;
use crate::tool::{CallCost, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The difference that one transition makes. Everything in it is in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Messages appended to the session.
    pub messages: Vec<NewMessage>,
    /// Messages that leave the view. They stay stored and searchable.
    pub hidden: Vec<HiddenMessage>,
    /// What has become of calls.
    pub calls: Vec<CallChange>,
    /// Durable events.
    pub events: Vec<Event>,
    /// Deeds outside the session that follow from it, once each (D6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<OutboxItem>,
}

impl Change {
    /// Whether it brings this call's result.
    pub fn finishes(&self, call: &CallId) -> bool {
        self.calls.iter().any(|change| match change {
            CallChange::Requested(record) => record.id == *call && record.result.is_some(),
            CallChange::Finished { id, .. } => id == call,
            CallChange::Moved { .. } | CallChange::Edited { .. } => false,
        })
    }
}

/// A deed outside the session: stored with the change that asks for it and done after the commit, as often as it takes.
/// Doing it again changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxItem {
    /// Unique in the session: the same deed has the same id.
    pub id: String,
    /// What is to be done.
    pub effect: OutboxEffect,
}

/// What is to be done outside the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "body")]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and none waits in a buffer")]
pub enum OutboxEffect {
    /// Hand this event on (I6).
    Event(OutgoingEvent),
    /// Remember this approval beyond the session (L17).
    Allow(LastingGrant),
    /// Remember this for its user (D4).
    Remember {
        /// Of the memory, over all sessions.
        id: String,
        /// Without a time: it was written when the item was.
        memory: Memory,
    },
    /// Remember nothing of this turn of the session any more: somebody has taken it back (D4, D5).
    Forget {
        /// From 1.
        turn: u32,
    },
}

/// A message to append.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewMessage {
    /// Its place; one more than the message before.
    pub id: MessageId,
    /// The turn that appends it.
    pub turn: u32,
    /// Who speaks.
    pub role: Role,
    /// What it holds.
    pub body: Body,
    /// Estimated tokens of what the model is shown of it.
    pub tokens: u32,
}

/// What a message holds. A tool's result stands in its call's record and nowhere else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Its parts.
    Parts(Vec<Part>),
    /// The result of this call.
    ResultOf(CallId),
}

/// A message that leaves the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenMessage {
    /// Which.
    pub id: MessageId,
    /// Its seen count when it left.
    pub seen_count: u32,
    /// Why.
    #[serde(default, skip_serializing_if = "Departure::is_superseded")]
    pub why: Departure,
}

/// Why a message has left the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// It does not hold any more: an answer that was rejected, an input that no model could take.
    #[default]
    Superseded,
    /// Somebody has taken its turn back (D5).
    TakenBack,
    /// There was no room for it; it holds, and a summary stands for it (L27).
    Evicted,
}

impl Departure {
    /// As it stands in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Departure::Superseded => "superseded",
            Departure::TakenBack => "taken_back",
            Departure::Evicted => "evicted",
        }
    }

    /// What [`Departure::as_str`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Superseded, Self::TakenBack, Self::Evicted].into_iter().find(|why| why.as_str() == text)
    }

    fn is_superseded(&self) -> bool {
        *self == Departure::Superseded
    }
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Not dispatched.
    Waiting,
    /// Not dispatched: somebody must allow it first (L17).
    Asking,
    /// Handed on, its answer has not come (L10).
    Outstanding,
    /// Its intent is committed; it may be running.
    Started,
    /// It was running when the host died and cannot be repeated unasked (D3).
    OutcomeUnknown,
    /// It has its result.
    Finished,
}

impl CallState {
    /// As it stands in events and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            CallState::Waiting => "waiting",
            CallState::Asking => "asking",
            CallState::Outstanding => "outstanding",
            CallState::Started => "started",
            CallState::OutcomeUnknown => "outcome_unknown",
            CallState::Finished => "finished",
        }
    }
}

/// What has become of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and none waits in a buffer")]
pub enum CallChange {
    /// A reply asked for it.
    Requested(CallRecord),
    /// It has come further, without a result.
    Moved {
        /// Which.
        id: CallId,
        /// How far.
        state: CallState,
        /// Dispatches so far.
        attempt: u32,
    },
    /// Somebody has changed its arguments before it ran (L17). The model's own stay in its message.
    Edited {
        /// Which.
        id: CallId,
        /// With these it runs.
        arguments: Value,
    },
    /// It has its result; the state is now [`CallState::Finished`]. Once a call.
    Finished {
        /// Which.
        id: CallId,
        /// Whole.
        result: CallResult,
    },
}

/// One tool call of a session, from the reply that asked for it to its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Unique in the session.
    pub id: CallId,
    /// The turn that made it.
    pub turn: u32,
    /// The model call that asked for it, from 1 in its turn.
    pub step: u32,
    /// The tool's name as its author wrote it.
    pub name: String,
    /// Where the tool comes from; none where there is no such tool.
    pub source: Option<ToolSource>,
    /// As the model wrote them.
    pub arguments: Value,
    /// As somebody changed them when it was approved (L17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Value>,
    /// How far it has come.
    pub state: CallState,
    /// Dispatches so far.
    pub attempt: u32,
    /// Once it has finished.
    pub result: Option<CallResult>,
}

impl CallRecord {
    /// The arguments with which it runs.
    pub fn effective_arguments(&self) -> &Value {
        self.edited.as_ref().unwrap_or(&self.arguments)
    }
}

/// Something that a plugin wanted and is not granted (P6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// `name@digest`.
    pub plugin: String,
    /// What it wanted.
    pub thing: String,
    /// What to add to the configuration.
    pub grant: String,
}

impl Denial {
    /// The same as a tool's error tells it, behind its own words.
    pub fn in_error(thing: &str, grant: &str) -> String {
        format!("This plugin is not granted {thing}. To allow it, {grant}")
    }
}

/// The result of a call, whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// In the order in which the tool gave it.
    pub content: Vec<Content>,
    /// The machine-readable result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The model is told that the call failed.
    pub is_error: bool,
    /// Of the attempt that finished; zero for a call that never ran.
    #[serde(default)]
    pub cost: CallCost,
    /// What the call wanted in vain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Whether its tool was there when it was to run.
    #[serde(default, skip_serializing_if = "ToolPresence::is_there")]
    pub tool: ToolPresence,
}

/// Whether the tool of a call is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolPresence {
    /// It is.
    #[default]
    There,
    /// It was when the model called it, and is not any more (L7).
    Gone,
}

impl ToolPresence {
    /// What is not stored.
    fn is_there(&self) -> bool {
        *self == Self::There
    }
}
