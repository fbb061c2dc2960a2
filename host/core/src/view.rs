//! Converts stored messages to the messages that are sent to the model. The stored messages stay unchanged (L26).

use crate::message::{CallId, Content, Message, Part, StoredMessage};
use serde_json::json;

/// The text that replaces the arguments and results of calls that are not sent again.
const LEFT_OUT: &str = "(an earlier attempt, which was rejected; a later one follows)";

/// Returns the text and JSON content of a result as one string, joined by line breaks. The offsets of `read_result`
/// refer to this string.
pub fn result_text(content: &[Content]) -> String {
    let mut text = String::new();
    for item in content {
        let piece = match item {
            Content::Text(piece) => piece,
            Content::Json(json) => &json.to_string(),
            Content::Media(_) => continue,
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(piece);
    }
    text
}

/// Returns the [`result_text`], cut after `limit` characters. If the text was cut, a line is appended that tells the
/// model how to read the rest.
pub fn shown_text(call: &CallId, content: &[Content], limit: usize) -> String {
    let text = result_text(content);
    // A string never has more characters than bytes.
    if text.len() <= limit {
        return text;
    }
    match text.char_indices().nth(limit) {
        None => text,
        Some((cut, _)) => {
            let total = limit + text[cut..].chars().count();
            let mut shown = text;
            shown.truncate(cut);
            shown.push_str(&format!(
                "\n[cut: the first {limit} of {total} characters; \
                 read_result {{\"call_id\": \"{call}\", \"offset\": {limit}}} gives the rest]"
            ));
            shown
        }
    }
}

/// Returns the message that is sent to the model for a stored message. Tool results are cut after `limit` characters.
pub fn shown_message(message: &StoredMessage, seen_count: u32, limit: usize) -> Message {
    let parts = message.parts.iter().map(|part| match part {
        Part::ToolResult(result) => {
            let mut shown = result.clone();
            shown.content = shown_content(&result.call_id, &result.content, limit);
            Part::ToolResult(shown)
        }
        other => other.clone(),
    });
    Message { role: message.role, parts: parts.collect(), seen_count }
}

/// Replaces the arguments of these calls and the contents of their results by a short text. The calls and results
/// themselves stay in the message, because providers require that each call has a result.
pub fn without_calls(mut message: Message, calls: &[CallId]) -> Message {
    for part in message.parts.iter_mut().filter(|_| !calls.is_empty()) {
        match part {
            Part::ToolCall(call) if calls.contains(&call.id) => call.arguments = json!({"result": LEFT_OUT}),
            Part::ToolResult(result) if calls.contains(&result.call_id) => {
                result.content = vec![Content::Text(LEFT_OUT.to_owned())];
            }
            _ => {}
        }
    }
    message
}

fn shown_content(call: &CallId, content: &[Content], limit: usize) -> Vec<Content> {
    let whole = result_text(content);
    if whole.len() <= limit || whole.chars().nth(limit).is_none() {
        return content.to_vec();
    }
    let text = Content::Text(shown_text(call, content, limit));
    let media = content.iter().filter(|item| matches!(item, Content::Media(_))).cloned();
    std::iter::once(text).chain(media).collect()
}
