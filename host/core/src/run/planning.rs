//! Planned turns (L24): a planner makes a plan, an executor performs the steps of the plan, and the planner writes
//! the answer.

use super::budget::PromptBudget;
use super::input::{Disposition, ResolvedCall, ResolvedReply};
use super::state::{NO_TURN, Run};
use super::turn::Turn;
use crate::change::Change;
use crate::event::EventKind;
use crate::plan::PlanStep;
use serde::{Deserialize, Serialize};

/// Maximum number of characters of an error that are quoted in the reason for abandoning a plan.
const MAX_QUOTED: usize = 300;

/// The role of the model that is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelRole {
    /// The agent's own model performs the next step of the loop.
    #[default]
    #[serde(rename = "model")]
    Agent,
    /// The planner makes the plan.
    Planner,
    /// The executor performs a step of the plan with one tool call.
    Executor {
        /// Number of the step in the plan, starting at 1.
        step: u32,
        /// Number of steps in the plan.
        of: u32,
    },
    /// The planner writes the answer after all steps.
    #[serde(rename = "synthesis")]
    Synthesizer,
}

/// Token budgets of the planner and the executor. The budgets do not include the tokens of the system text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBudgets {
    /// The planner's budget. The field `tools` is the number of tokens in the text that lists the tools.
    pub planner: PromptBudget,
    /// The executor's budget. The value of the field `tools` is not used: in each step, the host replaces it by the
    /// number of tokens of the step's tools.
    pub executor: PromptBudget,
}

/// The parsed reply of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannerReply {
    /// The reply is a plan with these steps. If there are no steps, the model can answer without tools.
    Steps(Vec<PlannedStep>),
    /// The reply is not a valid plan. The text states the reason.
    Invalid(String),
}

/// A step of a plan, and the tools that the host offers to the executor in this step (L25).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// The tool and the task of the step.
    #[serde(flatten)]
    pub step: PlanStep,
    /// Names of the tools that the host offers to the executor in this step. The names are spelled as the tools'
    /// authors wrote them.
    pub offered: Vec<String>,
    /// Number of tokens that the definitions of the offered tools use in the prompt.
    pub tokens: u32,
}

/// The plan of a turn, and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    budgets: PlanBudgets,
    /// Budget of the agent's model. This budget is used if the plan is abandoned.
    fallback: PromptBudget,
    steps: Vec<PlannedStep>,
    stage: Stage,
    /// Why the current step has failed. `None` means that the step has not failed.
    #[serde(default, rename = "trouble", skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Making,
    /// The executor performs the step with this index.
    Step(usize),
    Synthesis,
}

/// The tools that a model call offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedTools<'t> {
    /// The call offers all tools of the agent, because the turn has no plan and no tools were selected for it.
    All,
    /// The call offers only the tools with these names. The names are spelled as the tools' authors wrote them.
    Only(&'t [String]),
    /// The call offers no tools.
    None,
}

impl Plan {
    /// Returns the step that is being performed. `None` means that the planner is still making the plan, or all steps
    /// have been performed.
    pub fn current_step(&self) -> Option<&PlannedStep> {
        match self.stage {
            Stage::Step(index) => self.steps.get(index),
            Stage::Making | Stage::Synthesis => None,
        }
    }

    fn model_role(&self) -> ModelRole {
        match self.stage {
            Stage::Making => ModelRole::Planner,
            Stage::Step(index) => {
                ModelRole::Executor { step: count(index.saturating_add(1)), of: count(self.steps.len()) }
            }
            Stage::Synthesis => ModelRole::Synthesizer,
        }
    }

    fn budget(&self) -> PromptBudget {
        match self.stage {
            Stage::Making => self.budgets.planner,
            Stage::Step(index) => {
                let tools = self.steps.get(index).map_or(0, |step| step.tokens);
                PromptBudget { tools, ..self.budgets.executor }
            }
            Stage::Synthesis => PromptBudget { tools: 0, ..self.budgets.planner },
        }
    }

    /// Continues the plan with the step at `index`. If the plan has no step at this index, the planner writes
    /// the answer.
    fn enter(&mut self, index: usize) {
        self.stage = if index < self.steps.len() { Stage::Step(index) } else { Stage::Synthesis };
        self.failure = None;
    }
}

impl Turn {
    /// Returns the role of the model that is called next.
    pub fn model_role(&self) -> ModelRole {
        self.plan.as_ref().map_or(ModelRole::Agent, Plan::model_role)
    }

