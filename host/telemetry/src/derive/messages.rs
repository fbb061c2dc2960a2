//! Writes messages and tools as the attributes that OpenInference defines.

use super::content_writer::ContentWriter;
use crate::conventions::open_inference::{INPUT_MESSAGES, OUTPUT_MESSAGES};
use agent_core::message::{Content, Media, Part, StoredMessage};
use agent_core::model::Reply;
use agent_core::view::result_text;

/// A message of a prompt or a reply, as it is exported.
struct Exported {
    role: &'static str,
    content: String,
    /// Id, name and arguments of each call.
    calls: Vec<(String, String, String)>,
    /// Id of the call whose result the message contains.
    result_of: Option<String>,
}

/// Adds a stored message as the input message with this index. A message with several tool results uses one index for
/// each result. Returns the number of indexes that were used.
pub(super) fn add_input(writer: &mut ContentWriter<'_>, index: usize, message: &StoredMessage) -> usize {
    let exported = exported(message);
    for (offset, message) in exported.iter().enumerate() {
        add(writer, &format!("{INPUT_MESSAGES}.{}.message", index + offset), message);
    }
    exported.len()
}

/// Adds a text with a role as the input message with this index.
pub(super) fn add_text_input(writer: &mut ContentWriter<'_>, index: usize, role: &str, text: String) {
    let prefix = format!("{INPUT_MESSAGES}.{index}.message");
    writer.label(format!("{prefix}.role"), role);
    writer.add(format!("{prefix}.content"), text);
}

/// Adds a text of a model as the output message.
pub(super) fn add_text_output(writer: &mut ContentWriter<'_>, text: String) {
    let message = Exported { role: "assistant", content: text, calls: Vec::new(), result_of: None };
    add(writer, &format!("{OUTPUT_MESSAGES}.0.message"), &message);
}

/// Adds a reply as the output message.
pub(super) fn add_output(writer: &mut ContentWriter<'_>, reply: &Reply) {
    let calls = reply.calls.iter().map(|call| {
        let id = call.provider_id.clone().unwrap_or_default();
        (id, call.name.clone(), call.arguments.clone())
    });
    let message = Exported { role: "assistant", content: reply.text.clone(), calls: calls.collect(), result_of: None };
    add(writer, &format!("{OUTPUT_MESSAGES}.0.message"), &message);
}

/// Returns the content of a result as text. Media items are described, and their bytes are never exported.
pub(super) fn content_text(content: &[Content]) -> String {
    let mut text = result_text(content);
    for item in content {
        if let Content::Media(media) = item {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(&described(media));
        }
    }
    text
}

/// Returns the text of a message, as its author wrote it.
pub(crate) fn message_text(message: &StoredMessage) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Json(json) => Some(json.to_string()),
        Part::Media(media) => Some(described(media)),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Preface(_) | Part::Replay(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn described(media: &Media) -> String {
    format!("[{}, {} bytes, {}]", media.mime_type, media.size, media.digest.short())
}

fn exported(message: &StoredMessage) -> Vec<Exported> {
    let results = message.parts.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(Exported {
            role: "tool",
            content: content_text(&result.content),
            calls: Vec::new(),
            result_of: Some(result.call_id.to_string()),
        }),
        _ => None,
    });
    let results: Vec<Exported> = results.collect();
    if !results.is_empty() {
        return results;
    }
    let calls = message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some((call.id.to_string(), call.name.clone(), call.arguments.to_string())),
        _ => None,
    });
    let preface = message.parts.iter().filter_map(|part| match part {
        Part::Preface(text) => Some(format!("{text}\n")),
        _ => None,
    });
    let content = preface.chain([message_text(message)]).collect();
    vec![Exported { role: message.role.as_str(), content, calls: calls.collect(), result_of: None }]
}

fn add(writer: &mut ContentWriter<'_>, prefix: &str, message: &Exported) {
    writer.label(format!("{prefix}.role"), message.role);
    if !message.content.is_empty() {
        writer.add(format!("{prefix}.content"), message.content.clone());
    }
    if let Some(call) = &message.result_of {
        writer.label(format!("{prefix}.tool_call_id"), call.clone());
    }
    for (index, (id, name, arguments)) in message.calls.iter().enumerate() {
        let prefix = format!("{prefix}.tool_calls.{index}.tool_call");
        if !id.is_empty() {
            writer.label(format!("{prefix}.id"), id.clone());
        }
        writer.label(format!("{prefix}.function.name"), name.clone());
        writer.add(format!("{prefix}.function.arguments"), arguments.clone());
    }
}
