//! The port through which plugins use the agent's model.

use agent_core::message::Message;
use agent_core::model::{StopReason, Usage};
use serde_json::Value;

/// Sends requests of plugins to the agent's model.
#[async_trait::async_trait]
pub trait ModelPort: Send + Sync {
    /// Returns the complete response of the model. Dropping the future cancels the request.
    async fn ask(&self, asker: &ModelCaller, question: ModelPortRequest) -> Result<ModelPortResponse, ModelRefusal>;
}

/// The plugin call that sends a request to the model, and its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCaller {
    /// Name of the plugin that sends the request.
    pub plugin: String,
    /// Id of the plugin call that sends the request.
    pub call: String,
    /// Number of tokens that all requests of the plugin together may use in the turn.
    pub budget: u64,
}

/// A request to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPortRequest {
    /// System prompt that the model receives. `None` means that the request has no system prompt.
    pub system: Option<String>,
    /// Text messages of the user and the model. The last message has the role `user`.
    pub messages: Vec<Message>,
    /// JSON Schema of the response. `None` means that the response is unstructured text.
    pub output_schema: Option<Value>,
    /// Maximum number of tokens in the response. `None` means that the default of the host applies.
    pub max_tokens: Option<u32>,
}

/// The response of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPortResponse {
    /// Text that the model returned as its response.
    pub text: String,
    /// Reason why the model stopped generating text.
    pub stop: StopReason,
    /// Number of tokens that the request and the response used, as counted by the provider.
    pub usage: Usage,
    /// Number of tokens that are left in the plugin's budget for the turn.
    pub left: u64,
    /// Name of the model that responded, as `provider/model`.
    pub model: String,
}

/// The reason why a request to the model failed. The error texts are shown to the plugin and must not reveal the
/// host's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefusal {
    /// The plugin's budget has too few tokens left for the request.
    #[error("the budget of the turn has {left} tokens left, which are too few")]
    Budget {
        /// Number of tokens that are left in the plugin's budget for the turn.
        left: u64,
    },
    /// The request that the plugin sent is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The agent's model is unavailable at the moment. A later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The request failed for a reason other than the budget, an invalid request or an unavailable model.
    #[error("{0}")]
    Failed(String),
}
