//! The port through which plugins use the agent's model.

use agent_core::message::Message;
use agent_core::model::{StopReason, Usage};
use serde_json::Value;

/// Sends questions of plugins to the agent's model.
#[async_trait::async_trait]
pub trait ModelPort: Send + Sync {
    /// Returns the complete answer. Dropping the future cancels the question.
    async fn ask(&self, asker: &ModelAsker, question: ModelQuestion) -> Result<ModelAnswer, ModelRefusal>;
}

/// The plugin call that asks the model, and its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAsker {
    /// Name of the plugin.
    pub plugin: String,
    /// Id of the plugin's call.
    pub call: String,
    /// Tokens that the plugin may use in the turn.
    pub budget: u64,
}

/// A question to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelQuestion {
    /// System prompt. None: there is none.
    pub system: Option<String>,
    /// Text messages of the user and the model. The last one is the user's.
    pub messages: Vec<Message>,
    /// JSON Schema of the answer. None: the answer is plain text.
    pub output_schema: Option<Value>,
    /// Maximum number of tokens in the answer. None: the default of the host.
    pub max_tokens: Option<u32>,
}

/// The model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAnswer {
    /// Text of the answer.
    pub text: String,
    /// Reason why the model stopped.
    pub stop: StopReason,
    /// Tokens as the provider counted them.
    pub usage: Usage,
    /// Tokens left in the budget of the turn.
    pub left: u64,
    /// The model that answered, as `provider/model`.
    pub model: String,
}

/// The reason why there is no answer. The texts are for the plugin and reveal nothing about the host's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefusal {
    /// The budget is too small for the question.
    #[error("the budget of the turn has {left} tokens left, which is too little")]
    Budget {
        /// Tokens left in the budget.
        left: u64,
    },
    /// The question is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The model is unavailable; a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The question failed.
    #[error("{0}")]
    Failed(String),
}
