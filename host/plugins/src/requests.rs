//! Requests to context builders, validators and media policies in the contract's words, and their checked answers.

use crate::bindings::exports::agent_host::plugin::{context_builder, media_policy, output_validator, step_context};
use crate::convert::{
    SessionMedia, TextBudget, json_in, media_out, message_out, messages_out, model_out, role_out, scope_out,
};
use crate::failure::Refusal;
use crate::limits::{ERROR_TEXT_BYTES, Limit, RESULT_TEXT_BYTES, STATE_BYTES};
use crate::text::clean;
use agent_core::message::{Dimensions, Role, TurnInput};
use agent_core::model::MediaDecision;
use agent_core::plugin::{
    Budget, BuilderRequest, BuiltPrompt, History, Lifecycle, OutputData, PolicyRequest, Section, Stability,
    StepRequest, ValidatorRequest, Verdict,
};
use agent_core::tool::Violation;

pub(crate) fn builder_out(request: &BuilderRequest) -> context_builder::Request {
    let tools = request.tools.iter().map(|tool| context_builder::Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.to_string(),
        tokens: tool.tokens,
    });
    let recollections = request.memory.recollections.iter().map(|memory| context_builder::Recollection {
        id: memory.id.clone(),
        text: memory.text.clone(),
        written: memory.written.clone(),
        score: memory.score,
    });
    context_builder::Request {
        lifecycle: lifecycle_out(request.lifecycle),
        scope: scope_out(&request.scope),
        model: model_out(&request.model),
        input: match &request.input {
            TurnInput::Text(text) => context_builder::Input::Text(text.clone()),
            TurnInput::Json(json) => context_builder::Input::Json(json.to_string()),
            TurnInput::Message(parts) => context_builder::Input::Message(message_out(Role::User, parts, 0)),
        },
        tools: tools.collect(),
        memory: context_builder::Memory {
            history: messages_out(&request.memory.history),
            hidden: request.memory.hidden,
            summary: request.memory.summary.clone(),
            recollections: recollections.collect(),
        },
        budget: budget_out(request.budget),
    }
}

pub(crate) async fn prompt_in(
    prompt: context_builder::Prompt,
    media: SessionMedia<'_>,
) -> Result<BuiltPrompt, Refusal> {
    if prompt.state.as_ref().is_some_and(|state| state.len() > STATE_BYTES) {
        return Err(Refusal::Limit(Limit::State(STATE_BYTES)));
    }
    Ok(BuiltPrompt {
        system: sections_in(prompt.system),
        history: match prompt.history {
            context_builder::History::Keep => History::Keep,
            context_builder::History::LeaveOut => History::LeaveOut,
        },
        messages: media.messages(prompt.messages).await?,
        state: prompt.state,
    })
}

pub(crate) fn step_out(request: &StepRequest) -> step_context::Request {
    step_context::Request {
        lifecycle: lifecycle_out(request.lifecycle),
        scope: scope_out(&request.scope),
        model: model_out(&request.model),
        step: request.step,
        steps_left: request.steps_left,
        latest: messages_out(&request.latest),
        budget: budget_out(request.budget),
        state: request.state.clone(),
    }
}

pub(crate) fn sections_in(sections: Vec<context_builder::Section>) -> Vec<Section> {
    let sections = sections.into_iter().map(|section| Section {
        name: clean(&section.name, 128),
        text: section.text,
        stability: match section.stability {
            context_builder::Stability::Fixed => Stability::Fixed,
            context_builder::Stability::Dynamic => Stability::Dynamic,
        },
    });
    sections.collect()
}

fn lifecycle_out(lifecycle: Lifecycle) -> context_builder::Lifecycle {
    match lifecycle {
        Lifecycle::Init => context_builder::Lifecycle::Init,
        Lifecycle::ToolResult => context_builder::Lifecycle::ToolResult,
        Lifecycle::OutputErrorFeedback => context_builder::Lifecycle::OutputErrorFeedback,
    }
}

fn budget_out(budget: Budget) -> context_builder::Budget {
    context_builder::Budget { available: budget.available, reserved: budget.reserved, tools: budget.tools }
}

