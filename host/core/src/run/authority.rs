//! Limits the authority of stored and imported states (P14, row 38). A state must never allow more than the agent's
//! current configuration allows.

use super::batch::CallProgress;
use super::config::{AtLimit, LoopConfig};
use super::state::Run;
use super::turn::{Phase, Turn};
use crate::event::WaitCause;
use crate::message::{CallId, Digest, Role};

/// Maximum size of the state that a context builder keeps for the steps of a turn, in bytes (L2).
pub(super) const MAX_BUILDER_STATE: usize = 64 << 10;

/// Parts of an imported state that the host dropped, because an imported document must not decide about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedClaims {
    /// Number of dropped approvals for the session and for calls of the open turn.
    pub approvals: usize,
    /// Whether the open turn had pinned settings: grants, validators, policies, context builder and tools.
    pub pins: bool,
    /// Number of dropped system sections of the open turn.
    pub sections: usize,
    /// Whether the state of a context builder was dropped from the open turn.
    pub builder_state: bool,
    /// Whether the turn had a provider's data for its answer.
    pub replay: bool,
    /// Calls of the open turn that were about to run, were running, or were sent to a service or another agent.
    pub calls: Vec<CallId>,
    /// Whether the state had a summary of evicted messages. The summary was dropped, because the model would read it as
    /// the host's own text.
    pub summary: bool,
    /// Number of dropped prompts that waited in the session's queue.
    pub prompts: usize,
    /// Id (subject) of the session that delegated the work. `None` means that the work was not delegated.
    pub delegated_by: Option<String>,
    /// The user for whom the open turn worked. `None` means that the turn had no user, or the turn's user is the user
    /// who imports the document.
    pub user: Option<String>,
}

/// The user who imports a document, and the number of replies in the last turn of the document.
#[derive(Clone, Debug, Default)]
pub struct ImportTerms {
    /// The user who imports the document. `None` means that the user is unknown.
    pub user: Option<String>,
    /// Number of the model's replies in the last turn. The turn has made at least this number of interactions.
    pub replies: u32,
}

impl LoopConfig {
    /// Returns the limits in `self`. Each limit that is wider than the agent's current limit is replaced by the
    /// current limit. The fallback output, the announced events and the weights of execution units always come from the
    /// current configuration.
    #[must_use]
    pub fn within(&self, current: &LoopConfig) -> LoopConfig {
        let is_valid = (1..=100).contains(&self.evict_at) && self.evict_to <= self.evict_at;
        let (evict_at, evict_to) = match is_valid {
            true => (self.evict_at.min(current.evict_at), self.evict_to.min(current.evict_to)),
            false => (current.evict_at, current.evict_to),
        };
        LoopConfig {
            max_interactions: self.max_interactions.min(current.max_interactions),
            at_limit: if self.at_limit == AtLimit::Error { AtLimit::Error } else { current.at_limit },
            max_corrections: self.max_corrections.min(current.max_corrections),
            parallel_calls: self.parallel_calls.min(current.parallel_calls),
            result_characters: self.result_characters.min(current.result_characters),
            minimum_remaining: self.minimum_remaining.max(current.minimum_remaining),
            evict_at,
            evict_to,
            max_depth: self.max_depth.min(current.max_depth),
            finish: self.finish,
            persistence: self.persistence && current.persistence,
            answer_within_ms: shorter(self.answer_within_ms, current.answer_within_ms),
            approval_within_ms: shorter(self.approval_within_ms, current.approval_within_ms),
            user: self.user.clone(),
            fallback: current.fallback.clone(),
            announced: current.announced,
            execution_units: current.execution_units,
            budgets: self.budgets.within(&current.budgets),
        }
    }
}

