//! Encodes the messages of a request as JSON of Chat Completions.

use super::super::media::{placeholder, short_description};
use super::super::writer::{RequestWriter, object_arguments, part_text, text};
use super::dialect::Dialect;
use super::media::MediaKind;
use super::replay::ReplayFields;
use crate::encode::stored_reply;
use crate::encode::{Encoded, Format};
use crate::error::ModelError;
use agent_core::message::{CallId, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Text of the assistant message that is inserted between a tool message and a user message, because some servers
/// require an assistant message there.
const SEPARATOR: &str = "I have the results.";

/// Encodes the messages of one request one at a time and writes them to the request body.
pub(super) struct Messages<'r> {
    writer: RequestWriter<'r>,
    dialect: Dialect,
    /// Whether the model accepts images.
    images: bool,
    /// Whether replies are sent back without the provider's data.
    without_replay: bool,
    /// Media of the tool results that were written after the last message that is not a tool message. These media are
    /// sent in a separate user message, because no server accepts media in a tool message.
    result_media: Vec<(&'r ToolResult, &'r Media)>,
    /// Ids that the provider gave to the calls of the last assistant message. The map is empty if the provider also
    /// accepts other ids.
    provider_ids: HashMap<&'r CallId, &'r str>,
    /// Role of the last message that was written.
    last_role: Option<Role>,
}

impl<'r> Messages<'r> {
    pub(super) fn new(writer: RequestWriter<'r>, format: Format) -> Self {
        let Format { dialect, images, without_replay, .. } = format;
        Self {
            writer,
            dialect,
            images,
            without_replay,
            result_media: Vec::new(),
            provider_ids: HashMap::new(),
            last_role: None,
        }
    }

