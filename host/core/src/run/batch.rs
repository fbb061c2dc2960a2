//! The calls of one reply. A batch decides which calls may run and is done when all its calls have results.

use super::input::{Answerer, DispatchedCall, InputError, UnapprovedRequest};
use super::loop_breaks::Completion;
use super::repetition::CallEnd;
use super::stored_call::StoredCall;
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
    /// Time at which the calls that still wait for an approval are denied, in milliseconds since the Unix epoch. `None`
    /// means that they wait indefinitely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approvals_expire_at: Option<u64>,
    /// Number of calls that were sent to a service, an agent or the user, by tool (L11).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) outstanding: BTreeMap<String, u32>,
    /// The result of `task_completion`, while it is being checked (L18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) completion: Option<Completion>,
    /// Feedback for the model in addition to the results of the calls (L20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feedback: Option<String>,
}

/// One call of a batch. The call's arguments and result are in its call record and not in this type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredCall", into = "StoredCall")]
pub(super) struct BatchCall {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) sequential: bool,
    pub(super) repeatable: bool,
    pub(super) attempt: u32,
    pub(super) state: CallProgress,
    /// Why the call is allowed to run (L17). `None` means that the call needs no approval, or nobody has approved the
    /// call yet.
    pub(super) authorization: Option<Authorization>,
    /// The service request of the call's tool, if the request needs an approval before it is sent (P2).
    pub(super) request: Option<UnapprovedRequest>,
    /// The cost of a call whose tool has run and has then requested a service (P2).
    pub(super) spent_cost: CallCost,
    /// Fingerprint of the call's arguments (L28).
    pub(super) arguments: u64,
    /// How the call ends the turn. A call that ends the turn runs last (L18). `None` means that the call does not end
    /// the turn.
    pub(super) loop_break: Option<LoopBreak>,
}

/// The state of a call in its batch. Each state contains the data that is only valid in that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallProgress {
    Waiting,
    AwaitingApproval {
        /// Identity of the tool for which the approval is requested (L17). `None` means that the call was imported, or
        /// an older version of the host stored it.
        identity: Option<Digest>,
    },
    Running,
    Outstanding {
        awaits: WaitCause,
    },
    OutcomeUnknown,
    /// The call returned the turn's result, which is being checked.
    Checking,
    Finished {
        /// Estimated tokens of the result as the model sees it.
        tokens: u32,
        /// How the call ended. `None` means that the call was deferred, or that the turn ended before the call
        /// finished.
        end: Option<CallEnd>,
        /// Whether the call was outstanding and its answer has arrived (L11).
        answered: bool,
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
            authorization: None,
            request: None,
            spent_cost: CallCost::default(),
            arguments: 0,
            loop_break: None,
        }
    }

    /// Name of the tool for which approval is requested. If the call's tool has run and requested a service, this is
    /// the name of the service's tool.
    pub(super) fn approval_name(&self) -> &str {
        self.request.as_ref().map_or(&self.name, |request| &request.service)
    }

    /// Returns the change that writes the call's current state to the call's record.
    pub(super) fn state_change(&self) -> CallChange {
        let state = match self.state {
            CallProgress::Waiting => CallState::Waiting,
            CallProgress::AwaitingApproval { .. } => CallState::AwaitingApproval,
            CallProgress::Running | CallProgress::Checking => CallState::Started,
            CallProgress::Outstanding { .. } => CallState::Outstanding,
            CallProgress::OutcomeUnknown => CallState::OutcomeUnknown,
            CallProgress::Finished { .. } => CallState::Finished,
        };
        CallChange::Moved { id: self.id.clone(), state, attempt: self.attempt }
    }
}

