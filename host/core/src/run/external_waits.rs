//! Calls that wait for a service, another agent, the user's answer or an approval (L10, L11, L16, L17).

use super::batch::{Batch, BatchCall, CallProgress};
use super::input::{Awaited, UnapprovedRequest};
use super::state::{NO_OPEN_BATCH, NO_SUCH_CALL, Run};
use super::step::text_result;
use super::turn::{Phase, Turn};
use crate::approval::{
    ApprovalAnswer, ApprovalOutcome, ApprovalVerdict, Authorization, GrantScope, LastingGrant, ReapprovalRequest,
    ScopedGrant,
};
use crate::change::{CallChange, CallResult, Change, OutboxEffect, OutboxItem};
use crate::event::{ApprovalItem, EndReason, EventKind, Wait, WaitCause};
use crate::message::{CallId, Digest};
use crate::plugin::OutputData;
use crate::tool::{CallCost, ToolError};
use serde_json::Value;

const EXPIRED: &str = "no answer came in time";
const NOT_APPROVED: &str = "a person was asked to allow this call, and nobody decided in time; don't repeat it";
const DENIED: &str = "a person was asked and did not allow this call; don't repeat it";

/// The identity of the service's tool that needs an approval, and the cost of the call that made the request.
pub(super) struct ServiceApproval {
    pub(super) digest: Digest,
    pub(super) cost: CallCost,
}

impl Batch {
    /// Marks a call as outstanding. The event that asks for the answer to the call is stored in the same commit.
    pub(super) fn mark_outstanding(
        &mut self,
        id: &CallId,
        awaits: Awaited,
        change: &mut Change,
    ) -> Result<(), &'static str> {
        let call = self.call_mut(id).ok_or(NO_SUCH_CALL)?;
        call.state = CallProgress::Outstanding { awaits: awaits.cause };
        change.calls.push(call.state_change());
        let name = call.name.clone();
        *self.outstanding.entry(name).or_default() += 1;
        // The effect has the id of the call, so sending the effect again changes nothing.
        let item = |event| OutboxItem { id: id.0.clone(), effect: OutboxEffect::Event(event) };
        change.outbox.extend(awaits.event.map(item));
        Ok(())
    }

    /// Returns the calls of the batch that wait for an approval. The field `details` of each item is None, because the
    /// details are in the stored call records.
    fn approval_items(&self) -> Vec<ApprovalItem> {
        let item = |call: &BatchCall| match &call.state {
            CallProgress::AwaitingApproval { identity } => Some(ApprovalItem {
                call: call.id.clone(),
                name: call.approval_name().to_owned(),
                digest: identity.clone(),
                details: None,
            }),
            _ => None,
        };
        self.calls.iter().filter_map(item).collect()
    }
}

