//! What happens when a model has not replied: once more, the next one, the fixed text, or the end of the turn (M3).

use super::budget::{Fit, PromptBudget};
use super::end::TurnError;
use super::eviction::AfterEviction;
use super::input::{AfterFailure, ModelFailure, Prospect};
use super::planning::PlanFailed;
use super::state::Run;
use super::turn::Phase;
use crate::change::Change;
use crate::event::{EndReason, EventKind};
use crate::model::Usage;

/// Stands for a model's name where the configured text answered.
pub const FALLBACK_TEXT: &str = "fallback_text";

impl Run {
    /// Only whole replies count, so whatever was streamed before the failure is void and nothing of it was acted on.
    pub(super) fn model_failed(&mut self, failure: ModelFailure, change: &mut Change) {
        let ModelFailure { model, message, prospect, then } = failure;
        let is_final = !matches!(then, AfterFailure::Retry { .. });
        if is_final && self.plan_failed(&model, &message, change) == PlanFailed::FellBack {
            return;
        }
        match then {
            AfterFailure::Retry { wait_ms } => {
                let Some(turn) = &mut self.turn else { return };
                turn.attempt = turn.attempt.saturating_add(1);
                let attempt = turn.attempt;
                self.emit(change, EventKind::StreamClear);
                self.emit(change, EventKind::Retry { model, attempt, wait_ms, reason: message });
            }
            AfterFailure::Next { place, model: to, budget } => {
                self.emit(change, EventKind::StreamClear);
                self.emit(change, EventKind::ModelFallback { from: model, to, reason: message });
                self.take_model(place, budget, change);
            }
            AfterFailure::GiveUp => self.give_up(model, (message, prospect), change),
        }
    }

    /// The step goes on with another model; its window may be smaller.
    pub(super) fn take_model(&mut self, place: u32, budget: PromptBudget, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        let Phase::Calling { last } = turn.phase else { return };
        // The turn's system text is the same whoever reads it.
        turn.budget = PromptBudget { system: turn.budget.system, ..budget };
        (turn.place, turn.attempt) = (place, 1);
        if !self.evict(AfterEviction::SameStep { last }) {
            self.go_on_with_step(last, change);
        }
    }

    /// The step that has begun goes on, as the last one where too little of the new window remains.
    pub(super) fn go_on_with_step(&mut self, last: bool, change: &mut Change) {
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let Some(turn) = &mut self.turn else { return };
        let last = last || budget.is_full(messages, &turn.config);
        turn.phase = Phase::Calling { last };
        if last && budget.fits_without_tools(messages) == Fit::Not {
            return self.too_large(budget.system.saturating_add(messages), change);
        }
        self.emit_budget(change);
    }

    fn give_up(&mut self, model: String, (message, prospect): (String, Prospect), change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        let Some(data) = turn.config.fallback.clone() else {
            return self.fail(TurnError::ModelFailed { message, prospect }, change);
        };
        let Phase::Calling { last } = turn.phase else { return };
        turn.model = FALLBACK_TEXT.to_owned();
        let (to, text) = (FALLBACK_TEXT.to_owned(), data.for_history());
        turn.phase = Phase::Validating { text: text.clone(), last };
        self.emit(change, EventKind::StreamClear);
        self.emit(change, EventKind::ModelFallback { from: model, to: to.clone(), reason: message });
        self.emit_budget_with(&text, change);
        self.emit(change, EventKind::StreamComplete { text, model: to, usage: Usage::default() });
        self.finish(data, if last { EndReason::Limit } else { EndReason::Answered }, change);
    }
}
