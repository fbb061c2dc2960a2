//! The body of a request for a response. Unknown fields are ignored, as OpenAI's server tolerates them.

use crate::openai::client_tools::{SessionResults, read_tools};
use crate::openai::conversation::{Content, Conversation, Role};
use crate::openai::error::OpenAiError;
use crate::openai::parameters::{refuse, refuse_format};
use crate::openai::turn::decision;
use agent_core::tool::ClientTool;
use agent_runtime::ApprovalDecision;
use serde::Deserialize;
use serde_json::{Value, json};

/// A request for a response.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseRequest {
    pub(super) model: String,
    input: Option<Input>,
    instructions: Option<String>,
    pub(super) previous_response_id: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) background: Option<bool>,
    pub(super) store: Option<bool>,
    tools: Option<Value>,
    tool_choice: Option<Value>,
    text: Option<TextOptions>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    max_tool_calls: Option<Value>,
    top_logprobs: Option<Value>,
    include: Option<Vec<Value>>,
    moderation: Option<Value>,
}

/// The form of the output.
#[derive(Debug, Deserialize)]
struct TextOptions {
    format: Option<Value>,
}

/// The input: a text, or items.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// An item of the input.
#[derive(Debug, Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    // A call of a tool that the client received from this server.
    name: Option<String>,
    arguments: Option<Value>,
    output: Option<Value>,
    // A call of one of the client's tools.
    call_id: Option<String>,
    // A decision about a call.
    approval_request_id: Option<String>,
    approve: Option<bool>,
    reason: Option<String>,
}

/// What a client sends to the agent.
pub(super) enum ClientItems {
    Messages(Conversation),
    Results(SessionResults),
    Decisions(Vec<ApprovalDecision>),
}

impl ResponseRequest {
    /// Refuses parameters whose neglect would mislead the client.
    pub(super) fn check_parameters(&self) -> Result<(), OpenAiError> {
        let probabilities = "the agent's models do not report probabilities";
        refuse_format("text.format", self.text.as_ref().and_then(|text| text.format.as_ref()))?;
        let conversation = "use `previous_response_id`, or the header `X-Agent-Session`";
        refuse("conversation", self.conversation.as_ref(), &[], conversation)?;
        refuse("prompt", self.prompt.as_ref(), &[], "this server stores no prompts; send `input`")?;
        let limit = "the agent's configuration limits its calls";
        refuse("max_tool_calls", self.max_tool_calls.as_ref(), &[], limit)?;
        refuse("top_logprobs", self.top_logprobs.as_ref(), &["0"], probabilities)?;
        refuse("moderation", self.moderation.as_ref(), &[], "this server moderates nothing")?;
        let mut included = self.include.iter().flatten();
        match included.any(|included| included == "message.output_text.logprobs") {
            true => refuse("include", Some(&Value::Bool(true)), &[], probabilities),
            false => Ok(()),
        }
    }

    /// Returns the tools that the client offers.
    pub(super) fn tools(&self) -> Result<Vec<ClientTool>, OpenAiError> {
        read_tools(self.tools.as_ref(), self.tool_choice.as_ref())
    }

    /// Takes the input out of the request.
    pub(super) fn take_items(&mut self) -> Result<ClientItems, OpenAiError> {
        let (mut conversation, mut decisions) = (Conversation::default(), Vec::new());
        if let Some(instructions) = self.instructions.take().filter(|text| !text.is_empty()) {
            conversation.add(Role::Developer, Some(Content::Text(instructions)), "instructions")?;
        }
        let has_instructions = !conversation.is_empty();
        match self.input.take() {
            None => return Err(OpenAiError::invalid("input", "the request needs an `input`")),
            Some(Input::Text(text)) => conversation.add(Role::User, Some(Content::Text(text)), "input")?,
            Some(Input::Items(items)) => {
                for (number, item) in items.into_iter().enumerate() {
                    add_item(item, (&mut conversation, &mut decisions), &format!("input[{number}]"))?;
                }
            }
        }
        match (decisions.is_empty(), conversation.is_empty() || has_instructions) {
            (true, _) => match conversation.take_results()? {
                Some(results) => Ok(ClientItems::Results(results)),
                None => Ok(ClientItems::Messages(conversation)),
            },
            (false, true) => Ok(ClientItems::Decisions(decisions)),
            (false, false) => {
                let message = "send decisions about calls without other messages, because they continue the open turn";
                Err(OpenAiError::invalid("input", message))
            }
        }
    }
}

fn add_item(
    item: Item,
    (conversation, decisions): (&mut Conversation, &mut Vec<ApprovalDecision>),
    at: &str,
) -> Result<(), OpenAiError> {
    match item.kind.as_deref().unwrap_or("message") {
        "message" => {
            let role = item.role.ok_or_else(|| OpenAiError::invalid(at, "a message needs a `role`"))?;
            conversation.add(Role::parse(&role, at)?, item.content, at)
        }
        // The agent keeps its own thinking, and requests for approvals are no messages.
        "reasoning" | "mcp_approval_request" | "mcp_list_tools" => Ok(()),
        "mcp_call" => {
            let call = json!({"call": item.name, "arguments": item.arguments, "output": item.output});
            conversation.add_call(&call, at)
        }
        "function_call" => conversation.add_call(&json!({"call": item.name, "arguments": item.arguments}), at),
        "function_call_output" => {
            let call = item.call_id.ok_or_else(|| OpenAiError::invalid(at, "a result needs `call_id`"))?;
            let content = serde_json::from_value(item.output.unwrap_or_default());
            let content =
                content.map_err(|_| OpenAiError::invalid(at, "`output` must be a text or a list of parts"))?;
            conversation.add_result(call, content, at)
        }
        "mcp_approval_response" => {
            let (Some(request), Some(approve)) = (item.approval_request_id, item.approve) else {
                return Err(OpenAiError::invalid(at, "a decision needs `approval_request_id` and `approve`"));
            };
            decisions.push(decision(call_of(&request), approve, item.reason));
            Ok(())
        }
        kind => {
            let kind: String = kind.chars().take(40).collect();
            Err(OpenAiError::unsupported(at, format!("items of the type `{kind}` are not supported")))
        }
    }
}

/// Beginning of the ids of requests for an approval.
const APPROVAL_PREFIX: &str = "mcpr_";

/// Returns the id of the item that requests an approval of a call.
pub(super) fn approval_id(call: &str) -> String {
    format!("{APPROVAL_PREFIX}{call}")
}

fn call_of(approval_id: &str) -> String {
    approval_id.strip_prefix(APPROVAL_PREFIX).unwrap_or(approval_id).to_owned()
}
