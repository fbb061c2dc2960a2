//! The calls of one reply. A batch decides which calls may run and is done when all of them have results.

use super::input::{Answerer, DispatchedCall, InputError, UnapprovedRequest};
use super::loop_breaks::Completion;
use super::repetition::CallEnd;
use super::{Action, Dispatch};
use crate::approval::Authorization;
use crate::change::{CallChange, CallState};
use crate::event::{Suspension, Wait, WaitCause};
use crate::loop_break::LoopBreak;
use crate::message::{CallId, Digest};
use crate::tool::CallCost;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The calls of one reply, in call order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) step: u32,
    pub(super) calls: Vec<BatchCall>,
    /// Whether the current suspension has been announced by an event.
    pub(super) suspended: bool,
    /// Whether a user has been asked about the calls that need approval (L17).
    #[serde(default, rename = "asked")]
    pub(super) approval_requested: bool,
    /// Number of calls that were sent to a service, an agent or the user, by tool (L11).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) outstanding: BTreeMap<String, u32>,
    /// The result of `task_completion`, while it is being checked (L18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) completion: Option<Completion>,
    /// Feedback for the model in addition to the results (L20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feedback: Option<String>,
}

/// One call. Its arguments and its result are in its record, not here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchCall {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) sequential: bool,
    pub(super) repeatable: bool,
    pub(super) attempt: u32,
    pub(super) state: CallProgress,
    /// The external response for which the call waits while it is outstanding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) awaits: Option<WaitCause>,
    /// Whether the call was outstanding and has its answer.
    #[serde(default)]
    pub(super) answered: bool,
    /// Identity of the tool that the approval is about (L17).
    #[serde(default, rename = "asked_about", skip_serializing_if = "Option::is_none")]
    pub(super) approval_identity: Option<Digest>,
    /// Why the call is allowed to run (L17).
    #[serde(default, rename = "granted", skip_serializing_if = "Option::is_none")]
    pub(super) authorization: Option<Authorization>,
    /// The service request of the call's tool, if the request needs an approval before it is sent (P2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<UnapprovedRequest>,
    /// Cost of a call that ran before it was sent outside.
    #[serde(default, rename = "spent")]
    pub(super) spent_cost: CallCost,
    /// Fingerprint of the call's arguments (L28).
    #[serde(default)]
    pub(super) arguments: u64,
    /// Whether the call succeeded. None: it has not finished, or it was deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<CallEnd>,
    /// How the call ends the turn. Such a call runs last (L18). None: it does not end the turn.
    #[serde(default, rename = "breaks", skip_serializing_if = "Option::is_none")]
    pub(super) loop_break: Option<LoopBreak>,
}

/// The state of a call in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallProgress {
    Waiting,
    #[serde(rename = "asking")]
    AwaitingApproval,
    Running,
    Outstanding,
    #[serde(rename = "unknown")]
    OutcomeUnknown,
    /// The call returned the turn's result, which is being checked.
    Checking,
    #[serde(rename = "done")]
    Finished {
        tokens: u32,
    },
}

impl BatchCall {
    pub(super) fn new(id: CallId, name: String, state: CallProgress) -> Self {
        Self {
            id,
            name,
            sequential: false,
            repeatable: false,
            attempt: 0,
            state,
            awaits: None,
            answered: false,
            approval_identity: None,
            authorization: None,
            request: None,
            spent_cost: CallCost::default(),
            arguments: 0,
            end: None,
            loop_break: None,
        }
    }

    /// Name of the tool for which approval is requested. If the call's tool has run and requested a service, this is
    /// the name of the service.
    pub(super) fn approval_name(&self) -> &str {
        self.request.as_ref().map_or(&self.name, |request| &request.service)
    }

    /// The change of state for the call's record.
    pub(super) fn moved(&self) -> CallChange {
        let state = match self.state {
            CallProgress::Waiting => CallState::Waiting,
            CallProgress::AwaitingApproval => CallState::AwaitingApproval,
            CallProgress::Running | CallProgress::Checking => CallState::Started,
            CallProgress::Outstanding => CallState::Outstanding,
            CallProgress::OutcomeUnknown => CallState::OutcomeUnknown,
            CallProgress::Finished { .. } => CallState::Finished,
        };
        CallChange::Moved { id: self.id.clone(), state, attempt: self.attempt }
    }
}

