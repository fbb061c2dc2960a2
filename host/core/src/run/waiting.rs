//! Calls that wait for somebody outside: a service, another agent, the user's answer, an approval (L10, L11, L16, L17).

use super::batch::{Batch, BatchCall, Progress};
use super::input::{Awaited, HeldRequest};
use super::state::Run;
use super::step::text_result;
use super::turn::{Phase, Turn};
use crate::approval::{
    ApprovalAnswer, ApprovalVerdict, ApprovalWord, AskedAgain, GrantScope, LastingGrant, Leave, ScopedGrant,
};
use crate::change::{CallChange, CallResult, Change, OutboxEffect, OutboxItem};
use crate::event::{ApprovalItem, EndReason, EventKind, Wait, WaitCause};
use crate::message::{CallId, Digest};
use crate::plugin::OutputData;
use crate::tool::{CallCost, ToolError};
use serde_json::Value;

const EXPIRED: &str = "no answer came in time";
const DENIED: &str = "a person was asked and did not allow this call; don't repeat it";

impl Batch {
    /// From here on a call waits for somebody outside; what asks for it is handed on with the same commit.
    pub(super) fn hand_on(&mut self, id: &CallId, awaits: Awaited, change: &mut Change) {
        let Some(call) = self.call_mut(id) else { return };
        call.state = Progress::Outstanding;
        call.awaits = Some(awaits.cause);
        change.calls.push(call.moved());
        let name = call.name.clone();
        *self.outstanding.entry(name).or_default() += 1;
        // The call's id is the deed's: handing it on again has no further effect.
        let item = |event| OutboxItem { id: id.0.clone(), effect: OutboxEffect::Event(event) };
        change.outbox.extend(awaits.event.map(item));
    }

    /// The calls that somebody must allow, as far as the batch knows them.
    fn asking(&self) -> Vec<ApprovalItem> {
        let asking = self.calls.iter().filter(|call| call.state == Progress::Asking);
        let item = |call: &BatchCall| ApprovalItem {
            call: call.id.clone(),
            name: call.asked_name().to_owned(),
            digest: call.asked_about.clone(),
            details: None,
        };
        asking.map(item).collect()
    }
}

