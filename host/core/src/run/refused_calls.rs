//! Refuses those calls of a reply that must not run. A call is refused if the reply has too many calls (L9) or was
//! truncated (row 31), if the call's arguments are nested too deeply, or if the called tool is disabled (L28).

use super::depth;
use super::input::{Disposition, ResolvedCall, ResolvedReply};
use super::state::Run;
use crate::model::StopReason;
use crate::tool::{ToolError, Violation};

/// Maximum number of calls of one reply. If a reply has more calls, none of its calls runs, because the host cannot
/// know which calls the model needs most.
pub const MAX_CALLS: usize = 128;

impl Run {
    /// Refuses those calls of a reply that must not run. A call is refused before the calls with the highest priority
    /// are selected, so that a refused call does not defer other calls.
    pub(super) fn refuse_unrunnable_calls(&self, reply: &mut ResolvedReply) {
        let call_count = reply.calls.len();
        if call_count > MAX_CALLS {
            reply.calls.truncate(MAX_CALLS);
            // The provider's data for the reply is dropped, because it is only valid in a message that contains all
            // calls of the reply.
            reply.replay = None;
        }
        let is_cut = cut(reply.stop).is_some();
        for call in &mut reply.calls {
            refuse_too_deep(call);
            if is_cut {
                refuse_cut(call);
            }
            if call_count > MAX_CALLS {
                call.disposition = Disposition::Refused(too_many(call_count));
            } else if let Some(error) = self.turn.as_ref().and_then(|turn| turn.repetition.refusal(&call.name)) {
                call.disposition = Disposition::Refused(error);
            }
        }
    }
}

/// Refuses a call whose arguments are nested too deeply, and converts the arguments to text.
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

/// Refuses a call of a reply that was cut (row 31). The arguments may look complete although they are not, and later
/// calls may be missing.
fn refuse_cut(call: &mut ResolvedCall) {
    if matches!(call.disposition, Disposition::Ready { .. } | Disposition::Breaks(_)) {
        let message =
            "the reply was cut before its end, so that this call may not be whole: nothing ran; call it again, \
            with less in one reply"
                .to_owned();
        call.disposition = Disposition::Refused(ToolError::Failed { message });
    }
}

/// If a reply has too many calls, returns the error for its first [`MAX_CALLS`] calls. The further calls of the reply
/// are stored only in the step record.
fn too_many(call_count: usize) -> ToolError {
    let message = format!(
        "too many calls in one reply: {call_count}, at most {MAX_CALLS}: none of them ran; call again with fewer, and more of \
         them in the next replies"
    );
    ToolError::Failed { message }
}

/// Returns what is wrong with a reply that was cut (L12; row 31). `None` means that the reply is complete.
pub(super) fn cut(stop: StopReason) -> Option<Violation> {
    let message = match stop {
        StopReason::Stop | StopReason::ToolCalls | StopReason::Paused => return None,
        StopReason::Length => "it was cut off because the reply reached its token limit: give a shorter answer",
        StopReason::ContentFilter => "it was cut by the provider's content filter",
    };
    Some(Violation { pointer: String::new(), rule: Some("whole".to_owned()), message: message.to_owned() })
}
