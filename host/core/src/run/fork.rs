//! Copies the state of a session to another session (D5): either the whole state, or the view up to a message.

use super::end::TurnEnd;
use super::state::{Mask, Run, ViewEntry};
use super::turn::{Phase, Turn};
use crate::message::{CallId, MessageId, Part, StoredMessage};
use std::collections::HashMap;

/// The error if a session cannot be cut after the given message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {}", nearest(*before, *after))]
pub struct CutError {
    /// The reason why the session cannot be cut after the message.
    pub why: String,
    /// The nearest earlier message after which the session can be cut. `None` means that the view has no such message.
    pub before: Option<MessageId>,
    /// The nearest later message after which the session can be cut. `None` means that the view has no such message.
    pub after: Option<MessageId>,
}

impl Run {
    /// Returns this state with `subject` as the id of its session.
    pub fn renamed(mut self, subject: impl Into<String>) -> Self {
        self.session = subject.into();
        if let Some(Turn { phase: Phase::Ended(TurnEnd::Finished(output)), .. }) = &mut self.turn {
            output.session.clone_from(&self.session);
        }
        self
    }

    /// Creates the state of a new session, without an open turn. Its view is a copy of this session's view up to the
    /// message `until`. The copied messages get new numbers, starting at 1. The seen counts and the
    /// masks of this session are copied, so that a model receives the same messages from the new session as from this
    /// session. Approvals for this session are not copied.
    pub fn fork(&self, subject: impl Into<String>, until: MessageId) -> Self {
        let copied_entries: Vec<ViewEntry> = self.view.iter().filter(|entry| entry.id <= until).copied().collect();
        let new_ids: HashMap<MessageId, MessageId> = copied_entries.iter().map(|entry| entry.id).zip(1..).collect();
        let masks = self.masks.iter().filter_map(|mask| {
            let message = *new_ids.get(&mask.message)?;
            Some(Mask { message, ..mask.clone() })
        });
        let mut fork = Self::new(subject, self.agent.clone());
        fork.model_calls = self.model_calls;
        fork.asks = self.asks;
        fork.next_message = copied_entries.len() as MessageId + 1;
        fork.turns = copied_entries.iter().map(|entry| entry.turn).max().unwrap_or(0);
        fork.masks = masks.collect();
        fork.left_out.clone_from(&self.left_out);
        fork.summary = self.summary.as_ref().map(|summary| summary.forked(until, fork.turns));
        fork.view = copied_entries.iter().zip(1..).map(|(entry, id)| ViewEntry { id, ..*entry }).collect();
        fork
    }

    /// Returns the ids of all calls of the open batch, whatever their state. Each call has a record in the store.
    pub fn open_calls(&self) -> impl Iterator<Item = &CallId> {
        let batch = match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Working(batch)) => Some(batch),
            _ => None,
        };
        batch.into_iter().flat_map(|batch| batch.calls.iter().map(|call| &call.id))
    }
}

/// Finds the messages after which a session can be cut. After such a message, no call lacks its result, so that a cut
/// never separates a call from its result. Only a few bytes are kept for each message.
///
/// ```
/// use agent_core::message::{Part, Role, StoredMessage};
/// use agent_core::run::CutPoints;
///
/// let mut points = CutPoints::default();
/// let parts = vec![Part::Text("Hello".to_owned())];
/// points.add(&StoredMessage { id: 1, turn: 1, role: Role::User, parts, tokens: 6 });
/// assert_eq!((points.last(), points.after(1)), (Some(1), Ok(1)));
/// ```
#[derive(Debug, Default)]
pub struct CutPoints {
    /// Calls that have no result in the messages that have been added so far.
    open: Vec<CallId>,
    messages: Vec<MessageInfo>,
}

#[derive(Clone, Copy, Debug)]
struct MessageInfo {
    id: MessageId,
    is_cut_point: bool,
    has_calls: bool,
}

impl CutPoints {
    /// Adds the next message. Messages must be added in order, oldest first.
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
        let open_before = self.open.len();
        self.open.extend(calls);
        let has_calls = self.open.len() > open_before;
        self.messages.push(MessageInfo { id: message.id, is_cut_point: self.open.is_empty(), has_calls });
    }

    /// Whether no message has been added yet.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the last message after which the session can be cut. `None` means that the session cannot be cut after
    /// any message.
    pub fn last(&self) -> Option<MessageId> {
        self.cut_points().next_back()
    }

    /// Returns the first cut point that is not before the message `at`. If `at` contains calls, the cut point is the
    /// message with the last result of these calls. Returns an error if the message is not in the view, or if a result
    /// of these calls is missing.
    pub fn after(&self, at: MessageId) -> Result<MessageId, CutError> {
        let before = self.cut_points().rev().find(|point| *point < at);
        let after = self.cut_points().find(|point| *point > at);
        let Some(wanted) = self.messages.iter().position(|message| message.id == at) else {
            return Err(CutError { why: format!("message {at} is not in the session's view"), before, after });
        };
        if self.messages[wanted].is_cut_point {
            return Ok(at);
        }
        // The message belongs to a group of calls and results. A complete group ends at a cut point. If another group
        // begins before the next cut point, the group of this message lacks some results.
        let mut later = self.messages[wanted + 1..].iter().take_while(|message| !message.has_calls);
        let end = later.find(|message| message.is_cut_point).map(|message| message.id);
        end.ok_or_else(|| {
            let why = format!("message {at} belongs to tool calls that have no results yet");
            CutError { why, before, after }
        })
    }

    fn cut_points(&self) -> impl DoubleEndedIterator<Item = MessageId> {
        self.messages.iter().filter(|message| message.is_cut_point).map(|message| message.id)
    }
}

fn nearest(before: Option<MessageId>, after: Option<MessageId>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => {
            format!("the nearest messages after which the session can be cut are {before} and {after}")
        }
        (Some(point), None) | (None, Some(point)) => {
            format!("the nearest message after which the session can be cut is {point}")
        }
        (None, None) => "the session has no message after which it can be cut".to_owned(),
    }
}