pub(crate) fn validator_out(request: &ValidatorRequest) -> output_validator::Request {
    output_validator::Request {
        scope: scope_out(&request.scope),
        text: request.text.clone(),
        structured: request.structured.as_ref().map(ToString::to_string),
        output_schema: request.output_schema.as_ref().map(ToString::to_string),
        attempt: request.attempt,
        corrections_left: request.corrections_left,
        turn: messages_out(&request.turn),
    }
}

pub(crate) fn verdict_in(verdict: output_validator::Verdict) -> Result<Verdict, Refusal> {
    let mut budget = TextBudget::new(RESULT_TEXT_BYTES);
    match verdict {
        output_validator::Verdict::Accept => Ok(Verdict::Accept),
        output_validator::Verdict::AcceptAs(output_validator::Output::Text(text)) => {
            budget.take(&text)?;
            Ok(Verdict::AcceptAs(OutputData::Text(text)))
        }
        output_validator::Verdict::AcceptAs(output_validator::Output::Json(text)) => {
            budget.take(&text)?;
            Ok(Verdict::AcceptAs(OutputData::Json(json_in(&text, "the accepted output")?)))
        }
        output_validator::Verdict::Reject(problems) if problems.is_empty() => {
            Err(Refusal::Invalid("it rejected the output without naming a problem".to_owned()))
        }
        output_validator::Verdict::Reject(problems) => {
            let mut violations = Vec::with_capacity(problems.len());
            for problem in problems {
                budget.take(&problem.pointer)?;
                budget.take(&problem.message)?;
                let message = clean(&problem.message, ERROR_TEXT_BYTES);
                violations.push(Violation { pointer: problem.pointer, rule: None, message });
            }
            Ok(Verdict::Reject(violations))
        }
    }
}

pub(crate) fn policy_out(request: &PolicyRequest) -> media_policy::Request {
    let items = request.items.iter().map(|item| media_policy::Item {
        position: media_policy::Position {
            message: item.position.message,
            part: item.position.part,
            item: item.position.item,
        },
        role: role_out(item.role),
        seen_count: item.seen_count,
        media: media_out(&item.media),
        masked: item.masked,
    });
    media_policy::Request {
        scope: scope_out(&request.scope),
        model: model_out(&request.model),
        messages: request.messages,
        items: items.collect(),
    }
}

/// Exactly one decision per item.
pub(crate) fn decisions_in(
    decisions: Vec<media_policy::Decision>,
    items: usize,
) -> Result<Vec<MediaDecision>, Refusal> {
    if decisions.len() != items {
        return Err(Refusal::Invalid(format!("it made {} decisions for {items} media", decisions.len())));
    }
    let mut budget = TextBudget::new(RESULT_TEXT_BYTES);
    let decisions = decisions.into_iter().map(|decision| match decision {
        media_policy::Decision::Keep => Ok(MediaDecision::Keep),
        media_policy::Decision::Mask(text) => {
            budget.take(&text)?;
            Ok(MediaDecision::Mask(text))
        }
        media_policy::Decision::Downscale(to) if to.width == 0 || to.height == 0 => {
            Err(Refusal::Invalid(format!("it downscales to {} × {} pixels; both are at least 1", to.width, to.height)))
        }
        media_policy::Decision::Downscale(to) => {
            Ok(MediaDecision::Downscale(Dimensions { width: to.width, height: to.height }))
        }
    });
    decisions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4: one decision per medium, each of them possible.
    #[test]
    fn decisions_are_counted_and_checked() {
        let decide = |decisions| decisions_in(decisions, 1);
        assert!(matches!(decide(vec![]), Err(Refusal::Invalid(_))));
        let flat = media_policy::Dimensions { width: 0, height: 9 };
        assert!(matches!(decide(vec![media_policy::Decision::Downscale(flat)]), Err(Refusal::Invalid(_))));
        let mask = media_policy::Decision::Mask("[seen]".to_owned());
        assert_eq!(decide(vec![mask]).expect("valid"), [MediaDecision::Mask("[seen]".to_owned())]);
    }

    // L12: a rejection says what is wrong; bad JSON is the validator's failure.
    #[test]
    fn verdicts_are_checked() {
        assert!(matches!(verdict_in(output_validator::Verdict::Reject(vec![])), Err(Refusal::Invalid(_))));
        let broken = output_validator::Output::Json("{".to_owned());
        assert!(matches!(verdict_in(output_validator::Verdict::AcceptAs(broken)), Err(Refusal::Invalid(_))));
    }
}
