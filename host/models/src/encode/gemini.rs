//! Encodes requests in the format of Google Gemini `generateContent`.
//!
//! The format is described at <https://ai.google.dev/api/generate-content>. Results of tools are parts of user content.
//! Adjacent messages with the same role are sent as one item of `contents`.

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

/// Text of the user content that is inserted before a conversation that begins with the model, because the API requires
/// user content there.
const BEGINNING: &str = "(The conversation began earlier.)";

/// Text of the only content of a conversation without text, because the API requires content.
const NOTHING: &str = "(The message is empty.)";

/// The value of `thoughtSignature` for calls that another model wrote. Gemini 3 rejects a call of the current turn that
/// has no signature, and its documentation names this value for such calls
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

const READER: ItemReader = ItemReader { text: item_text, can_be_in_reply, call: item_call };

/// Encodes a request to a model.
pub(super) async fn encode(
    request: &ModelRequest,
    format: Format,
    source: &dyn MediaSource,
) -> Result<Encoded, ModelError> {
    let writer = RequestWriter::new(request, &fields(request, format), "contents", source)?;
    let mut contents = Contents { writer, format, ids: HashMap::new(), pending: None, is_first: true };
    for message in request.messages.iter().skip(leading_system_messages(request)) {
        contents.write(message).await?;
    }
    contents.flush()?;
    if contents.is_first {
        contents.writer.push(&json!({ "role": "user", "parts": [text_part(NOTHING)] }), "user")?;
    }
    Ok(contents.writer.finish())
}

fn fields(request: &ModelRequest, format: Format) -> Map<String, Value> {
    let mut fields = Map::new();
    // Models up to Gemini 2.5 do not accept a schema together with tools.
    let schema = request.output_schema.as_ref().filter(|_| request.tools.is_empty());
    let text = system_text(request, schema.is_some());
    if !text.is_empty() {
        fields.insert("systemInstruction".into(), json!({ "parts": [{ "text": text }] }));
    }
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(declaration).collect();
        fields.insert("tools".into(), json!([{ "functionDeclarations": declarations }]));
    }
    let mut generation = json!({ "maxOutputTokens": request.max_tokens });
    if let Some(schema) = schema {
        generation["responseMimeType"] = json!("application/json");
        generation["responseJsonSchema"] = schema.clone();
    }
    if let Some(effort) = format.effort {
        generation["thinkingConfig"] =
            thinking::gemini(&request.model.name, format.thinking, effort, request.max_tokens);
    }
    fields.insert("generationConfig".into(), generation);
    fields
}

fn declaration(tool: &OfferedTool) -> Value {
    let OfferedTool { name, description, input_schema, .. } = tool;
    json!({ "name": name, "description": description, "parametersJsonSchema": input_schema })
}

/// Writes the contents of one request.
struct Contents<'r> {
    writer: RequestWriter<'r>,
    format: Format,
    /// Ids that the provider gave to the calls of the last content of the model.
    ids: HashMap<&'r CallId, &'r str>,
    /// Role and parts of the content that is being put together.
    pending: Option<(&'static str, Vec<Value>)>,
    /// Whether no content has been written yet.
    is_first: bool,
}

impl<'r> Contents<'r> {
    async fn write(&mut self, message: &'r Message) -> Result<(), ModelError> {
        match message.role {
            Role::Assistant => {
                let parts = self.model(&message.parts);
                self.add("model", parts)
            }
            // The API has no system messages inside a conversation.
            Role::System | Role::User => {
                let mut parts = Vec::new();
                for part in &message.parts {
                    match part {
                        Part::Media(media) => parts.push(self.media(media).await?),
                        part => parts.extend(part_text(part).filter(|text| !text.is_empty()).map(text_part)),
                    }
                }
                self.add("user", parts)
            }
            Role::Tool => {
                let mut parts = Vec::new();
                for part in &message.parts {
                    if let Part::ToolResult(result) = part {
                        parts.extend(self.result(result).await?);
                    }
                }
                self.add("user", parts)
            }
        }
    }

    fn model(&mut self, parts: &'r [Part]) -> Vec<Value> {
        self.ids.clear();
        if let Some(reply) = stored_reply::unchanged(&mut self.writer, parts, self.format, &READER) {
            self.ids = reply.ids;
            return reply.items.to_vec();
        }
        let requires_signature = requires_signature(&self.writer.request.model.name);
        let mut contents = Vec::new();
        let mut is_first_call = true;
        for part in parts {
            match part {
                Part::ToolCall(call) => {
                    let name = self.writer.tool_name(&call.name);
                    let mut part =
                        json!({ "functionCall": { "name": name, "args": object_arguments(&call.arguments) } });
                    // Only the first of several calls in one reply has a signature.
                    if std::mem::take(&mut is_first_call) && requires_signature {
                        part["thoughtSignature"] = json!(NO_SIGNATURE);
                    }
                    contents.push(part);
                }
                part => contents.extend(part_text(part).filter(|text| !text.is_empty()).map(text_part)),
            }
        }
        contents
    }

