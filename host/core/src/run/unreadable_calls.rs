//! Handles unreadable calls, which a model wrote into the text of its reply and which the host could not parse (L20).

use super::state::Run;
use crate::change::Change;
use crate::event::{ErrorScope, EventKind};
use crate::message::Role;
use crate::text_dialect::{UnreadableCall, feedback};

impl Run {
    /// Emits an error event for each unreadable call.
    pub(super) fn report_unreadable(&mut self, calls: &[UnreadableCall], change: &mut Change) {
        for call in calls {
            let (code, message) = (call.code().to_owned(), call.to_string());
            self.emit(change, EventKind::Error { code, message, scope: ErrorScope::Reply });
        }
    }

    /// Handles a reply in which no call could be parsed. The reply does not count as an answer. The text of the reply
    /// and the feedback are appended to the history, and the model is called again unless a limit of the turn has been
    /// reached (L4, L19).
    pub(super) fn ask_for_readable_calls(&mut self, written: &str, calls: &[UnreadableCall], change: &mut Change) {
        if let Some(turn) = &mut self.turn {
            turn.told_about_quoted_calls |= calls.iter().any(|call| matches!(call, UnreadableCall::Quoted { .. }));
        }
        self.emit(change, EventKind::StreamClear);
        self.report_unreadable(calls, change);
        self.remind(written, &feedback(calls), change);
    }

    /// Appends the feedback about unreadable calls to the history. The results of the readable calls precede
    /// the feedback.
    pub(super) fn append_feedback(&mut self, feedback: Option<String>, change: &mut Change) {
        if let Some(feedback) = feedback {
            self.append_text(change, Role::User, &feedback);
        }
    }
}
