//! Handles replies that contain no tool call and do not end the turn (L19, L23).

use super::end::TurnError;
use super::state::{NO_TURN, Run};
use super::turn::Turn;
use crate::change::Change;
use crate::event::{EventKind, NudgeCause};
use crate::loop_break::Finish;
use crate::message::Role;
use crate::plugin::Lifecycle;
use crate::reply_kind::{ReplyKind, ToolUse, classify};
use serde::{Deserialize, Serialize};

/// If only a tool may end the turn, this number of consecutive replies without a tool call makes the turn end with an
/// error (L19).
const MAX_REPLIES_WITHOUT_CALL: u32 = 5;
/// Maximum number of nudges for each cause. Deflections are counted over the whole turn. Incomplete replies are counted
/// since the last tool call.
const MAX_NUDGES: u32 = 3;
/// Number of consecutive empty replies after which the host asks for a summary.
const EMPTY_BEFORE_SUMMARY: u32 = 3;
/// Number of consecutive empty replies that end the turn. The last of these replies is the reply to the request for
/// a summary.
pub(super) const MAX_EMPTY_REPLIES: u32 = EMPTY_BEFORE_SUMMARY + 1;

const REMINDER: &str = "Your reply called no tool, and only a tool can end this turn. Call the tools that you need. When \
    the task is done, call `task_completion` with the result; when you need something from the user, call `ask_question`; \
    to say something without doing more, call `converse`.";
const CONTINUE: &str = "You stopped before finishing. Continue with what remains, without announcing it; reply without a \
    tool call only when all is done.";
const EXECUTE: &str = "Do not ask, and do not refuse before you have tried. Continue executing the task with the tools \
    that you have; if a call fails, say which and why.";
const REPLY_WAS_EMPTY: &str =
    "Your reply was empty. Continue with the task: call the tools that you need, or give your answer.";
const ASK_FOR_SUMMARY: &str = "Your replies are empty. No tools can be called any more. Say in a few sentences what you have \
    done, what came of it, and what is still open.";

/// The counters of a turn for replies that do not contain a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ReplyCounters {
    /// Number of consecutive replies that did not advance the turn: replies without a tool call in a turn that only a
    /// tool may end (L19), and replies whose calls could not be parsed (L20).
    #[serde(rename = "idle")]
    without_call: u32,
    /// Number of consecutive empty replies.
    empty: u32,
    /// Number of incomplete replies since the last tool call.
    incomplete: u32,
    /// Number of deflections in the turn.
    deflections: u32,
    /// Whether the turn has called a tool.
    called: bool,
    /// Whether the next model call asks for a summary and offers no tools.
    pub(super) summary: bool,
}

impl ReplyCounters {
    /// Resets all counts except the number of deflections, because a reply called a tool.
    pub(super) fn note_tool_call(&mut self) {
        *self = Self { deflections: self.deflections, called: true, ..Self::default() };
    }

    /// Counts a reply of this kind. If the model must be nudged because of the reply, returns the cause, the number
    /// and the text of the nudge. `None` means that the reply is accepted as an answer.
    fn nudge(&mut self, kind: ReplyKind) -> Option<(NudgeCause, u32, &'static str)> {
        if kind != ReplyKind::Empty {
            self.empty = 0;
        }
        match kind {
            ReplyKind::Answer | ReplyKind::Completion => None,
            ReplyKind::Empty => {
                self.empty += 1;
                self.summary = self.empty >= EMPTY_BEFORE_SUMMARY;
                Some(match self.summary {
                    true => (NudgeCause::ForcedSummary, 1, ASK_FOR_SUMMARY),
                    false => (NudgeCause::Empty, self.empty, REPLY_WAS_EMPTY),
                })
            }
            ReplyKind::Incomplete if self.incomplete == MAX_NUDGES => None,
            ReplyKind::Incomplete => {
                self.incomplete += 1;
                Some((NudgeCause::Incomplete, self.incomplete, CONTINUE))
            }
            ReplyKind::Deflection if self.deflections == MAX_NUDGES => None,
            ReplyKind::Deflection => {
                self.deflections += 1;
                Some((NudgeCause::Deflection, self.deflections, EXECUTE))
            }
        }
    }
}

/// Whether the turn continues after a reply without a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyHandling {
    /// The reply is not the output of the turn: the model is called again, or the turn has already ended with an error.
    TurnContinues,
    /// The reply may be the output of the turn.
    MayBeAnswer,
}

impl Run {
    /// Reminds the model if only a tool may end the turn and the reply called no tool (L19).
    pub(super) fn no_tool_call(&mut self, text: &str, change: &mut Change) -> ReplyHandling {
        if self.turn.as_ref().is_none_or(|turn| turn.config.finish != Finish::Tool) {
            return ReplyHandling::MayBeAnswer;
        }
        self.remind(text, REMINDER, change);
        ReplyHandling::TurnContinues
    }

    /// Appends a reply that did not end the turn, and a reminder for the model. If only a tool may end the turn, and
    /// the model has sent too many consecutive replies without a readable tool call, the turn ends with an error.
    pub(super) fn remind(&mut self, written: &str, reminder: &str, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        // A reply that causes a reminder interrupts the sequences of repeated errors (L19) and of empty replies (L23).
        turn.repetition.interrupt();
        turn.effort.empty = 0;
        turn.effort.without_call += 1;
        let count = turn.effort.without_call;
        let is_limit_reached = turn.config.finish == Finish::Tool && count >= MAX_REPLIES_WITHOUT_CALL;
        self.emit(change, EventKind::NoToolCall { count, reminder: reminder.to_owned() });
        self.append_unless_empty(written, change);
        if is_limit_reached {
            self.fail(TurnError::NoToolCall { replies: count }, change);
        } else {
            self.continue_turn(reminder, change);
        }
    }

    /// Whether the persistence setting is on and the host would not accept this text as an answer.
    pub(super) fn would_be_nudged(&self, text: &str) -> bool {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.config.persistence) else { return false };
        let tools = if turn.effort.called { ToolUse::Some } else { ToolUse::None };
        let kind = classify(text, &turn.input.message().plain_text(), tools);
        turn.effort.clone().nudge(kind).is_some()
    }

    /// Nudges the model if the persistence setting is on and the reply is not an answer (L23).
    pub(super) fn nudge_unless_answer(&mut self, text: &str, change: &mut Change) -> ReplyHandling {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.config.persistence) else {
            return ReplyHandling::MayBeAnswer;
        };
        let tools = if turn.effort.called { ToolUse::Some } else { ToolUse::None };
        let kind = classify(text, &turn.input.message().plain_text(), tools);
        let Some((cause, attempt, nudge)) = turn.effort.nudge(kind) else { return ReplyHandling::MayBeAnswer };
        if !text.is_empty() {
            self.emit(change, EventKind::StreamClear);
        }
        self.append_unless_empty(text, change);
        self.emit(change, EventKind::Nudge { cause, attempt, text: nudge.to_owned() });
        self.continue_turn(nudge, change);
        ReplyHandling::TurnContinues
    }

    /// Appends a reply unless it is empty. An empty message is not stored, because providers refuse empty messages.
    fn append_unless_empty(&mut self, text: &str, change: &mut Change) {
        if !text.trim().is_empty() {
            self.append_reply(change, text);
        }
    }

    fn continue_turn(&mut self, text: &str, change: &mut Change) {
        self.append_text(change, Role::User, text);
        if let Some(Turn { lifecycle, .. }) = &mut self.turn {
            *lifecycle = Lifecycle::OutputErrorFeedback;
        }
        self.next_step(change);
    }
}