impl CallProgress {
    fn for_people(self) -> &'static str {
        match self {
            CallProgress::Waiting => "waiting to run",
            CallProgress::AwaitingApproval => "waiting for an approval",
            CallProgress::Running => "running",
            CallProgress::Outstanding => "waiting for an answer",
            CallProgress::OutcomeUnknown => "waiting for a decision, because its outcome is unknown",
            CallProgress::Checking => "waiting for its result to be checked",
            CallProgress::Finished { .. } => "finished",
        }
    }
}

impl Batch {
    pub(super) fn new(step: u32) -> Self {
        Self {
            step,
            calls: Vec::new(),
            suspended: false,
            approval_requested: false,
            outstanding: BTreeMap::new(),
            completion: None,
            feedback: None,
        }
    }

    pub(super) fn action(&self, parallel_calls: u32) -> Action {
        let dispatch = self.dispatchable(parallel_calls);
        if !dispatch.is_empty() {
            Action::Dispatch(dispatch)
        } else if self.any(CallProgress::Running) {
            Action::AwaitOutcome
        } else {
            Action::Suspended(self.suspension())
        }
    }

    /// Returns the calls that wait for an external decision or response, and what each of them waits for.
    pub(super) fn suspension(&self) -> Suspension {
        let waits = self.calls.iter().filter_map(|call| {
            let cause = match call.state {
                CallProgress::OutcomeUnknown => WaitCause::OutcomeUnknown,
                CallProgress::AwaitingApproval => WaitCause::Approval,
                CallProgress::Outstanding => call.awaits.clone()?,
                CallProgress::Waiting
                | CallProgress::Running
                | CallProgress::Checking
                | CallProgress::Finished { .. } => return None,
            };
            let name = if cause == WaitCause::Approval { call.approval_name() } else { &call.name };
            Some(Wait { call: call.id.clone(), name: name.to_owned(), cause })
        });
        Suspension { waits: waits.collect() }
    }

    /// Whether the batch can only continue after an external decision or response.
    pub(super) fn is_blocked(&self) -> bool {
        let may_run = |call: &BatchCall| call.state == CallProgress::Waiting && !self.waits_for_others(&call.id);
        let can_continue =
            self.any(CallProgress::Running) || self.any(CallProgress::Checking) || self.calls.iter().any(may_run);
        !self.is_done() && !can_continue
    }

    /// Whether a call is in a state that no input can end. Transitions never produce such a state.
    pub(super) fn is_inconsistent(&self) -> bool {
        self.calls.iter().any(|call| match call.state {
            CallProgress::Checking => self.completion.is_none(),
            CallProgress::Outstanding => !matches!(
                call.awaits,
                Some(WaitCause::Service { .. } | WaitCause::Agent { .. } | WaitCause::Answer { .. })
            ),
            _ => false,
        })
    }

