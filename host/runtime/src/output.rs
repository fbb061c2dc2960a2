//! The end of a turn: validators in order, then the agent's output schema (L12).

use crate::context::{answer, store_failed};
use crate::drive::Deed;
use crate::places::Places;
use crate::session::{Notes, Session};
use agent_core::plugin::{OutputData, ValidatorRequest, Verdict};
use agent_core::run::{Input, OutputVerdict, Validation};
use agent_core::tool::Violation;
use serde_json::{Value, json};

/// Who rejects where no plugin does.
const OUTPUT_SCHEMA: &str = "output schema";

impl Session {
    /// Asks the validators, each seeing what the one before has made of the output, and the schema last.
    pub(crate) async fn validate(&mut self, validation: Validation) -> Deed {
        let agent = self.shared.agent.clone();
        let step = self.run.turn.as_ref().map_or(0, |turn| turn.interactions);
        let number = self.run.turns;
        let turn = match agent.config().validators.is_empty() {
            true => Vec::new(),
            false => self.shown(|entry| entry.turn == number).await.map_err(store_failed)?,
        };
        let (places, texts) = Places::new(&self.places(|entry| entry.turn == number), self.run.model_calls);
        let mut notes = Notes { texts, ..Notes::default() };
        // A result that a call brought is data already, where data is wanted.
        let mut data = match validation.result.clone().filter(|_| agent.output_schema().is_some()) {
            Some(json) => OutputData::Json(json),
            None => OutputData::Text(validation.text.clone()),
        };
        for validator in agent.validators() {
            let request = ValidatorRequest {
                scope: self.scope(),
                text: data.for_history(),
                structured: structured(&data),
                output_schema: agent.config().output_schema.clone(),
                attempt: validation.attempt,
                corrections_left: validation.corrections_left,
                turn: turn.clone(),
            };
            // The turn's messages are named by their places, as all prompts are.
            let asked = json!({
                "text": request.text,
                "structured": request.structured,
                "output_schema": request.output_schema,
                "attempt": request.attempt,
                "corrections_left": request.corrections_left,
                "messages": places,
                "result_characters": agent.config().bounds.result_characters,
            });
            let report = self.shared.sandbox.validate(validator, &request).await;
            self.note_denials(&report.denials);
            let cost = report.cost;
            let verdict = answer(validator, report)?;
            let by = validator.plugin().identity().to_string();
            self.note(
                &mut notes,
                step,
                "verdict",
                json!({"plugin": by, "asked": asked, "answer": verdict, "cost": cost}),
            );
            match verdict {
                Verdict::Accept => {}
                Verdict::AcceptAs(changed) => data = changed,
                Verdict::Reject(problems) => {
                    return Ok((Input::Verdict(OutputVerdict::Rejected { by, problems }), notes));
                }
            }
        }
        let verdict = self.check_schema(data);
        Ok((Input::Verdict(verdict), notes))
    }

    fn check_schema(&self, data: OutputData) -> OutputVerdict {
        // Whether the output is text or data is the agent's to say, not a validator's (L13).
        let Some(schema) = self.shared.agent.output_schema() else {
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
}

fn structured(data: &OutputData) -> Option<Value> {
    match data {
        OutputData::Json(json) => Some(json.clone()),
        OutputData::Text(text) => serde_json::from_str(text).ok(),
    }
}
