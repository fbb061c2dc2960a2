//! A run as another session's: whole, or its view up to a message (D5).

use super::end::TurnEnd;
use super::state::{Entry, Mask, Run};
use super::turn::{Phase, Turn};
use crate::message::{CallId, MessageId, Part, StoredMessage};
use std::collections::HashMap;

/// A session cannot be cut behind this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {}", nearest(*before, *after))]
pub struct NoPlace {
    /// What is the matter.
    pub why: String,
    /// The nearest message before it behind which it can be cut.
    pub before: Option<MessageId>,
    /// The nearest one after it.
    pub after: Option<MessageId>,
}

impl Run {
    /// The same state under another subject.
    pub fn renamed(mut self, subject: impl Into<String>) -> Self {
        self.session = subject.into();
        if let Some(Turn { phase: Phase::Ended(TurnEnd::Finished(output)), .. }) = &mut self.turn {
            output.session.clone_from(&self.session);
        }
        self
    }

    /// A new session's state: the view up to the message, numbered from 1, and no open turn. Seen counts and masks stay,
    /// so that the model is sent what it was sent before. What somebody allowed for this session is not allowed there.
    pub fn fork(&self, subject: impl Into<String>, until: MessageId) -> Self {
        let kept: Vec<Entry> = self.view.iter().filter(|entry| entry.id <= until).copied().collect();
        let number: HashMap<MessageId, MessageId> = kept.iter().map(|entry| entry.id).zip(1..).collect();
        let masks = self.masks.iter().filter_map(|mask| {
            let message = *number.get(&mask.message)?;
            Some(Mask { message, ..mask.clone() })
        });
        let mut fork = Self::new(subject, self.agent.clone());
        fork.model_calls = self.model_calls;
        fork.asks = self.asks;
        fork.next_message = kept.len() as MessageId + 1;
        fork.turns = kept.iter().map(|entry| entry.turn).max().unwrap_or(0);
        fork.masks = masks.collect();
        fork.left_out.clone_from(&self.left_out);
        fork.summary = self.summary.as_ref().map(|summary| summary.forked(until, fork.turns));
        fork.view = kept.iter().zip(1..).map(|(entry, id)| Entry { id, ..*entry }).collect();
        fork
    }

    /// Calls of the open batch, whatever they wait for. Each has a record in the store.
    pub fn open_calls(&self) -> impl Iterator<Item = &CallId> {
        let batch = match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Working(batch)) => Some(batch),
            _ => None,
        };
        batch.into_iter().flat_map(|batch| batch.calls.iter().map(|call| &call.id))
    }
}

/// Where a session's visible messages can be cut: behind a message behind which no call waits for its result, so that a call and its
/// result never part. It keeps a few bytes of each message.
///
/// ```
/// use agent_core::message::{Part, Role, StoredMessage};
/// use agent_core::run::CutPlaces;
///
/// let mut places = CutPlaces::default();
/// let parts = vec![Part::Text("Hello".to_owned())];
/// places.add(&StoredMessage { id: 1, turn: 1, role: Role::User, parts, tokens: 6 });
/// assert_eq!((places.last(), places.behind(1)), (Some(1), Ok(1)));
/// ```
#[derive(Debug, Default)]
pub struct CutPlaces {
    /// Calls without a result so far.
    open: Vec<CallId>,
    messages: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    id: MessageId,
    is_place: bool,
    has_calls: bool,
}

impl CutPlaces {
    /// Adds the next message, oldest first.
    pub fn add(&mut self, message: &StoredMessage) {
        for part in &message.parts {
            if let Part::ToolResult(result) = part {
                self.open.retain(|call| *call != result.call_id);
            }
        }
        let calls = message.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        });
        let before = self.open.len();
        self.open.extend(calls);
        let has_calls = self.open.len() > before;
        self.messages.push(Seen { id: message.id, is_place: self.open.is_empty(), has_calls });
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The last place of all.
    pub fn last(&self) -> Option<MessageId> {
        self.places().next_back()
    }

    /// The place behind this message: behind the results of its calls.
    pub fn behind(&self, at: MessageId) -> Result<MessageId, NoPlace> {
        let before = self.places().rev().find(|place| *place < at);
        let after = self.places().find(|place| *place > at);
        let Some(wanted) = self.messages.iter().position(|message| message.id == at) else {
            return Err(NoPlace { why: format!("message {at} is not in the session's view"), before, after });
        };
        if self.messages[wanted].is_place {
            return Ok(at);
        }
        // Not a place, so it belongs to a group; the group's end is the next place, unless another group begins before.
        let mut rest = self.messages[wanted + 1..].iter().take_while(|message| !message.has_calls);
        let end = rest.find(|message| message.is_place).map(|message| message.id);
        end.ok_or_else(|| {
            let why = format!("message {at} belongs to tool calls that have no results yet");
            NoPlace { why, before, after }
        })
    }

    fn places(&self) -> impl DoubleEndedIterator<Item = MessageId> {
        self.messages.iter().filter(|message| message.is_place).map(|message| message.id)
    }
}

fn nearest(before: Option<MessageId>, after: Option<MessageId>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => format!("the nearest that it can be cut behind are {before} and {after}"),
        (Some(place), None) | (None, Some(place)) => format!("the nearest that it can be cut behind is {place}"),
        (None, None) => "there is none that it can be cut behind".to_owned(),
    }
}
