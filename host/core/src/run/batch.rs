//! The calls of one reply: which run, which wait, and when all have their result.

use super::input::{DispatchedCall, Refused};
use super::{Action, Dispatch};
use crate::change::{CallChange, CallState};
use crate::event::Suspension;
use crate::message::CallId;
use serde::{Deserialize, Serialize};

/// The calls of one reply, in call order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) step: u32,
    pub(super) calls: Vec<BatchCall>,
    /// The suspension has been announced.
    pub(super) suspended: bool,
}

/// One call. Its arguments and its result stand in its record, not here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchCall {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) sequential: bool,
    pub(super) repeatable: bool,
    pub(super) attempt: u32,
    pub(super) state: Progress,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    Waiting,
    Running,
    Unknown,
    Done { tokens: u32 },
}

impl BatchCall {
    /// For its record: how far it is.
    pub(super) fn moved(&self) -> CallChange {
        let state = match self.state {
            Progress::Waiting => CallState::Waiting,
            Progress::Running => CallState::Started,
            Progress::Unknown => CallState::OutcomeUnknown,
            Progress::Done { .. } => CallState::Finished,
        };
        CallChange::Moved { id: self.id.clone(), state, attempt: self.attempt }
    }
}

impl Progress {
    fn for_people(self) -> &'static str {
        match self {
            Progress::Waiting => "waiting to run",
            Progress::Running => "running",
            Progress::Unknown => "waiting for a decision, its outcome being unknown",
            Progress::Done { .. } => "finished",
        }
    }
}

impl Batch {
    pub(super) fn action(&self, parallel_calls: u32) -> Action {
        let dispatch = self.dispatchable(parallel_calls);
        if !dispatch.is_empty() {
            Action::Dispatch(dispatch)
        } else if self.any(Progress::Running) {
            Action::AwaitOutcome
        } else {
            Action::Suspended(self.suspension())
        }
    }

    /// What the batch waits for when nothing of it can run.
    pub(super) fn suspension(&self) -> Suspension {
        let calls = self.calls.iter().filter(|call| call.state == Progress::Unknown);
        Suspension::OutcomeUnknown { calls: calls.map(|call| call.id.clone()).collect() }
    }

    /// Whether only a decision can go on with it.
    pub(super) fn is_stuck(&self) -> bool {
        self.any(Progress::Unknown) && !self.any(Progress::Running) && !self.any(Progress::Waiting)
    }

    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| matches!(call.state, Progress::Done { .. }))
    }

    pub(super) fn call_mut(&mut self, id: &CallId) -> Option<&mut BatchCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    pub(super) fn check_dispatch(&self, calls: &[DispatchedCall], parallel_calls: u32) -> Result<(), Refused> {
        let dispatchable = self.dispatchable(parallel_calls);
        for (place, DispatchedCall { call, .. }) in calls.iter().enumerate() {
            if calls[..place].iter().any(|earlier| earlier.call == *call) {
                return Err(Refused::Settled(call.clone(), "named twice"));
            }
            if !dispatchable.iter().any(|dispatch| dispatch.call == *call) {
                return Err(Refused::Settled(call.clone(), self.find(call)?.state.for_people()));
            }
        }
        Ok(())
    }

    pub(super) fn check_running(&self, id: &CallId) -> Result<(), Refused> {
        self.check_state(id, Progress::Running)
    }

    pub(super) fn check_unknown(&self, id: &CallId) -> Result<(), Refused> {
        self.check_state(id, Progress::Unknown)
    }

    fn check_state(&self, id: &CallId, expected: Progress) -> Result<(), Refused> {
        let found = self.find(id)?.state;
        if found == expected { Ok(()) } else { Err(Refused::Settled(id.clone(), found.for_people())) }
    }

    fn find(&self, id: &CallId) -> Result<&BatchCall, Refused> {
        self.calls.iter().find(|call| call.id == *id).ok_or_else(|| Refused::UnknownCall(id.clone()))
    }

    fn any(&self, state: Progress) -> bool {
        self.calls.iter().any(|call| call.state == state)
    }

    /// The calls that may start now, in call order: up to the cap, a sequential one alone (L9).
    fn dispatchable(&self, parallel_calls: u32) -> Vec<Dispatch> {
        let running: Vec<&BatchCall> = self.calls.iter().filter(|call| call.state == Progress::Running).collect();
        if running.iter().any(|call| call.sequential) {
            return Vec::new();
        }
        let free = (parallel_calls.max(1) as usize).saturating_sub(running.len());
        let mut picked = Vec::new();
        for call in self.calls.iter().filter(|call| call.state == Progress::Waiting) {
            if picked.len() == free {
                break;
            }
            let dispatch = Dispatch { call: call.id.clone(), attempt: call.attempt + 1 };
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
