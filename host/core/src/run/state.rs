//! What a run remembers: enough to go on anywhere, and nothing that grows with the history.

use super::authority::MAX_BUILDER_STATE;
use super::turn::{Phase, Turn};
use crate::approval::LastingGrant;
use crate::event::{Event, EventKind};
use crate::message::{CallId, Content, Message, MessageId, Part, Role, TurnInput};
use crate::plugin::{History, TraceContext};
use crate::summary::HistorySummary;
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<Entry>,
    /// Media that are masked, for good (P4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// Calls whose arguments and results are not sent again: attempts at an output that were rejected, in messages with other
    /// calls (L12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<CallId>,
    /// Questions that plugins have asked the host's model: the place of the next one (P5).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asks: u64,
    /// What stands for the messages that have left the view for it (L27).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<HistorySummary>,
    /// Prompts that came while a turn was open, the first first. They are asked when it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPrompt>,
    /// The open turn, or the last one.
    pub turn: Option<Turn>,
}

/// A prompt that waits for the end of the open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptPrompt {
    /// What was asked.
    pub input: TurnInput,
    /// The trace of the event that brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// Most prompts that a session keeps.
pub const MAX_KEPT_PROMPTS: usize = 16;
/// Most bytes of their JSON together: they are part of every stored state until they are asked.
pub const MAX_KEPT_BYTES: usize = 256 << 10;

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

/// Stands for what is not sent again.
const LEFT_OUT: &str = "(an earlier attempt, which was rejected; a later one follows)";

/// Ids of messages in a piece of the view.
const PIECE: u64 = 32;

/// Entries whose ids belong together, in order.
fn pieces(view: &[Entry]) -> impl Iterator<Item = (u64, &[Entry])> {
    view.chunk_by(|one, next| one.id / PIECE == next.id / PIECE).map(|entries| (entries[0].id / PIECE, entries))
}

fn in_json(entries: &[Entry]) -> Vec<u8> {
    let mut json = serde_json::to_vec(entries).expect("entries are numbers and names");
    json.pop();
    json.remove(0);
    json
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
            left_out: Vec::new(),
            asks: 0,
            summary: None,
            kept: Vec::new(),
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
        if turn.state.as_ref().is_some_and(|state| state.len() > MAX_BUILDER_STATE) {
            return Err("the context builder's state is larger than 64 KiB");
        }
        match &turn.phase {
            Phase::Working(batch) if batch.calls.is_empty() || batch.is_done() => Err("a batch waits for nothing"),
            Phase::Working(batch) if batch.is_contradictory() => Err("a call of the open turn waits for nobody"),
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

    /// The state as it is stored, but for its view, which is stored in pieces: see [`Run::view_pieces`].
    pub fn snapshot_without_view(&self) -> Vec<u8> {
        Self { view: Vec::new(), ..self.clone() }.snapshot()
    }

    /// The view in pieces of which a commit writes those that it changes, so that it does not grow with the history: the
    /// number of each, and its entries as JSON objects with commas between. One that has lost all its entries is empty.
    /// `since` is the state of which all pieces are stored; none where no piece is.
    pub fn view_pieces(&self, since: Option<&Run>) -> Vec<(u64, Vec<u8>)> {
        let stored: BTreeMap<u64, &[Entry]> = since.map(|since| pieces(&since.view).collect()).unwrap_or_default();
        let mut gone = stored.clone();
        let mut changed = Vec::new();
        for (number, entries) in pieces(&self.view) {
            gone.remove(&number);
            if stored.get(&number) != Some(&entries) {
                changed.push((number, in_json(entries)));
            }
        }
        changed.extend(gone.into_keys().map(|number| (number, Vec::new())));
        changed
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

    /// A message as it is sent: what of it is not sent again is named in its place, so that calls and results stay pairs.
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
