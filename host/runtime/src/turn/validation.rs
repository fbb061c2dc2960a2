//! Validates the output at the end of a turn: runs the output validators in their configured order, and then checks the
//! agent's output schema (L12).

use super::action::{ActionContext, ActionResult, plugin_answer};
use crate::records::{CommitNotes, Question, StepRecordBody, ValidatorQuestion, VerdictRecord};
use agent_core::plugin::{OutputData, ValidatorRequest, Verdict};
use agent_core::run::{Input, OutputVerdict, Validation};
use agent_core::tool::Violation;
use agent_core::trace::SpanKey;
use serde_json::Value;

/// Name that is recorded as the validator if the output schema rejects an output.
const OUTPUT_SCHEMA: &str = "output schema";

/// Runs the agent's output validators in their configured order. Each validator receives the output that the previous
/// validator returned. The output schema is checked after the last validator.
pub(super) async fn validate(context: &mut ActionContext<'_>, validation: Validation) -> ActionResult {
    let agent = context.agent();
    let number = context.run.turns;
    let step = context.run.turn.as_ref().map_or(0, |turn| turn.interactions);
    let turn = match agent.config().validators.is_empty() {
        true => Vec::new(),
        false => context.shown(|entry| entry.turn == number).await?,
    };
    let (positions, texts) = context.positions(|entry| entry.turn == number);
    let mut notes = CommitNotes { texts, ..CommitNotes::default() };
    // If the agent has an output schema, the argument `result` of the call that ends the turn is already
    // structured data.
    let mut data = match validation.result.clone().filter(|_| agent.output_schema().is_some()) {
        Some(json) => OutputData::Json(json),
        None => OutputData::Text(validation.text.clone()),
    };
    for validator in agent.validators() {
        let request = ValidatorRequest {
            scope: context.scope(Some(SpanKey::Step(step))),
            text: data.for_history(),
            structured: structured(&data),
            output_schema: agent.config().output_schema.clone(),
            attempt: validation.attempt,
            corrections_left: validation.corrections_left,
            turn: turn.clone(),
        };
        // The record refers to the turn's messages by position, as prompt records do.
        let question = ValidatorQuestion {
            text: request.text.clone(),
            structured: request.structured.clone(),
            output_schema: request.output_schema.clone(),
            attempt: request.attempt,
            corrections_left: request.corrections_left,
            messages: positions.clone(),
            result_characters: context.result_characters(),
        };
        let report = context.services.sandbox.validate(validator, &request).await;
        context.note_denials(&report.denials);
        let cost = report.cost;
        let verdict = plugin_answer(validator, report)?;
        let by = validator.plugin().identity().to_string();
        let (plugin, asked, answer) = (by.clone(), Question::Recorded(question), verdict.clone());
        let record = VerdictRecord { plugin, asked, answer, cost };
        notes.add_now(context.run, StepRecordBody::Verdict(Box::new(record)));
        match verdict {
            Verdict::Accept => {}
            Verdict::AcceptAs(changed) => data = changed,
            Verdict::Reject(problems) => {
                return Ok((Input::Verdict(OutputVerdict::Rejected { by, problems }), notes));
            }
        }
    }
    let verdict = check_schema(context, data);
    Ok((Input::Verdict(verdict), notes))
}

fn check_schema(context: &ActionContext<'_>, data: OutputData) -> OutputVerdict {
    // The agent's configuration determines whether the output is text or data. A validator cannot turn text into data
    // or data into text (L13).
    let Some(schema) = context.services.agent.output_schema() else {
        return OutputVerdict::Accepted(OutputData::Text(data.for_history()));
    };
    let rejected = |problems| OutputVerdict::Rejected { by: OUTPUT_SCHEMA.to_owned(), problems };
    let json = match data {
        OutputData::Json(json) => json,
        OutputData::Text(text) => match serde_json::from_str(&text) {
            Ok(json) => json,
            Err(error) => {
                let message = format!("the answer must be JSON and nothing else: {error}");
                let rule = Some("json".to_owned());
                return rejected(vec![Violation { pointer: String::new(), rule, message }]);
            }
        },
    };
    match schema.check(&json) {
        Ok(()) => OutputVerdict::Accepted(OutputData::Json(json)),
        Err(problems) => rejected(problems),
    }
}

fn structured(data: &OutputData) -> Option<Value> {
    match data {
        OutputData::Json(json) => Some(json.clone()),
        OutputData::Text(text) => serde_json::from_str(text).ok(),
    }
}
