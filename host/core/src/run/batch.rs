//! The calls of one reply: which run, which wait, and when all have their result.

use super::finishing::Completion;
use super::input::{Answerer, DispatchedCall, HeldRequest, Refused};
use super::repetition::CallEnd;
use super::{Action, Dispatch};
use crate::approval::Leave;
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
    /// The suspension has been announced.
    pub(super) suspended: bool,
    /// Somebody has been asked for the calls that must be allowed (L17).
    #[serde(default)]
    pub(super) asked: bool,
    /// Calls that were handed on, by tool (L11).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) outstanding: BTreeMap<String, u32>,
    /// The result of `task_completion`, while it is checked (L18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) completion: Option<Completion>,
    /// What the model is told beside the results (L20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feedback: Option<String>,
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
    /// What it waits for while it is outstanding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) awaits: Option<WaitCause>,
    /// It was outstanding and has its answer.
    #[serde(default)]
    pub(super) answered: bool,
    /// Digest of the tool about which somebody is asked (L17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_about: Option<Digest>,
    /// What allowed it (L17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) granted: Option<Leave>,
    /// What its tool has asked of a service, where somebody must allow that first (P2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<HeldRequest>,
    /// Of a call that ran before it was handed on.
    #[serde(default)]
    pub(super) spent: CallCost,
    /// Fingerprint of its arguments (L28).
    #[serde(default)]
    pub(super) arguments: u64,
    /// How it came out; none while it has not, and of a call that was deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<CallEnd>,
    /// It ends the turn, and comes last (L18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) breaks: Option<LoopBreak>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    Waiting,
    Asking,
    Running,
    Outstanding,
    Unknown,
    /// It has brought the turn's result, which is checked.
    Checking,
    Done {
        tokens: u32,
    },
}

impl BatchCall {
    pub(super) fn new(id: CallId, name: String, state: Progress) -> Self {
        Self {
            id,
            name,
            sequential: false,
            repeatable: false,
            attempt: 0,
            state,
            awaits: None,
            answered: false,
            asked_about: None,
            granted: None,
            request: None,
            spent: CallCost::default(),
            arguments: 0,
            end: None,
            breaks: None,
        }
    }

    /// The tool that somebody is asked about: the service, where the call's own tool has run and asks for one.
    pub(super) fn asked_name(&self) -> &str {
        self.request.as_ref().map_or(&self.name, |request| &request.service)
    }

    /// For its record: how far it is.
    pub(super) fn moved(&self) -> CallChange {
        let state = match self.state {
            Progress::Waiting => CallState::Waiting,
            Progress::Asking => CallState::Asking,
            Progress::Running | Progress::Checking => CallState::Started,
            Progress::Outstanding => CallState::Outstanding,
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
            Progress::Asking => "waiting for an approval",
            Progress::Running => "running",
            Progress::Outstanding => "waiting for an answer",
            Progress::Unknown => "waiting for a decision, its outcome being unknown",
            Progress::Checking => "waiting for its result to be checked",
            Progress::Done { .. } => "finished",
        }
    }
}

