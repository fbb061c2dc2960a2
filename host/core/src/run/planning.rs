//! A turn that goes by a plan: one model makes it, another one carries out its steps, the first one writes the answer (L24).

use super::budget::PromptBudget;
use super::input::{Disposition, RepliedStep, ResolvedCall};
use super::state::Run;
use super::turn::Turn;
use crate::change::Change;
use crate::event::EventKind;
use crate::plan::PlanStep;
use serde::{Deserialize, Serialize};

/// Characters of an error that a reason quotes.
const QUOTED: usize = 300;

/// Who is asked in a model call, and what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// The agent's model, for what comes next.
    #[default]
    Model,
    /// The planner, for the plan.
    Planner,
    /// The executor, for one call.
    Executor {
        /// Of the plan, from 1.
        step: u32,
        /// Steps of the plan.
        of: u32,
    },
    /// The planner, for the answer.
    Synthesis,
}

/// The windows of those who make a plan and carry it out, without any system text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBudgets {
    /// The planner's; its tools are the text that lists them.
    pub planner: PromptBudget,
    /// The executor's; each step has its own tools.
    pub executor: PromptBudget,
}

/// What the planner's reply is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadePlan {
    /// A plan; without any step no tool is needed.
    Steps(Vec<PlannedStep>),
    /// None, for this reason.
    Invalid(String),
}

/// A step with the tools that the executor is offered for it (L25).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// What is to be done.
    #[serde(flatten)]
    pub step: PlanStep,
    /// By their authors' names.
    pub offered: Vec<String>,
    /// What offering them costs.
    pub tokens: u32,
}

/// The plan of a turn, and how far it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    budgets: PlanBudgets,
    /// Of the agent's model, should there be no plan any more.
    fallback: PromptBudget,
    steps: Vec<PlannedStep>,
    stage: Stage,
    /// Why the step that is being carried out has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Making,
    /// From 0.
    Step(usize),
    Synthesis,
}

/// The tools that a model call offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer<'t> {
    /// All that there are.
    All,
    /// These, by their authors' names.
    These(&'t [String]),
    /// None.
    Nothing,
}

impl Plan {
    /// The step that is being carried out.
    pub fn current_step(&self) -> Option<&PlannedStep> {
        match self.stage {
            Stage::Step(place) => self.steps.get(place),
            Stage::Making | Stage::Synthesis => None,
        }
    }

    fn asked(&self) -> Asked {
        match self.stage {
            Stage::Making => Asked::Planner,
            Stage::Step(place) => Asked::Executor { step: count(place.saturating_add(1)), of: count(self.steps.len()) },
            Stage::Synthesis => Asked::Synthesis,
        }
    }

    fn budget(&self) -> PromptBudget {
        match self.stage {
            Stage::Making => self.budgets.planner,
            Stage::Step(place) => {
                let tools = self.steps.get(place).map_or(0, |step| step.tokens);
                PromptBudget { tools, ..self.budgets.executor }
            }
            Stage::Synthesis => PromptBudget { tools: 0, ..self.budgets.planner },
        }
    }

    fn enter(&mut self, place: usize) {
        self.stage = if place < self.steps.len() { Stage::Step(place) } else { Stage::Synthesis };
        self.trouble = None;
    }
}

impl Turn {
    /// Who is asked next, and what for.
    pub fn asked(&self) -> Asked {
        self.plan.as_ref().map_or(Asked::Model, Plan::asked)
    }

    /// The tools that the next model call offers, unless it is the last one.
    pub fn offer(&self) -> Offer<'_> {
        match &self.plan {
            Some(plan) => plan.current_step().map_or(Offer::Nothing, |step| Offer::These(&step.offered)),
            None => self.offered.as_deref().map_or(Offer::All, Offer::These),
        }
    }

    /// Takes the window of whoever is asked next. The system text is the same whoever reads it.
    fn take_plans_budget(&mut self) {
        if let Some(plan) = &self.plan {
            self.budget = PromptBudget { system: self.budget.system, ..plan.budget() };
        }
    }
}

impl Run {
    /// A turn begins that is to go by a plan.
    pub(super) fn begin_plan(&mut self, budgets: PlanBudgets) {
        let Some(turn) = &mut self.turn else { return };
        let (steps, stage) = (Vec::new(), Stage::Making);
        turn.plan = Some(Plan { budgets, fallback: turn.budget, steps, stage, trouble: None });
        turn.take_plans_budget();
    }

    /// Before a step: at the bound of interactions the answer is all that is left, and where the prompt is too large for
    /// the plan's models the agent's own goes on.
    pub(super) fn steer_plan(&mut self, change: &mut Change) {
        let (messages, budget) = (self.sent_tokens(), self.prompt_budget());
        let Some(turn) = &mut self.turn else { return };
        let Some(plan) = &mut turn.plan else { return };
        if turn.interactions >= turn.config.max_interactions {
            match plan.stage {
                Stage::Making => self.fall_back("the bound of interactions is reached before there is a plan", change),
                Stage::Step(_) | Stage::Synthesis => {
                    plan.enter(usize::MAX);
                    turn.take_plans_budget();
                }
            }
        } else if budget.is_full(messages, &turn.config) {
            let who = if plan.current_step().is_some() { "executor" } else { "planner" };
            self.fall_back(&format!("too little of the {who}'s window is left"), change);
        }
    }

