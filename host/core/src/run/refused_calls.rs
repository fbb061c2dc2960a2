//! Refuses calls of a reply that must not run: too many at once (L9), possibly cut (row 31), too deep, or of a
//! disabled tool (L28).

use super::depth;
use super::input::{Disposition, ResolvedCall, ResolvedReply};
use super::state::Run;
use crate::model::StopReason;
use crate::tool::{ToolError, Violation};

/// Maximum number of calls of one reply. If a reply has more, none of them runs, because the host does not guess
/// which ones the model needs.
pub const MAX_CALLS: usize = 128;

impl Run {
    /// Refuses the calls that must not run, before a call is chosen among the others.
    pub(super) fn refuse_unrunnable_calls(&self, reply: &mut ResolvedReply) {
        let asked_for = reply.calls.len();
        if asked_for > MAX_CALLS {
            reply.calls.truncate(MAX_CALLS);
            // The provider's data belongs to a message with all calls.
            reply.replay = None;
        }
        let is_cut = cut(reply.stop).is_some();
        for call in &mut reply.calls {
            refuse_too_deep(call);
            if is_cut {
                refuse_cut(call);
            }
            if asked_for > MAX_CALLS {
                call.disposition = Disposition::Refused(too_many(asked_for));
            } else if let Some(error) = self.turn.as_ref().and_then(|turn| turn.repetition.refusal(&call.name)) {
                call.disposition = Disposition::Refused(error);
            }
        }
    }
}

/// Refuses arguments that are nested too deeply and keeps them as text.
fn refuse_too_deep(call: &mut ResolvedCall) {
    if !depth::is_too_deep(&call.arguments) {
        return;
    }
    call.arguments = depth::flattened(std::mem::take(&mut call.arguments));
    if let Disposition::Ready { .. } = call.disposition {
        let message = format!("the arguments have more than {} levels", depth::MAX_JSON_DEPTH);
        let violation = Violation { pointer: String::new(), rule: Some("depth".to_owned()), message };
        call.disposition = Disposition::Refused(ToolError::InvalidArguments { violations: vec![violation] });
    }
}

/// Refuses a call of a reply that was cut (row 31). Its arguments may only look complete, and calls after it may be
/// missing.
fn refuse_cut(call: &mut ResolvedCall) {
    if matches!(call.disposition, Disposition::Ready { .. } | Disposition::Breaks(_)) {
        let message =
            "the reply was cut before its end, so that this call may not be whole: nothing ran; call it again, \
            with less in one reply"
                .to_owned();
        call.disposition = Disposition::Refused(ToolError::Failed { message });
    }
}

/// The error for each of the first [`MAX_CALLS`] calls. The other calls are only stored in the step record.
fn too_many(asked_for: usize) -> ToolError {
    let message = format!(
        "too many calls in one reply: {asked_for}, at most {MAX_CALLS}: none of them ran; call again with fewer, and more of \
         them in the next replies"
    );
    ToolError::Failed { message }
}

/// What is wrong with a text that was cut (L12; row 31). None: the model finished it.
pub(super) fn cut(stop: StopReason) -> Option<Violation> {
    let message = match stop {
        StopReason::Stop | StopReason::ToolCalls => return None,
        StopReason::Length => "it was cut at the limit of tokens of a reply: answer shorter",
        StopReason::ContentFilter => "it was cut by the provider's content filter",
    };
    Some(Violation { pointer: String::new(), rule: Some("whole".to_owned()), message: message.to_owned() })
}
