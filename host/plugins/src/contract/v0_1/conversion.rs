//! Converts between the host's types and the generated bindings, and checks the values that guests return: JSON must be
//! valid, media items must belong to the session, and sizes must be within the limits.

use super::bindings::agent_host::plugin::types as wit;
use crate::contract::RejectedResult;
use crate::limits::{JSON_DEPTH, Limit, SEEN_COUNT};
use crate::ports::PortError;
use crate::ports::media::{MediaPort, NewMediaItem};
use crate::text::clean;
use agent_core::message::{CallId, Content, Digest, Dimensions, Media, Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::Model;
use agent_core::plugin::{PluginFailure, Scope};
use serde_json::Value;

pub(crate) fn scope_out(scope: &Scope) -> wit::Scope {
    wit::Scope {
        agent: scope.agent.clone(),
        session: scope.session.clone(),
        delegated_by: scope.delegated_by.clone(),
        user: scope.user.clone(),
        turn: scope.turn,
        trace: wit::TraceContext {
            traceparent: scope.trace.traceparent.clone(),
            tracestate: scope.trace.tracestate.clone(),
        },
    }
}

pub(crate) fn model_out(model: &Model) -> wit::Model {
    wit::Model { provider: model.provider.clone(), name: model.name.clone(), window: model.window }
}

pub(crate) fn media_out(media: &Media) -> wit::Media {
    wit::Media {
        digest: media.digest.as_str().to_owned(),
        mime_type: media.mime_type.clone(),
        size: media.size,
        dimensions: media.dimensions.map(|Dimensions { width, height }| wit::Dimensions { width, height }),
        name: media.name.clone(),
    }
}

pub(crate) fn messages_out(messages: &[Message]) -> Vec<wit::Message> {
    messages.iter().map(|message| message_out(message.role, &message.parts, message.seen_count)).collect()
}

pub(crate) fn message_out(role: Role, parts: &[Part], seen_count: u32) -> wit::Message {
    wit::Message { role: role_out(role), parts: parts.iter().filter_map(part_out).collect(), seen_count }
}

pub(crate) fn role_out(role: Role) -> wit::Role {
    match role {
        Role::System => wit::Role::System,
        Role::User => wit::Role::User,
        Role::Assistant => wit::Role::Assistant,
        Role::Tool => wit::Role::Tool,
    }
}

/// Converts a part of a message for a plugin. Returns None if the part is of a kind that plugins do not receive.
fn part_out(part: &Part) -> Option<wit::Part> {
    Some(match part {
        Part::Text(text) => wit::Part::Text(text.clone()),
        Part::Json(json) => wit::Part::Json(json.to_string()),
        Part::Media(media) => wit::Part::Media(media_out(media)),
        Part::ToolCall(call) => wit::Part::ToolCall(wit::ToolCall {
            id: call.id.0.clone(),
            name: call.name.clone(),
            arguments: call.arguments.to_string(),
        }),
        Part::ToolResult(result) => wit::Part::ToolResult(wit::ToolResult {
            call_id: result.call_id.0.clone(),
            name: result.name.clone(),
            content: result.content.iter().map(content_out).collect(),
            is_error: result.is_error,
        }),
        Part::Preface(_) | Part::Replay(_) => return None,
    })
}

fn content_out(content: &Content) -> wit::Content {
    match content {
        Content::Text(text) => wit::Content::Text(text.clone()),
        Content::Json(json) => wit::Content::Json(json.to_string()),
        Content::Media(media) => wit::Content::Media(media_out(media)),
    }
}

/// Converts an error of a guest's function to the host's error type. Cuts the error's text to at most `bytes` bytes and
/// escapes invisible characters.
pub(crate) fn failure_in(failure: wit::Failure, bytes: usize) -> PluginFailure {
    match failure {
        wit::Failure::InvalidInput(text) => PluginFailure::InvalidInput(clean(&text, bytes)),
        wit::Failure::Unavailable(text) => PluginFailure::Unavailable(clean(&text, bytes)),
        wit::Failure::Failed(text) => PluginFailure::Failed(clean(&text, bytes)),
    }
}

/// Parses a guest's JSON text. `subject` is the name of the text in error messages.
pub(crate) fn json_in(text: &str, subject: &str) -> Result<Value, RejectedResult> {
    json_or_error(text, subject).map_err(RejectedResult::Invalid)
}

/// Parses a guest's JSON text, or returns an error message. Deeply nested JSON is refused, because other JSON parsers
/// may not support it.
pub(crate) fn json_or_error(text: &str, subject: &str) -> Result<Value, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("{subject} is not JSON: {error}"))?;
    if is_deeper(&value, JSON_DEPTH) {
        return Err(format!("{subject} is JSON with more than {JSON_DEPTH} levels of nesting"));
    }
    Ok(value)
}

