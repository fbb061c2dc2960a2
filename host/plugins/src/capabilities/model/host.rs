//! The host functions of `agent-host:model`.

use super::ModelView;
use super::bindings::agent_host::model::host_model as wit;
use crate::contract::v0_1::conversion::json_or_error;
use crate::grants::model_denied;
use crate::limits::{MODEL_REQUEST_BYTES, MODEL_REQUEST_MESSAGES};
use crate::ports::model::{ModelCaller, ModelPortRequest, ModelPortResponse, ModelRefusal};
use agent_core::message::{Message, Role};
use agent_core::model::StopReason;
use agent_core::tool::ModelUse;
use serde_json::Value;

impl wit::Host for ModelView<'_> {
    async fn ask(&mut self, question: wit::Question) -> wasmtime::Result<Result<wit::Answer, wit::Error>> {
        let Some(budget) = self.call.grants().model_tokens else {
            let (thing, advice) = model_denied(&self.call.record.plugin.name, None);
            self.call.record.deny(thing, advice);
            return Ok(Err(wit::Error::Denied));
        };
        let Some(port) = self.state.port.clone() else {
            return Ok(Err(wit::Error::Failed(
                "this call is not part of an agent's turn, so it has no model".to_owned(),
            )));
        };
        let question = match question_in(question) {
            Ok((question, bytes)) => {
                self.call.record.count_bytes_from_guest(bytes);
                question
            }
            Err(problem) => return Ok(Err(wit::Error::Invalid(problem))),
        };
        let (plugin, call) = (self.call.record.plugin.name.clone(), self.call.record.call.clone());
        let answer = port.ask(&ModelCaller { plugin, call, budget }, question).await;
        let usage = answer.as_ref().map(|answer| answer.usage).unwrap_or_default();
        if !matches!(answer, Err(ModelRefusal::Budget { .. } | ModelRefusal::Invalid(_))) {
            self.call.record.count_model_use(ModelUse { asks: 1, usage });
        }
        Ok(answer.map_err(error_out).map(|mut answer| {
            answer.text = self.call.record.secrets.redaction().whole(std::mem::take(&mut answer.text));
            self.call.record.count_bytes_to_guest(answer.text.len());
            answer_out(answer)
        }))
    }
}

/// Checks and converts a guest's request to the model. Returns the converted request and the total size of the
/// request's texts in bytes.
fn question_in(question: wit::Question) -> Result<(ModelPortRequest, usize), String> {
    let wit::Question { system, messages, output_schema, max_tokens } = question;
    let texts = messages.iter().map(|message| message.text.as_str());
    let bytes = texts.chain(system.as_deref()).chain(output_schema.as_deref()).map(str::len).sum();
    if bytes > MODEL_REQUEST_BYTES {
        return Err(format!("its texts have {bytes} bytes; at most {MODEL_REQUEST_BYTES} are allowed"));
    }
    if !(1..=MODEL_REQUEST_MESSAGES).contains(&messages.len()) {
        return Err(format!("it has {} messages; 1 to {MODEL_REQUEST_MESSAGES} are allowed", messages.len()));
    }
    if messages.iter().any(|message| message.text.trim().is_empty()) {
        return Err("a message is empty".to_owned());
    }
    if messages.last().is_some_and(|message| message.role != wit::Role::User) {
        return Err("its last message is not a user message".to_owned());
    }
    if max_tokens == Some(0) {
        return Err("`max-tokens` is 0; it must be at least 1".to_owned());
    }
    let schema = output_schema.map(|text| match json_or_error(&text, "its output schema")? {
        schema @ Value::Object(_) => Ok(schema),
        _ => Err("its output schema is not a JSON object".to_owned()),
    });
    let messages = messages.into_iter().map(|message| {
        let role = match message.role {
            wit::Role::User => Role::User,
            wit::Role::Assistant => Role::Assistant,
        };
        Message::text(role, message.text)
    });
    let messages = messages.collect();
    Ok((ModelPortRequest { system, messages, output_schema: schema.transpose()?, max_tokens }, bytes))
}

fn answer_out(answer: ModelPortResponse) -> wit::Answer {
    wit::Answer {
        text: answer.text,
        ending: match answer.stop {
            StopReason::Stop | StopReason::ToolCalls | StopReason::Paused => wit::Ending::Complete,
            StopReason::Length => wit::Ending::Length,
            StopReason::ContentFilter => wit::Ending::Filtered,
        },
        usage: wit::Usage {
            prompt_tokens: answer.usage.prompt_tokens,
            completion_tokens: answer.usage.completion_tokens,
        },
        tokens_left: answer.left,
        model: answer.model,
    }
}

fn error_out(refusal: ModelRefusal) -> wit::Error {
    match refusal {
        ModelRefusal::Budget { left } => wit::Error::BudgetExhausted(left),
        ModelRefusal::Invalid(problem) => wit::Error::Invalid(problem),
        ModelRefusal::Unavailable(problem) => wit::Error::Unavailable(problem),
        ModelRefusal::Failed(problem) => wit::Error::Failed(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(texts: &[(wit::Role, &str)]) -> wit::Question {
        let messages = texts.iter().map(|(role, text)| wit::Message { role: *role, text: (*text).to_owned() });
        wit::Question { system: None, messages: messages.collect(), output_schema: None, max_tokens: None }
    }

    // P5: an invalid request is reported to the plugin and never sent to the model.
    #[test]
    fn p5_questions_are_checked_before_they_are_sent() {
        use wit::Role::{Assistant, User};
        let (checked, bytes) = question_in(wit::Question {
            system: Some("Be brief.".to_owned()),
            output_schema: Some(r#"{"type":"object"}"#.to_owned()),
            max_tokens: Some(7),
            ..question(&[(User, "One?"), (Assistant, "1"), (User, "Two?")])
        })
        .expect("a question");
        assert_eq!((checked.messages.len(), checked.max_tokens, bytes), (3, Some(7), 9 + 17 + 4 + 1 + 4));
        assert_eq!(checked.output_schema, Some(serde_json::json!({"type": "object"})));
        let problem = |question| question_in(question).expect_err("refused");
        assert!(problem(question(&[])).contains("0 messages"));
        assert!(problem(question(&[(User, "x"); 65])).contains("65 messages"));
        assert!(problem(question(&[(User, " \n")])).contains("empty"));
        assert!(problem(question(&[(User, "x"), (Assistant, "y")])).contains("not a user message"));
        assert!(problem(question(&[(User, &"x".repeat(MODEL_REQUEST_BYTES + 1))])).contains("at most"));
        for schema in ["{", "[]"] {
            let question = wit::Question { output_schema: Some(schema.to_owned()), ..question(&[(User, "x")]) };
            assert!(problem(question).contains("schema"), "{schema}");
        }
        assert!(problem(wit::Question { max_tokens: Some(0), ..question(&[(User, "x")]) }).contains("max-tokens"));
    }
}
