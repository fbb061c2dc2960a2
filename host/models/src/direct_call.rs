//! A provider for turns that run one tool call which a program has requested (I4). It replies with this call, and ends the
//! turn after the call has a result. It needs no network, and it reads nothing from the conversation.

use crate::error::ModelError;
use crate::provider::{ModelInfo, Provider, RawReply, ReplyContext, ToolNameRules};
use agent_core::model::{Delta, Model, ModelRequest, Reply, RequestedCall, StopReason, Usage};
use agent_core::plugin::Lifecycle;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

/// Context window in tokens. It is large enough for the largest arguments that the host accepts. Results are never sent to
/// this provider completely.
const CONTEXT_WINDOW: u32 = 4_000_000;

/// The reply that ends the turn. Programs read the result of the call instead.
const FINAL_TEXT: &str = "The call has ended.";

/// The provider of one turn, which knows the call that the turn runs.
#[derive(Clone, Debug)]
pub struct DirectCall {
    info: ModelInfo,
    tool: String,
    arguments: String,
}

impl DirectCall {
    /// Creates the provider for a call of this tool. `tool` is the name that the tool's author wrote. If `arguments` is a
    /// string, the string contains the JSON text of the arguments.
    pub fn new(tool: impl Into<String>, arguments: &Value) -> Self {
        let model = Model { provider: "host".into(), name: "direct-call".into(), window: CONTEXT_WINDOW };
        let arguments = match arguments {
            Value::String(text) => text.clone(),
            arguments => arguments.to_string(),
        };
        let info = ModelInfo { model, tool_names: ToolNameRules::COMMON, price: None };
        Self { info, tool: tool.into(), arguments }
    }

    /// Returns the call as the provider of a language model would write it. If the tool is not offered, the call contains
    /// the unchanged name, so that the host reports that the tool does not exist.
    fn call(&self, request: &ModelRequest) -> RequestedCall {
        let offered = request.tools.iter().find(|offered| offered.author_name == self.tool);
        let name = offered.map_or(&self.tool, |offered| &offered.name).clone();
        RequestedCall { provider_id: None, name, arguments: self.arguments.clone() }
    }
}

#[async_trait]
impl Provider for DirectCall {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn is_language_model(&self) -> bool {
        false
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        _context: ReplyContext<'_>,
        _deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        // Only the first step of a turn has this lifecycle. A prompt that steers the turn does not change it.
        let (text, calls, stop) = match request.lifecycle {
            Lifecycle::Init => (String::new(), vec![self.call(request)], StopReason::ToolCalls),
            Lifecycle::ToolResult | Lifecycle::OutputErrorFeedback => {
                (FINAL_TEXT.to_owned(), Vec::new(), StopReason::Stop)
            }
        };
        let model = self.info.model.to_string();
        let reply = Reply { text, calls, stop, usage: Usage::default(), model, replay: None };
        let raw = json!({ "direct_call": self.tool });
        Ok(RawReply { reply, raw })
    }
}
