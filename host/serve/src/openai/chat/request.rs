//! The body of a request for a chat completion. Unknown fields are ignored, as OpenAI's server tolerates them.

use crate::openai::client_tools::read_tools;
use crate::openai::conversation::{Content, Conversation, Role};
use crate::openai::error::OpenAiError;
use crate::openai::parameters::{refuse, refuse_format};
use agent_core::tool::ClientTool;
use serde::Deserialize;
use serde_json::{Value, json};

const FUNCTIONS: &str = "use `tools`, which replaced it";

/// A request for a chat completion.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    pub(super) model: String,
    messages: Vec<ChatMessage>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    n: Option<Value>,
    tools: Option<Value>,
    functions: Option<Value>,
    tool_choice: Option<Value>,
    function_call: Option<Value>,
    response_format: Option<Value>,
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
    logit_bias: Option<Value>,
    stop: Option<Value>,
    audio: Option<Value>,
    modalities: Option<Vec<Value>>,
    web_search_options: Option<Value>,
}

/// Options of a streamed answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

/// A message of a chat.
#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<String>,
    function_call: Option<Value>,
}

impl ChatRequest {
    /// Refuses parameters whose neglect would mislead the client.
    pub(super) fn check_parameters(&self) -> Result<(), OpenAiError> {
        let probabilities = "the agent's models do not report probabilities";
        let text_only = "an agent answers with text";
        refuse("n", self.n.as_ref(), &["1"], "a request gets one answer")?;
        refuse("functions", self.functions.as_ref(), &[], FUNCTIONS)?;
        refuse("function_call", self.function_call.as_ref(), &["auto", "none"], FUNCTIONS)?;
        refuse_format("response_format", self.response_format.as_ref())?;
        refuse("logprobs", self.logprobs.as_ref(), &[], probabilities)?;
        refuse("top_logprobs", self.top_logprobs.as_ref(), &["0"], probabilities)?;
        refuse("logit_bias", self.logit_bias.as_ref(), &[], "the agent decides how its models are called")?;
        refuse("stop", self.stop.as_ref(), &[], "the agent decides where its answer ends")?;
        refuse("audio", self.audio.as_ref(), &[], text_only)?;
        refuse(
            "web_search_options",
            self.web_search_options.as_ref(),
            &[],
            "the agent's own tools decide what it searches",
        )?;
        match self.modalities.iter().flatten().find(|modality| *modality != "text") {
            Some(modality) => refuse("modalities", Some(&Value::Array(vec![modality.clone()])), &[], text_only),
            None => Ok(()),
        }
    }

    /// Takes the messages out of the request.
    pub(super) fn take_conversation(&mut self) -> Result<Conversation, OpenAiError> {
        let mut conversation = Conversation::default();
        for (number, message) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            let at = format!("messages[{number}]");
            let role = Role::parse(&message.role, &at)?;
            refuse(&format!("{at}.function_call"), message.function_call.as_ref(), &[], FUNCTIONS)?;
            let calls = message.tool_calls.unwrap_or_default();
            match role {
                Role::Tool => {
                    let missing = || OpenAiError::invalid(&at, "a message with the role `tool` needs `tool_call_id`");
                    conversation.add_result(message.tool_call_id.ok_or_else(missing)?, message.content, &at)?;
                }
                _ if calls.is_empty() || message.content.is_some() => conversation.add(role, message.content, &at)?,
                _ => {}
            }
            if !calls.is_empty() {
                conversation.add_call(&json!({"tool_calls": calls}), &at)?;
            }
        }
        Ok(conversation)
    }

    /// Returns the tools that the client offers.
    pub(super) fn tools(&self) -> Result<Vec<ClientTool>, OpenAiError> {
        read_tools(self.tools.as_ref(), self.tool_choice.as_ref())
    }
}