impl Batch {
    pub(super) fn new(step: u32) -> Self {
        Self {
            step,
            calls: Vec::new(),
            suspended: false,
            asked: false,
            outstanding: BTreeMap::new(),
            completion: None,
            feedback: None,
        }
    }

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
        let waits = self.calls.iter().filter_map(|call| {
            let cause = match call.state {
                Progress::Unknown => WaitCause::OutcomeUnknown,
                Progress::Asking => WaitCause::Approval,
                Progress::Outstanding => call.awaits.clone()?,
                Progress::Waiting | Progress::Running | Progress::Checking | Progress::Done { .. } => return None,
            };
            let name = if cause == WaitCause::Approval { call.asked_name() } else { &call.name };
            Some(Wait { call: call.id.clone(), name: name.to_owned(), cause })
        });
        Suspension { waits: waits.collect() }
    }

    /// Whether only somebody outside can go on with it.
    pub(super) fn is_stuck(&self) -> bool {
        let may_run = |call: &BatchCall| call.state == Progress::Waiting && !self.is_held(&call.id);
        let goes_on = self.any(Progress::Running) || self.any(Progress::Checking) || self.calls.iter().any(may_run);
        !self.is_done() && !goes_on
    }

    /// Whether a call waits in a state that nothing ends: no transition leaves one behind.
    pub(super) fn is_contradictory(&self) -> bool {
        self.calls.iter().any(|call| match call.state {
            Progress::Checking => self.completion.is_none(),
            Progress::Outstanding => !matches!(
                call.awaits,
                Some(WaitCause::Service { .. } | WaitCause::Agent { .. } | WaitCause::Answer { .. })
            ),
            _ => false,
        })
    }

    /// How many answers have come, by tool (L11).
    pub(super) fn answered(&self) -> BTreeMap<String, u32> {
        let mut answered = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.answered) {
            *answered.entry(call.name.clone()).or_default() += 1;
        }
        answered
    }

    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| matches!(call.state, Progress::Done { .. }))
    }

    pub(super) fn call_mut(&mut self, id: &CallId) -> Option<&mut BatchCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    pub(super) fn check_dispatch(&self, calls: &[DispatchedCall], parallel_calls: u32) -> Result<(), Refused> {
        let dispatchable = self.dispatchable(parallel_calls);
        for (place, DispatchedCall { call, awaits, .. }) in calls.iter().enumerate() {
            if calls[..place].iter().any(|earlier| earlier.call == *call) {
                return Err(Refused::Settled(call.clone(), "named twice"));
            }
            if !dispatchable.iter().any(|dispatch| dispatch.call == *call) {
                return Err(Refused::Settled(call.clone(), self.find(call)?.state.for_people()));
            }
            if self.find(call)?.request.is_some() && awaits.is_none() {
                return Err(Refused::Settled(call.clone(), "run already, and only its request is handed on"));
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

    pub(super) fn check_outstanding(&self, id: &CallId) -> Result<(), Refused> {
        self.check_state(id, Progress::Outstanding)
    }

    /// It waits for an answer of just this kind.
    pub(super) fn check_answer(&self, id: &CallId, from: Answerer) -> Result<(), Refused> {
        self.check_outstanding(id)?;
        let awaits = self.find(id)?.awaits.as_ref();
        if awaits.is_none_or(|cause| from.may_answer(cause)) {
            return Ok(());
        }
        Err(Refused::Unexpected(match from {
            Answerer::Service => "a service's answer to this call",
            Answerer::Agent => "an agent's answer to this call",
            Answerer::User => "an answer to a question of this call",
        }))
    }

    /// Each waits for an approval that somebody has been asked for.
    pub(super) fn check_asked<'a>(&self, ids: impl Iterator<Item = &'a CallId>) -> Result<(), Refused> {
        self.check_all(ids, Progress::Asking)?;
        if self.asked { Ok(()) } else { Err(Refused::Unexpected("an approval")) }
    }

    /// Each was about to run. Nobody is ever asked about a call that ends the loop.
    pub(super) fn check_ask_again<'a>(&self, ids: impl Iterator<Item = &'a CallId> + Clone) -> Result<(), Refused> {
        self.check_all(ids.clone(), Progress::Waiting)?;
        let breaks = |id: &CallId| self.find(id).is_ok_and(|call| call.breaks.is_some());
        if ids.into_iter().any(breaks) { Err(Refused::Unexpected("an approval")) } else { Ok(()) }
    }

    /// At least one, each once.
    fn check_all<'a>(&self, ids: impl Iterator<Item = &'a CallId>, expected: Progress) -> Result<(), Refused> {
        let mut seen = Vec::new();
        for id in ids {
            if seen.contains(&id) {
                return Err(Refused::Settled(id.clone(), "named twice"));
            }
            self.check_state(id, expected)?;
            seen.push(id);
        }
        if seen.is_empty() { Err(Refused::Unexpected("an approval")) } else { Ok(()) }
    }

    pub(super) fn check_waiting(&self, id: &CallId) -> Result<(), Refused> {
        self.check_state(id, Progress::Waiting)
    }

    fn check_state(&self, id: &CallId, expected: Progress) -> Result<(), Refused> {
        let found = self.find(id)?.state;
        if found == expected { Ok(()) } else { Err(Refused::Settled(id.clone(), found.for_people())) }
    }

    fn find(&self, id: &CallId) -> Result<&BatchCall, Refused> {
        self.calls.iter().find(|call| call.id == *id).ok_or_else(|| Refused::UnknownCall(id.clone()))
    }

    pub(super) fn any(&self, state: Progress) -> bool {
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
        for call in self.calls.iter().filter(|call| call.state == Progress::Waiting && !self.is_held(&call.id)) {
            if picked.len() == free {
                break;
            }
            let granted = call.granted.clone();
            let request = call.request.clone();
            let dispatch = Dispatch { call: call.id.clone(), attempt: call.attempt + 1, granted, request };
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
