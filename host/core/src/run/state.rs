//! The state of a run: enough to continue anywhere, and nothing that grows with the history.

use super::Action;
use super::authority::MAX_BUILDER_STATE;
use super::end::TurnEnd;
use super::turn::{Phase, Turn};
use crate::approval::LastingGrant;
use crate::event::{Event, EventKind};
use crate::message::{CallId, Content, Message, MessageId, Part, Role, TurnInput};
use crate::plugin::{History, TraceContext};
use crate::session_state::SessionState;
use crate::summary::HistorySummary;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Version of the state's format. Every released format stays readable.
const VERSION: u32 = 1;

/// The state of one session (L1).
///
/// This is the smallest loop: it starts a turn, and performs each action until the turn ends.
///
/// ```
/// use agent_core::message::TurnInput;
/// use agent_core::model::{StopReason, Usage};
/// use agent_core::plugin::{OutputData, TraceContext};
/// use agent_core::run::{Action, Input, LoopConfig, OutputVerdict, ResolvedReply, Run, TurnContext};
///
/// let mut run = Run::new("session-1", "assistant");
/// let traceparent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".to_owned();
/// let start = Input::Start {
///     input: TurnInput::Text("What is 6 times 7?".to_owned()),
///     config: LoopConfig::default(),
///     plugins: Vec::new(),
///     pinned: None,
///     trace: TraceContext { traceparent, tracestate: None },
/// };
/// run.apply(start)?;
/// loop {
///     let input = match run.action() {
///         Action::BuildContext => Input::Context { context: TurnContext::default() },
///         // A real driver calls the model here.
///         Action::CallModel(_) => Input::Reply(ResolvedReply {
///             text: "42".to_owned(),
///             calls: Vec::new(),
///             stop: StopReason::Stop,
///             model: "provider/model".to_owned(),
///             usage: Usage::default(),
///             replay: None,
///             masks: Vec::new(),
///             unreadable: Vec::new(),
///             written: String::new(),
///             plan: None,
///         }),
///         Action::Validate(output) => Input::Verdict(OutputVerdict::Accepted(OutputData::Text(output.text))),
///         Action::Ended => break,
///         other => panic!("this turn calls no tools: {other:?}"),
///     };
///     // A real driver commits each change to the store.
///     let _change = run.apply(input)?;
/// }
/// assert!(!run.is_open());
/// # Ok::<(), agent_core::run::InputError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    version: u32,
    /// Subject of the session, which identifies the session.
    pub session: String,
    /// Name of the agent in the configuration.
    pub agent: String,
    /// Suffix of the ids of this session's calls, which are also used as keys outside the session: as a tool's
    /// idempotency key and a service event's id. Empty: ids are only unique in the session, as in states from before
    /// suffixes existed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id_ending: String,
    /// Subject of the session that delegated the work. None: the work was not delegated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<String>,
    /// Names of the agents that delegated the work, outermost first (L16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegation: Vec<String>,
    /// What a user has allowed for the rest of the session (L17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<LastingGrant>,
    /// Number of successful model calls in the session. It is the clock of the seen counts (L3).
    pub model_calls: u64,
    /// Id of the next message.
    pub next_message: MessageId,
    /// Number of the last durable event.
    pub sequence: u64,
    /// Number of turns begun so far.
    pub turns: u32,
    /// The part of the history that is sent to the model, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<ViewEntry>,
    /// Media that are permanently masked (P4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// Calls whose arguments and results are not sent again: rejected attempts at an output in messages with other
    /// calls (L12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<CallId>,
    /// Number of requests that plugins have made to the host's model (P5).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asks: u64,
    /// Summary of the evicted messages (L27). None: no message was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<HistorySummary>,
    /// Prompts that arrived while a turn was open, oldest first. They are used when it has ended.
    #[serde(default, rename = "kept", skip_serializing_if = "Vec::is_empty")]
    pub queued_prompts: Vec<QueuedPrompt>,
    /// The open turn, or the last one. None: no turn has begun.
    pub turn: Option<Turn>,
    /// A contradiction that the current transition has found. [`Run::apply`] reports it.
    #[serde(skip)]
    pub(super) inconsistency: Option<&'static str>,
}

