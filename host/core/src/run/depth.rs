//! JSON that nests too deeply is kept as its text. What `serde_json` reads once it must still be able to read when it
//! stands inside a state, a message or an event, each of which adds levels of its own to the 127 that can be read.

use crate::change::CallResult;
use crate::message::{Content, Part, TurnInput};
use serde_json::Value;

/// Levels of arrays and objects that are kept as data.
pub(super) const MAX_JSON_DEPTH: usize = 64;

pub(super) fn is_too_deep(json: &Value) -> bool {
    !fits(json, MAX_JSON_DEPTH)
}

/// The value, or its text as a string.
pub(super) fn flattened(json: Value) -> Value {
    if is_too_deep(&json) { Value::String(json.to_string()) } else { json }
}

/// The input, with the same message as before.
pub(super) fn shallow_input(input: TurnInput) -> TurnInput {
    match input {
        TurnInput::Json(json) if is_too_deep(&json) => TurnInput::Text(json.to_string()),
        TurnInput::Message(parts) => TurnInput::Message(shallow_parts(parts)),
        other => other,
    }
}

pub(super) fn shallow_parts(parts: Vec<Part>) -> Vec<Part> {
    let parts = parts.into_iter().map(|part| match part {
        Part::Json(json) if is_too_deep(&json) => Part::Text(json.to_string()),
        Part::ToolCall(mut call) => {
            call.arguments = flattened(call.arguments);
            Part::ToolCall(call)
        }
        Part::Replay(mut replay) => {
            replay.data = flattened(replay.data);
            Part::Replay(replay)
        }
        Part::ToolResult(mut result) => {
            result.content = shallow_content(result.content);
            Part::ToolResult(result)
        }
        other => other,
    });
    parts.collect()
}

/// A result with the same text as before.
pub(super) fn shallow_result(result: CallResult) -> CallResult {
    let content = shallow_content(result.content);
    CallResult { content, structured: result.structured.map(flattened), ..result }
}

fn shallow_content(content: Vec<Content>) -> Vec<Content> {
    let content = content.into_iter().map(|item| match item {
        Content::Json(json) if is_too_deep(&json) => Content::Text(json.to_string()),
        other => other,
    });
    content.collect()
}

fn fits(json: &Value, levels: usize) -> bool {
    match json {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
        _ => true,
    }
}
