//! Handles failed model calls: a retry, the next model, the fallback text, or the end of the turn (M3).

use super::budget::{Fit, PromptBudget};
use super::end::TurnError;
use super::eviction::AfterEviction;
use super::input::{AfterFailure, ModelFailure, Retryability};
use super::planning::PlanFailure;
use super::state::{NO_MODEL_CALL, NO_TURN, Run};
use super::turn::Phase;
use crate::change::Change;
use crate::event::{EndReason, EventKind};
use crate::model::Usage;

/// The name that is reported instead of a model's name if the turn's answer is the configured fallback text.
pub const FALLBACK_TEXT: &str = "fallback_text";

impl Run {
    /// Handles a failed model call. The text that the model streamed before the failure is discarded.
    pub(super) fn model_failed(&mut self, failure: ModelFailure, change: &mut Change) {
        let ModelFailure { model, message, retryability, then } = failure;
        let is_final = !matches!(then, AfterFailure::Retry { .. });
        if is_final && self.plan_failed(&model, &message, change) == PlanFailure::Abandoned {
            return;
        }
        match then {
            AfterFailure::Retry { wait_ms } => {
                let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
                turn.attempt = turn.attempt.saturating_add(1);
                let attempt = turn.attempt;
                self.emit(change, EventKind::StreamClear);
                self.emit(change, EventKind::Retry { model, attempt, wait_ms, reason: message });
            }
            AfterFailure::Next { model_index, model: to, budget } => {
                self.emit(change, EventKind::StreamClear);
                self.emit(change, EventKind::ModelFallback { from: model, to, reason: message });
                self.take_model(model_index, budget, change);
            }
            AfterFailure::GiveUp => self.give_up(model, message, retryability, change),
        }
    }

    /// Continues the step with another model, whose context window may be smaller.
    pub(super) fn take_model(&mut self, model_index: u32, budget: PromptBudget, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Phase::Calling { last } = turn.phase else { return self.inconsistent(NO_MODEL_CALL) };
        // The system text does not depend on the model, so its number of tokens is taken from the previous budget.
        turn.budget = PromptBudget { system: turn.budget.system, ..budget };
        (turn.model_index, turn.attempt) = (model_index, 1);
        if !self.evict(AfterEviction::SameStep { last }) {
            self.continue_step(last, change);
        }
    }

    /// Continues the current step with the turn's current model. The step becomes the turn's last step if the prompt
    /// leaves too few tokens of the model's context window.
    pub(super) fn continue_step(&mut self, last: bool, change: &mut Change) {
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let last = last || budget.is_full(messages, &turn.config);
        turn.phase = Phase::Calling { last };
        if last && budget.fits_without_tools(messages) == Fit::DoesNotFit {
            return self.too_large(budget.system.saturating_add(messages), change);
        }
        self.emit_budget(change);
    }

    fn give_up(&mut self, model: String, message: String, retryability: Retryability, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Some(data) = turn.config.fallback.clone() else {
            return self.fail(TurnError::ModelFailed { message, retryability }, change);
        };
        let Phase::Calling { last } = turn.phase else { return self.inconsistent(NO_MODEL_CALL) };
        turn.model = FALLBACK_TEXT.to_owned();
        turn.replay = None;
        let (to, text) = (FALLBACK_TEXT.to_owned(), data.for_history());
        turn.phase = Phase::Validating { text: text.clone(), last };
        self.emit(change, EventKind::StreamClear);
        self.emit(change, EventKind::ModelFallback { from: model, to: to.clone(), reason: message });
        self.emit_budget_including(&text, change);
        self.emit(change, EventKind::StreamComplete { text, model: to, usage: Usage::default(), saved_tokens: 0 });
        self.finish(data, if last { EndReason::Limit } else { EndReason::Answered }, change);
    }
}