    /// What a reply means for the plan; gives it back where it goes on as any reply.
    pub(super) fn reply_to_plan(
        &mut self,
        reply: RepliedStep,
        is_last: bool,
        change: &mut Change,
    ) -> Option<RepliedStep> {
        let asked = self.turn.as_ref().map(Turn::asked).unwrap_or_default();
        let failure = match asked {
            Asked::Model => return Some(reply),
            Asked::Planner => match reply.plan {
                Some(MadePlan::Steps(steps)) => {
                    self.take_plan(steps, change);
                    return None;
                }
                Some(MadePlan::Invalid(reason)) => format!("the planner's reply is no plan: {reason}"),
                None => "the planner's reply is no plan".to_owned(),
            },
            Asked::Executor { step, of } => match (reply.calls.is_empty(), reply.unreadable.first()) {
                (false, _) => return Some(self.one_call_of(reply, (step, of))),
                (true, None) => format!("the executor called no tool in step {step} of {of}"),
                (true, Some(call)) => format!("the executor's call in step {step} of {of} could not be read: {call}"),
            },
            Asked::Synthesis if is_last || !reply.text.trim().is_empty() => {
                self.tell_unreadable(&reply.unreadable, change);
                return Some(RepliedStep { calls: Vec::new(), unreadable: Vec::new(), ..reply });
            }
            Asked::Synthesis => "the planner's answer is empty".to_owned(),
        };
        self.emit(change, EventKind::StreamClear);
        // What could not be read is told as in any reply (L20). It is no part of the history, since nobody goes on from it.
        self.tell_unreadable(&reply.unreadable, change);
        self.fall_back(&failure, change);
        self.next_step(change);
        None
    }

    fn take_plan(&mut self, steps: Vec<PlannedStep>, change: &mut Change) {
        let kind = EventKind::Plan { steps: steps.iter().map(|planned| planned.step.clone()).collect() };
        if let Some(turn) = &mut self.turn
            && let Some(plan) = &mut turn.plan
        {
            plan.steps = steps;
            plan.enter(0);
            turn.take_plans_budget();
        }
        self.emit(change, kind);
        self.next_step(change);
    }

    /// Of the calls that may run, the first one of the highest priority: a step is one call, and the others are deferred
    /// as if their priority were lower (L6).
    fn one_call_of(&mut self, reply: RepliedStep, (step, of): (u32, u32)) -> RepliedStep {
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
            let calls: Vec<String> = reply.calls.iter().map(why_not).collect();
            let calls: String = calls.join("; ").chars().take(QUOTED).collect();
            plan.trouble = Some(format!("no call of step {step} of {of} could run: {calls}"));
        }
        let calls = reply.calls.into_iter().enumerate().map(|(place, mut call)| {
            match &mut call.disposition {
                Disposition::Ready { priority, .. } => *priority = i32::from(Some(place) == chosen),
                // Beside the step's call nothing ends the turn either.
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
        RepliedStep { calls: calls.collect(), ..reply }
    }

    /// A call of the step has failed: the plan was made for one that succeeds.
    pub(super) fn note_failure(&mut self, name: &str, shown: &str) {
        let Some(plan) = self.turn.as_mut().and_then(|turn| turn.plan.as_mut()) else { return };
        if let Asked::Executor { step, of } = plan.asked() {
            let shown: String = shown.chars().take(QUOTED).collect();
            plan.trouble = Some(format!("`{name}` failed in step {step} of {of}: {shown}"));
        }
    }

    /// The batch of a step is complete: the next step, or the answer.
    pub(super) fn leave_step(&mut self, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        let Some(plan) = &mut turn.plan else { return };
        let Stage::Step(place) = plan.stage else { return };
        match plan.trouble.take() {
            Some(trouble) => self.fall_back(&trouble, change),
            None => {
                plan.enter(place.saturating_add(1));
                turn.take_plans_budget();
            }
        }
    }

    /// From here on the agent's own model goes on with what is there. Nothing that ran runs again: its results stand in
    /// the history.
    pub(super) fn fall_back(&mut self, reason: &str, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        let Some(plan) = turn.plan.take() else { return };
        turn.budget = PromptBudget { system: turn.budget.system, ..plan.fallback };
        self.emit(change, EventKind::PlanFallback { reason: reason.to_owned() });
    }

    /// One of the plan's models has not answered for good; whether that was the plan's end.
    pub(super) fn plan_failed(&mut self, model: &str, message: &str, change: &mut Change) -> PlanFailed {
        let Some(Turn { plan: Some(plan), place, .. }) = &self.turn else { return PlanFailed::NoPlan };
        let (place, budget) = (*place, plan.fallback);
        self.emit(change, EventKind::StreamClear);
        self.fall_back(&format!("{model} did not answer: {message}"), change);
        self.take_model(place, budget, change);
        PlanFailed::FellBack
    }
}

/// A call that is no step, and why.
fn why_not(call: &ResolvedCall) -> String {
    let why = match &call.disposition {
        Disposition::Refused(error) => error.for_people(),
        Disposition::NotFound { message } | Disposition::Withheld { message, .. } => message.clone(),
        Disposition::Ready { .. } | Disposition::Breaks(_) => "it is no part of a plan".to_owned(),
    };
    format!("`{}`: {why}", call.name)
}

/// What a failed model call has meant for the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanFailed {
    /// There is none.
    NoPlan,
    /// The agent's own model is asked in its place.
    FellBack,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
