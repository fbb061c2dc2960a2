//! Encodes requests in the format of Anthropic Messages.
//!
//! The format is described at <https://docs.anthropic.com/en/api/messages>. Results of tools are content of user
//! messages, and adjacent messages of one role form one message. If the last message is from the assistant, the model
//! continues that message, which is allowed only after an interrupted reply (`pause_turn`).

use super::stored_reply::{self, ItemCall, ItemReader};
use super::writer::{RequestWriter, leading_system_messages, object_arguments, part_text, system_text};
use super::{Encoded, Format, media, thinking};
use crate::error::ModelError;
use crate::provider::{MediaBytes, MediaSource};
use agent_core::message::{CallId, Content, Media, Message, Part, Role, ToolResult};
use agent_core::model::{ModelRequest, OfferedTool};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Image types that the API accepts.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Maximum length of the title of a document that the API accepts, in characters.
const MAX_TITLE_CHARACTERS: usize = 500;

/// Text of the user message that is inserted before a conversation that begins with the assistant, because the API
/// requires a user message there.
const BEGINNING: &str = "(The conversation began earlier.)";

/// Text of the user message that is appended after a message of the assistant that is not an interrupted reply.
const CONTINUE: &str = "Continue.";

/// Text of the only message of a conversation without text, because the API requires a message.
const NOTHING: &str = "(The message is empty.)";

const READER: ItemReader = ItemReader { text: item_text, can_be_in_reply, call: item_call };

/// Number of messages from the end that have a cache marker. The API accepts four markers, of which the system text has
/// one. The marker before the last one lets the provider find the prefix of the previous request.
const MARKED_MESSAGES: usize = 2;

/// Encodes a request to a model.
pub(super) async fn encode(
    request: &ModelRequest,
    format: Format,
    source: &dyn MediaSource,
) -> Result<Encoded, ModelError> {
    let writer = RequestWriter::new(request, &fields(request, format), "messages", source)?;
    let mut messages = Messages { writer, format, ids: HashMap::new(), pending: None, is_first: true };
    let conversation = &request.messages[leading_system_messages(request)..];
    let marked_from = nth_turn_from_end(conversation, MARKED_MESSAGES);
    for (position, message) in conversation.iter().enumerate() {
        messages.write(message, position >= marked_from).await?;
    }
    messages.finish()
}

fn fields(request: &ModelRequest, format: Format) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("model".into(), json!(request.model.name));
    fields.insert("max_tokens".into(), json!(request.max_tokens));
    fields.insert("stream".into(), json!(true));
    if let Some(effort) = format.effort {
        let settings = thinking::anthropic(format.thinking, effort, request.max_tokens);
        fields.extend(settings.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    // The schema is in the system text, because the API accepts only some JSON Schemas in `output_config`.
    let text = system_text(request, false);
    if !text.is_empty() {
        let marker = json!({ "type": "ephemeral" });
        fields.insert("system".into(), json!([{ "type": "text", "text": text, "cache_control": marker }]));
    }
    fields
}

fn tool(tool: &OfferedTool) -> Value {
    let OfferedTool { name, description, input_schema, .. } = tool;
    json!({ "name": name, "description": description, "input_schema": input_schema })
}

/// Returns the position of the message that begins the turn number `count`, counted from the end. A turn begins with
/// the first of consecutive messages that do not come from the assistant.
fn nth_turn_from_end(messages: &[Message], count: usize) -> usize {
    let is_user = |message: &Message| message.role != Role::Assistant;
    let mut turns = 0;
    for position in (0..messages.len()).rev() {
        let begins = position == 0 || is_user(&messages[position]) != is_user(&messages[position - 1]);
        if begins && is_user(&messages[position]) {
            turns += 1;
            if turns == count {
                return position;
            }
        }
    }
    0
}

/// Writes the messages of one request.
struct Messages<'r> {
    writer: RequestWriter<'r>,
    format: Format,
    /// Ids that the provider gave to the calls of the last message of the assistant.
    ids: HashMap<&'r CallId, &'r str>,
    /// The message that is being put together.
    pending: Option<PendingMessage>,
    /// Whether no message has been written yet.
    is_first: bool,
}

