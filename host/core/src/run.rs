//! The agent loop as a state machine. The loop returns the next action, and its driver performs the action and reports
//! the result.
//!
//! [`Run`] is the state of one session: ids, token counts and the open turn, but no messages. [`Run::action`] is a pure
//! function of a `Run`. [`Run::apply`] applies one [`Input`] and returns the [`Change`] to commit with the new
//! state. The same state and input always lead to the same next action, so any host that restores the state can
//! continue the session.

mod authority;
mod batch;
mod budget;
mod config;
mod delegation;
mod depth;
mod end;
mod eviction;
mod external_waits;
mod failure;
mod fork;
mod initial_state;
mod input;
mod loop_breaks;
mod persistence;
mod planning;
mod plugin_changes;
mod refused_calls;
mod repetition;
mod state;
mod steering;
mod step;
mod stored_call;
#[cfg(test)]
mod stored_variants;
mod transition;
mod turn;
mod unreadable_calls;

pub use authority::{DroppedClaims, ImportTerms};
pub use budget::PromptBudget;
pub use config::{AnnouncedEvents, AtLimit, Emission, LoopConfig, UnitWeights, Weight};
pub use depth::{MAX_JSON_DEPTH, is_too_deep};
pub use end::{Output, TurnEnd, TurnError};
pub use eviction::SummaryPlan;
pub use failure::FALLBACK_TEXT;
pub use fork::{CutError, CutPoints};
pub use input::{
    AfterFailure, Answerer, Approval, Awaited, Decision, DispatchedCall, Disposition, Input, InputError, ModelFailure,
    OutputVerdict, ResolvedCall, ResolvedReply, Retryability, Summarised, TurnContext, UnapprovedRequest,
};
pub use planning::{ModelRole, OfferedTools, Plan, PlanBudgets, PlannedStep, PlannerReply};
pub use refused_calls::MAX_CALLS;
pub use state::{MAX_QUEUED_PROMPT_BYTES, MAX_QUEUED_PROMPTS, Mask, QueuedPrompt, RestoreError, Run, ViewEntry};
pub use turn::{PinnedAgent, PinnedPlugin, StepPlan, Turn};

use crate::approval::Authorization;
use crate::change::Change;
use crate::event::Suspension;
use crate::message::CallId;
use serde::{Deserialize, Serialize};

/// The next action that the driver of a run must perform. In the comment of each action, the text after "Respond
/// with" states which input reports the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Do nothing, because no turn has begun. [`Input::Start`] begins a turn.
    Idle,
    /// Call the context builder's `init`, or assemble the host's own prompt. Respond with [`Input::Context`].
    BuildContext,
    /// Summarise the messages that are about to be evicted. Respond with [`Input::Summarised`] (L27).
    Summarise(SummaryPlan),
    /// Send the messages in the view to the model. Respond with [`Input::Reply`] or [`Input::ModelFailed`].
    CallModel(StepPlan),
    /// Commit [`Input::Dispatched`] for these calls, then run them. Respond with [`Input::Outcome`] for each call.
    Dispatch(Vec<Dispatch>),
    /// Wait for the outcome of a running call.
    AwaitOutcome,
    /// Check the output with the validators in order, then with the output schema. Respond with [`Input::Verdict`].
    Validate(Validation),
    /// Wait for an external answer or decision. Respond with [`Input::Respond`], [`Input::Approval`]
    /// or [`Input::Resolve`].
    Suspended(Suspension),
    /// Do nothing, because the turn has ended. [`Input::Start`] begins the next turn.
    Ended,
}

/// One call to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Id of the call. The call's record contains the name of the tool and the arguments.
    pub call: CallId,
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// The approval that allows the call to run (L17). `None` means that the call needs no approval. The call must not
    /// run if the authorization does not cover the current tool and arguments. If the call must not run, respond with
    /// [`Input::RequestReapproval`] or [`Input::Forbidden`].
    #[serde(default, rename = "granted", skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// A service request that the tool returned when it ran. If the tool returned a request, send the request and do
    /// not run the tool again (P2). The authorization covers the service's tool and the request's data. `None` means
    /// that the tool has not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<UnapprovedRequest>,
}

/// An output to validate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// Text of a reply that has no tool call, or the result of `task_completion` as text.
    pub text: String,
    /// The result of `task_completion` as the model wrote it (L18). `None` means that the output is the text of
    /// a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Number of this attempt to produce an output, starting at 1.
    pub attempt: u32,
    /// Number of times that the model may still correct a rejected output. If the number is 0, a rejection ends
    /// the turn.
    pub corrections_left: u32,
}

impl Run {
    /// Returns the next action, which depends only on the state.
    pub fn action(&self) -> Action {
        match &self.turn {
            None => Action::Idle,
            Some(turn) => turn.action(self),
        }
    }

    /// Returns whether the host is running this call. Calls that were sent to a service, an agent or the user, and
    /// calls that end the turn, do not run in the host.
    pub fn is_running(&self, call: &CallId) -> bool {
        matches!(&self.turn, Some(turn) if turn.is_running(call))
    }

    /// Applies one input and returns the changes to commit.
    ///
    /// On an error, the state has not changed. After [`InputError::Inconsistent`], however, the state may have changed:
    /// drop the run and restore it from its last stored state.
    pub fn apply(&mut self, input: Input) -> Result<Change, InputError> {
        self.now = None;
        self.transition_checked(input)
    }

    /// Applies one input at the time `now`, in milliseconds since the Unix epoch, and returns the changes to commit. In
    /// contrast to [`Run::apply`], the requests for approvals that result from the input have a time limit if the turn's
    /// configuration sets one.
    pub fn apply_at(&mut self, input: Input, now: u64) -> Result<Change, InputError> {
        self.now = Some(now);
        let change = self.transition_checked(input);
        self.now = None;
        change
    }

    fn transition_checked(&mut self, input: Input) -> Result<Change, InputError> {
        self.check(&input)?;
        let mut change = Change::default();
        self.transition(input, &mut change);
        match self.inconsistency.take() {
            None => Ok(change),
            Some(contradiction) => Err(InputError::Inconsistent(contradiction)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 3: a result for a call that the state does not contain is reported as an error.
    #[test]
    fn a_result_for_an_unknown_call_is_an_error() {
        let mut run = Run::new("subject", "agent");
        let outcome = Input::Outcome { call: CallId("call_1_1_1".to_owned()), result: Default::default() };
        run.transition(outcome, &mut Change::default());
        assert_eq!(run.inconsistency, Some(state::NO_SUCH_CALL));
    }
}
