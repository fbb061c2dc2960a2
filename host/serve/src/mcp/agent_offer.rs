//! Offers an agent as one tool, which sends a prompt to the agent and returns its answer (I4).

use super::calls::{ClientCalls, TurnPlace, key_of, refusal};
use super::turn_call::{CallKind, TurnCall};
use crate::tokens::Right;
use agent_core::message::TurnInput;
use agent_core::plugin::TraceContext;
use agent_core::tool::Traits;
use agent_mcp::offered::{Offer, OfferError, OfferProblem, OfferedTool, OpenCall};
use agent_runtime::{EventPosition, NewMediaItem, Prompt};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of attachments of one prompt.
const MAX_ATTACHMENTS: usize = 16;

/// Offers an agent to one client.
pub struct AgentOffer(Arc<ClientCalls>);

/// The arguments of the tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    prompt: String,
    session: Option<String>,
    #[serde(default)]
    attachments: Vec<Attachment>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attachment {
    data: String,
    #[serde(rename = "mimeType")]
    mime_type: String,
    name: Option<String>,
}

impl AgentOffer {
    /// Offers the agent with which the client makes these calls.
    pub fn new(calls: Arc<ClientCalls>) -> Self {
        Self(calls)
    }

    fn follow(&self, key: String, place: TurnPlace, slot: super::calls::CallSlot) -> Box<dyn OpenCall> {
        TurnCall::new(self.0.clone(), (CallKind::Prompt, key), place, slot)
    }

    async fn place_of(&self, arguments: Arguments, trace: Option<TraceContext>) -> Result<TurnPlace, OfferError> {
        let Arguments { prompt, session, attachments } = arguments;
        let attachments = attachments.into_iter().map(decoded).collect::<Result<_, _>>()?;
        let user = self.0.client.user.clone();
        let prompt = Prompt { attachments, user, trace, ..Prompt::new(TurnInput::Text(prompt)) };
        match session {
            Some(session) => {
                self.0.check_session(&session).await?;
                self.0.begin_in(&session, prompt).await.map_err(refusal)
            }
            None => {
                let session = self.0.supervisor.create(&self.0.agent, prompt).await.map_err(refusal)?;
                Ok(TurnPlace { session, turn: 1, after: EventPosition::default() })
            }
        }
    }
}

fn decoded(attachment: Attachment) -> Result<NewMediaItem, OfferError> {
    let Attachment { data, mime_type, name } = attachment;
    let invalid = |error| OfferError::new(OfferProblem::Invalid, format!("an attachment is not valid base64: {error}"));
    Ok(NewMediaItem { bytes: STANDARD.decode(data).map_err(invalid)?, mime_type, name })
}

fn arguments_of(arguments: Map<String, Value>) -> Result<Arguments, OfferError> {
    let invalid = |message: String| OfferError::new(OfferProblem::Invalid, message);
    let arguments: Arguments = serde_json::from_value(Value::Object(arguments))
        .map_err(|error| invalid(format!("the arguments do not match the tool's schema: {error}")))?;
    if arguments.prompt.trim().is_empty() {
        return Err(invalid("`prompt` is empty".to_owned()));
    }
    if arguments.attachments.len() > MAX_ATTACHMENTS {
        return Err(invalid(format!("`attachments` has more than {MAX_ATTACHMENTS} items")));
    }
    Ok(arguments)
}

fn tool_of(agent: &str) -> OfferedTool {
    let attachment = json!({
        "type": "object",
        "properties": {
            "data": {"type": "string", "contentEncoding": "base64", "description": "The bytes as base64."},
            "mimeType": {"type": "string", "description": "Media type, such as `image/png`."},
            "name": {"type": "string", "description": "File name for users."},
        },
        "required": ["data", "mimeType"],
        "additionalProperties": false,
    });
    let input_schema = json!({
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "description": "What the agent is asked to do."},
            "session": {"type": "string",
                "description": "Session of an earlier answer, to continue its conversation. By default, a new session begins."},
            "attachments": {"type": "array", "maxItems": MAX_ATTACHMENTS, "items": attachment,
                "description": "Images and other media that belong to the prompt."},
        },
        "required": ["prompt"],
        "additionalProperties": false,
    });
    let output_schema = json!({
        "type": "object",
        "properties": {
            "answer": {"description": "The answer: a text, or data if the agent has an output schema."},
            "session": {"type": "string", "description": "The session, with which the conversation can be continued."},
        },
        "required": ["answer", "session"],
    });
    OfferedTool {
        name: agent.to_owned(),
        title: None,
        description: format!("Sends a prompt to the agent `{agent}`, and returns its answer."),
        input_schema,
        output_schema: Some(output_schema),
        traits: Traits { open_world: true, ..Traits::default() },
    }
}

#[async_trait]
impl Offer for AgentOffer {
    fn instructions(&self) -> String {
        format!(
            "The agent `{}` as a tool. Each answer names a session, with which the conversation can go on.",
            self.0.agent
        )
    }

    async fn tools(&self) -> Result<Vec<OfferedTool>, OfferError> {
        self.0.require_any(&[Right::Read, Right::Talk])?;
        self.0.live()?;
        Ok(vec![tool_of(&self.0.agent)])
    }

    fn list_version(&self) -> String {
        String::new()
    }

    async fn list_changed(&self, _seen: &str) -> String {
        std::future::pending().await
    }

    async fn begin(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        trace: Option<TraceContext>,
    ) -> Result<Box<dyn OpenCall>, OfferError> {
        self.0.require(Right::Talk)?;
        let key = key_of(tool, &Value::Object(arguments.clone()));
        let arguments = arguments_of(arguments)?;
        let slot = self.0.slot().await?;
        let place = match self.0.take_repeated(&key) {
            Some(waiting) => waiting.turn,
            None => self.place_of(arguments, trace).await?,
        };
        Ok(self.follow(key, place, slot))
    }

    async fn resume(
        &self,
        handle: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<dyn OpenCall>, OfferError> {
        self.0.require(Right::Talk)?;
        let key = key_of(tool, &Value::Object(arguments));
        let slot = self.0.slot().await?;
        let waiting = self.0.take_waiting(handle, &key)?;
        Ok(self.follow(key, waiting.turn, slot))
    }
}
