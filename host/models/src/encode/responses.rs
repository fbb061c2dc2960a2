//! Encodes requests in the format of OpenAI Responses.
//!
//! The format is described at <https://platform.openai.com/docs/api-reference/responses/create>. The host stores
//! conversations itself, so `store` is always false. Because of this value, the API returns reasoning in encrypted
//! form, and the host sends the reasoning back.

use super::stored_reply::{self, ItemCall, ItemReader};
use super::writer::{RequestWriter, SCHEMA_NAME, leading_system_messages, object_arguments, part_text, system_text};
use super::{Dialect, Encoded, Format, media};
use crate::effort::{Effort, Thinking};
use crate::error::ModelError;
use crate::provider::{MediaBytes, MediaSource};
use agent_core::message::{CallId, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::{ModelRequest, OfferedTool};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Image types that the API accepts.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

const READER: ItemReader = ItemReader { text: item_text, can_be_in_reply, call: item_call };

/// Encodes a request to a model.
pub(super) async fn encode(
    request: &ModelRequest,
    format: Format,
    source: &dyn MediaSource,
) -> Result<Encoded, ModelError> {
    let writer = RequestWriter::new(request, &fields(request, format), "input", source)?;
    let mut input = Input { writer, format, ids: HashMap::new() };
    for message in request.messages.iter().skip(leading_system_messages(request)) {
        input.write(message).await?;
    }
    Ok(input.writer.finish())
}

fn fields(request: &ModelRequest, format: Format) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("model".into(), json!(request.model.name));
    fields.insert("stream".into(), json!(true));
    fields.insert("store".into(), json!(false));
    fields.insert("max_output_tokens".into(), json!(request.max_tokens));
    if thinks(&request.model.name, format) {
        fields.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if let Some(effort) = format.effort {
        fields.insert("reasoning".into(), json!({ "effort": effort.name(), "summary": "auto" }));
    }
    let instructions = system_text(request, true);
    if !instructions.is_empty() {
        fields.insert("instructions".into(), json!(instructions));
    }
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(function).collect());
    }
    if let Some(schema) = &request.output_schema {
        let format = json!({ "type": "json_schema", "name": SCHEMA_NAME, "strict": false, "schema": schema });
        fields.insert("text".into(), json!({ "format": format }));
    }
    fields
}

/// Returns whether the model returns reasoning. Other models reject requests for encrypted reasoning. If the effort is
/// not configured and the model is not in the table of known models, the function examines the model's name.
fn thinks(model: &str, format: Format) -> bool {
    if let Some(effort) = format.effort {
        return effort != Effort::None;
    }
    if let Some(thinking) = format.thinking {
        return thinking != Thinking::Never;
    }
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_o_series = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    is_o_series || ["gpt-5", "gpt-oss"].iter().any(|prefix| name.starts_with(prefix)) || name.contains("codex")
}

fn function(tool: &OfferedTool) -> Value {
    let OfferedTool { name, description, input_schema, .. } = tool;
    json!({
        "type": "function", "name": name, "description": description, "parameters": input_schema, "strict": false,
    })
}

/// Writes the input items of one request.
struct Input<'r> {
    writer: RequestWriter<'r>,
    format: Format,
    /// Ids that the provider gave to the calls of the last message of the assistant.
    ids: HashMap<&'r CallId, &'r str>,
}

