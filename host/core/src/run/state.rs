//! The state of a run. Except for the messages, the state contains everything that is needed to continue the session on
//! any host.

use super::Action;
use super::authority::MAX_BUILDER_STATE;
use super::end::TurnEnd;
use super::turn::{Phase, Turn};
use crate::approval::LastingGrant;
use crate::event::{Event, EventKind};
use crate::message::{CallId, Message, MessageId, Role, TurnInput};
use crate::plugin::{History, TraceContext};
use crate::session_state::SessionState;
use crate::summary::HistorySummary;
use crate::view;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the state's format. Every later release of the host can read this format.
const VERSION: u32 = 1;

/// The state of one session (L1).
///
/// This example is a minimal driver. It starts a turn and performs each action until the turn ends.
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
///             saved_tokens: 0,
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
    /// The subject, a string that identifies the session.
    pub session: String,
    /// Name of the agent in the configuration.
    pub agent: String,
    /// Suffix that makes the ids of this session's calls unique. Call ids are also used outside the session, as
    /// idempotency keys of tools and as ids of service events. The suffix is empty if an older version of the host
    /// created the session, so that the ids are only unique within the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id_ending: String,
    /// Id (subject) of the session that delegated work to this session. `None` means that no session delegated work to
    /// this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<String>,
    /// Names of the agents through which this session's work was delegated, outermost agent first (L16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegation: Vec<String>,
    /// Grants that a user gave for the rest of the session (L17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<LastingGrant>,
    /// Number of successful model calls in the session. From this number, the host calculates each message's seen
    /// count: how many times the model has seen the message (L3).
    pub model_calls: u64,
    /// Id that the next appended message gets.
    pub next_message: MessageId,
    /// Number of the last durable event.
    pub sequence: u64,
    /// Number of turns that have begun.
    pub turns: u32,
    /// The part of the history that is sent to the model, oldest message first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<ViewEntry>,
    /// Media items that are permanently masked (P4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// Calls to `task_completion` that were rejected and whose messages also contain other calls. The arguments and
    /// results of the rejected calls are not sent again (L12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<CallId>,
    /// Number of requests that plugins have made to the host's model (P5).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asks: u64,
    /// Summary of the evicted messages (L27). `None` means that no message was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<HistorySummary>,
    /// Prompts that arrived while a turn was open, oldest prompt first. The oldest prompt begins the next turn.
    #[serde(default, rename = "kept", skip_serializing_if = "Vec::is_empty")]
    pub queued_prompts: Vec<QueuedPrompt>,
    /// The open turn or, if no turn is open, the last turn. `None` means that no turn has begun.
    pub turn: Option<Turn>,
    /// The first contradiction that the current transition has found. [`Run::apply`] returns the contradiction
    /// as an error.
    #[serde(skip)]
    pub(super) inconsistency: Option<&'static str>,
    /// The time of the current transition, in milliseconds since the Unix epoch. `None` outside of a transition, and if the
    /// caller has not told it.
    #[serde(skip)]
    pub(super) now: Option<u64>,
}

// Contradictions that a transition may find in the state.
pub(super) const NO_TURN: &str = "the session has no turn";
pub(super) const NO_OPEN_BATCH: &str = "no batch of calls is open";
pub(super) const NO_MODEL_CALL: &str = "no model call is open";
pub(super) const NO_SUCH_CALL: &str = "the open batch does not contain the call";

/// A prompt that waits for the end of the open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedPrompt {
    /// The input that will begin a turn.
    pub input: TurnInput,
    /// Trace context of the event that contained the prompt. `None` means that the event had no trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// Whether the prompt is added to the open turn before the turn's next model call, instead of beginning a turn
    /// (I9). If the open turn makes no other model call, the prompt begins a turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
}

/// Maximum number of prompts in a session's queue.
pub const MAX_QUEUED_PROMPTS: usize = 16;
/// Maximum total size of the prompts in a session's queue, in bytes of JSON. Each stored state contains the whole
/// queue.
pub const MAX_QUEUED_PROMPT_BYTES: usize = 256 << 10;

/// A message in the view. The seen count of the message is `first` plus the number of model calls after the message
/// was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewEntry {
    /// Id of the message.
    pub id: MessageId,
    /// Number of the turn that appended the message.
    pub turn: u32,
    /// Initial seen count: 1 for the model's own messages, otherwise 0.
    pub first: u32,
    /// Value of [`Run::model_calls`] when the message was appended.
    pub since: u64,
    /// Estimated tokens of the message as the model sees it.
    pub tokens: u32,
    /// Role of the message. The role determines which messages are evicted together. `None` means that the entry comes
    /// from an older version of the host, which did not store roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// A media item that is replaced by a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Id of the message.
    pub message: MessageId,
    /// Index of the part in the message.
    pub part: u32,
    /// Index of the media item among the media items of a tool result, starting at 0. The index does not count texts,
    /// because texts may be truncated. `None` means that the part itself is the media item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// Text that replaces the media item.
    pub text: String,
}

/// Number of message ids that belong to one piece of the view.
const PIECE: u64 = 32;

/// Splits the view into pieces, each with its number. `id / PIECE` is the same for all messages of a piece, and is the
/// number of the piece.
fn pieces(view: &[ViewEntry]) -> impl Iterator<Item = (u64, &[ViewEntry])> {
    view.chunk_by(|entry, next| entry.id / PIECE == next.id / PIECE).map(|entries| (entries[0].id / PIECE, entries))
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

/// The reason why a stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The session has no stored state (`no_context`).
    #[error("no_context: the session has no stored state, so there is nothing to resume; begin a turn with an input")]
    NoContext,
    /// The state is not valid JSON, or has missing or invalid fields.
    #[error("the stored state cannot be read: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The state contradicts itself.
    #[error("the stored state cannot be used: {0}")]
    Inconsistent(&'static str),
    /// The state comes from a newer version of the host.
    #[error(
        "the stored state has version {found}, but this agent-host only reads versions up to {VERSION}; \
        use a newer agent-host"
    )]
    Newer {
        /// Version of the state's format.
        found: u32,
    },
}

