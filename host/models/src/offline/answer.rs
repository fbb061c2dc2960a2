//! Formats the router's answers, which contain the results of calls and a note that the router is not a language model.

use agent_core::message::{Content, Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::OfferedTool;
use agent_core::plugin::Denial;
use agent_core::tool::ToolError;
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value};
use std::io::{self, Write};

/// Maximum length of the part of a tool result that an answer shows, in characters.
const MAX_RESULT_CHARACTERS: usize = 2_000;

/// Maximum length of JSON that an answer shows on one line, in characters.
const MAX_LINE_CHARACTERS: usize = 100;

/// Maximum number of properties of a JSON object that is shown with one row for each property. An answer shows larger
/// objects in another form.
const MAX_ROWS: usize = 20;

/// Returns `body` with the note that ends every answer. If the answer would have more than `max_characters` characters
/// including the note, `body` is truncated.
pub(super) fn with_note(body: &str, max_characters: usize) -> String {
    let label = "This is the offline router, not a language model: it only runs tools. To use a language model, pass \
                 `--model PROVIDER/MODEL` or set `model = \"PROVIDER/MODEL\"` in agent.toml.";
    let max_body_characters = max_characters.saturating_sub(label.chars().count() + 2);
    format!("{}\n\n{label}", truncate(body.trim_end(), max_body_characters))
}

/// Formats the tool results at the end of the conversation, each below the call that returned it. Returns `None` if the
/// conversation does not end with tool results.
pub(super) fn results(messages: &[Message], tools: &[OfferedTool]) -> Option<String> {
    let result_messages = messages.iter().rev().take_while(|message| message.role == Role::Tool).count();
    if result_messages == 0 {
        return None;
    }
    let (earlier, results) = messages.split_at(messages.len() - result_messages);
    let calls: Vec<&ToolCall> = earlier.last()?.parts.iter().filter_map(tool_call).collect();
    let formatted = results.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolResult(result) => Some(format_result(&calls, result, tools)),
        _ => None,
    });
    Some(formatted.collect::<Vec<_>>().join("\n\n"))
}

/// Formats JSON on one line, with a space after each colon and comma.
pub(super) fn one_line_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, OneLineFormatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => value.to_string(),
    }
}

fn tool_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    }
}