/// Contradictions that a transition may find.
pub(super) const NO_TURN: &str = "there is no turn";
pub(super) const NO_OPEN_BATCH: &str = "no batch of calls is open";
pub(super) const NO_MODEL_CALL: &str = "no model call is open";
pub(super) const NO_SUCH_CALL: &str = "the open batch does not contain the call";

/// A prompt that waits for the end of the open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedPrompt {
    /// The input.
    pub input: TurnInput,
    /// Trace context of the event that brought it. None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// Maximum number of prompts in a session's queue.
pub const MAX_QUEUED_PROMPTS: usize = 16;
/// Maximum size of these prompts together, in bytes of JSON. They are part of every stored state until they are used.
pub const MAX_QUEUED_PROMPT_BYTES: usize = 256 << 10;

/// A message in the view. Its seen count is `first` plus the model calls since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewEntry {
    /// Id of the message.
    pub id: MessageId,
    /// Number of the turn that appended it.
    pub turn: u32,
    /// Initial seen count: 1 for the model's own messages, otherwise 0.
    pub first: u32,
    /// Value of [`Run::model_calls`] when the message was appended.
    pub since: u64,
    /// Estimated tokens of the message as the model sees it.
    pub tokens: u32,
    /// Role of the message, which decides what is evicted together. None: a host that did not store roles wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// A medium that is replaced by a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Id of the message.
    pub message: MessageId,
    /// Index of the part in the message.
    pub part: u32,
    /// Index among the media of a tool result, from 0, because texts before it may be cut. None: the part itself is
    /// the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// Text that replaces the medium.
    pub text: String,
}

/// Replaces content that is not sent again.
const LEFT_OUT: &str = "(an earlier attempt, which was rejected; a later one follows)";

/// Number of message ids in one piece of the view.
const PIECE: u64 = 32;

/// Splits the view into pieces of consecutive ids.
fn pieces(view: &[ViewEntry]) -> impl Iterator<Item = (u64, &[ViewEntry])> {
    view.chunk_by(|one, next| one.id / PIECE == next.id / PIECE).map(|entries| (entries[0].id / PIECE, entries))
}

fn entries_as_json(entries: &[ViewEntry]) -> Vec<u8> {
    let mut json = serde_json::to_vec(entries).expect("entries consist of numbers and names");
    json.pop();
    json.remove(0);
    json
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why a stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is no stored state (`no_context`).
    #[error("no_context: the session has no stored state, so there is nothing to resume; begin a turn with an input")]
    NoContext,
    /// The state is not valid JSON of its format.
    #[error("the stored state cannot be read: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The state contradicts itself.
    #[error("the stored state cannot be used: {0}")]
    Inconsistent(&'static str),
    /// A newer version wrote the state.
    #[error(
        "the stored state has version {found}, and this agent-host reads versions up to {VERSION}; use a newer agent-host"
    )]
    Newer {
        /// Version of the state.
        found: u32,
    },
}