struct PendingMessage {
    role: &'static str,
    content: Vec<Value>,
    /// Whether the message gets a cache marker.
    is_marked: bool,
    /// Whether the message is a reply exactly as the provider sent it.
    is_unchanged: bool,
}

impl<'r> Messages<'r> {
    async fn write(&mut self, message: &'r Message, is_marked: bool) -> Result<(), ModelError> {
        match message.role {
            Role::Assistant => {
                let (content, is_unchanged) = self.assistant(&message.parts);
                self.add("assistant", content, false, is_unchanged)
            }
            // The API has no system messages inside a conversation.
            Role::System | Role::User => {
                let mut content = Vec::new();
                for part in &message.parts {
                    content.extend(self.user_part(part).await?);
                }
                self.add("user", content, is_marked, false)
            }
            Role::Tool => {
                let mut content = Vec::new();
                for part in &message.parts {
                    if let Part::ToolResult(result) = part {
                        content.push(self.result(result).await?);
                    }
                }
                self.add("user", content, is_marked, false)
            }
        }
    }

    fn finish(mut self) -> Result<Encoded, ModelError> {
        let needs_user = self.pending.as_ref().is_some_and(|last| last.role == "assistant" && !last.is_unchanged);
        if needs_user {
            self.writer
                .note("a user message was added at the end, because models cannot continue their last message".into());
            self.add("user", vec![text_block(CONTINUE)], false, false)?;
        }
        self.flush()?;
        if self.is_first {
            self.writer.push(&json!({ "role": "user", "content": [text_block(NOTHING)] }), "user")?;
        }
        Ok(self.writer.finish())
    }

    fn assistant(&mut self, parts: &'r [Part]) -> (Vec<Value>, bool) {
        self.ids.clear();
        if let Some(reply) = stored_reply::unchanged(&mut self.writer, parts, self.format, &READER) {
            self.ids = reply.ids;
            // The API rejects blank texts, although models write them.
            let is_empty = |item: &&Value| {
                item["type"] == "text" && item["text"].as_str().is_none_or(|text| text.trim().is_empty())
            };
            return (reply.items.iter().filter(|item| !is_empty(item)).cloned().collect(), true);
        }
        let mut content = Vec::new();
        for part in parts {
            match part {
                Part::ToolCall(call) => content.push(json!({
                    "type": "tool_use",
                    "id": valid_id(&call.id),
                    "name": self.writer.tool_name(&call.name),
                    "input": object_arguments(&call.arguments),
                })),
                part => content.extend(part_text(part).filter(|text| !text.trim().is_empty()).map(text_block)),
            }
        }
        (content, false)
    }

    async fn user_part(&mut self, part: &Part) -> Result<Option<Value>, ModelError> {
        match part {
            Part::Media(media) => self.media(media).await.map(Some),
            part => Ok(part_text(part).filter(|text| !text.trim().is_empty()).map(text_block)),
        }
    }

    async fn result(&mut self, result: &ToolResult) -> Result<Value, ModelError> {
        let mut content = Vec::new();
        for item in &result.content {
            match item {
                Content::Text(text) if text.trim().is_empty() => {}
                Content::Text(text) => content.push(text_block(text)),
                Content::Json(json) => content.push(text_block(json.to_string())),
                Content::Media(media) => content.push(self.media(media).await?),
            }
        }
        let id = self.ids.get(&result.call_id).map_or_else(|| valid_id(&result.call_id), |id| Cow::Borrowed(*id));
        let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        if result.is_error {
            block["is_error"] = json!(true);
        }
        Ok(block)
    }

