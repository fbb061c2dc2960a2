//! What a stored or imported state may decide, and what only the current configuration decides (P14, row 38).

use super::batch::Progress;
use super::config::{AtLimit, LoopConfig};
use super::state::Run;
use super::turn::{Phase, Turn};
use crate::event::WaitCause;
use crate::message::{CallId, Digest, Role};

/// Most bytes of the state that a context builder keeps for the steps of a turn (L2).
pub(super) const MAX_BUILDER_STATE: usize = 64 << 10;

/// Parts of an imported state that were not taken over, since they would give the document authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Approvals for the session, and those that calls of the open turn had.
    pub approvals: usize,
    /// The open turn's pins: grants, validators, policies, context builder and tools.
    pub pins: bool,
    /// System sections of the open turn.
    pub sections: usize,
    /// The open turn had state of a context builder.
    pub builder_state: bool,
    /// Calls of the open turn that were about to run, that ran, or that were handed on to a service or to another agent.
    pub calls: Vec<CallId>,
    /// What stood for messages that had left the view: it would be read as the host's own words.
    pub summary: bool,
    /// Prompts that waited for the end of the open turn.
    pub prompts: usize,
    /// The session that delegated the work.
    pub delegated_by: Option<String>,
    /// The user for whom the turn worked.
    pub user: Option<String>,
}

/// For whom a document is imported, and what its messages say about the open turn.
#[derive(Clone, Debug, Default)]
pub struct ImportTerms {
    /// Who imports it.
    pub user: Option<String>,
    /// Replies of the model in the last turn: at least so many interactions were made.
    pub replies: u32,
}

impl LoopConfig {
    /// These bounds as far as the agent's current ones allow them. Whatever gives others access or spends money is the
    /// current configuration's: the fixed reply, the events that are announced, and the weights of execution units.
    #[must_use]
    pub fn within(&self, current: &LoopConfig) -> LoopConfig {
        let sound = (1..=100).contains(&self.evict_at) && self.evict_to <= self.evict_at;
        let (evict_at, evict_to) = match sound {
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
            answer_within_ms: match (self.answer_within_ms, current.answer_within_ms) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            user: self.user.clone(),
            fallback: current.fallback.clone(),
            announced: current.announced,
            execution_units: current.execution_units,
        }
    }
}

impl Run {
    /// Holds the open turn to the agent's current bounds: what its state says can only narrow them (P14).
    pub fn narrow(&mut self, current: &LoopConfig) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| !turn.is_over()) {
            turn.config = turn.config.within(current);
        }
    }

    /// The state of an imported document as this host takes it: the conversation without authority. What was dropped is
    /// said beside it. A call that has not brought its result waits for a person's decision, since a file is nobody's
    /// permission to run anything.
    pub fn imported(mut self, terms: &ImportTerms) -> (Self, Dropped) {
        let mut dropped = Dropped { approvals: self.grants.len(), ..Dropped::default() };
        self.grants.clear();
        dropped.delegated_by = self.delegated_by.take();
        self.delegation.clear();
        dropped.summary = self.summary.take().is_some();
        dropped.prompts = std::mem::take(&mut self.kept).len();
        // What a turn kept that is over is history: nothing reads it as authority.
        if let Some(turn) = self.turn.as_mut().filter(|turn| !turn.is_over()) {
            turn.drop_authority(terms, &mut dropped);
        }
        (self, dropped)
    }

    /// The open turn was imported, or an older host began it: nothing of its agent was kept.
    pub fn is_unpinned(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.is_over() && turn.pinned.is_none())
    }

    /// Calls that wait for an approval of which nobody on this host was told what they would allow.
    pub fn asked_about_nothing(&self) -> Vec<CallId> {
        let Some(Turn { phase: Phase::Working(batch), .. }) = &self.turn else { return Vec::new() };
        let asking = batch.calls.iter().filter(|call| call.state == Progress::Asking && call.asked_about.is_none());
        asking.map(|call| call.id.clone()).collect()
    }

    /// Sets what an approval of such a call is about.
    pub fn ask_about(&mut self, id: &CallId, identity: Digest) {
        if let Some(Turn { phase: Phase::Working(batch), .. }) = &mut self.turn
            && let Some(call) = batch.calls.iter_mut().find(|call| call.id == *id && call.state == Progress::Asking)
        {
            call.asked_about = Some(identity);
        }
    }

    /// Calls of the open turn with the names of their tools, and whether each has its result.
    pub fn claimed_calls(&self) -> impl Iterator<Item = (&CallId, &str, bool)> {
        let batch = match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Working(batch)) => Some(batch),
            _ => None,
        };
        let calls = batch.into_iter().flat_map(|batch| &batch.calls);
        calls.map(|call| (&call.id, call.name.as_str(), matches!(call.state, Progress::Done { .. })))
    }

    /// Takes what the view says about a message from the message itself: its turn, role and tokens.
    pub fn derive_view(&mut self, of: impl Fn(u64) -> Option<(u32, Role, u32)>) -> Result<(), u64> {
        for entry in &mut self.view {
            let (turn, role, tokens) = of(entry.id).ok_or(entry.id)?;
            (entry.turn, entry.role, entry.tokens) = (turn, Some(role), tokens);
        }
        Ok(())
    }
}

impl Turn {
    fn drop_authority(&mut self, terms: &ImportTerms, dropped: &mut Dropped) {
        let unset = LoopConfig::default();
        dropped.user = self.config.user.take().filter(|user| Some(user) != terms.user.as_ref());
        self.config.user.clone_from(&terms.user);
        (self.config.announced, self.config.fallback) = (unset.announced, unset.fallback);
        self.config.execution_units = unset.execution_units;
        self.interactions = self.interactions.max(terms.replies);
        dropped.pins = self.pinned.take().is_some();
        dropped.sections = std::mem::take(&mut self.sections).len();
        dropped.builder_state = self.state.take().is_some();
        let Phase::Working(batch) = &mut self.phase else { return };
        for call in &mut batch.calls {
            dropped.approvals += usize::from(call.granted.take().is_some());
            call.asked_about = None;
            // What a plugin asked of a service is the document's word only: nobody may be asked to allow it, and it is not sent.
            let had_request = call.request.take().is_some();
            let asks_for_it = had_request && call.state == Progress::Asking;
            // Nobody here has asked that service, or begun that agent's session, or agreed on what an answer is.
            let is_handed_on =
                call.state == Progress::Outstanding && !matches!(call.awaits, Some(WaitCause::Answer { .. }));
            if is_handed_on {
                call.awaits = None;
                if let Some(count) = batch.outstanding.get_mut(&call.name) {
                    *count = count.saturating_sub(1);
                }
            }
            if asks_for_it || is_handed_on || matches!(call.state, Progress::Waiting | Progress::Running) {
                call.state = Progress::Unknown;
                dropped.calls.push(call.id.clone());
            }
        }
        batch.outstanding.retain(|_, count| *count > 0);
        // What is waited for has changed, so it is said again.
        batch.suspended &= dropped.calls.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Announced, Emission};

    // P14, row 38: stored bounds narrow the agent's own and never widen them.
    #[test]
    fn p14_stored_bounds_never_widen_the_agents() {
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
            announced: Announced { completions: Emission::Emitted, approvals: Emission::Emitted },
            ..LoopConfig::default()
        };
        assert_eq!(claimed.within(&current), current);
        let narrow = LoopConfig { max_interactions: 1, at_limit: AtLimit::Error, ..current.clone() };
        assert_eq!(narrow.within(&current), narrow, "a claim may narrow");
        assert_eq!(current.within(&narrow), narrow, "and so may the configuration");
    }
}
