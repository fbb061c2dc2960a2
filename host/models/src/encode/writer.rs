//! Writes the body of one request. All wire formats use this module for media, tool names and size limits.

use super::Encoded;
use super::body::{self, Body, BodyTooLarge};
use super::media::{placeholder, short_description};
use crate::error::ModelError;
use crate::provider::{MediaBytes, MediaSource};
use agent_core::message::{Media, Part, Role};
use agent_core::model::ModelRequest;
use agent_core::names::ToolNames;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Name of the output schema in requests. Some APIs require a name, but neither the host nor the servers use it.
pub(super) const SCHEMA_NAME: &str = "output";

/// A request that is being encoded.
pub(super) struct RequestWriter<'r> {
    pub(super) request: &'r ModelRequest,
    source: &'r dyn MediaSource,
    body: Body,
    /// Names under which the tools are offered to the provider, keyed by the name that the tool's author chose.
    provider_names: HashMap<&'r str, &'r str>,
    notes: Vec<String>,
    has_replay: bool,
}

impl<'r> RequestWriter<'r> {
    /// Starts a body with the given fields. The messages are written to the field `list`.
    pub(super) fn new(
        request: &'r ModelRequest,
        fields: &Map<String, Value>,
        list: &str,
        source: &'r dyn MediaSource,
    ) -> Result<Self, ModelError> {
        let body = Body::new(fields, list, body::MAX_BYTES).map_err(|full| too_large(request, full))?;
        let provider_names = request.tools.iter().map(|tool| (tool.author_name.as_str(), tool.name.as_str())).collect();
        Ok(Self { request, source, body, provider_names, notes: Vec::new(), has_replay: false })
    }

    /// Returns a name for the tool that the provider accepts (L14), even if the tool is not offered in this request or
    /// does not exist because the model invented its name.
    pub(super) fn tool_name<'n>(&self, author: &'n str) -> Cow<'n, str>
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

    /// Reads a media item. The item must be part of the next message that is written, because the item's size is
    /// reserved for this message. Media items are read one at a time, so that at most one item is in memory twice.
    pub(super) async fn read(&mut self, media: &Media) -> Result<MediaBytes, ModelError> {
        let (request, name) = (self.request, || short_description(media));
        if !request.downscaled.iter().any(|downscaled| downscaled.media.digest == media.digest) {
            let stored = base64_length(usize::try_from(media.size).unwrap_or(usize::MAX));
            self.body.check_remaining(stored, name).map_err(|full| too_large(request, full))?;
        }
        let model = || request.model.to_string();
        let read_error = |problem| ModelError::UnreadableMedia { model: model(), item: name(), problem };
        let read = self.source.read(media).await.map_err(read_error)?;
        self.body.reserve(base64_length(read.bytes.len()), name).map_err(|full| too_large(request, full))?;
        Ok(read)
    }

    /// Writes the next message. `role` describes the message in errors.
    pub(super) fn push(&mut self, message: &Value, role: &str) -> Result<(), ModelError> {
        let name = || format!("one {role} message");
        self.body.push_message(message, name).map_err(|full| too_large(self.request, full))
    }

    /// Adds a note about a part that is not sent as it was stored. Equal notes are added once.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Records that the request contains data that the provider attached to an earlier reply.
    pub(super) fn note_replay(&mut self) {
        self.has_replay = true;
    }

    /// Returns the complete request.
    pub(super) fn finish(self) -> Encoded {
        Encoded { body: self.body.finish(), notes: self.notes, has_replay: self.has_replay }
    }
}

/// Returns arguments as a JSON object. Arguments of other types are wrapped into an object, because servers reject them
/// even if the model wrote them.
pub(super) fn object_arguments(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        Value::Null => Cow::Owned(json!({})),
        Value::String(text) if text.trim().is_empty() => Cow::Owned(json!({})),
        other => Cow::Owned(json!({ "not_an_object": other })),
    }
}

/// Joins all parts of a message that can be expressed as text. Each of these parts becomes a paragraph.
pub(super) fn text(parts: &[Part]) -> String {
    let texts: Vec<Cow<'_, str>> = parts.iter().filter_map(part_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

/// Returns the text of a part, or `None` if the part has no text.
pub(super) fn part_text(part: &Part) -> Option<Cow<'_, str>> {
    match part {
        Part::Text(text) | Part::Preface(text) => Some(Cow::Borrowed(text)),
        Part::Json(json) => Some(Cow::Owned(json.to_string())),
        Part::Media(media) => Some(Cow::Owned(placeholder(media))),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Replay(_) => None,
    }
}

/// Returns the text of the system message with which the request begins. The system message contains the sections of
/// the request, the leading system messages of the conversation, and the output schema if no field of the request
/// contains it.
pub(super) fn system_text(request: &ModelRequest, has_schema_field: bool) -> String {
    let mut sections = request.system.clone();
    let leading = &request.messages[..leading_system_messages(request)];
    sections.extend(leading.iter().map(|message| text(&message.parts)));
    if let Some(schema) = request.output_schema.as_ref().filter(|_| !has_schema_field) {
        sections.push(format!(
            "Your final answer is one JSON document and nothing else. It follows this JSON Schema:\n\n{schema}"
        ));
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

/// Returns the number of system messages with which the conversation begins.
pub(super) fn leading_system_messages(request: &ModelRequest) -> usize {
    request.messages.iter().take_while(|message| message.role == Role::System).count()
}

fn base64_length(bytes: usize) -> usize {
    base64::encoded_len(bytes, true).unwrap_or(usize::MAX)
}

fn too_large(request: &ModelRequest, BodyTooLarge { limit, largest }: BodyTooLarge) -> ModelError {
    ModelError::TooLarge { model: request.model.to_string(), limit, largest }
}