impl Run {
    /// Returns the calls of the open turn that wait for an external decision or response, in call order. Waiting calls
    /// may exist while other calls are running.
    pub fn waits(&self) -> Vec<Wait> {
        match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) => batch.suspension().waits,
            _ => Vec::new(),
        }
    }

    /// Returns the calls for which an approval request is open (L17). The field `details` of each item is None, because
    /// the details are in the stored call records.
    pub fn asking(&self) -> Vec<ApprovalItem> {
        match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) if batch.approval_requested => batch.approval_items(),
            _ => Vec::new(),
        }
    }

    /// Returns the service request of an open call if the request needed an approval. `None` means that the call has no
    /// service request that needed an approval.
    pub fn unapproved_request(&self, id: &CallId) -> Option<&UnapprovedRequest> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else { return None };
        batch.calls.iter().find(|call| call.id == *id)?.request.as_ref()
    }

    /// Handles a service request of a running call (P2).
    pub(super) fn service_requested(&mut self, id: &CallId, awaits: Awaited, cost: CallCost, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        if let Err(contradiction) = batch.mark_outstanding(id, awaits, change) {
            return self.inconsistent(contradiction);
        }
        let Some(call) = batch.call_mut(id) else { return self.inconsistent(NO_SUCH_CALL) };
        call.spent_cost = cost;
        self.announce_suspension(change);
    }

    /// Handles a service request that a running call has made and that needs approval. The call waits for the approval
    /// as if the model had called the service (P2, L17).
    pub(super) fn service_needs_approval(
        &mut self,
        id: &CallId,
        request: UnapprovedRequest,
        approval: ServiceApproval,
        change: &mut Change,
    ) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        batch.approval_requested = false;
        let Some(call) = batch.call_mut(id) else { return self.inconsistent(NO_SUCH_CALL) };
        call.state = CallProgress::AwaitingApproval { identity: Some(approval.digest) };
        call.authorization = None;
        call.request = Some(request);
        call.spent_cost = approval.cost;
        change.calls.push(call.state_change());
        self.announce_suspension(change);
    }

    /// Records the response to an outstanding call. If other calls still wait for their responses, the turn stays
    /// suspended and announces these calls again (L10).
    pub(super) fn respond(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        self.settle_waiting(id, result, change);
    }

    /// Records the result of a waiting call. If the turn still waits for other calls, it announces these calls again.
    pub(super) fn settle_waiting(&mut self, id: &CallId, result: CallResult, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let was_blocked = batch.is_blocked();
        // The set of waiting calls has changed, so the suspension must be announced again.
        let suspended = std::mem::replace(&mut batch.suspended, false);
        let continues = batch.continues_after(|call| call == id);
        batch.suspended = suspended && (continues || !was_blocked);
        self.settle(id, result, change);
    }

    /// Handles a waiting call whose time limit has passed. If the call was a question to the user, the turn ends (L18). If
    /// the call waits for an approval, it is denied (L17). Any other call gets an error result.
    pub(super) fn expire(&mut self, id: &CallId, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let Some(call) = batch.call_mut(id) else { return self.inconsistent(NO_SUCH_CALL) };
        if let CallProgress::Outstanding { awaits: WaitCause::Answer { question, .. } } = &call.state {
            let question = question.clone();
            self.announce_resumption(change);
            self.abandon_batch(EXPIRED, EXPIRED, change);
            return self.finish(OutputData::Text(question), EndReason::QuestionExpired, change);
        }
        if call.state.is_awaiting_approval() {
            return self.deny(vec![(id.clone(), ApprovalOutcome::Expired, NOT_APPROVED.to_owned())], change);
        }
        let error = ToolError::Unavailable { message: EXPIRED.to_owned(), retry_after: None };
        self.respond(id, text_result(&error.for_model(), true), change);
    }

    /// Applies a user's answers to an approval request (L17). Granted calls run with the arguments that the user edited
    /// or, if the user did not edit them, with the model's arguments. Denied calls get an error result. If a tool has
    /// changed since the approval request, the user is asked again.
    pub(super) fn approval(&mut self, answers: Vec<ApprovalAnswer>, change: &mut Change) {
        let mut denied = Vec::new();
        for ApprovalAnswer { call, verdict } in answers {
            match verdict {
                ApprovalVerdict::Granted { edited, grant } if self.grant_matches_request(&call, &grant.grant) => {
                    self.grant(call, edited, grant, change);
                }
                ApprovalVerdict::Granted { grant, .. } => {
                    self.discard_answers(call, grant.grant.identity().clone(), change)
                }
                ApprovalVerdict::Denied { reason } => {
                    let message = reason.map_or(DENIED.to_owned(), |reason| format!("{DENIED}. They say: {reason}"));
                    denied.push((call, ApprovalOutcome::Denied, message));
                }
            }
        }
        self.deny(denied, change);
    }

    /// Denies calls that wait for an approval, each with the text that the model receives, and continues the turn if no
    /// call waits any more.
    fn deny(&mut self, denied: Vec<(CallId, ApprovalOutcome, String)>, change: &mut Change) {
        // A tool may have been disabled while the approval request was open (L28).
        self.refuse_disabled(change);
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let settled = |id: &CallId| denied.iter().any(|(call, ..)| call == id);
        // The set of waiting calls has changed. If no call waits any more, the turn announces that it continues.
        // Otherwise, the turn announces the calls that still wait.
        match batch.continues_after(settled) {
            true => self.announce_resumption(change),
            false => batch.suspended = false,
        }
        for (call, verdict, message) in denied {
            let name = self.name_of(&call);
            self.emit(change, EventKind::ApprovalResolved { call: call.clone(), name, verdict });
            self.record(&call, text_result(&ToolError::Denied { message }.for_model(), true), change);
        }
        self.after_results(change);
    }

    /// Whether a grant has the identity of the tool for which the approval was requested.
    fn grant_matches_request(&self, id: &CallId, grant: &LastingGrant) -> bool {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else {
            return false;
        };
        let call = batch.calls.iter().find(|call| call.id == *id);
        matches!(
            call.map(|call| &call.state),
            Some(CallProgress::AwaitingApproval { identity: Some(digest) }) if digest == grant.identity()
        )
    }

    fn grant(&mut self, id: CallId, edited: Option<Value>, scoped: ScopedGrant, change: &mut Change) {
        let ScopedGrant { scope, grant } = scoped;
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        let Some(call) = batch.call_mut(&id) else { return self.inconsistent(NO_SUCH_CALL) };
        call.state = CallProgress::Waiting;
        call.authorization = Some(Authorization::Answered(grant.clone()));
        let name = call.approval_name().to_owned();
        change.calls.push(call.state_change());
        change.calls.extend(edited.map(|arguments| CallChange::Edited { id: id.clone(), arguments }));
        let verdict = match scope {
            GrantScope::Once => ApprovalOutcome::Once,
            GrantScope::Session => ApprovalOutcome::Session,
            GrantScope::Always => ApprovalOutcome::Always,
        };
        match scope {
            GrantScope::Once => {}
            GrantScope::Session if self.grants.contains(&grant) => {}
            GrantScope::Session => self.grants.push(grant),
            GrantScope::Always => {
                // The same call may be approved twice, and each approval stores a grant with its own outbox effect. The
                // sequence number makes the ids of the two effects different.
                let id = format!("allow/{id}/{}", self.sequence + 1);
                change.outbox.push(OutboxItem { id, effect: OutboxEffect::Allow(grant) });
            }
        }
        self.emit(change, EventKind::ApprovalResolved { call: id, name, verdict });
    }

    /// Requests a new approval for each approved call whose tool has changed since the approval (L17).
    pub(super) fn request_reapproval(&mut self, calls: Vec<ReapprovalRequest>, change: &mut Change) {
        for ReapprovalRequest { call, digest } in calls {
            self.discard_answers(call, digest, change);
        }
        self.announce_suspension(change);
    }

    /// Discards the answers that users gave about a call earlier, and makes the call wait for an approval of the tool
    /// with the identity `digest`.
    fn discard_answers(&mut self, id: CallId, digest: Digest, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn else {
            return self.inconsistent(NO_OPEN_BATCH);
        };
        batch.approval_requested = false;
        let Some(call) = batch.call_mut(&id) else { return self.inconsistent(NO_SUCH_CALL) };
        let was_asking = call.state.is_awaiting_approval();
        let was_answered = call.authorization.take().is_some() || was_asking;
        call.state = CallProgress::AwaitingApproval { identity: Some(digest) };
        if !was_asking {
            change.calls.push(call.state_change());
        }
        let name = call.approval_name().to_owned();
        // A call that was never approved has no answer that could become void.
        if was_answered {
            let verdict = ApprovalOutcome::Void;
            self.emit(change, EventKind::ApprovalResolved { call: id, name, verdict });
        }
    }

    /// Announces the suspension of a blocked batch, once per suspension. Before the announcement, one request asks for
    /// the approval of all calls that need it. Does nothing if no batch is open.
    pub(super) fn announce_suspension(&mut self, change: &mut Change) {
        let Some(Turn { phase: Phase::Working(batch), config, .. }) = &mut self.turn else {
            return;
        };
        if !batch.is_blocked() || batch.suspended {
            return;
        }
        batch.suspended = true;
        let calls = batch.approval_items();
        let is_new_request = !calls.is_empty() && !std::mem::replace(&mut batch.approval_requested, true);
        if is_new_request {
            batch.approvals_expire_at =
                self.now.zip(config.approval_within_ms).map(|(now, within)| now.saturating_add(within));
        }
        let (suspension, expires_at) = (batch.suspension(), batch.approvals_expire_at);
        if is_new_request {
            self.emit(change, EventKind::ApprovalRequested { calls, expires_at });
        }
        self.emit(change, EventKind::Suspended { suspension });
    }

    fn name_of(&self, id: &CallId) -> String {
        let batch = match &self.turn {
            Some(Turn { phase: Phase::Working(batch), .. }) => batch,
            _ => return String::new(),
        };
        batch.calls.iter().find(|call| call.id == *id).map(|call| call.approval_name().to_owned()).unwrap_or_default()
    }
}