impl Run {
    /// Makes the state of a new session.
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
            left_out: Vec::new(),
            asks: 0,
            summary: None,
            queued_prompts: Vec::new(),
            turn: None,
            inconsistency: None,
        }
    }

    /// Sets the suffix of the ids that the session assigns from now on. No other session may have the same suffix.
    pub fn with_id_ending(mut self, ending: impl Into<String>) -> Self {
        self.id_ending = ending.into();
        self
    }

    /// An id that is unique beyond the session: `name` and the suffix.
    pub fn unique_id(&self, name: &str) -> String {
        match self.id_ending.as_str() {
            "" => name.to_owned(),
            ending => format!("{name}_{ending}"),
        }
    }

    /// The open call that `id` refers to, which may leave out the suffix. If there is none, returns `id` itself.
    pub fn named_call(&self, id: CallId) -> CallId {
        self.open_calls().find(|open| open.is_named(&id.0)).cloned().unwrap_or(id)
    }

    /// Restores a state that [`Run::snapshot`] wrote.
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

    /// Checks for contradictions that no transition produces.
    fn inspect(&self) -> Result<(), &'static str> {
        const MOST: u64 = u32::MAX as u64 / 2;
        let counters = [self.model_calls, self.next_message, self.sequence, self.turns.into(), self.asks];
        if counters.into_iter().any(|counter| counter > MOST) {
            return Err("a counter is out of range");
        }
        let ascending = self.view.windows(2).all(|pair| pair[0].id < pair[1].id);
        let below = self.view.last().is_none_or(|entry| entry.id < self.next_message);
        if !ascending || !below || self.view.iter().any(|entry| entry.since > self.model_calls) {
            return Err("the view contains invalid messages");
        }
        let Some(turn) = &self.turn else { return Ok(()) };
        if u64::from(turn.interactions.max(turn.corrections).max(turn.attempt)) > MOST {
            return Err("a counter is out of range");
        }
        if turn.state.as_ref().is_some_and(|state| state.len() > MAX_BUILDER_STATE) {
            return Err("the context builder's state is larger than 64 KiB");
        }
        match &turn.phase {
            Phase::Working(batch) if batch.calls.is_empty() || batch.is_done() => Err("a batch has no open call"),
            Phase::Working(batch) if batch.is_inconsistent() => {
                Err("a call of the open turn waits for something that cannot arrive")
            }
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

    /// The state without its view, which is stored in pieces; see [`Run::view_pieces`].
    pub fn snapshot_without_view(&self) -> Vec<u8> {
        Self { view: Vec::new(), ..self.clone() }.snapshot()
    }

    /// The pieces of the view that have changed since the stored state `since`. A commit writes only these, so that
    /// its size does not grow with the history. None as `since`: no piece is stored yet.
    ///
    /// Each piece has its number and its entries as JSON objects separated by commas. The bytes are empty if the piece
    /// has lost all its entries.
    pub fn view_pieces(&self, since: Option<&Run>) -> Vec<(u64, Vec<u8>)> {
        let stored: BTreeMap<u64, &[ViewEntry]> = since.map(|since| pieces(&since.view).collect()).unwrap_or_default();
        let mut removed = stored.clone();
        let mut changed = Vec::new();
        for (number, entries) in pieces(&self.view) {
            removed.remove(&number);
            if stored.get(&number) != Some(&entries) {
                changed.push((number, entries_as_json(entries)));
            }
        }
        changed.extend(removed.into_keys().map(|number| (number, Vec::new())));
        changed
    }

    /// How often a message of the view has been sent (L3).
    pub fn seen_count(&self, entry: &ViewEntry) -> u32 {
        entry.first.saturating_add(u32::try_from(self.model_calls.saturating_sub(entry.since)).unwrap_or(u32::MAX))
    }

    /// The messages that the next model call sends.
    pub fn sent(&self) -> impl Iterator<Item = &ViewEntry> {
        let from = match &self.turn {
            Some(turn) if turn.history == History::LeaveOut && !turn.is_over() => turn.number,
            _ => 0,
        };
        self.view.iter().filter(move |entry| entry.turn >= from)
    }

    /// Replaces the content of calls that are not sent again. Calls and results stay in pairs.
    pub fn without_left_out(&self, mut message: Message) -> Message {
        let is_left_out = |call: &CallId| self.left_out.contains(call);
        for part in message.parts.iter_mut().filter(|_| !self.left_out.is_empty()) {
            match part {
                Part::ToolCall(call) if is_left_out(&call.id) => call.arguments = json!({"result": LEFT_OUT}),
                Part::ToolResult(result) if is_left_out(&result.call_id) => {
                    result.content = vec![Content::Text(LEFT_OUT.to_owned())];
                }
                _ => {}
            }
        }
        message
    }

    /// Notes that the state contradicts itself. The input was checked before, so this is a bug or a damaged state.
    pub(super) fn inconsistent(&mut self, what: &'static str) {
        self.inconsistency.get_or_insert(what);
    }

    /// Whether a turn is open, which means that it has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.is_over())
    }

    /// The state of the session as lists of sessions show it. Never [`SessionState::Incomplete`].
    pub fn session_state(&self) -> SessionState {
        match self.turn.as_ref().and_then(Turn::end) {
            Some(TurnEnd::Finished(_)) => SessionState::Idle,
            Some(TurnEnd::Failed(_)) => SessionState::Failed,
            Some(TurnEnd::Cancelled) => SessionState::Cancelled,
            None if matches!(self.action(), Action::Suspended(_)) => SessionState::Suspended,
            None if self.is_open() => SessionState::Running,
            None => SessionState::Idle,
        }
    }

    /// Makes a durable event of the open turn with the next sequence number.
    pub(super) fn event(&mut self, kind: EventKind) -> Event {
        self.sequence += 1;
        Event { session: self.session.clone(), turn: self.turns, sequence: self.sequence, provisional: None, kind }
    }
}
