//! Determines the initial state of a call of a reply: the call may run, needs approval, or already has its result.

use super::input::{Approval, Disposition};
use super::repetition::Disabling;
use super::step::text_result;
use crate::change::CallResult;
use crate::event::EventKind;
use crate::loop_break::LoopBreak;
use crate::message::{CallId, Digest};
use crate::tool::ToolError;

/// The state in which a call of a reply begins.
pub(super) enum InitialState {
    Waits {
        sequential: bool,
        repeatable: bool,
    },
    NeedsApproval {
        sequential: bool,
        repeatable: bool,
        /// Identity of the tool that a user must approve.
        identity: Digest,
    },
    LoopBreak(LoopBreak),
    /// The call does not run, because the same reply contains a call with a higher priority.
    Deferred,
    /// The call does not run, because it already has this result.
    Settled {
        result: Box<CallResult>,
        disabling: Disabling,
        event: fn(CallId, String, String) -> EventKind,
    },
}

/// Returns the state in which a call begins. `highest` is the highest priority among those calls of the reply that
/// may run.
pub(super) fn initial_state(disposition: Disposition, approval: &Approval, highest: Option<i32>) -> InitialState {
    match disposition {
        Disposition::Ready { priority, .. } if Some(priority) < highest => InitialState::Deferred,
        Disposition::Breaks(loop_break) => InitialState::LoopBreak(loop_break),
        Disposition::Ready { sequential, repeatable, .. } => match approval {
            Approval::Needed(identity) => {
                InitialState::NeedsApproval { sequential, repeatable, identity: identity.clone() }
            }
            Approval::NotNeeded | Approval::Remembered(_) => InitialState::Waits { sequential, repeatable },
        },
        Disposition::NotFound { message } => InitialState::Settled {
            result: Box::new(text_result(&ToolError::NotFound { message }.for_model(), true)),
            disabling: Disabling::Impossible,
            event: |call, name, _| EventKind::ToolNotFound { call, name },
        },
        Disposition::Refused(error) => InitialState::Settled {
            result: Box::new(text_result(&error.for_model(), true)),
            disabling: Disabling::Allowed,
            event: |call, name, content| EventKind::ToolResultError { call, name, content, cost: Default::default() },
        },
        Disposition::Withheld { message, denial } => InitialState::Settled {
            result: Box::new(CallResult {
                denials: vec![denial],
                ..text_result(&ToolError::Denied { message }.for_model(), true)
            }),
            disabling: Disabling::Allowed,
            event: |call, name, content| EventKind::ToolResultError { call, name, content, cost: Default::default() },
        },
    }
}
