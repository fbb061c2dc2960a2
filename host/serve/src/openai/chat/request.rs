//! The body of a request for a chat completion. Unknown fields are ignored, as OpenAI's server tolerates them.

use crate::openai::conversation::{Content, Conversation, Role};
use crate::openai::error::OpenAiError;
use crate::openai::parameters::{refuse, refuse_format, refuse_tool_choice, refuse_tools};
use serde::Deserialize;
use serde_json::Value;

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
    tool_calls: Option<Value>,
    function_call: Option<Value>,
}

impl ChatRequest {
    /// Refuses parameters whose neglect would mislead the client.
    pub(super) fn check_parameters(&self) -> Result<(), OpenAiError> {
        let probabilities = "the agent's models do not report probabilities";
        let text_only = "an agent answers with text";
        refuse("n", self.n.as_ref(), &["1"], "a request gets one answer")?;
        refuse_tools("tools", self.tools.as_ref())?;
        refuse_tools("functions", self.functions.as_ref())?;
        refuse_tool_choice("tool_choice", self.tool_choice.as_ref())?;
        refuse_tool_choice("function_call", self.function_call.as_ref())?;
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
            refuse_tools(&format!("{at}.tool_calls"), message.tool_calls.as_ref())?;
            refuse_tools(&format!("{at}.function_call"), message.function_call.as_ref())?;
            conversation.add(role, message.content, &at)?;
        }
        Ok(conversation)
    }
}
