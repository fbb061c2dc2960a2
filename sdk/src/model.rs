//! Asks questions to the agent's model through `agent-host:model`, within a budget of tokens. A plugin that uses this
//! module needs the grant `model_tokens`. A plugin that does not use this module does not import `agent-host:model`.
//! The host denies all questions of validators and media policies.
//!
//! ```
//! use agent_host_sdk::model::Question;
//! use agent_host_sdk::testing::Host;
//!
//! let mut host = Host::new().answer("Ahoy.");
//! let answer = host.run(|| Question::new("Greet a sailor.").system("Be brief.").max_tokens(50).ask());
//! assert_eq!(answer.unwrap().text, "Ahoy.");
//! assert_eq!(host.questions()[0].messages(), [(agent_host_sdk::types::Role::User, "Greet a sailor.".to_owned())]);
//! ```

use crate::tool::ToolError;
use crate::types::Role;
use serde_json::Value;

/// A question to the model. The model gets only this question. The model gets neither tools nor the media or
/// messages of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    system: Option<String>,
    messages: Vec<(Role, String)>,
    output_schema: Option<Value>,
    max_tokens: Option<u32>,
}

/// The model's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text of the answer.
    pub text: String,
    /// The reason why the model stopped writing the answer.
    pub ending: Ending,
    /// Number of tokens of the question, as counted by the provider.
    pub prompt_tokens: u64,
    /// Number of tokens of the answer, as counted by the provider.
    pub completion_tokens: u64,
    /// Number of tokens that remain in the plugin's budget in this turn.
    pub tokens_left: u64,
    /// The name of the model that answered, in the form `provider/model`.
    pub model: String,
}

/// The reason why a model stopped writing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The answer is complete.
    Complete,
    /// The answer reached the limit on the number of tokens, so the text is incomplete.
    Length,
    /// The provider's content filter stopped the answer.
    Filtered,
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The agent's configuration does not grant the model.
    #[error("using the agent's model is not granted")]
    Denied,
    /// The question needs more tokens than remain in the plugin's budget for this turn. The error contains the number
    /// of remaining tokens.
    #[error("the model was not asked: only {0} tokens are left of the plugin's budget in this turn")]
    BudgetExhausted(u64),
    /// The question is invalid, so the model was not asked. The error contains the reason.
    #[error("the model was not asked: {0}")]
    Invalid(String),
    /// No model is available now. The question may succeed later.
    #[error("no model is available: {0}")]
    Unavailable(String),
    /// The model failed to answer this question. The error contains the reason.
    #[error("the model failed: {0}")]
    Failed(String),
}

impl From<ModelError> for ToolError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Denied => ToolError::denied(error.to_string()),
            ModelError::Unavailable(_) => ToolError::unavailable(error.to_string()),
            ModelError::BudgetExhausted(_) | ModelError::Invalid(_) | ModelError::Failed(_) => {
                ToolError::failed(error.to_string())
            }
        }
    }
}

impl Question {
    /// Creates a question with one user message.
    pub fn new(text: impl Into<String>) -> Self {
        let messages = vec![(Role::User, text.into())];
        Self { system: None, messages, output_schema: None, max_tokens: None }
    }

    /// Sets the instructions for the model, which are sent as the system text.
    #[must_use]
    pub fn system(self, text: impl Into<String>) -> Self {
        Self { system: Some(text.into()), ..self }
    }

    /// Adds earlier messages before the user message. Each pair is an earlier user message and the model's reply to it,
    /// oldest pair first.
    #[must_use]
    pub fn after(mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let earlier = pairs.into_iter().flat_map(|(user, model)| [(Role::User, user), (Role::Assistant, model)]);
        self.messages.splice(0..0, earlier);
        self
    }

    /// Sets a JSON Schema for the answer. The host sends the schema to the model, but does not check the answer. The
    /// plugin must check the answer.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        Self { output_schema: Some(schema), ..self }
    }

    /// Sets the maximum number of tokens of the answer. The default is the limit that the agent configures.
    #[must_use]
    pub fn max_tokens(self, tokens: u32) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    /// Returns the role and the text of each message, oldest message first.
    pub fn messages(&self) -> &[(Role, String)] {
        &self.messages
    }

    /// Returns the instructions for the model, or `None` if the question has none.
    pub fn instructions(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Sends the question and waits for the complete answer.
    pub fn ask(self) -> Result<Answer, ModelError> {
        backend::ask(self)
    }
}

/// Asks the model a question without instructions and with the default limits.
pub fn ask(text: impl Into<String>) -> Result<Answer, ModelError> {
    Question::new(text).ask()
}

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{Answer, Ending, ModelError, Question};
    use crate::bindings::model::agent_host::model::host_model as wit;
    use crate::types::Role;

    pub(super) fn ask(question: Question) -> Result<Answer, ModelError> {
        let messages = question.messages.into_iter().map(|(role, text)| {
            let role = if role == Role::Assistant { wit::Role::Assistant } else { wit::Role::User };
            wit::Message { role, text }
        });
        let question = wit::Question {
            system: question.system,
            messages: messages.collect(),
            output_schema: question.output_schema.map(|schema| schema.to_string()),
            max_tokens: question.max_tokens,
        };
        wit::ask(&question).map(convert_answer).map_err(convert_error)
    }

    fn convert_answer(answer: wit::Answer) -> Answer {
        Answer {
            text: answer.text,
            ending: match answer.ending {
                wit::Ending::Complete => Ending::Complete,
                wit::Ending::Length => Ending::Length,
                wit::Ending::Filtered => Ending::Filtered,
            },
            prompt_tokens: answer.usage.prompt_tokens,
            completion_tokens: answer.usage.completion_tokens,
            tokens_left: answer.tokens_left,
            model: answer.model,
        }
    }

    fn convert_error(error: wit::Error) -> ModelError {
        match error {
            wit::Error::Denied => ModelError::Denied,
            wit::Error::BudgetExhausted(tokens) => ModelError::BudgetExhausted(tokens),
            wit::Error::Invalid(message) => ModelError::Invalid(message),
            wit::Error::Unavailable(message) => ModelError::Unavailable(message),
            wit::Error::Failed(message) => ModelError::Failed(message),
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod backend {
    use super::{Answer, Ending, ModelError, Question};
    use crate::testing::with_state;

    pub(super) fn ask(question: Question) -> Result<Answer, ModelError> {
        with_state(|state| {
            let next = state.questions.len();
            let Some(text) = state.answers.get(next).cloned() else { return Err(ModelError::Denied) };
            state.questions.push(question);
            let (ending, model) = (Ending::Complete, "test/test".to_owned());
            Ok(Answer { text, ending, prompt_tokens: 1, completion_tokens: 1, tokens_left: 1_000, model })
        })
    }
}