    /// Returns a result and the media that it contains. The media follow the result, because models up to Gemini 2.5 do
    /// not accept media inside a result.
    async fn result(&mut self, result: &ToolResult) -> Result<Vec<Value>, ModelError> {
        let mut texts = Vec::new();
        let mut media_parts = Vec::new();
        for content in &result.content {
            match content {
                Content::Text(text) => texts.push(json!(text)),
                Content::Json(json) => texts.push(json.clone()),
                Content::Media(item) if is_accepted(&item.mime_type) => {
                    texts.push(json!(format!("[{}: below]", media::short_description(item))));
                    media_parts.push(self.media(item).await?);
                }
                Content::Media(item) => texts.push(json!(media::placeholder(item))),
            }
        }
        let output = if texts.len() == 1 { texts.remove(0) } else { Value::Array(texts) };
        let response = if result.is_error { json!({ "error": output }) } else { json!({ "output": output }) };
        let mut function = json!({ "name": self.writer.tool_name(&result.name), "response": response });
        if let Some(id) = self.ids.get(&result.call_id) {
            function["id"] = json!(id);
        }
        let mut parts = vec![json!({ "functionResponse": function })];
        parts.extend(media_parts);
        Ok(parts)
    }

    async fn media(&mut self, item: &Media) -> Result<Value, ModelError> {
        if !is_accepted(&item.mime_type) {
            self.writer.note(format!("{} is sent as a description: the API does not accept this type", item.mime_type));
            return Ok(text_part(media::placeholder(item)));
        }
        let MediaBytes { mime_type, bytes } = self.writer.read(item).await?;
        if !is_accepted(&mime_type) {
            return Ok(text_part(media::placeholder(item)));
        }
        Ok(json!({ "inlineData": { "mimeType": mime_type, "data": STANDARD.encode(&bytes) } }))
    }

    /// Adds parts to the content that is being put together, or begins a new one if the role changes.
    fn add(&mut self, role: &'static str, parts: Vec<Value>) -> Result<(), ModelError> {
        if parts.is_empty() {
            return Ok(());
        }
        match &mut self.pending {
            Some((pending_role, pending)) if *pending_role == role => pending.extend(parts),
            _ => {
                self.flush()?;
                self.pending = Some((role, parts));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ModelError> {
        let Some((role, mut parts)) = self.pending.take() else { return Ok(()) };
        if std::mem::take(&mut self.is_first) && role == "model" {
            self.writer.push(&json!({ "role": "user", "parts": [text_part(BEGINNING)] }), "user")?;
        }
        // In a user message, tool results come before all other parts. The sort is stable,
        // so the order is otherwise unchanged.
        parts.sort_by_key(|part| role == "user" && part.get("functionResponse").is_none());
        self.writer.push(&json!({ "role": role, "parts": parts }), role)
    }
}

/// Returns whether the API accepts media of this type. The types are listed at
/// <https://ai.google.dev/gemini-api/docs/file-input-methods>.
fn is_accepted(mime_type: &str) -> bool {
    matches!(
        mime_type,
        "image/png"
            | "image/jpeg"
            | "image/webp"
            | "image/heic"
            | "image/heif"
            | "application/pdf"
            | "audio/wav"
            | "audio/x-wav"
            | "audio/mp3"
            | "audio/mpeg"
            | "audio/aiff"
            | "audio/aac"
            | "audio/ogg"
            | "audio/flac"
            | "video/mp4"
            | "video/mpeg"
            | "video/quicktime"
            | "video/webm"
            | "video/x-flv"
            | "video/wmv"
            | "video/3gpp"
    )
}

/// Returns whether the model rejects calls without a signature, which is true for Gemini 3 and later.
fn requires_signature(model: &str) -> bool {
    let version = model.strip_prefix("gemini-").and_then(|rest| rest.split(['-', '.']).next()?.parse::<u32>().ok());
    version.is_some_and(|version| version >= 3)
}

fn text_part<'t>(text: impl Into<Cow<'t, str>>) -> Value {
    let text: Cow<'t, str> = text.into();
    json!({ "text": text })
}

fn item_text(item: &Value) -> String {
    item["text"].as_str().filter(|_| item["thought"] != true).unwrap_or_default().to_owned()
}

/// Returns whether this item can belong to a reply. Results of the host's tools and files are content of the user.
fn can_be_in_reply(item: &Value) -> bool {
    item.is_object() && item.get("functionResponse").is_none() && item.get("fileData").is_none()
}

fn item_call(item: &Value) -> Option<ItemCall<'_>> {
    let call = item.get("functionCall")?;
    Some(ItemCall { id: call["id"].as_str(), arguments: Cow::Borrowed(&call["args"]) })
}
