//! The host's model for guests: `agent-host:model` over the port that the runtime implements, within a granted budget (P5).

use crate::bindings::agent_host::model::host_model as wit;
use crate::convert::json_or_reason;
use crate::grants::model_denied;
use crate::limits::{QUESTION_BYTES, QUESTION_MESSAGES};
use crate::state::CallState;
use agent_core::message::{Message, Role};
use agent_core::model::{StopReason, Usage};
use agent_core::tool::ModelUse;
use serde_json::Value;

/// Asks the agent's model.
#[async_trait::async_trait]
pub trait ModelPort: Send + Sync {
    /// The whole answer. Dropping the future cancels the question.
    async fn ask(&self, asker: &ModelAsker, question: ModelQuestion) -> Result<ModelAnswer, ModelRefusal>;
}

/// For whom a model is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAsker {
    /// The plugin's name.
    pub plugin: String,
    /// Its call's id.
    pub call: String,
    /// Tokens that the plugin may use in a turn.
    pub budget: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelQuestion {
    /// Instructions.
    pub system: Option<String>,
    /// Texts of the user and of the model, the last one the user's.
    pub messages: Vec<Message>,
    /// For the answer.
    pub output_schema: Option<Value>,
    /// Of the answer.
    pub max_tokens: Option<u32>,
}

/// What a model said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAnswer {
    /// Its words.
    pub text: String,
    /// Why it stopped.
    pub stop: StopReason,
    /// As the provider counted.
    pub usage: Usage,
    /// What is left of the budget.
    pub left: u64,
    /// `provider/model`.
    pub model: String,
}

/// Why there is no answer. The texts are for the plugin, and say nothing of the host's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefusal {
    /// The budget does not hold the question.
    #[error("the budget of the turn has {left} tokens left, which is too little")]
    Budget {
        /// Tokens.
        left: u64,
    },
    /// No model can be asked this.
    #[error("{0}")]
    Invalid(String),
    /// It may be answered later.
    #[error("{0}")]
    Unavailable(String),
    /// It is not answered.
    #[error("{0}")]
    Failed(String),
}

impl wit::Host for CallState {
    async fn ask(&mut self, question: wit::Question) -> wasmtime::Result<Result<wit::Answer, wit::Error>> {
        let Some(budget) = self.grants().model_tokens else {
            let (thing, advice) = model_denied(&self.record.plugin.name, None);
            self.record.deny(thing, advice);
            return Ok(Err(wit::Error::Denied));
        };
        let Some(port) = self.model.clone() else {
            return Ok(Err(wit::Error::Failed(
                "this call stands in no agent's turn, so that it has no model".to_owned(),
            )));
        };
        let question = match question_in(question) {
            Ok((question, bytes)) => {
                self.record.take(bytes);
                question
            }
            Err(problem) => return Ok(Err(wit::Error::Invalid(problem))),
        };
        let (plugin, call) = (self.record.plugin.name.clone(), self.record.call.clone());
        let answer = port.ask(&ModelAsker { plugin, call, budget }, question).await;
        let usage = answer.as_ref().map(|answer| answer.usage).unwrap_or_default();
        if !matches!(answer, Err(ModelRefusal::Budget { .. } | ModelRefusal::Invalid(_))) {
            self.record.ask(ModelUse { asks: 1, usage });
        }
        Ok(answer.map_err(error_out).map(|mut answer| {
            answer.text = self.record.secrets.redaction().whole(std::mem::take(&mut answer.text));
            self.record.give(answer.text.len());
            answer_out(answer)
        }))
    }
}

/// The question, checked, with the bytes of its texts.
fn question_in(question: wit::Question) -> Result<(ModelQuestion, usize), String> {
    let wit::Question { system, messages, output_schema, max_tokens } = question;
    let texts = messages.iter().map(|message| message.text.as_str());
    let bytes = texts.chain(system.as_deref()).chain(output_schema.as_deref()).map(str::len).sum();
    if bytes > QUESTION_BYTES {
        return Err(format!("its texts have {bytes} bytes; at most {QUESTION_BYTES} are taken"));
    }
    if !(1..=QUESTION_MESSAGES).contains(&messages.len()) {
        return Err(format!("it has {} messages; 1 to {QUESTION_MESSAGES} are taken", messages.len()));
    }
    if messages.iter().any(|message| message.text.trim().is_empty()) {
        return Err("a message is empty".to_owned());
    }
    if messages.last().is_some_and(|message| message.role != wit::Role::User) {
        return Err("its last message is not the user's".to_owned());
    }
    if max_tokens == Some(0) {
        return Err("`max-tokens` is 0".to_owned());
    }
    let schema = output_schema.map(|text| match json_or_reason(&text, "its output schema")? {
        schema @ Value::Object(_) => Ok(schema),
        _ => Err("its output schema is no JSON object".to_owned()),
    });
    let messages = messages.into_iter().map(|message| {
        let role = match message.role {
            wit::Role::User => Role::User,
            wit::Role::Assistant => Role::Assistant,
        };
        Message::text(role, message.text)
    });
    let messages = messages.collect();
    Ok((ModelQuestion { system, messages, output_schema: schema.transpose()?, max_tokens }, bytes))
}

fn answer_out(answer: ModelAnswer) -> wit::Answer {
    wit::Answer {
        text: answer.text,
        ending: match answer.stop {
            StopReason::Stop | StopReason::ToolCalls => wit::Ending::Complete,
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

    // P5: what is no question is told to the plugin and never sent.
    #[test]
    fn questions_are_checked_before_they_are_sent() {
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
        assert!(problem(question(&[(User, "x"), (Assistant, "y")])).contains("not the user's"));
        assert!(problem(question(&[(User, &"x".repeat(QUESTION_BYTES + 1))])).contains("at most"));
        for schema in ["{", "[]"] {
            let question = wit::Question { output_schema: Some(schema.to_owned()), ..question(&[(User, "x")]) };
            assert!(problem(question).contains("schema"), "{schema}");
        }
        assert!(problem(wit::Question { max_tokens: Some(0), ..question(&[(User, "x")]) }).contains("max-tokens"));
    }
}