impl<'r> Input<'r> {
    async fn write(&mut self, message: &'r Message) -> Result<(), ModelError> {
        match message.role {
            Role::System => self.user("system", &message.parts).await,
            Role::User => self.user("user", &message.parts).await,
            Role::Assistant => self.assistant(&message.parts),
            Role::Tool => {
                for part in &message.parts {
                    if let Part::ToolResult(result) = part {
                        self.result(result).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn user(&mut self, role: &str, parts: &[Part]) -> Result<(), ModelError> {
        let mut content = Vec::new();
        for part in parts {
            match part {
                Part::Media(media) => content.push(self.media(media).await?),
                part => content.extend(part_text(part).filter(|text| !text.is_empty()).map(input_text)),
            }
        }
        if content.is_empty() {
            return Ok(());
        }
        self.writer.push(&json!({ "type": "message", "role": role, "content": content }), role)
    }

    fn assistant(&mut self, parts: &'r [Part]) -> Result<(), ModelError> {
        self.ids.clear();
        if let Some(reply) = stored_reply::unchanged(&mut self.writer, parts, self.format, &READER) {
            self.ids = reply.ids;
            // The provider stores nothing, so it cannot find reasoning whose content is missing.
            let is_unknown = |item: &&Value| item["type"] == "reasoning" && !item["encrypted_content"].is_string();
            return reply
                .items
                .iter()
                .filter(|item| !is_unknown(item))
                .try_for_each(|item| self.writer.push(item, "assistant"));
        }
        for part in parts {
            let item = match part {
                Part::ToolCall(call) => self.call(call),
                part => match part_text(part).filter(|text| !text.is_empty()) {
                    Some(text) => {
                        let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
                        json!({ "type": "message", "role": "assistant", "content": content })
                    }
                    None => continue,
                },
            };
            self.writer.push(&item, "assistant")?;
        }
        Ok(())
    }

    fn call(&self, call: &ToolCall) -> Value {
        json!({
            "type": "function_call",
            "call_id": Dialect::OpenAi.call_id(&call.id),
            "name": self.writer.tool_name(&call.name),
            "arguments": object_arguments(&call.arguments).to_string(),
        })
    }

    async fn result(&mut self, result: &ToolResult) -> Result<(), ModelError> {
        let mut output = Vec::new();
        if result.is_error {
            output.push(input_text("Error:"));
        }
        for content in &result.content {
            match content {
                Content::Text(text) => output.push(input_text(text)),
                Content::Json(json) => output.push(input_text(json.to_string())),
                Content::Media(media) => output.push(self.media(media).await?),
            }
        }
        let is_text = output.iter().all(|part| part["type"] == "input_text");
        // Every server accepts a string. Only media need a list.
        let output = if is_text {
            let texts: Vec<&str> = output.iter().filter_map(|part| part["text"].as_str()).collect();
            json!(texts.join("\n"))
        } else {
            Value::Array(output)
        };
        let id = self
            .ids
            .get(&result.call_id)
            .map_or_else(|| Dialect::OpenAi.call_id(&result.call_id), |id| (*id).to_owned());
        let item = json!({ "type": "function_call_output", "call_id": id, "output": output });
        self.writer.push(&item, "tool")
    }

    async fn media(&mut self, item: &Media) -> Result<Value, ModelError> {
        let images = self.format.images;
        let accepts = |mime_type: &str| images && IMAGES.contains(&mime_type) || mime_type == "application/pdf";
        if !accepts(&item.mime_type) {
            self.writer.note(format!("{} is sent as a description: the API does not accept this type", item.mime_type));
            return Ok(input_text(media::placeholder(item)));
        }
        let MediaBytes { mime_type, bytes } = self.writer.read(item).await?;
        let data = || format!("data:{mime_type};base64,{}", STANDARD.encode(&bytes));
        Ok(match mime_type.as_str() {
            "application/pdf" => {
                let name = media::pdf_name(item);
                json!({ "type": "input_file", "filename": name, "file_data": data() })
            }
            // The media type of the bytes may differ from the stored type, because downscaling may have changed it.
            image if accepts(image) => json!({ "type": "input_image", "detail": "auto", "image_url": data() }),
            _ => input_text(media::placeholder(item)),
        })
    }
}

fn input_text<'t>(text: impl Into<Cow<'t, str>>) -> Value {
    let text: Cow<'t, str> = text.into();
    json!({ "type": "input_text", "text": text })
}

fn item_text(item: &Value) -> String {
    let texts = |field: &str| -> String {
        let content = item["content"].as_array().filter(|_| item["type"] == "message");
        content.into_iter().flatten().filter_map(|part| part[field].as_str()).collect()
    };
    // The decoder uses the refusal as the text of a reply that has no other text.
    let text = texts("text");
    if text.is_empty() { texts("refusal") } else { text }
}

/// Returns whether the item can be part of a reply. Messages of other roles, results of the host's tools and references
/// to stored items are input.
fn can_be_in_reply(item: &Value) -> bool {
    let is_input = |kind: &str| matches!(kind, "function_call_output" | "item_reference" | "custom_tool_call_output");
    item["type"].as_str().is_some_and(|kind| !is_input(kind)) && item.get("role").is_none_or(|role| role == "assistant")
}

fn item_call(item: &Value) -> Option<ItemCall<'_>> {
    if item["type"] != "function_call" {
        return None;
    }
    let arguments = match &item["arguments"] {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(arguments) => Cow::Owned(arguments),
            Err(_) => Cow::Borrowed(&item["arguments"]),
        },
        arguments => Cow::Borrowed(arguments),
    };
    Some(ItemCall { id: item["call_id"].as_str(), arguments })
}
