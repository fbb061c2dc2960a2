//! Calls of a reply that nothing will run: too many at once (L9), not whole (row 31), too deep, of a tool that is off (L28).

use super::depth;
use super::input::{Disposition, RepliedStep, ResolvedCall};
use super::state::Run;
use crate::model::StopReason;
use crate::tool::{ToolError, Violation};

/// Calls of one reply. Of more none runs: what a model means by them is not to be guessed.
pub const MAX_CALLS: usize = 128;

impl Run {
    /// Refuses the calls of a reply that nothing will run, so that whoever chooses among them chooses one that can.
    pub(super) fn refuse_what_cannot_run(&self, reply: &mut RepliedStep) {
        let asked_for = reply.calls.len();
        if asked_for > MAX_CALLS {
            reply.calls.truncate(MAX_CALLS);
            // The provider's own data belongs to a message with all of them.
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

/// Arguments that nest too deeply are refused, and kept as their text.
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

/// Nobody knows whether a call is whole whose reply was cut (row 31): its arguments may only look so, and what should have
/// followed it is missing.
fn refuse_cut(call: &mut ResolvedCall) {
    if matches!(call.disposition, Disposition::Ready { .. } | Disposition::Breaks(_)) {
        let message =
            "the reply was cut before its end, so that this call may not be whole: nothing ran; call it again, \
            with less in one reply"
                .to_owned();
        call.disposition = Disposition::Refused(ToolError::Failed { message });
    }
}

/// What the model is told of each of the first [`MAX_CALLS`] calls; the others are not even stored but in the step's record.
fn too_many(asked_for: usize) -> ToolError {
    let message = format!(
        "too many calls in one reply: {asked_for}, at most {MAX_CALLS}: none of them ran; call again with fewer, and more of \
         them in the next replies"
    );
    ToolError::Failed { message }
}

/// What is wrong with a text that the model did not end itself (L12; row 31).
pub(super) fn cut(stop: StopReason) -> Option<Violation> {
    let message = match stop {
        StopReason::Stop | StopReason::ToolCalls => return None,
        StopReason::Length => "it was cut at the limit of tokens of a reply: answer shorter",
        StopReason::ContentFilter => "it was cut by the provider's content filter",
    };
    Some(Violation { pointer: String::new(), rule: Some("whole".to_owned()), message: message.to_owned() })
}
