//! The model calls of a plan: who is asked, what it is told beside the history, and what the planner's reply is (L24).

use crate::model_step::Outgoing;
use crate::session::Session;
use agent_core::message::Part;
use agent_core::model::Reply;
use agent_core::plan::{self, planner_prompt, step_prompt, synthesis_prompt};
use agent_core::plugin::{Section, Stability};
use agent_core::prompt::{self, section};
use agent_core::run::{Asked, MadePlan, PlanBudgets, PromptBudget, StepPlan};
use agent_core::tokens;
use serde_json::json;

impl Session {
    /// The windows of a plan's models; none where the agent has no planner.
    pub(crate) fn plan_budgets(&self) -> Option<PlanBudgets> {
        let planning = self.shared.agent.models().planning.as_ref()?;
        let list = tokens::of_text(&part_of_plan(self.planner_prompt()));
        let planner = PromptBudget { tools: list, ..self.budget_of(&planning.planner, 0) };
        Some(PlanBudgets { planner, executor: self.budget_of(&planning.executor, 0) })
    }

    /// What a model is told for its part of the plan, as the prompt's last words: in this call only, and in the step's
    /// record. What is the same in each call, how a turn goes by a plan, stands in the turn's message (L22).
    pub(crate) fn add_plan_prompt(&self, plan: &StepPlan, outgoing: &mut Outgoing) {
        let text = match plan.asked {
            Asked::Model => return,
            Asked::Planner => self.planner_prompt(),
            Asked::Executor { step, of } => {
                let current = self.run.turn.as_ref().and_then(|turn| turn.plan.as_ref()?.current_step());
                let Some(current) = current else { return };
                step_prompt(&current.step, step, of)
            }
            Asked::Synthesis => synthesis_prompt().to_owned(),
        };
        let text = part_of_plan(text);
        if plan.asked == Asked::Planner {
            outgoing.request.output_schema = Some(plan::schema());
        }
        self.note(&mut outgoing.notes, plan.step, "plan_prompt", json!({"asked": plan.asked, "text": text}));
        outgoing.add_last(vec![Part::Text(text)]);
    }

    /// The planner's reply, read and checked, with the tools of each step (L25).
    pub(crate) async fn made_plan(&self, plan: &StepPlan, reply: &Reply) -> Option<MadePlan> {
        if plan.asked != Asked::Planner {
            return None;
        }
        Some(match plan::read(&reply.text) {
            Ok(steps) => MadePlan::Steps(self.with_tools(steps).await),
            Err(reason) => MadePlan::Invalid(reason),
        })
    }

    fn planner_prompt(&self) -> String {
        let tools = self.shared.agent.registry().offered().iter().filter(|tool| self.may_be_planned(tool));
        planner_prompt(tools.map(|tool| (tool.author_name.as_str(), tool.description.as_str())))
    }
}

/// Under its name, as every section of a prompt.
fn part_of_plan(text: String) -> String {
    prompt::text_of(&Section { name: section::PLAN_PART.to_owned(), text, stability: Stability::Dynamic })
}