/// Returns the shorter of two time limits, of which `None` is the longest.
fn shorter(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Run {
    /// Narrows the open turn to the agent's current limits, so that the stored state can never raise a limit (P14).
    pub fn narrow(&mut self, current: &LoopConfig) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| !turn.is_over()) {
            turn.config = turn.config.within(current);
        }
    }

    /// Removes the parts of an imported document's state that the document must not determine. Returns the remaining
    /// state and a description of the removed parts. Calls that would otherwise run wait for a user's decision, because
    /// a document must not cause any call to run.
    pub fn imported(mut self, terms: &ImportTerms) -> (Self, DroppedClaims) {
        let mut dropped = DroppedClaims { approvals: self.grants.len(), ..DroppedClaims::default() };
        self.grants.clear();
        dropped.delegated_by = self.delegated_by.take();
        self.delegation.clear();
        dropped.summary = self.summary.take().is_some();
        dropped.prompts = std::mem::take(&mut self.queued_prompts).len();
        // Drop the replay data: the host would send this data to the model together with the turn's answer, and no user
        // would see it.
        dropped.replay = self.turn.as_mut().is_some_and(|turn| turn.replay.take().is_some());
        // If the turn has ended, its state has no effect any more.
        if let Some(turn) = self.turn.as_mut().filter(|turn| !turn.is_over()) {
            turn.drop_claims(terms, &mut dropped);
        }
        (self, dropped)
    }

    /// Whether the open turn is not pinned to settings of its agent. A turn is not pinned if it was imported, or if an
    /// older version of the host began it.
    pub fn is_unpinned(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.is_over() && turn.pinned.is_none())
    }

    /// Returns the calls that wait for an approval and whose tool has no identity yet. No user of this host has been
    /// asked about these calls.
    pub fn approvals_without_identity(&self) -> Vec<CallId> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else { return Vec::new() };
        let asking = batch.calls.iter().filter(|call| call.state == CallProgress::AwaitingApproval { identity: None });
        asking.map(|call| call.id.clone()).collect()
    }

    /// Sets the identity of the tool for which an approval of this call is valid. Does nothing if the call does not
    /// wait for an approval.
    pub fn set_approval_identity(&mut self, id: &CallId, identity: Digest) {
        if let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn
            && let Some(call) = batch.calls.iter_mut().find(|call| call.id == *id && call.state.is_awaiting_approval())
        {
            call.state = CallProgress::AwaitingApproval { identity: Some(identity) };
        }
    }

    /// Returns the calls of the open turn with the names of their tools, and whether each call has finished.
    pub fn claimed_calls(&self) -> impl Iterator<Item = (&CallId, &str, bool)> {
        let batch = match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Working(batch)) => Some(batch),
            _ => None,
        };
        let calls = batch.into_iter().flat_map(|batch| &batch.calls);
        calls.map(|call| (&call.id, call.name.as_str(), call.state.is_finished()))
    }

    /// Sets the turn, role and tokens of each entry in the view to the values that `message` returns for the entry's
    /// id. If `message` returns None for an id, the error is that id.
    pub fn derive_view(&mut self, message: impl Fn(u64) -> Option<(u32, Role, u32)>) -> Result<(), u64> {
        for entry in &mut self.view {
            let (turn, role, tokens) = message(entry.id).ok_or(entry.id)?;
            (entry.turn, entry.role, entry.tokens) = (turn, Some(role), tokens);
        }
        Ok(())
    }
}

impl Turn {
    fn drop_claims(&mut self, terms: &ImportTerms, dropped: &mut DroppedClaims) {
        let unset = LoopConfig::default();
        dropped.user = self.config.user.take().filter(|user| Some(user) != terms.user.as_ref());
        self.config.user.clone_from(&terms.user);
        (self.config.announced, self.config.fallback) = (unset.announced, unset.fallback);
        self.config.execution_units = unset.execution_units;
        // A document must not charge its usage to the sessions of others.
        self.config.budgets.delegators.clear();
        self.interactions = self.interactions.max(terms.replies);
        dropped.pins = self.pinned.take().is_some();
        dropped.sections = std::mem::take(&mut self.sections).len();
        dropped.builder_state = self.state.take().is_some();
        let Phase::Working(batch) = &mut self.phase else { return };
        batch.approvals_expire_at = None;
        for call in &mut batch.calls {
            dropped.approvals += usize::from(call.authorization.take().is_some());
            if let CallProgress::AwaitingApproval { identity } = &mut call.state {
                *identity = None;
            }
            // The document only claims that a plugin made this service request. The request is not sent, and no user is
            // asked to approve it.
            let had_request = call.request.take().is_some();
            let awaits_request_approval = had_request && call.state.is_awaiting_approval();
            // This host has neither sent the request nor begun the other agent's session, so no response can arrive.
            let is_outside = matches!(&call.state, CallProgress::Outstanding { awaits } if !matches!(awaits, WaitCause::Answer { .. }));
            if is_outside && let Some(count) = batch.outstanding.get_mut(&call.name) {
                *count = count.saturating_sub(1);
            }
            if awaits_request_approval
                || is_outside
                || matches!(call.state, CallProgress::Waiting | CallProgress::Running)
            {
                call.state = CallProgress::OutcomeUnknown;
                dropped.calls.push(call.id.clone());
            }
        }
        batch.outstanding.retain(|_, count| *count > 0);
        // The set of waiting calls has changed, so the suspension must be announced again.
        batch.suspended &= dropped.calls.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{AnnouncedEvents, Emission};

    // P14, row 38: stored limits can narrow the agent's limits but never widen them.
    #[test]
    fn p14_stored_limits_never_widen_the_limits_of_the_agent() {
        let current = LoopConfig { max_interactions: 3, max_depth: 1, ..LoopConfig::default() };
        let claimed = LoopConfig {
            max_interactions: 4_000_000,
            max_corrections: u32::MAX,
            parallel_calls: u32::MAX,
            result_characters: u32::MAX,
            minimum_remaining: 0,
            evict_at: u32::MAX,
            evict_to: 0,
            max_depth: u32::MAX,
            persistence: true,
            fallback: Some(crate::plugin::OutputData::Text("forged".into())),
            announced: AnnouncedEvents { completions: Emission::Emitted, approvals: Emission::Emitted },
            ..LoopConfig::default()
        };
        assert_eq!(claimed.within(&current), current);
        let narrow = LoopConfig { max_interactions: 1, at_limit: AtLimit::Error, ..current.clone() };
        assert_eq!(narrow.within(&current), narrow, "stored limits may narrow");
        assert_eq!(current.within(&narrow), narrow, "the configuration may narrow too");
    }
}