    /// Returns the tools that the next model call offers. The last model call of a turn never offers tools.
    pub fn offered_tools(&self) -> OfferedTools<'_> {
        match &self.plan {
            Some(plan) => plan.current_step().map_or(OfferedTools::None, |step| OfferedTools::Only(&step.offered)),
            None => self.offered.as_deref().map_or(OfferedTools::All, OfferedTools::Only),
        }
    }

    /// Sets the turn's token budget to the budget of the model that is called next. The number of system text tokens is
    /// not changed.
    fn use_plan_budget(&mut self) {
        if let Some(plan) = &self.plan {
            self.budget = PromptBudget { system: self.budget.system, ..plan.budget() };
        }
    }
}

impl Run {
    /// Begins a planned turn.
    pub(super) fn begin_plan(&mut self, budgets: PlanBudgets) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let (steps, stage) = (Vec::new(), Stage::Making);
        turn.plan = Some(Plan { budgets, fallback: turn.budget, steps, stage, failure: None });
        turn.use_plan_budget();
    }

    /// Adjusts the plan before a step. If the turn has reached its limit of interactions, the remaining steps are
    /// skipped and the answer is written. If the prompt is too large for the model that the plan calls next, the plan
    /// is abandoned.
    pub(super) fn adjust_plan(&mut self, change: &mut Change) {
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Some(plan) = &mut turn.plan else { return };
        if turn.interactions >= turn.config.max_interactions {
            match plan.stage {
                Stage::Making => {
                    self.abandon_plan("the limit of interactions was reached before the planner made a plan", change)
                }
                Stage::Step(_) | Stage::Synthesis => {
                    plan.enter(usize::MAX);
                    turn.use_plan_budget();
                }
            }
        } else if budget.is_full(messages, &turn.config) {
            let who = if plan.current_step().is_some() { "executor" } else { "planner" };
            self.abandon_plan(&format!("too few tokens of the {who}'s context window are left"), change);
        }
    }

    /// Handles a reply in a planned turn. Returns the reply if it does not belong to a plan, so that the caller handles
    /// it as usual.
    pub(super) fn reply_to_plan(
        &mut self,
        reply: ResolvedReply,
        is_last: bool,
        change: &mut Change,
    ) -> Option<ResolvedReply> {
        let role = self.turn.as_ref().map(Turn::model_role).unwrap_or_default();
        let failure = match role {
            ModelRole::Agent => return Some(reply),
            ModelRole::Planner => match reply.plan {
                Some(PlannerReply::Steps(steps)) => {
                    self.take_plan(steps, change);
                    return None;
                }
                Some(PlannerReply::Invalid(reason)) => format!("the planner's reply is not a plan: {reason}"),
                None => "the planner's reply is not a plan".to_owned(),
            },
            ModelRole::Executor { step, of } => match (reply.calls.is_empty(), reply.unreadable.first()) {
                (false, _) => return Some(self.keep_one_call(reply, step, of)),
                (true, None) => format!("the executor called no tool in step {step} of {of}"),
                (true, Some(call)) => format!("the executor's call in step {step} of {of} could not be read: {call}"),
            },
            ModelRole::Synthesizer if is_last || !reply.text.trim().is_empty() => {
                self.report_unreadable(&reply.unreadable, change);
                return Some(ResolvedReply { calls: Vec::new(), unreadable: Vec::new(), ..reply });
            }
            ModelRole::Synthesizer => "the planner's answer is empty".to_owned(),
        };
        self.emit(change, EventKind::StreamClear);
        // Unreadable calls are reported in the same way as in a turn without a plan (L20). Unreadable calls are not
        // added to the history, because the model that wrote them is not asked to correct them.
        self.report_unreadable(&reply.unreadable, change);
        self.abandon_plan(&failure, change);
        self.next_step(change);
        None
    }

    fn take_plan(&mut self, steps: Vec<PlannedStep>, change: &mut Change) {
        let kind = EventKind::Plan { steps: steps.iter().map(|planned| planned.step.clone()).collect() };
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Some(plan) = &mut turn.plan else { return self.inconsistent("the turn has no plan") };
        plan.steps = steps;
        plan.enter(0);
        turn.use_plan_budget();
        self.emit(change, kind);
        self.next_step(change);
    }

    /// Keeps the first call with the highest priority among the calls that may run. A step makes only one call. The
    /// other calls are deferred as if their priority were lower (L6).
    fn keep_one_call(&mut self, reply: ResolvedReply, step: u32, of: u32) -> ResolvedReply {
        let priority = |call: &ResolvedCall| match call.disposition {
            Disposition::Ready { priority, .. } => Some(priority),
            Disposition::Breaks(_)
            | Disposition::NotFound { .. }
            | Disposition::Refused(_)
            | Disposition::Withheld { .. } => None,
        };
        let highest = reply.calls.iter().filter_map(priority).max();
        let chosen = reply.calls.iter().position(|call| highest.is_some() && priority(call) == highest);
        if let (None, Some(plan)) = (chosen, self.turn.as_mut().and_then(|turn| turn.plan.as_mut())) {
            let calls: Vec<String> = reply.calls.iter().map(reason_not_run).collect();
            let calls: String = calls.join("; ").chars().take(MAX_QUOTED).collect();
            plan.failure = Some(format!("no call of step {step} of {of} could run: {calls}"));
        }
        let calls = reply.calls.into_iter().enumerate().map(|(index, mut call)| {
            match &mut call.disposition {
                Disposition::Ready { priority, .. } => *priority = i32::from(Some(index) == chosen),
                // If the step makes its call, a loop-breaking call of the same reply is deferred.
                Disposition::Breaks(_) if chosen.is_some() => {
                    call.disposition = Disposition::Ready { priority: 0, sequential: false, repeatable: false };
                }
                Disposition::Breaks(_)
                | Disposition::NotFound { .. }
                | Disposition::Refused(_)
                | Disposition::Withheld { .. } => {}
            }
            call
        });
        ResolvedReply { calls: calls.collect(), ..reply }
    }

    /// Records that a call of the current step has failed, so that the plan is abandoned after this step.
    pub(super) fn note_failure(&mut self, name: &str, shown: &str) {
        let Some(plan) = self.turn.as_mut().and_then(|turn| turn.plan.as_mut()) else { return };
        if let ModelRole::Executor { step, of } = plan.model_role() {
            let shown: String = shown.chars().take(MAX_QUOTED).collect();
            plan.failure = Some(format!("`{name}` failed in step {step} of {of}: {shown}"));
        }
    }

    /// Continues after the calls of a step have finished. If a call failed, the plan is abandoned. Otherwise, the next
    /// step begins or, after the last step, the planner writes the answer.
    pub(super) fn finish_plan_step(&mut self, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Some(plan) = &mut turn.plan else { return };
        let Stage::Step(index) = plan.stage else { return };
        match plan.failure.take() {
            Some(failure) => self.abandon_plan(&failure, change),
            None => {
                plan.enter(index.saturating_add(1));
                turn.use_plan_budget();
            }
        }
    }

    /// Abandons the plan. The agent's own model continues the turn. The history contains the results of the plan's
    /// calls, so this model need not repeat any of these calls.
    pub(super) fn abandon_plan(&mut self, reason: &str, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Some(plan) = turn.plan.take() else { return self.inconsistent("the turn has no plan") };
        turn.budget = PromptBudget { system: turn.budget.system, ..plan.fallback };
        self.emit(change, EventKind::PlanFallback { reason: reason.to_owned() });
    }

    /// Abandons the plan because all attempts to call one of the plan's models have failed. Returns whether the turn
    /// had a plan.
    pub(super) fn plan_failed(&mut self, model: &str, message: &str, change: &mut Change) -> PlanFailure {
        let Some(Turn { plan: Some(plan), model_index, .. }) = &self.turn else { return PlanFailure::NoPlan };
        let (model_index, budget) = (*model_index, plan.fallback);
        self.emit(change, EventKind::StreamClear);
        self.abandon_plan(&format!("{model} did not answer: {message}"), change);
        self.take_model(model_index, budget, change);
        PlanFailure::Abandoned
    }
}

/// Returns the name of a call that could not run in a step, and the reason.
fn reason_not_run(call: &ResolvedCall) -> String {
    let why = match &call.disposition {
        Disposition::Refused(error) => error.for_users(),
        Disposition::NotFound { message } | Disposition::Withheld { message, .. } => message.clone(),
        Disposition::Ready { .. } | Disposition::Breaks(_) => "it cannot be part of a plan".to_owned(),
    };
    format!("`{}`: {why}", call.name)
}

/// The effect of a failed model call on the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanFailure {
    /// The turn has no plan.
    NoPlan,
    /// The plan was abandoned, and the agent's own model is called instead of the plan's models.
    Abandoned,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