    /// Writes the system message, unless it is empty.
    pub(super) fn system(&mut self, text: &str) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        self.push(Role::System, json!({ "role": "system", "content": text }))
    }

    /// Writes the next message of the conversation to the request body.
    pub(super) async fn write(&mut self, message: &'r Message) -> Result<(), ModelError> {
        if message.role != Role::Tool {
            self.write_result_media().await?;
        }
        match message.role {
            Role::System => self.push(Role::System, json!({ "role": "system", "content": text(&message.parts) })),
            Role::User => {
                let content = self.content(&message.parts).await?;
                self.user(content)
            }
            Role::Assistant => {
                // A reply can consist of data that only its provider can read. No server accepts an empty message.
                if text(&message.parts).is_empty() && !message.parts.iter().any(|part| tool_call(part).is_some()) {
                    return Ok(());
                }
                let message = self.assistant(&message.parts);
                self.push(Role::Assistant, message)
            }
            Role::Tool => message.parts.iter().try_for_each(|part| match part {
                Part::ToolResult(result) => self.result(result),
                _ => Ok(()),
            }),
        }
    }

    /// Writes the media that are still missing and returns the complete request body.
    pub(super) async fn finish(mut self) -> Result<Encoded, ModelError> {
        self.write_result_media().await?;
        Ok(self.writer.finish())
    }

    fn user(&mut self, content: Value) -> Result<(), ModelError> {
        if self.dialect.separates_tool_from_user() && self.last_role == Some(Role::Tool) {
            self.push(Role::Assistant, json!({ "role": "assistant", "content": SEPARATOR }))?;
        }
        self.push(Role::User, json!({ "role": "user", "content": content }))
    }

    /// Returns the content of a user message. If the message has media that can be sent, the content is a list of texts
    /// and media. Otherwise the content is a string, which every server accepts.
    async fn content(&mut self, parts: &[Part]) -> Result<Value, ModelError> {
        let sendable = |part: &Part| matches!(part, Part::Media(media) if self.kind(media).is_some());
        if !parts.iter().any(sendable) {
            return Ok(json!(text(parts)));
        }
        let mut content = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Media(media) if self.kind(media).is_some() => content.push(self.media_part(media).await?),
                part => content.extend(part_text(part).filter(|text| !text.is_empty()).map(as_text_content)),
            }
        }
        Ok(Value::Array(content))
    }

    fn assistant(&mut self, parts: &'r [Part]) -> Value {
        let replay = self.replay_fields(parts);
        let calls: Vec<&ToolCall> = parts.iter().filter_map(tool_call).collect();
        self.provider_ids.clear();
        if let Some(ids) = replay.ids(calls.len()) {
            self.provider_ids.extend(calls.iter().map(|call| &call.id).zip(ids));
        }
        let text = text(parts);
        let calls: Vec<Value> = calls.into_iter().map(|call| self.call(call)).collect();
        let mut message = Map::new();
        message.insert("role".into(), json!("assistant"));
        let has_only_calls = text.is_empty() && !calls.is_empty();
        message.insert("content".into(), if has_only_calls { Value::Null } else { json!(text) });
        if !calls.is_empty() {
            message.insert("tool_calls".into(), Value::Array(calls));
        }
        replay.add_to(&mut message);
        Value::Object(message)
    }

    /// Returns the data that the provider attached to a reply. If the data is not sent, notes the reason.
    fn replay_fields(&mut self, parts: &'r [Part]) -> ReplayFields<'r> {
        let stored = parts.iter().find_map(|part| if let Part::Replay(replay) = part { Some(replay) } else { None });
        let Some(stored) = stored else { return ReplayFields::default() };
        let fields = match self.without_replay {
            true => Err("the provider rejected it"),
            false => ReplayFields::for_model(stored, &self.writer.request.model),
        };
        match fields {
            Ok(fields) => {
                self.writer.note_replay();
                fields
            }
            Err(reason) => {
                self.writer.note(stored_reply::not_sent(stored, reason));
                ReplayFields::default()
            }
        }
    }

    fn call(&self, call: &ToolCall) -> Value {
        let ToolCall { id, name, arguments } = call;
        let arguments = object_arguments(arguments).to_string();
        let function = json!({ "name": self.writer.tool_name(name), "arguments": arguments });
        json!({ "id": self.id(id), "type": "function", "function": function })
    }

    fn id(&self, id: &CallId) -> String {
        self.provider_ids.get(id).map_or_else(|| self.dialect.call_id(id), |id| (*id).to_owned())
    }

    fn result(&mut self, result: &'r ToolResult) -> Result<(), ModelError> {
        let mut texts = Vec::with_capacity(result.content.len());
        for content in &result.content {
            texts.push(match content {
                Content::Text(text) => Cow::Borrowed(text.as_str()),
                Content::Json(json) => Cow::Owned(json.to_string()),
                Content::Media(media) if self.kind(media).is_some() => {
                    self.result_media.push((result, media));
                    Cow::Owned(format!("[{}: below]", short_description(media)))
                }
                Content::Media(media) => Cow::Owned(placeholder(media)),
            });
        }
        let failed = if result.is_error { "Error: " } else { "" };
        let content = format!("{failed}{}", texts.join("\n"));
        let id = self.id(&result.call_id);
        self.push(Role::Tool, json!({ "role": "tool", "tool_call_id": id, "content": content }))
    }

    /// Writes one user message with the media of the preceding tool results. The text before each media item
    /// contains the id of the call that returned the item, and the name of the tool.
    async fn write_result_media(&mut self) -> Result<(), ModelError> {
        let media = std::mem::take(&mut self.result_media);
        if media.is_empty() {
            return Ok(());
        }
        let mut content = Vec::with_capacity(media.len() * 2);
        for (result, item) in media {
            let (id, tool) = (self.id(&result.call_id), self.writer.tool_name(&result.name).into_owned());
            content
                .push(as_text_content(format!("From the result of call {id} (`{tool}`): {}", short_description(item))));
            content.push(self.media_part(item).await?);
        }
        self.user(Value::Array(content))
    }

    fn kind(&self, media: &Media) -> Option<MediaKind> {
        MediaKind::of(&media.mime_type, self.dialect).filter(|kind| self.images || *kind != MediaKind::Image)
    }

    async fn media_part(&mut self, media: &Media) -> Result<Value, ModelError> {
        let read = self.writer.read(media).await?;
        // Use the media type that the source returns with the bytes, because downscaling may have changed the type.
        Ok(match MediaKind::of(&read.mime_type, self.dialect) {
            Some(kind) => kind.part(media, &read.mime_type, &STANDARD.encode(&read.bytes)),
            None => as_text_content(placeholder(media)),
        })
    }

    fn push(&mut self, role: Role, message: Value) -> Result<(), ModelError> {
        self.last_role = Some(role);
        self.writer.push(&message, role.as_str())
    }
}

fn tool_call(part: &Part) -> Option<&ToolCall> {
    if let Part::ToolCall(call) = part { Some(call) } else { None }
}

fn as_text_content<'t>(text: impl Into<Cow<'t, str>>) -> Value {
    let text: Cow<'t, str> = text.into();
    json!({ "type": "text", "text": text })
}