    async fn media(&mut self, item: &Media) -> Result<Value, ModelError> {
        if block_type(&item.mime_type).is_none_or(|kind| kind == "image" && !self.format.images) {
            self.writer.note(format!("{} is sent as a description: the API does not accept this type", item.mime_type));
            return Ok(text_block(media::placeholder(item)));
        }
        let MediaBytes { mime_type, bytes } = self.writer.read(item).await?;
        // The media type of the bytes may differ from the stored type, because downscaling may have changed it.
        let Some(kind) = block_type(&mime_type) else { return Ok(text_block(media::placeholder(item))) };
        let source = json!({ "type": "base64", "media_type": mime_type, "data": STANDARD.encode(&bytes) });
        let mut block = json!({ "type": kind, "source": source });
        let name = item.name.as_deref().map(str::trim).filter(|name| kind == "document" && !name.is_empty());
        if let Some(name) = name {
            block["title"] = name.chars().take(MAX_TITLE_CHARACTERS).collect::<String>().into();
        }
        Ok(block)
    }

    /// Adds content to the message that is being put together, or begins a new one if the role changes.
    fn add(
        &mut self,
        role: &'static str,
        content: Vec<Value>,
        is_marked: bool,
        is_unchanged: bool,
    ) -> Result<(), ModelError> {
        if content.is_empty() {
            return Ok(());
        }
        match &mut self.pending {
            Some(pending) if pending.role == role => {
                pending.content.extend(content);
                pending.is_marked |= is_marked;
                pending.is_unchanged = is_unchanged;
            }
            _ => {
                self.flush()?;
                self.pending = Some(PendingMessage { role, content, is_marked, is_unchanged });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ModelError> {
        let Some(PendingMessage { role, mut content, is_marked, .. }) = self.pending.take() else { return Ok(()) };
        if std::mem::take(&mut self.is_first) && role == "assistant" {
            self.writer.push(&json!({ "role": "user", "content": [text_block(BEGINNING)] }), "user")?;
        }
        // Tool results come first in their message, as the API requires. The sort is stable, so the order of all
        // other blocks is unchanged.
        content.sort_by_key(|block| block["type"] != "tool_result" && role == "user");
        if let Some(last) = content.last_mut().filter(|_| is_marked) {
            last["cache_control"] = json!({ "type": "ephemeral" });
        }
        self.writer.push(&json!({ "role": role, "content": content }), role)
    }
}

/// Returns the type of the content block in which media of this type are sent, or `None` if the API does not accept
/// them.
fn block_type(mime_type: &str) -> Option<&'static str> {
    match mime_type {
        image if IMAGES.contains(&image) => Some("image"),
        "application/pdf" => Some("document"),
        _ => None,
    }
}

/// Returns the id if the API accepts it, and otherwise an id in which other characters are replaced.
fn valid_id(id: &CallId) -> Cow<'_, str> {
    let is_valid = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    let CallId(id) = id;
    if !id.is_empty() && id.chars().all(is_valid) {
        return Cow::Borrowed(id);
    }
    let replaced: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("x{replaced}"))
}

fn text_block<'t>(text: impl Into<Cow<'t, str>>) -> Value {
    let text: Cow<'t, str> = text.into();
    json!({ "type": "text", "text": text })
}

fn item_text(item: &Value) -> String {
    item["text"].as_str().filter(|_| item["type"] == "text").unwrap_or_default().to_owned()
}

/// Returns whether the block can be part of a reply. The results of tools that the host runs belong to user messages.
fn can_be_in_reply(item: &Value) -> bool {
    item["type"].as_str().is_some_and(|kind| !matches!(kind, "tool_result" | "image" | "document"))
}

fn item_call(item: &Value) -> Option<ItemCall<'_>> {
    let call = || ItemCall { id: item["id"].as_str(), arguments: Cow::Borrowed(&item["input"]) };
    (item["type"] == "tool_use").then(call)
}