impl CallProgress {
    /// Returns the state of a finished call that counts as neither a success nor a failure.
    pub(super) fn abandoned(tokens: u32) -> Self {
        CallProgress::Finished { tokens, end: None, answered: false }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, CallProgress::Waiting)
    }

    pub(super) fn is_awaiting_approval(&self) -> bool {
        matches!(self, CallProgress::AwaitingApproval { .. })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, CallProgress::Running)
    }

    pub(super) fn is_outstanding(&self) -> bool {
        matches!(self, CallProgress::Outstanding { .. })
    }

    pub(super) fn is_checking(&self) -> bool {
        matches!(self, CallProgress::Checking)
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self, CallProgress::Finished { .. })
    }

    /// Returns whether the call succeeded or failed. `None` means that the call has not finished, or that it counts as
    /// neither a success nor a failure.
    pub(super) fn end(&self) -> Option<CallEnd> {
        match self {
            CallProgress::Finished { end, .. } => *end,
            _ => None,
        }
    }

    fn for_users(&self) -> &'static str {
        match self {
            CallProgress::Waiting => "waiting to run",
            CallProgress::AwaitingApproval { .. } => "waiting for an approval",
            CallProgress::Running => "running",
            CallProgress::Outstanding { .. } => "waiting for an answer",
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
            approvals_expire_at: None,
            outstanding: BTreeMap::new(),
            completion: None,
            feedback: None,
        }
    }

    pub(super) fn action(&self, parallel_calls: u32) -> Action {
        let dispatch = self.dispatchable(parallel_calls);
        if !dispatch.is_empty() {
            Action::Dispatch(dispatch)
        } else if self.any(CallProgress::is_running) {
            Action::AwaitOutcome
        } else {
            Action::Suspended(self.suspension())
        }
    }

    /// Returns the calls that wait for an external decision or response, and what each of them waits for.
    pub(super) fn suspension(&self) -> Suspension {
        let waits = self.calls.iter().filter_map(|call| {
            let cause = match &call.state {
                CallProgress::OutcomeUnknown => WaitCause::OutcomeUnknown,
                CallProgress::AwaitingApproval { .. } => WaitCause::Approval { expires_at: self.approvals_expire_at },
                CallProgress::Outstanding { awaits } => awaits.clone(),
                CallProgress::Waiting
                | CallProgress::Running
                | CallProgress::Checking
                | CallProgress::Finished { .. } => return None,
            };
            let name = if call.state.is_awaiting_approval() { call.approval_name() } else { &call.name };
            Some(Wait { call: call.id.clone(), name: name.to_owned(), cause })
        });
        Suspension { waits: waits.collect() }
    }

    /// Returns whether the batch can only continue after an external decision or response.
    pub(super) fn is_blocked(&self) -> bool {
        let may_run = |call: &BatchCall| call.state.is_waiting() && !self.waits_for_others(&call.id);
        let can_continue =
            self.any(CallProgress::is_running) || self.any(CallProgress::is_checking) || self.calls.iter().any(may_run);
        !self.is_done() && !can_continue
    }

    /// Whether a call is in a state that no input can end. A transition never produces a batch with such a call.
    pub(super) fn is_inconsistent(&self) -> bool {
        self.calls.iter().any(|call| match &call.state {
            CallProgress::Checking => self.completion.is_none(),
            CallProgress::Outstanding { awaits } => {
                matches!(awaits, WaitCause::OutcomeUnknown | WaitCause::Approval { .. })
            }
            _ => false,
        })
    }

    /// For each tool, the number of outstanding calls whose response has arrived (L11).
    pub(super) fn answered(&self) -> BTreeMap<String, u32> {
        let mut answered = BTreeMap::new();
        let answered_calls =
            self.calls.iter().filter(|call| matches!(call.state, CallProgress::Finished { answered: true, .. }));
        for call in answered_calls {
            *answered.entry(call.name.clone()).or_default() += 1;
        }
        answered
    }

    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.state.is_finished())
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
                return Err(InputError::Settled(call.clone(), self.find(call)?.state.for_users()));
            }
            if self.find(call)?.request.is_some() && awaits.is_none() {
                let state = "no longer running, and only its service request may be sent";
                return Err(InputError::Settled(call.clone(), state));
            }
        }
        Ok(())
    }

    pub(super) fn check_running(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::is_running)
    }

    pub(super) fn check_unknown(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, |state| matches!(state, CallProgress::OutcomeUnknown))
    }

    pub(super) fn check_outstanding(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::is_outstanding)
    }

    /// Checks that the call waits for a response, or for an approval with a time limit.
    pub(super) fn check_expiring(&self, id: &CallId) -> Result<(), InputError> {
        let has_limit = self.approval_requested && self.approvals_expire_at.is_some();
        self.check_state(id, |state| state.is_outstanding() || (has_limit && state.is_awaiting_approval()))
    }

    /// Checks that the call waits for a response from this sender.
    pub(super) fn check_answer(&self, id: &CallId, from: Answerer) -> Result<(), InputError> {
        self.check_outstanding(id)?;
        if let CallProgress::Outstanding { awaits } = &self.find(id)?.state
            && from.may_answer(awaits)
        {
            return Ok(());
        }
        Err(InputError::Unexpected(match from {
            Answerer::Service => "a service's answer to this call",
            Answerer::Agent => "an agent's answer to this call",
            Answerer::User => "an answer to a question of this call",
            Answerer::Client => "a client's result of this call",
        }))
    }

    /// Checks that each call waits for an approval, and that a user has been asked for the approval.
    pub(super) fn check_awaiting_approval<'a>(&self, ids: impl Iterator<Item = &'a CallId>) -> Result<(), InputError> {
        self.check_all(ids, CallProgress::is_awaiting_approval)?;
        if self.approval_requested { Ok(()) } else { Err(InputError::Unexpected("an approval")) }
    }

    /// Checks that all calls are waiting to run and that no call ends the turn. Calls that end the turn never need
    /// an approval.
    pub(super) fn check_reapproval<'a>(&self, ids: impl Iterator<Item = &'a CallId> + Clone) -> Result<(), InputError> {
        self.check_all(ids.clone(), CallProgress::is_waiting)?;
        let breaks = |id: &CallId| self.find(id).is_ok_and(|call| call.loop_break.is_some());
        if ids.into_iter().any(breaks) { Err(InputError::Unexpected("an approval")) } else { Ok(()) }
    }

    /// Checks that there is at least one call, that no call is named twice, and that each call is in the
    /// expected state.
    fn check_all<'a>(
        &self,
        ids: impl Iterator<Item = &'a CallId>,
        is_expected: impl Fn(&CallProgress) -> bool,
    ) -> Result<(), InputError> {
        let mut seen = Vec::new();
        for id in ids {
            if seen.contains(&id) {
                return Err(InputError::Settled(id.clone(), "named twice"));
            }
            self.check_state(id, &is_expected)?;
            seen.push(id);
        }
        if seen.is_empty() { Err(InputError::Unexpected("an approval")) } else { Ok(()) }
    }

    pub(super) fn check_waiting(&self, id: &CallId) -> Result<(), InputError> {
        self.check_state(id, CallProgress::is_waiting)
    }

    fn check_state(&self, id: &CallId, is_expected: impl Fn(&CallProgress) -> bool) -> Result<(), InputError> {
        let found = &self.find(id)?.state;
        if is_expected(found) { Ok(()) } else { Err(InputError::Settled(id.clone(), found.for_users())) }
    }

    fn find(&self, id: &CallId) -> Result<&BatchCall, InputError> {
        self.calls.iter().find(|call| call.id == *id).ok_or_else(|| InputError::UnknownCall(id.clone()))
    }

    pub(super) fn any(&self, is_in: impl Fn(&CallProgress) -> bool) -> bool {
        self.calls.iter().any(|call| is_in(&call.state))
    }

    /// Returns the calls that may start now, in call order. At most `parallel_calls` calls run at the same time, and a
    /// sequential call runs only while no other call is running (L9).
    fn dispatchable(&self, parallel_calls: u32) -> Vec<Dispatch> {
        let running: Vec<&BatchCall> = self.calls.iter().filter(|call| call.state.is_running()).collect();
        if running.iter().any(|call| call.sequential) {
            return Vec::new();
        }
        let free = (parallel_calls.max(1) as usize).saturating_sub(running.len());
        let mut picked = Vec::new();
        for call in self.calls.iter().filter(|call| call.state.is_waiting() && !self.waits_for_others(&call.id)) {
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
