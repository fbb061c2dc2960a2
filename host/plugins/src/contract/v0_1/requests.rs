//! Converts the requests that are sent to context builders, output validators and media policies, and checks and
//! converts the results that these plugins return.

use super::bindings::agent_host::plugin::types;
use super::bindings::exports::agent_host::plugin::{context_builder, media_policy, output_validator, step_context};
use super::conversion::{
    SessionMedia, TextBudget, json_in, media_out, message_out, messages_out, model_out, role_out, scope_out,
};
use crate::contract::RejectedResult;
use crate::limits::{CallLimits, Limit, PROMPT_MESSAGES, SECTION_NAME_BYTES, SECTIONS, STATE_BYTES};
use crate::text::clean;
use agent_core::message::{Dimensions, Role, TurnInput};
use agent_core::model::MediaDecision;
use agent_core::plugin::{
    Budget, BuilderRequest, BuiltPrompt, History, Lifecycle, OutputData, PolicyRequest, Section, Stability,
    StepRequest, ValidatorRequest, Verdict,
};
use agent_core::tool::Violation;
use std::collections::{BTreeSet, VecDeque};

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
            // The text of the call. Turns with this input use no context builder.
            call @ TurnInput::Call { .. } => context_builder::Input::Text(call.message().plain_text()),
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
    bytes: usize,
) -> Result<BuiltPrompt, RejectedResult> {
    if prompt.state.as_ref().is_some_and(|state| state.len() > STATE_BYTES) {
        return Err(RejectedResult::Limit(Limit::State(STATE_BYTES)));
    }
    check_messages(&prompt.messages)?;
    Ok(BuiltPrompt {
        system: sections_in(prompt.system, bytes)?,
        history: match prompt.history {
            context_builder::History::Keep => History::Keep,
            context_builder::History::LeaveOut => History::LeaveOut,
        },
        messages: media.messages(prompt.messages).await?,
        state: prompt.state,
    })
}