impl Run {
    /// The calls of the open turn that wait for somebody outside, in call order, also while others of them run.
    pub fn waits(&self) -> Vec<Wait> {
        match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) => batch.suspension().waits,
            _ => Vec::new(),
        }
    }

    /// The calls that somebody has been asked about and has not answered, also while others of the turn run or could
    /// (L17). Their details are not the run's.
    pub fn asking(&self) -> Vec<ApprovalItem> {
        match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) if batch.asked => batch.asking(),
            _ => Vec::new(),
        }
    }

    /// What the tool of an open call has asked of a service, where somebody must allow that first.
    pub fn held_request(&self, id: &CallId) -> Option<&HeldRequest> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else { return None };
        batch.calls.iter().find(|call| call.id == *id)?.request.as_ref()
    }

    /// A running call has asked for a service (P2).
    pub(super) fn pending(&mut self, id: &CallId, awaits: Awaited, cost: CallCost, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        batch.hand_on(id, awaits, change);
        if let Some(call) = batch.call_mut(id) {
            call.spent = cost;
        }
        self.announce_suspension(change);
    }

    /// A running call has asked for a service that somebody must allow first. It waits as if the model had called the
    /// service (P2, L17).
    pub(super) fn hold(
        &mut self,
        id: &CallId,
        request: HeldRequest,
        (digest, cost): (Digest, CallCost),
        change: &mut Change,
    ) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        batch.asked = false;
        let Some(call) = batch.call_mut(id) else { return };
        call.state = Progress::Asking;
        call.asked_about = Some(digest);
        call.granted = None;
        call.request = Some(request);
        call.spent = cost;
        change.calls.push(call.moved());
        self.announce_suspension(change);
    }

    /// An outstanding call has its answer. The turn stays suspended until all have come, and says so (L10).
    pub(super) fn respond(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        if let Some(call) = batch.call_mut(id) {
            call.answered = true;
        }
        self.settle_awaited(id, result, change);
    }

    /// Somebody has said what became of a call. The turn goes on only where it waits for nothing else; else it says again what
    /// it waits for.
    pub(super) fn settle_awaited(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let stuck = batch.is_stuck();
        // What is waited for has changed: it is said again.
        let suspended = std::mem::replace(&mut batch.suspended, false);
        let goes_on = batch.goes_on_after(|call| call == id);
        batch.suspended = suspended && (goes_on || !stuck);
        self.settle(id, result, change);
    }

    /// An outstanding call is waited for no longer: the model is told, or, of a question, the turn ends (L18).
    pub(super) fn expire(&mut self, id: &CallId, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let awaits = batch.call_mut(id).and_then(|call| call.awaits.clone());
        if let Some(WaitCause::Answer { question, .. }) = awaits {
            self.announce_resumption(change);
            self.abandon_batch(EXPIRED, EXPIRED, change);
            return self.finish(OutputData::Text(question), EndReason::Asked, change);
        }
        let error = ToolError::Unavailable { message: EXPIRED.to_owned(), retry_after: None };
        self.respond(id, text_result(&error.for_model(), true), change);
    }

    /// Somebody has answered the approval request: what is granted runs as the model asked for it, or as it was edited;
    /// what is denied gets an error result (L17). What they were asked about and is no more is asked again.
    pub(super) fn approval(&mut self, answers: Vec<ApprovalAnswer>, change: &mut Change) {
        let mut denied = Vec::new();
        for ApprovalAnswer { call, verdict } in answers {
            match verdict {
                ApprovalVerdict::Granted { edited, grant } if self.is_about(&call, &grant.grant) => {
                    self.grant(call, edited, grant, change);
                }
                ApprovalVerdict::Granted { grant, .. } => self.void(call, grant.grant.identity().clone(), change),
                ApprovalVerdict::Denied { reason } => denied.push((call, reason)),
            }
        }
        // A tool may have been turned off while somebody was asked about it (L28).
        self.refuse_what_is_off(change);
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let settled = |id: &CallId| denied.iter().any(|(call, _)| call == id);
        // What is waited for has changed. A turn that goes on says that it does, one that still waits says for what.
        match batch.goes_on_after(settled) {
            true => self.announce_resumption(change),
            false => batch.suspended = false,
        }
        for (call, reason) in denied {
            let name = self.name_of(&call);
            self.emit(change, EventKind::ApprovalResolved { call: call.clone(), name, verdict: ApprovalWord::Denied });
            let message = reason.map_or(DENIED.to_owned(), |reason| format!("{DENIED}. They say: {reason}"));
            self.record(&call, text_result(&ToolError::Denied { message }.for_model(), true), change);
        }
        self.after_results(change);
    }

    /// Whether a grant is for the tool that somebody was asked about.
    fn is_about(&self, id: &CallId, grant: &LastingGrant) -> bool {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else {
            return false;
        };
        let asked = batch.calls.iter().find(|call| call.id == *id).and_then(|call| call.asked_about.as_ref());
        asked.is_some_and(|digest| digest == grant.identity())
    }

    fn grant(&mut self, id: CallId, edited: Option<Value>, scoped: ScopedGrant, change: &mut Change) {
        let ScopedGrant { scope, grant } = scoped;
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        let Some(call) = batch.call_mut(&id) else { return };
        call.state = Progress::Waiting;
        call.asked_about = None;
        call.granted = Some(Leave::Answered(grant.clone()));
        let name = call.asked_name().to_owned();
        change.calls.push(call.moved());
        change.calls.extend(edited.map(|arguments| CallChange::Edited { id: id.clone(), arguments }));
        let verdict = match scope {
            GrantScope::Once => ApprovalWord::Once,
            GrantScope::Session => ApprovalWord::Session,
            GrantScope::Always => ApprovalWord::Always,
        };
        match scope {
            GrantScope::Once => {}
            GrantScope::Session if self.grants.contains(&grant) => {}
            GrantScope::Session => self.grants.push(grant),
            GrantScope::Always => {
                // A call may be asked about again, and the next grant is another deed: the event's number tells them apart.
                let id = format!("allow/{id}/{}", self.sequence + 1);
                change.outbox.push(OutboxItem { id, effect: OutboxEffect::Allow(grant) });
            }
        }
        self.emit(change, EventKind::ApprovalResolved { call: id, name, verdict });
    }

    /// What was allowed is not what would run now (L17).
    pub(super) fn ask_again(&mut self, calls: Vec<AskedAgain>, change: &mut Change) {
        for AskedAgain { call, digest } in calls {
            self.void(call, digest, change);
        }
        self.announce_suspension(change);
    }

    /// No earlier answer holds for a call any more: it waits for one about the tool of this digest.
    fn void(&mut self, id: CallId, digest: Digest, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        batch.asked = false;
        let Some(call) = batch.call_mut(&id) else { return };
        let was_answered = call.granted.take().is_some() || call.state == Progress::Asking;
        if std::mem::replace(&mut call.state, Progress::Asking) != Progress::Asking {
            change.calls.push(call.moved());
        }
        call.asked_about = Some(digest);
        let name = call.asked_name().to_owned();
        // A call that nobody had to allow when it was made has no answer that could be void.
        if was_answered {
            let verdict = ApprovalWord::Void;
            self.emit(change, EventKind::ApprovalResolved { call: id, name, verdict });
        }
    }

    /// Says that the turn waits and for what, once per suspension. Before it, once nothing else of the batch can run, all
    /// calls that must be allowed are asked for in one request.
    pub(super) fn announce_suspension(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return;
        };
        if !batch.is_stuck() || batch.suspended {
            return;
        }
        batch.suspended = true;
        let suspension = batch.suspension();
        let calls = batch.asking();
        if !calls.is_empty() && !std::mem::replace(&mut batch.asked, true) {
            self.emit(change, EventKind::ApprovalRequested { calls });
        }
        self.emit(change, EventKind::Suspended { suspension });
    }

    fn name_of(&self, id: &CallId) -> String {
        let batch = match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) => batch,
            _ => return String::new(),
        };
        batch.calls.iter().find(|call| call.id == *id).map(|call| call.asked_name().to_owned()).unwrap_or_default()
    }
}
