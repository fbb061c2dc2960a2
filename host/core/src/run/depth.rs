//! Keeps JSON that is nested too deeply as text. `serde_json` reads at most 127 levels, and it must still read a
//! value inside a state, a message or an event, which add levels of their own.

use crate::change::CallResult;
use crate::message::{Content, Part, TurnInput};
use serde_json::Value;

/// Maximum number of levels of arrays and objects that are kept as data.
pub(super) const MAX_JSON_DEPTH: usize = 64;

pub(super) fn is_too_deep(json: &Value) -> bool {
    !fits(json, MAX_JSON_DEPTH)
}

/// Returns the value, or its text as a string if it is nested too deeply.
pub(super) fn flattened(json: Value) -> Value {
    if is_too_deep(&json) { Value::String(json.to_string()) } else { json }
}

/// Replaces JSON in an input that is nested too deeply by its text. The resulting message is the same.
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

/// Replaces JSON in a result that is nested too deeply by its text.
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