pub(crate) fn step_request_out(request: &StepRequest) -> step_context::Request {
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

/// Checks and converts the sections of a prompt. Fails if there are too many sections, if two sections have the same
/// name, or if the texts of all sections have more than `bytes` bytes in total.
pub(crate) fn sections_in(
    sections: Vec<context_builder::Section>,
    bytes: usize,
) -> Result<Vec<Section>, RejectedResult> {
    if sections.len() > SECTIONS {
        return invalid(format!("it returned {} sections; at most {SECTIONS} are allowed", sections.len()));
    }
    let mut budget = TextBudget::new(bytes);
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(sections.len());
    for section in sections {
        if !(1..=SECTION_NAME_BYTES).contains(&section.name.len()) {
            let bytes = section.name.len();
            return invalid(format!("a section's name has {bytes} bytes; it must have 1 to {SECTION_NAME_BYTES}"));
        }
        budget.take(&section.text)?;
        let name = clean(&section.name, SECTION_NAME_BYTES);
        if !names.insert(name.clone()) {
            return invalid(format!("it returned two sections named `{name}`"));
        }
        let stability = match section.stability {
            context_builder::Stability::Fixed => Stability::Fixed,
            context_builder::Stability::Dynamic => Stability::Dynamic,
        };
        checked.push(Section { name, text: section.text, stability });
    }
    Ok(checked)
}

/// Checks that the messages are valid for any model: no message is empty, and the results of tool calls follow directly
/// after the calls and in the order of the calls.
fn check_messages(messages: &[types::Message]) -> Result<(), RejectedResult> {
    if messages.len() > PROMPT_MESSAGES {
        return invalid(format!("it returned {} messages; at most {PROMPT_MESSAGES} are allowed", messages.len()));
    }
    let (mut ids, mut open_calls) = (BTreeSet::new(), VecDeque::new());
    for (number, message) in (1..).zip(messages) {
        if message.parts.is_empty() {
            return invalid(format!("its message {number} is empty"));
        }
        if message.role != types::Role::Tool && !open_calls.is_empty() {
            return invalid(format!("its message {number} is between a call and its result"));
        }
        for part in &message.parts {
            match (message.role, part) {
                (types::Role::Assistant, types::Part::ToolCall(call)) => {
                    if is_host_id(&call.id) || !ids.insert(&call.id) {
                        let id = &call.id;
                        return invalid(format!(
                            "its message {number} has a call with the id {id:?}, which is already used or reserved for the host"
                        ));
                    }
                    open_calls.push_back(&call.id);
                }
                (types::Role::Tool, types::Part::ToolResult(result)) => {
                    let awaited = open_calls.pop_front();
                    if awaited != Some(&result.call_id) {
                        let id = &result.call_id;
                        return invalid(format!(
                            "its message {number} has a result for the call {id:?}, which is not the next call without a result"
                        ));
                    }
                }
                (types::Role::Tool, _) | (_, types::Part::ToolCall(_) | types::Part::ToolResult(_)) => {
                    return invalid(format!("its message {number} has a part that its role does not allow"));
                }
                _ => {}
            }
        }
    }
    if open_calls.is_empty() { Ok(()) } else { invalid("its last message has a call without a result".to_owned()) }
}

/// Whether the id has the form `call_3_2_1`. Only the host assigns ids of this form, so that each such id is unique in
/// its session.
fn is_host_id(id: &str) -> bool {
    let Some(numbers) = id.strip_prefix("call_") else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.split('_').count() == 3 && numbers.split('_').all(is_number)
}

fn invalid<T>(reason: String) -> Result<T, RejectedResult> {
    Err(RejectedResult::Invalid(reason))
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

pub(crate) fn verdict_in(verdict: output_validator::Verdict, limits: &CallLimits) -> Result<Verdict, RejectedResult> {
    let mut budget = TextBudget::new(limits.result);
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
            Err(RejectedResult::Invalid("it rejected the output without naming a problem".to_owned()))
        }
        output_validator::Verdict::Reject(problems) => {
            let mut violations = Vec::with_capacity(problems.len());
            for problem in problems {
                budget.take(&problem.pointer)?;
                budget.take(&problem.message)?;
                let message = clean(&problem.message, limits.error);
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

/// Checks and converts the decisions of a media policy. There must be exactly one decision for each media item, and the
/// decisions may have at most `bytes` bytes of text in total.
pub(crate) fn decisions_in(
    decisions: Vec<media_policy::Decision>,
    items: usize,
    bytes: usize,
) -> Result<Vec<MediaDecision>, RejectedResult> {
    if decisions.len() != items {
        return Err(RejectedResult::Invalid(format!(
            "it returned {} decisions for {items} media items",
            decisions.len()
        )));
    }
    let mut budget = TextBudget::new(bytes);
    let decisions = decisions.into_iter().map(|decision| match decision {
        media_policy::Decision::Keep => Ok(MediaDecision::Keep),
        media_policy::Decision::Mask(text) => {
            budget.take(&text)?;
            Ok(MediaDecision::Mask(text))
        }
        media_policy::Decision::Downscale(to) if to.width == 0 || to.height == 0 => Err(RejectedResult::Invalid(
            format!("it downscales to {} × {} pixels; both must be at least 1", to.width, to.height),
        )),
        media_policy::Decision::Downscale(to) => {
            Ok(MediaDecision::Downscale(Dimensions { width: to.width, height: to.height }))
        }
    });
    decisions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4: a media policy must return one valid decision for each media item.
    #[test]
    fn p4_decisions_are_counted_and_checked() {
        let decide = |decisions| decisions_in(decisions, 1, 1000);
        assert!(matches!(decide(vec![]), Err(RejectedResult::Invalid(_))));
        let flat = media_policy::Dimensions { width: 0, height: 9 };
        assert!(matches!(decide(vec![media_policy::Decision::Downscale(flat)]), Err(RejectedResult::Invalid(_))));
        let mask = media_policy::Decision::Mask("[seen]".to_owned());
        assert_eq!(decide(vec![mask]).expect("valid"), [MediaDecision::Mask("[seen]".to_owned())]);
    }

    fn section(name: &str, text: &str) -> context_builder::Section {
        let (name, text) = (name.to_owned(), text.to_owned());
        context_builder::Section { name, text, stability: context_builder::Stability::Fixed }
    }

    // L2: the sections that a context builder returns must have unique names, and their number and size are limited.
    #[test]
    fn l2_sections_are_checked() {
        let many = |count: usize| (0..count).map(|n| section(&n.to_string(), "")).collect::<Vec<_>>();
        assert_eq!(sections_in(many(SECTIONS), 1000).expect("sections").len(), SECTIONS);
        let long = "x".repeat(SECTION_NAME_BYTES + 1);
        let same = vec![section("a", ""), section("a", "")];
        for sections in [many(SECTIONS + 1), same, vec![section("", "")], vec![section(&long, "")]] {
            assert!(matches!(sections_in(sections, 1000), Err(RejectedResult::Invalid(_))));
        }
        let large = section("a", &"x".repeat(1001));
        assert!(matches!(sections_in(vec![large], 1000), Err(RejectedResult::Limit(Limit::ResultText(_)))));
    }

    fn message(role: types::Role, parts: Vec<types::Part>) -> types::Message {
        types::Message { role, parts, seen_count: u32::MAX }
    }

    fn call(id: &str) -> types::Part {
        types::Part::ToolCall(types::ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() })
    }

    fn result(id: &str) -> types::Part {
        let (call_id, name) = (id.into(), "t".into());
        types::Part::ToolResult(types::ToolResult { call_id, name, content: vec![], is_error: false })
    }

    // L2: the messages that a context builder returns must be complete, and must not use call ids of the form that only
    // the host assigns.
    #[tokio::test]
    async fn l2_messages_are_checked() {
        use types::Role::{Assistant, Tool, User};
        let text = || types::Part::Text("hello".to_owned());
        let whole = vec![
            message(User, vec![text()]),
            message(Assistant, vec![call("a"), call("b")]),
            message(Tool, vec![result("a")]),
            message(Tool, vec![result("b")]),
            message(User, vec![text()]),
        ];
        let media = SessionMedia { port: None, session: "s" };
        let converted = media.messages(whole.clone()).await.expect("messages");
        assert!(converted.iter().all(|message| message.seen_count == 1_000_000));
        assert!(check_messages(&whole).is_ok());
        let broken = [
            whole[..2].to_vec(),
            whole[..3].to_vec(),
            whole[2..].to_vec(),
            [&whole[..2], &whole[4..], &whole[2..4]].concat(),
            [&whole[1..4], &whole[1..4]].concat(),
            vec![message(User, vec![])],
            [&whole[1..2], &whole[3..4], &whole[2..3]].concat(),
            [&whole[1..4], &[message(Tool, vec![text()])]].concat(),
            vec![message(User, vec![call("a")]), message(Tool, vec![result("a")])],
            vec![message(Assistant, vec![call("a")]), message(User, vec![result("a")])],
            vec![message(Assistant, vec![call("call_1_2_3")]), message(Tool, vec![result("call_1_2_3")])],
            vec![message(User, vec![text()]); PROMPT_MESSAGES + 1],
        ];
        for (index, messages) in broken.iter().enumerate() {
            assert!(matches!(check_messages(messages), Err(RejectedResult::Invalid(_))), "{index}");
        }
        assert!(!["call_1_2", "call_a_1_1", "call_1_2_3_4", "call__1_2"].into_iter().any(is_host_id));
    }

    // L12: an output validator that rejects an output must name a problem, and fails if it returns invalid JSON.
    #[test]
    fn l12_verdicts_are_checked() {
        let verdict = |verdict| verdict_in(verdict, &CallLimits::default());
        assert!(matches!(verdict(output_validator::Verdict::Reject(vec![])), Err(RejectedResult::Invalid(_))));
        let broken = output_validator::Output::Json("{".to_owned());
        assert!(matches!(verdict(output_validator::Verdict::AcceptAs(broken)), Err(RejectedResult::Invalid(_))));
    }
}
