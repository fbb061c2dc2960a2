//! Encodes the messages of a request as Chat Completions JSON.

use super::dialect::Dialect;
use super::media::{self, MediaKind};
use super::replay::ReplayFields;
use super::request_body::{Body, BodyTooLarge};
use crate::error::ModelError;
use crate::provider::MediaSource;
use agent_core::message::{CallId, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::ModelRequest;
use agent_core::names::ToolNames;
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
    request: &'r ModelRequest,
    dialect: Dialect,
    source: &'r dyn MediaSource,
    body: Body,
    /// Names under which the tools are offered to the provider, keyed by the name that the tool's author chose.
    provider_names: HashMap<&'r str, &'r str>,
    /// Media of the tool results that were added to the body after the last message with a role other than `tool`. The
    /// media of tool results are sent in a separate user message, because no server accepts media in a tool message.
    result_media: Vec<(&'r ToolResult, &'r Media)>,
    /// Ids that the provider gave to the calls of the last assistant message. The map is empty if the provider also
    /// accepts other ids.
    provider_ids: HashMap<&'r CallId, &'r str>,
    /// Role of the last message that was written.
    last_role: Option<Role>,
}

impl<'r> Messages<'r> {
    pub(super) fn new(request: &'r ModelRequest, dialect: Dialect, source: &'r dyn MediaSource, body: Body) -> Self {
        let provider_names = request.tools.iter().map(|tool| (tool.author_name.as_str(), tool.name.as_str())).collect();
        Self {
            request,
            dialect,
            source,
            body,
            provider_names,
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
    pub(super) async fn finish(mut self) -> Result<Vec<u8>, ModelError> {
        self.write_result_media().await?;
        Ok(self.body.finish())
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
        let replay = ReplayFields::from_parts(parts, &self.request.model.provider);
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

    fn call(&self, call: &ToolCall) -> Value {
        let ToolCall { id, name, arguments } = call;
        // Wrap arguments that are not a JSON object into an object, because servers reject such arguments even if the
        // model wrote them.
        let arguments = match arguments {
            Value::Object(_) => arguments.to_string(),
            Value::Null => "{}".to_owned(),
            Value::String(text) if text.trim().is_empty() => "{}".to_owned(),
            other => json!({ "not_an_object": other }).to_string(),
        };
        let function = json!({ "name": self.name(name), "arguments": arguments });
        json!({ "id": self.id(id), "type": "function", "function": function })
    }

    fn id(&self, id: &CallId) -> String {
        self.provider_ids.get(id).map_or_else(|| self.dialect.call_id(id), |id| (*id).to_owned())
    }

    /// Returns a name for the tool that the provider accepts (L14), even if the tool is not offered in this request or
    /// does not exist because the model invented its name.
    fn name<'n>(&self, author: &'n str) -> Cow<'n, str>
    where
        'r: 'n,
    {
        match self.provider_names.get(author) {
            Some(name) => Cow::Borrowed(name),
            None => match ToolNames::new([author]).provider_name(author) {
                Some(name) if name != author => Cow::Owned(name.to_owned()),
                _ => Cow::Borrowed(author),
            },
        }
    }

    fn result(&mut self, result: &'r ToolResult) -> Result<(), ModelError> {
        let mut texts = Vec::with_capacity(result.content.len());
        for content in &result.content {
            texts.push(match content {
                Content::Text(text) => Cow::Borrowed(text.as_str()),
                Content::Json(json) => Cow::Owned(json.to_string()),
                Content::Media(media) if self.kind(media).is_some() => {
                    self.result_media.push((result, media));
                    Cow::Owned(format!("[{}: below]", media::short_description(media)))
                }
                Content::Media(media) => Cow::Owned(media::placeholder(media)),
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
            let (id, tool) = (self.id(&result.call_id), self.name(&result.name).into_owned());
            content.push(as_text_content(format!(
                "From the result of call {id} (`{tool}`): {}",
                media::short_description(item)
            )));
            content.push(self.media_part(item).await?);
        }
        self.user(Value::Array(content))
    }

    fn kind(&self, media: &Media) -> Option<MediaKind> {
        MediaKind::of(&media.mime_type, self.dialect)
    }

    async fn media_part(&mut self, media: &Media) -> Result<Value, ModelError> {
        let (request, name) = (self.request, || media::short_description(media));
        if !request.downscaled.iter().any(|downscaled| downscaled.media.digest == media.digest) {
            let stored = base64_length(usize::try_from(media.size).unwrap_or(usize::MAX));
            self.body.check_remaining(stored, name).map_err(|full| too_large(request, full))?;
        }
        let model = || request.model.to_string();
        let read_error = |problem| ModelError::UnreadableMedia { model: model(), item: name(), problem };
        let read = self.source.read(media).await.map_err(read_error)?;
        self.body.reserve(base64_length(read.bytes.len()), name).map_err(|full| too_large(request, full))?;
        // Use the media type that the source returns with the bytes, because downscaling may have changed the type.
        Ok(match MediaKind::of(&read.mime_type, self.dialect) {
            Some(kind) => kind.part(media, &read.mime_type, &STANDARD.encode(&read.bytes)),
            None => as_text_content(media::placeholder(media)),
        })
    }

    fn push(&mut self, role: Role, message: Value) -> Result<(), ModelError> {
        self.last_role = Some(role);
        let name = || format!("one {} message", role.as_str());
        self.body.push_message(&message, name).map_err(|full| too_large(self.request, full))
    }
}

fn tool_call(part: &Part) -> Option<&ToolCall> {
    if let Part::ToolCall(call) = part { Some(call) } else { None }
}

/// Joins all parts of a message that can be expressed as text. Each of these parts becomes a paragraph.
pub(super) fn text(parts: &[Part]) -> String {
    let texts: Vec<Cow<'_, str>> = parts.iter().filter_map(part_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

fn part_text(part: &Part) -> Option<Cow<'_, str>> {
    match part {
        Part::Text(text) | Part::Preface(text) => Some(Cow::Borrowed(text)),
        Part::Json(json) => Some(Cow::Owned(json.to_string())),
        Part::Media(media) => Some(Cow::Owned(media::placeholder(media))),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Replay(_) => None,
    }
}

fn as_text_content<'t>(text: impl Into<Cow<'t, str>>) -> Value {
    let text: Cow<'t, str> = text.into();
    json!({ "type": "text", "text": text })
}

fn base64_length(bytes: usize) -> usize {
    base64::encoded_len(bytes, true).unwrap_or(usize::MAX)
}

fn too_large(request: &ModelRequest, BodyTooLarge { limit, largest }: BodyTooLarge) -> ModelError {
    ModelError::TooLarge { model: request.model.to_string(), limit, largest }
}
