//! Calls that a reply wrote in its text and nobody could read (L20).

use super::state::Run;
use crate::change::Change;
use crate::event::{ErrorScope, EventKind};
use crate::message::Role;
use crate::text_dialect::{UnreadableCall, feedback};

impl Run {
    /// Tells of each call that could not be read.
    pub(super) fn tell_unreadable(&mut self, calls: &[UnreadableCall], change: &mut Change) {
        for call in calls {
            let (code, message) = (call.code().to_owned(), call.to_string());
            self.emit(change, EventKind::Error { code, message, scope: ErrorScope::Reply });
        }
    }

    /// A reply whose calls could all not be read is no answer, whatever else it says: what it wrote and what is wrong with
    /// it go into the history, and the model tries again while it may (L4, L19).
    pub(super) fn ask_for_readable_calls(&mut self, written: &str, calls: &[UnreadableCall], change: &mut Change) {
        if let Some(turn) = &mut self.turn {
            turn.told_of_quoted |= calls.iter().any(|call| matches!(call, UnreadableCall::Quoted { .. }));
        }
        self.emit(change, EventKind::StreamClear);
        self.tell_unreadable(calls, change);
        self.remind(written, &feedback(calls), change);
    }

    /// The same of a reply that also has calls that can run: they run, and the model is told behind their results.
    pub(super) fn append_feedback(&mut self, feedback: Option<String>, change: &mut Change) {
        if let Some(feedback) = feedback {
            self.append_text(change, Role::User, &feedback);
        }
    }
}
