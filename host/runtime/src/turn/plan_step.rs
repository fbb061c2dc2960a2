//! Model calls of a plan (L24): computes the prompt budgets, adds the prompts to the history, and reads the
//! planner's reply.

use super::action::ActionContext;
use super::outgoing::OutgoingPrompt;
use super::tool_selection::{add_step_tools, may_be_planned};
use crate::records::{CommitNotes, PlanPromptRecord, StepRecordBody};
use agent_core::message::Part;
use agent_core::model::Reply;
use agent_core::plan::{self, planner_prompt, step_prompt, synthesis_prompt};
use agent_core::plugin::{Section, Stability};
use agent_core::prompt::{self, section};
use agent_core::run::{ModelRole, PlanBudgets, PlannerReply, PromptBudget, StepPlan};
use agent_core::tokens;

/// Returns the prompt budgets of the planning models, or `None` if the agent has no planning models.
pub(super) fn plan_budgets(context: &ActionContext<'_>) -> Option<PlanBudgets> {
    let planning = context.services.agent.models().planning.as_ref()?;
    let tool_list_tokens = tokens::of_text(&plan_section(prompt_for_planner(context)));
    let planner = PromptBudget { tools: tool_list_tokens, ..context.budget_of(&planning.planner, 0) };
    Some(PlanBudgets { planner, executor: context.budget_of(&planning.executor, 0) })
}

/// Adds the text about the current part of the plan to the end of the prompt. The text is sent in this model call only,
/// and is stored in the step record but not in the history. The general instructions about plans are the same in each
/// call, so they are in the turn's first message instead (L22).
pub(super) fn add_plan_prompt(context: &ActionContext<'_>, plan: &StepPlan, outgoing: &mut OutgoingPrompt) {
    let text = match plan.role {
        ModelRole::Agent => return,
        ModelRole::Planner => prompt_for_planner(context),
        ModelRole::Executor { step, of } => {
            let current = context.run.turn.as_ref().and_then(|turn| turn.plan.as_ref()?.current_step());
            let Some(current) = current else { return };
            step_prompt(&current.step, step, of)
        }
        ModelRole::Synthesizer => synthesis_prompt().to_owned(),
    };
    let text = plan_section(text);
    if plan.role == ModelRole::Planner {
        outgoing.request.output_schema = Some(plan::schema());
    }
    let record = PlanPromptRecord { asked: plan.role, text: text.clone() };
    outgoing.notes.add(context.run, plan.step, StepRecordBody::PlanPrompt(record));
    outgoing.add_last(vec![Part::Text(text)]);
}

/// Reads and checks the planner's reply, and selects the tools of each step (L25). Returns `None` if the reply is not
/// from the planner. If an embedding model selected the tools, its call is added to `notes`.
pub(super) async fn read_plan(
    context: &ActionContext<'_>,
    plan: &StepPlan,
    reply: &Reply,
    notes: &mut CommitNotes,
) -> Option<PlannerReply> {
    if plan.role != ModelRole::Planner {
        return None;
    }
    let steps = match plan::read(&reply.text) {
        Ok(steps) => steps,
        Err(reason) => return Some(PlannerReply::Invalid(reason)),
    };
    let (planned, embedding) = add_step_tools(context.services, steps).await;
    if let Some(record) = embedding {
        notes.add(context.run, plan.step, StepRecordBody::Embedding(record));
    }
    Some(PlannerReply::Steps(planned))
}

fn prompt_for_planner(context: &ActionContext<'_>) -> String {
    let tools =
        context.services.agent.registry().offered().iter().filter(|tool| may_be_planned(context.services, tool));
    planner_prompt(tools.map(|tool| (tool.author_name.as_str(), tool.description.as_str())))
}

/// Formats the text about the current part of the plan as a section of the prompt.
fn plan_section(text: String) -> String {
    prompt::text_of(&Section { name: section::PLAN_PART.to_owned(), text, stability: Stability::Dynamic })
}
