//! Replies without a tool call that are not taken as the end of the turn (L19, L23).

use super::end::TurnError;
use super::state::Run;
use super::turn::Turn;
use crate::change::Change;
use crate::effort::{ReplyKind, ToolUse, kind_of};
use crate::event::{EventKind, NudgeCause};
use crate::loop_break::Finish;
use crate::message::Role;
use crate::plugin::Lifecycle;
use serde::{Deserialize, Serialize};

/// Replies without a tool call in a row that end the turn, where only a tool may (L19).
const MOST_IDLE: u32 = 5;
/// Deflections of a turn that are not taken as its answer, and unfinished replies in a row.
const MOST_NUDGES: u32 = 3;
/// The empty reply in a row after which a summary is asked for.
const FORCING: u32 = 3;
/// Empty replies in a row that end the turn: the summary's was one, too.
pub(super) const MOST_EMPTY: u32 = FORCING + 1;

const REMINDER: &str = "Your reply called no tool, and only a tool can end this turn. Call the tools that you need. When \
    the task is done, call `task_completion` with the result; when you need something from the user, call `ask_question`; \
    to say something without doing more, call `converse`.";
const CONTINUE: &str = "You stopped before finishing. Continue with what remains, without announcing it; reply without a \
    tool call only when all is done.";
const EXECUTE: &str = "Do not ask, and do not refuse before you have tried. Continue executing the task with the tools \
    that you have; if a call fails, say which and why.";
const SAY: &str = "Your reply was empty. Continue with the task: call the tools that you need, or give your answer.";
const SUMMARIZE: &str = "Your replies are empty. No tools can be called any more. Say in a few sentences what you have \
    done, what came of it, and what is still open.";

/// How the turn's replies without a tool call have been.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Effort {
    /// In a row that called nothing where they had to (L19), or nothing that could be read (L20).
    idle: u32,
    /// Empty ones in a row.
    empty: u32,
    /// Unfinished ones since the last tool call.
    incomplete: u32,
    /// In the turn.
    deflections: u32,
    /// The turn has called a tool.
    called: bool,
    /// The next call asks for a summary, tools being withheld.
    pub(super) summary: bool,
}

impl Effort {
    /// A reply calls tools.
    pub(super) fn called(&mut self) {
        *self = Self { deflections: self.deflections, called: true, ..Self::default() };
    }

    /// What is said to a reply that is not taken as the end, and how often.
    fn nudge(&mut self, kind: ReplyKind) -> Option<(NudgeCause, u32, &'static str)> {
        if kind != ReplyKind::Empty {
            self.empty = 0;
        }
        match kind {
            ReplyKind::Answer | ReplyKind::Completion => None,
            ReplyKind::Empty => {
                self.empty += 1;
                self.summary = self.empty >= FORCING;
                Some(match self.summary {
                    true => (NudgeCause::ForcedSummary, 1, SUMMARIZE),
                    false => (NudgeCause::Empty, self.empty, SAY),
                })
            }
            ReplyKind::Incomplete if self.incomplete == MOST_NUDGES => None,
            ReplyKind::Incomplete => {
                self.incomplete += 1;
                Some((NudgeCause::Incomplete, self.incomplete, CONTINUE))
            }
            ReplyKind::Deflection if self.deflections == MOST_NUDGES => None,
            ReplyKind::Deflection => {
                self.deflections += 1;
                Some((NudgeCause::Deflection, self.deflections, EXECUTE))
            }
        }
    }
}

/// Whether a reply without a tool call has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is no end of the turn: the model goes on, or the turn has ended with an error.
    AsNoEnd,
    /// It may be the output.
    AsAnswer,
}

impl Run {
    /// Only a tool may end the turn, and the reply called none (L19).
    pub(super) fn no_tool_call(&mut self, text: &str, change: &mut Change) -> Taken {
        if self.turn.as_ref().is_none_or(|turn| turn.config.finish != Finish::Tool) {
            return Taken::AsAnswer;
        }
        self.remind(text, REMINDER, change);
        Taken::AsNoEnd
    }

    /// A reply that called no tool is no end of the turn, unless there were too many in a row where a tool must be called.
    pub(super) fn remind(&mut self, written: &str, reminder: &str, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        // What came in a row before it does no more: the same errors (L19), or replies with nothing in them (L23).
        turn.repetition.interrupted();
        turn.effort.empty = 0;
        turn.effort.idle += 1;
        let count = turn.effort.idle;
        let over = turn.config.finish == Finish::Tool && count >= MOST_IDLE;
        self.emit(change, EventKind::NoToolCall { count, reminder: reminder.to_owned() });
        self.append_reply(written, change);
        if over {
            self.fail(TurnError::NoToolCall { replies: count }, change);
        } else {
            self.go_on(reminder, change);
        }
    }

    /// Whether persistence of effort would not take this as an answer.
    pub(super) fn leaves_work(&self, text: &str) -> bool {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.config.persistence) else { return false };
        let tools = if turn.effort.called { ToolUse::Some } else { ToolUse::None };
        let kind = kind_of(text, &turn.input.message().plain_text(), tools);
        turn.effort.clone().nudge(kind).is_some()
    }

    /// Persistence of effort: a reply that is no answer is answered by the host (L23).
    pub(super) fn persist(&mut self, text: &str, change: &mut Change) -> Taken {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.config.persistence) else {
            return Taken::AsAnswer;
        };
        let tools = if turn.effort.called { ToolUse::Some } else { ToolUse::None };
        let kind = kind_of(text, &turn.input.message().plain_text(), tools);
        let Some((cause, attempt, words)) = turn.effort.nudge(kind) else { return Taken::AsAnswer };
        if !text.is_empty() {
            self.emit(change, EventKind::StreamClear);
        }
        self.append_reply(text, change);
        self.emit(change, EventKind::Nudge { cause, attempt, text: words.to_owned() });
        self.go_on(words, change);
        Taken::AsNoEnd
    }

    /// An empty message is not stored: no provider takes one back.
    fn append_reply(&mut self, text: &str, change: &mut Change) {
        if !text.trim().is_empty() {
            self.append_text(change, Role::Assistant, text);
        }
    }

    fn go_on(&mut self, words: &str, change: &mut Change) {
        self.append_text(change, Role::User, words);
        if let Some(Turn { lifecycle, .. }) = &mut self.turn {
            *lifecycle = Lifecycle::OutputErrorFeedback;
        }
        self.next_step(change);
    }
}
