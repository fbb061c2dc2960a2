//! Converts a JSON value to text if the value is nested too deeply. `serde_json` parses at most 127 levels. The limit
//! of this module is lower than 127, because a value is stored inside a state, a message or an event, which add
//! further levels.

use crate::change::CallResult;
use crate::message::{Content, Part, TurnInput};
use serde_json::Value;

/// Maximum number of nested arrays and objects in a value that is stored as JSON.
pub const MAX_JSON_DEPTH: usize = 64;

/// Returns whether the value is nested too deeply to be stored as JSON.
pub fn is_too_deep(json: &Value) -> bool {
    !fits(json, MAX_JSON_DEPTH)
}

/// Returns the value, or a string with its JSON text if the value is nested too deeply.
pub(super) fn flattened(json: Value) -> Value {
    if is_too_deep(&json) { Value::String(json.to_string()) } else { json }
}

/// Replaces JSON in an input by its text if the JSON is nested too deeply. The replacement does not change the user
/// message that is made from the input.
pub(super) fn shallow_input(input: TurnInput) -> TurnInput {
    match input {
        TurnInput::Json(json) if is_too_deep(&json) => TurnInput::Text(json.to_string()),
        TurnInput::Message(parts) => TurnInput::Message(shallow_parts(parts)),
        TurnInput::Call { tool, arguments } => TurnInput::Call { tool, arguments: flattened(arguments) },
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

/// Replaces JSON in a result by its text if the JSON is nested too deeply.
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