    /// Number of responses to outstanding calls that have arrived, by tool (L11).
    pub(super) fn answered(&self) -> BTreeMap<String, u32> {
        let mut answered = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.answered) {
            *answered.entry(call.name.clone()).or_default() += 1;
        }
        answered
    }

    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| matches!(call.state, CallProgress::Finished { .. }))
    }

    pub(super) fn call_mut(&mut self, id: &CallId) -> Option<&mut BatchCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    pub(super) fn check_dispatch(&self, calls: &[DispatchedCall], parallel_calls: u32) -> Result<(), InputError> {
        let dispatchable = self.dispatchable(parallel_calls);
        for (index, DispatchedCall { call, awaits, .. }) in calls.iter().enumerate() {
            if calls[..index].iter().any(|earlier| earlier.call == *call) {
                return Err(InputError::Settled(call.clone(), "named twice"));
            }
            if !dispatchable.iter().any(|dispatch| dispatch.call == *call) {
                return Err(InputError::Settled(call.clone(), self.find(call)?.state.for_people()));
            }
            if self.find(call)?.request.is_some() && awaits.is_none() {
                return Err(InputError::Settled(call.clone(), "finished running, and only its request may be sent"));
            }
        }
        Ok(())
    }

    pub(super) fn check_running(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::Running)
    }

    pub(super) fn check_unknown(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::OutcomeUnknown)
    }

    pub(super) fn check_outstanding(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::Outstanding)
    }

    /// Checks that the call waits for a response from this sender.
    pub(super) fn check_answer(&self, id: &CallId, from: Answerer) -> Result<(), InputError> {
        self.check_outstanding(id)?;
        let awaits = self.find(id)?.awaits.as_ref();
        if awaits.is_none_or(|cause| from.may_answer(cause)) {
            return Ok(());
        }
        Err(InputError::Unexpected(match from {
            Answerer::Service => "a service's answer to this call",
            Answerer::Agent => "an agent's answer to this call",
            Answerer::User => "an answer to a question of this call",
        }))
    }

    /// Checks that each call waits for an approval, and that a user has been asked for it.
    pub(super) fn check_awaiting_approval<'a>(&self, ids: impl Iterator<Item = &'a CallId>) -> Result<(), InputError> {
        self.check_all(ids, CallProgress::AwaitingApproval)?;
        if self.approval_requested { Ok(()) } else { Err(InputError::Unexpected("an approval")) }
    }

    /// Checks that each call is waiting to run and does not end the turn. Calls that end the turn never need approval.
    pub(super) fn check_reapproval<'a>(&self, ids: impl Iterator<Item = &'a CallId> + Clone) -> Result<(), InputError> {
        self.check_all(ids.clone(), CallProgress::Waiting)?;
        let breaks = |id: &CallId| self.find(id).is_ok_and(|call| call.loop_break.is_some());
        if ids.into_iter().any(breaks) { Err(InputError::Unexpected("an approval")) } else { Ok(()) }
    }

    /// Checks that there is at least one id, that no id occurs twice, and that each call is in the expected state.
    fn check_all<'a>(&self, ids: impl Iterator<Item = &'a CallId>, expected: CallProgress) -> Result<(), InputError> {
        let mut seen = Vec::new();
        for id in ids {
            if seen.contains(&id) {
                return Err(InputError::Settled(id.clone(), "named twice"));
            }
            self.check_state(id, expected)?;
            seen.push(id);
        }
        if seen.is_empty() { Err(InputError::Unexpected("an approval")) } else { Ok(()) }
    }

    pub(super) fn check_waiting(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::Waiting)
    }

    fn check_state(&self, id: &CallId, expected: CallProgress) -> Result<(), InputError> {
        let found = self.find(id)?.state;
        if found == expected { Ok(()) } else { Err(InputError::Settled(id.clone(), found.for_people())) }
    }

    fn find(&self, id: &CallId) -> Result<&BatchCall, InputError> {
        self.calls.iter().find(|call| call.id == *id).ok_or_else(|| InputError::UnknownCall(id.clone()))
    }

    pub(super) fn any(&self, state: CallProgress) -> bool {
        self.calls.iter().any(|call| call.state == state)
    }

    /// Returns the calls that may start now, in call order. At most `parallel_calls` calls run at the same time, and a
    /// sequential call only runs alone (L9).
    fn dispatchable(&self, parallel_calls: u32) -> Vec<Dispatch> {
        let running: Vec<&BatchCall> = self.calls.iter().filter(|call| call.state == CallProgress::Running).collect();
        if running.iter().any(|call| call.sequential) {
            return Vec::new();
        }
        let free = (parallel_calls.max(1) as usize).saturating_sub(running.len());
        let mut picked = Vec::new();
        for call in
            self.calls.iter().filter(|call| call.state == CallProgress::Waiting && !self.waits_for_others(&call.id))
        {
            if picked.len() == free {
                break;
            }
            let authorization = call.authorization.clone();
            let request = call.request.clone();
            let dispatch = Dispatch { call: call.id.clone(), attempt: call.attempt + 1, authorization, request };
            if !call.sequential {
                picked.push(dispatch);
                continue;
            }
            if picked.is_empty() && running.is_empty() {
                picked.push(dispatch);
            }
            break;
        }
        picked
    }
}