fn format_result(calls: &[&ToolCall], result: &ToolResult, tools: &[OfferedTool]) -> String {
    let arguments = calls.iter().find(|call| call.id == result.call_id).map(|call| match &call.arguments {
        Value::String(raw) => raw.clone(),
        arguments => one_line_json(arguments),
    });
    // Show the name that the tool's author chose, because users know this name. The history contains the name under
    // which the tool is offered to the provider.
    let name = tools.iter().find(|tool| tool.name == result.name).map_or(&result.name, |tool| &tool.author_name);
    let call = format!("{name} {}", truncate(&arguments.unwrap_or_default(), MAX_LINE_CHARACTERS));
    let mut texts: Vec<String> = Vec::new();
    for content in &result.content {
        let text = format_content(content, result.is_error);
        // Leave out a text that repeats an earlier text, because tools often return the same content both as text and
        // as JSON.
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let mut body = texts.join("\n");
    if body.trim().is_empty() {
        body = "(no output)".to_owned();
    }
    if result.is_error {
        body = format!("failed: {body}");
    }
    let indented: Vec<String> =
        truncate(&body, MAX_RESULT_CHARACTERS).lines().map(|line| format!("  {line}")).collect();
    format!("{}\n{}", call.trim_end(), indented.join("\n"))
}

fn format_content(content: &Content, is_error: bool) -> String {
    match content {
        Content::Text(text) if is_error => {
            serde_json::from_str(text).map_or_else(|_| text.clone(), |error| format_error(&error))
        }
        Content::Text(text) => match serde_json::from_str::<Value>(text) {
            Ok(json @ (Value::Object(_) | Value::Array(_))) => format_json(&json),
            _ => text.clone(),
        },
        Content::Json(json) => format_json(json),
        Content::Media(media) => {
            let name = media.name.as_deref().unwrap_or("media");
            format!("{name} ({}, {} bytes, {})", media.mime_type, media.size, media.digest)
        }
    }
}

/// Formats an error without the sentences about denials, because users see those below the call.
fn format_error(error: &ToolError) -> String {
    match error {
        ToolError::InvalidArguments { violations } => {
            let violations = violations.iter().map(|violation| match violation.pointer.as_str() {
                "" => violation.message.clone(),
                pointer => format!("{pointer}: {}", violation.message),
            });
            format!("the arguments are not valid\n{}", violations.collect::<Vec<_>>().join("\n"))
        }
        ToolError::NotFound { message } => format!("not found: {}", Denial::before_in_error(message)),
        ToolError::Denied { message } => format!("denied: {}", Denial::before_in_error(message)),
        ToolError::Unavailable { message, .. } => format!("currently unavailable: {message}"),
        ToolError::Failed { message } => Denial::before_in_error(message).to_owned(),
    }
}

/// Formats JSON for an answer. A small object without nested values gets one row for each property. Other JSON gets one
/// line if it is short, and otherwise several lines with indentation.
fn format_json(json: &Value) -> String {
    let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
    match json {
        Value::String(text) => text.clone(),
        Value::Object(object) if !object.is_empty() && object.len() <= MAX_ROWS && object.values().all(is_scalar) => {
            let rows = object.iter().map(|(key, value)| match value {
                Value::String(text) => format!("{key}: {text}"),
                value => format!("{key}: {value}"),
            });
            rows.collect::<Vec<_>>().join("\n")
        }
        _ => {
            let line = one_line_json(json);
            let is_short = line.chars().count() <= MAX_LINE_CHARACTERS;
            if is_short { line } else { serde_json::to_string_pretty(json).unwrap_or(line) }
        }
    }
}

fn truncate(text: &str, max_characters: usize) -> String {
    match text.char_indices().nth(max_characters) {
        Some((end, _)) => format!("{}… ({} more characters)", &text[..end], text[end..].chars().count()),
        None => text.to_owned(),
    }
}

struct OneLineFormatter;

impl Formatter for OneLineFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_check::tests::{calls, result};
    use agent_core::message::{Digest, Media};
    use agent_core::tool::Violation;
    use serde_json::json;

    #[test]
    fn json_is_formatted_on_one_line() {
        assert_eq!(one_line_json(&json!({"a": [1, "x, y:z"], "b": {}})), r#"{"a": [1, "x, y:z"], "b": {}}"#);
    }

    #[test]
    fn results_are_formatted_for_users() {
        let media = Media {
            digest: Digest::from_sha256([1; 32]),
            mime_type: "image/png".into(),
            size: 9,
            dimensions: None,
            name: Some("a.png".into()),
        };
        let counted = json!({"words": 3, "file": "a"});
        let violation = Violation { pointer: "/path".into(), rule: None, message: "is not a string".into() };
        let invalid = ToolError::InvalidArguments { violations: vec![violation] };
        let denied = ToolError::Denied { message: "grant files.read".into() };
        let error = |error: &ToolError| vec![Content::Text(error.for_model())];
        let text_and_json = vec![Content::Text(counted.to_string()), Content::Json(counted)];
        let nested = json!({"rows": [{"name": "x".repeat(60)}, {"name": "y".repeat(60)}]});
        let messages = [
            calls(&[
                ("c1", "text.count", json!({"path": "a"})),
                ("c2", "t", json!("{bad")),
                ("c3", "t", json!({"path": 3})),
                ("c4", "files.read", json!({})),
                ("c5", "t", json!({})),
                ("c6", "t", json!({})),
                ("c7", "t", json!({})),
            ]),
            result("c1", "text.count", text_and_json, false),
            result("c2", "t", vec![Content::Text("plain error".into())], true),
            result("c3", "t", error(&invalid), true),
            result("c4", "files.read", error(&denied), true),
            result("c5", "t", vec![Content::Json(nested), Content::Media(media)], false),
            result("c6", "t", vec![], false),
            result("c7", "t", vec![Content::Json(json!([1, 2]))], false),
        ];
        insta::assert_snapshot!(results(&messages, &[]).unwrap(), @r#"
        text.count {"path": "a"}
          words: 3
          file: a

        t {bad
          failed: plain error

        t {"path": 3}
          failed: the arguments are not valid
          /path: is not a string

        files.read {}
          failed: denied: grant files.read

        t {}
          {
            "rows": [
              {
                "name": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
              },
              {
                "name": "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
              }
            ]
          }
          a.png (image/png, 9 bytes, sha256:0101010101010101010101010101010101010101010101010101010101010101)

        t {}
          (no output)

        t {}
          [1, 2]
        "#);
    }

    #[test]
    fn long_results_are_truncated_with_a_note() {
        let long = "é".repeat(3000);
        let messages = [calls(&[("c1", "t", json!({}))]), result("c1", "t", vec![Content::Text(long)], false)];
        let answer = results(&messages, &[]).unwrap();
        assert!(answer.ends_with("é… (1000 more characters)"), "{answer}");
        let labelled = with_note(&answer, 400);
        assert!(labelled.contains("more characters)\n\nThis is the offline router"), "{labelled}");
    }

    #[test]
    fn a_conversation_without_results_has_no_answer() {
        assert_eq!(results(&[], &[]), None);
        assert_eq!(results(&[Message::text(Role::User, "go")], &[]), None);
    }
}