/// Whether a JSON value has more than this number of levels.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|value| is_deeper(value, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// The number of bytes of text and JSON that a result may still contain.
pub(crate) struct TextBudget {
    unused: usize,
    limit: usize,
}

impl TextBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { unused: limit, limit }
    }

    /// Subtracts the length of this text from the budget.
    pub(crate) fn take(&mut self, text: &str) -> Result<(), RejectedResult> {
        self.unused =
            self.unused.checked_sub(text.len()).ok_or(RejectedResult::Limit(Limit::ResultText(self.limit)))?;
        Ok(())
    }
}

/// The media items of the session in which a call is made. Looks up the media items to which the call's result refers,
/// and stores new media items.
#[derive(Clone, Copy)]
pub(crate) struct SessionMedia<'a> {
    pub(crate) port: Option<&'a dyn MediaPort>,
    pub(crate) session: &'a str,
}

impl SessionMedia<'_> {
    /// Returns the host's description of a media item that the guest refers to.
    pub(crate) async fn resolve(self, digest: &str) -> Result<Media, RejectedResult> {
        let absent = || {
            RejectedResult::Invalid(format!("it refers to the media item {digest:?}, which this session does not have"))
        };
        let parsed = Digest::parse(digest).map_err(|error| RejectedResult::Invalid(error.to_string()))?;
        let port = self.port.ok_or_else(absent)?;
        port.describe(self.session, &parsed).await.map_err(port_failure)?.ok_or_else(absent)
    }

    /// Stores a media item that the guest created.
    pub(crate) async fn store(self, item: NewMediaItem) -> Result<Media, RejectedResult> {
        let Some(port) = self.port else {
            return Err(RejectedResult::Host("this call has no media store".to_owned()));
        };
        port.put(self.session, item).await.map_err(port_failure)
    }

    pub(crate) async fn messages(self, messages: Vec<wit::Message>) -> Result<Vec<Message>, RejectedResult> {
        let mut converted = Vec::with_capacity(messages.len());
        for message in messages {
            let mut parts = Vec::with_capacity(message.parts.len());
            for part in message.parts {
                parts.push(self.part(part).await?);
            }
            let seen_count = message.seen_count.min(SEEN_COUNT);
            converted.push(Message { role: role_in(message.role), parts, seen_count });
        }
        Ok(converted)
    }

    async fn part(self, part: wit::Part) -> Result<Part, RejectedResult> {
        Ok(match part {
            wit::Part::Text(text) => Part::Text(text),
            wit::Part::Json(json) => Part::Json(json_in(&json, "a message's JSON")?),
            wit::Part::Media(media) => Part::Media(self.resolve(&media.digest).await?),
            wit::Part::ToolCall(call) => Part::ToolCall(ToolCall {
                id: CallId(call.id),
                name: call.name,
                arguments: json_in(&call.arguments, "a message's call")?,
            }),
            wit::Part::ToolResult(result) => {
                let mut content = Vec::with_capacity(result.content.len());
                for item in result.content {
                    content.push(match item {
                        wit::Content::Text(text) => Content::Text(text),
                        wit::Content::Json(json) => Content::Json(json_in(&json, "a message's result")?),
                        wit::Content::Media(media) => Content::Media(self.resolve(&media.digest).await?),
                    });
                }
                let (call_id, name) = (CallId(result.call_id), result.name);
                Part::ToolResult(ToolResult { call_id, name, content, is_error: result.is_error })
            }
        })
    }
}

fn role_in(role: wit::Role) -> Role {
    match role {
        wit::Role::System => Role::System,
        wit::Role::User => Role::User,
        wit::Role::Assistant => Role::Assistant,
        wit::Role::Tool => Role::Tool,
    }
}

fn port_failure(error: PortError) -> RejectedResult {
    match error {
        PortError::Refused(text) => RejectedResult::Invalid(text),
        PortError::Failed(text) => RejectedResult::Host(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P8: JSON from a guest is refused if it is nested more deeply than the limit.
    #[test]
    fn p8_deeply_nested_json_is_refused() {
        let lists = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let fields = |levels| r#"{"a":"#.repeat(levels) + "1" + &"}".repeat(levels);
        for text in [lists(JSON_DEPTH), fields(JSON_DEPTH)] {
            assert!(json_in(&text, "this").is_ok(), "{text}");
        }
        for text in [lists(JSON_DEPTH + 1), fields(JSON_DEPTH + 1), lists(100_000)] {
            assert!(matches!(json_in(&text, "this"), Err(RejectedResult::Invalid(_))), "{text}");
        }
    }
}