impl Run {
    /// Creates the state of a new session.
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
            now: None,
        }
    }

    /// Sets the suffix of the ids that the session assigns from now on. Each session needs its own suffix.
    pub fn with_id_ending(mut self, ending: impl Into<String>) -> Self {
        self.id_ending = ending.into();
        self
    }

    /// Returns an id that is unique over all sessions. The id consists of `name` and the session's suffix.
    pub fn unique_id(&self, name: &str) -> String {
        match self.id_ending.as_str() {
            "" => name.to_owned(),
            ending => format!("{name}_{ending}"),
        }
    }

    /// Returns the id of the open call to which `id` refers. `id` may omit the session's suffix. If no open call has
    /// this id, returns `id` itself.
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

    /// Checks a stored state for contradictions. Transitions never produce a state with such a contradiction.
    fn inspect(&self) -> Result<(), &'static str> {
        const MAX_COUNTER: u64 = u32::MAX as u64 / 2;
        let counters = [self.model_calls, self.next_message, self.sequence, self.turns.into(), self.asks];
        if counters.into_iter().any(|counter| counter > MAX_COUNTER) {
            return Err("a counter is out of range");
        }
        let is_ascending = self.view.windows(2).all(|pair| pair[0].id < pair[1].id);
        let is_before_next = self.view.last().is_none_or(|entry| entry.id < self.next_message);
        if !is_ascending || !is_before_next || self.view.iter().any(|entry| entry.since > self.model_calls) {
            return Err("the view contains invalid messages");
        }
        let Some(turn) = &self.turn else { return Ok(()) };
        if u64::from(turn.interactions.max(turn.corrections).max(turn.attempt)) > MAX_COUNTER {
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
            Phase::Working(batch) if batch.calls.iter().any(|call| u64::from(call.attempt) > MAX_COUNTER) => {
                Err("a counter is out of range")
            }
            _ => Ok(()),
        }
    }

    /// Serializes the state for the store.
    pub fn snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a run can be written as JSON: its keys are strings and its numbers are finite")
    }

    /// Serializes the state without its view. The view is stored separately; see [`Run::view_pieces`].
    pub fn snapshot_without_view(&self) -> Vec<u8> {
        Self { view: Vec::new(), ..self.clone() }.snapshot()
    }

    /// Returns the pieces of the view that have changed since the stored state `since`. A commit writes only these
    /// pieces, so that its size does not grow with the history. If `since` is None, all pieces are returned.
    ///
    /// A piece consists of its number and its entries as JSON objects separated by commas. If all entries of a piece
    /// were removed, its bytes are empty.
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

    /// Returns the number of model calls whose prompt contained this entry of the view (L3).
    pub fn seen_count(&self, entry: &ViewEntry) -> u32 {
        entry.first.saturating_add(u32::try_from(self.model_calls.saturating_sub(entry.since)).unwrap_or(u32::MAX))
    }

    /// Returns the messages that the next model call sends, oldest message first.
    pub fn sent(&self) -> impl Iterator<Item = &ViewEntry> {
        let from = match &self.turn {
            Some(turn) if turn.history == History::LeaveOut && !turn.is_over() => turn.number,
            _ => 0,
        };
        self.view.iter().filter(move |entry| entry.turn >= from)
    }

    /// Replaces the arguments of the calls in [`Run::left_out`] and the contents of the results of these calls by a
    /// short text. The calls and results themselves stay in the prompt, because providers require that each call has
    /// a result.
    pub fn without_rejected_results(&self, message: Message) -> Message {
        view::without_calls(message, &self.left_out)
    }

    /// Records that the state contradicts itself. The input was checked before, so the cause is a bug or a
    /// damaged state.
    pub(super) fn inconsistent(&mut self, contradiction: &'static str) {
        self.inconsistency.get_or_insert(contradiction);
    }

    /// Whether a turn is open. A turn is open from its beginning to its end, including the time while it is suspended.
    pub fn is_open(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.is_over())
    }

    /// Returns the state that lists of sessions show for this session. The result is never
    /// [`SessionState::Incomplete`].
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

    /// Returns the time from which the session can continue without an answer from outside, in milliseconds since the Unix
    /// epoch (I9). 0 means immediately: the turn was interrupted, or a queued prompt can begin a turn. For a suspended
    /// turn, the result is the earliest deadline. `None` means that only an answer, a decision or a prompt can continue
    /// the session. An imported turn continues only on request, because nobody on this host has begun it (P14).
    pub fn continues_at(&self) -> Option<u64> {
        match self.action() {
            _ if self.is_unpinned() => None,
            Action::Idle | Action::Ended => (!self.queued_prompts.is_empty()).then_some(0),
            Action::Suspended(suspension) => suspension.waits.iter().filter_map(|wait| wait.cause.expires_at()).min(),
            _ => Some(0),
        }
    }

    /// Creates a durable event of the current turn with the next sequence number.
    pub(super) fn event(&mut self, kind: EventKind) -> Event {
        self.sequence += 1;
        Event { session: self.session.clone(), turn: self.turns, sequence: self.sequence, provisional: None, kind }
    }
}
