//! Finds lines of the form `tool {json}` in a prompt. The router executes these lines.

use super::duplicate_keys;
use super::tool_schema::{self, Presence};
use agent_core::model::OfferedTool;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// Maximum number of lines that are listed in the note about ignored lines.
const MAX_LISTED_LINES: usize = 10;

/// Maximum number of calls that the router runs for one prompt.
const MAX_CALLS: usize = 64;

/// Result of searching the lines of a prompt for calls.
#[derive(Debug, PartialEq)]
pub(super) enum CallLines<'a> {
    /// No line of the prompt is a call.
    None,
    /// The calls in the order of their lines, each with the arguments as the user typed them, and the numbers of the
    /// lines that are not calls.
    Calls(Vec<(&'a OfferedTool, String)>, Vec<usize>),
    /// A line starts like a call but is invalid, or the prompt has too many calls, so no call is run. The text
    /// describes the problem.
    Invalid(String),
    /// A line calls a tool with this name, but no tool with this name is offered, so no call is run.
    Unknown(String),
}

/// Finds the calls in a prompt. A call consists of the name of a tool and a JSON object, which may span several lines.
/// The call may use the name that the tool's author chose, or the name under which the tool is offered to the model.
/// The JSON object may be omitted if the tool has no required arguments.
pub(super) fn parse<'a>(prompt: &str, tools: &'a [OfferedTool]) -> CallLines<'a> {
    let mut calls = Vec::new();
    let mut other_lines = Vec::new();
    let mut offset = 0;
    while offset < prompt.len() {
        let line = prompt[offset..].lines().next().unwrap_or_default();
        let next_line = offset + prompt[offset..].find('\n').map_or(prompt.len() - offset, |end| end + 1);
        let number = prompt[..offset].matches('\n').count() + 1;
        let (name, rest) = split_name(line);
        let tool = tools.iter().find(|tool| !name.is_empty() && (tool.author_name == name || tool.name == name));
        match (tool, rest.starts_with('{')) {
            (Some(tool), true) => {
                let indent = line.len() - rest.len();
                let start = offset + indent;
                let invalid_json = |error: &serde_json::Error| {
                    invalid_call(name, number, &with_prompt_position(error, number, indent))
                };
                match object_length(&prompt[start..]) {
                    Ok(length) => {
                        let arguments = &prompt[start..start + length];
                        if let Err(error) = duplicate_keys::check(arguments) {
                            return invalid_json(&error);
                        }
                        calls.push((tool, arguments.to_owned()));
                        offset = start + length;
                        let remaining_line = prompt[offset..].lines().next().unwrap_or_default();
                        if !remaining_line.trim().is_empty() {
                            let problem = format!("unexpected text `{}` after the JSON object", remaining_line.trim());
                            return invalid_call(name, number, &problem);
                        }
                        offset += prompt[offset..].find('\n').map_or(prompt.len() - offset, |end| end + 1);
                        continue;
                    }
                    Err(error) => return invalid_json(&error),
                }
            }
            (Some(tool), false) if rest.is_empty() && has_no_required_arguments(tool) => {
                calls.push((tool, "{}".to_owned()))
            }
            (None, true) if !name.is_empty() && object_length(rest).is_ok() => {
                return CallLines::Unknown(name.to_owned());
            }
            _ if line.trim().is_empty() => {}
            _ => other_lines.push(number),
        }
        offset = next_line;
    }
    match calls.len() {
        0 => CallLines::None,
        1..=MAX_CALLS => CallLines::Calls(calls, other_lines),
        number => CallLines::Invalid(format!(
            "The prompt has {number} calls, but at most {MAX_CALLS} can run for one prompt. Nothing was run."
        )),
    }
}

/// Returns a note about the lines that are not calls, or `None` if all lines are calls or no line is a call.
pub(super) fn ignored_lines_note(prompt: &str, tools: &[OfferedTool]) -> Option<String> {
    let CallLines::Calls(_, other_lines) = parse(prompt, tools) else { return None };
    let numbers: Vec<String> = other_lines.iter().take(MAX_LISTED_LINES).map(usize::to_string).collect();
    let more = if other_lines.len() > MAX_LISTED_LINES { " …" } else { "" };
    match other_lines.len() {
        0 => None,
        1 => Some(format!("Line {} of the prompt is not a tool call and was ignored.", numbers.join(", "))),
        _ => Some(format!("Lines {}{more} of the prompt are not tool calls and were ignored.", numbers.join(", "))),
    }
}

/// Splits a line into the name at its beginning and the text after this name. White space before the name and between
/// the name and the text is removed.
fn split_name(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let in_name = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    let end = line.find(|character| !in_name(character)).unwrap_or(line.len());
    (&line[..end], line[end..].trim_start())
}

/// Returns the length of the JSON object at the beginning of the text.
fn object_length(text: &str) -> Result<usize, serde_json::Error> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Err(error)) => Err(error),
        _ => Ok(values.byte_offset()),
    }
}

fn has_no_required_arguments(tool: &OfferedTool) -> bool {
    tool_schema::properties(&tool.input_schema).iter().all(|property| property.presence == Presence::Optional)
}

fn invalid_call<'a>(name: &str, line: usize, problem: &str) -> CallLines<'a> {
    CallLines::Invalid(format!("The call to {name} in line {line} is invalid: {problem}. Nothing was run."))
}

/// Returns the message for an error in the JSON of a call. The message contains the line and column in the prompt
/// instead of the error's position, which is relative to the JSON.
fn with_prompt_position(error: &serde_json::Error, first_line: usize, indent: usize) -> String {
    let message = error.to_string();
    let json_position = format!(" at line {} column {}", error.line(), error.column());
    let line = first_line + error.line().saturating_sub(1);
    let column = if error.line() <= 1 { error.column() + indent } else { error.column() };
    format!("{} at line {line}, column {column}", message.strip_suffix(&json_position).unwrap_or(&message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_check::tests::tool;
    use serde_json::json;

    fn tools() -> Vec<OfferedTool> {
        let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        vec![tool("text.count", "", path), tool("files.list", "", json!({"properties": {"path": {}}}))]
    }

    /// Parses the prompt and formats the parsed calls as one line of text.
    fn parsed(prompt: &str) -> String {
        match parse(prompt, &tools()) {
            CallLines::None => "none".into(),
            CallLines::Calls(calls, _) => {
                calls.iter().map(|(tool, text)| format!("{} {text}", tool.name)).collect::<Vec<_>>().join("; ")
            }
            CallLines::Invalid(text) => text,
            CallLines::Unknown(name) => format!("unknown {name}"),
        }
    }

    #[test]
    fn m4_call_lines_are_found() {
        let cases = [
            ("text.count {\"path\": \"a\"}", "text_count {\"path\": \"a\"}"),
            ("  text_count{\"path\":\"a\"}  \r\n", "text_count {\"path\":\"a\"}"),
            (
                "Please:\ntext.count {\"path\": \"a\"}\nfiles.list {}\nthanks",
                "text_count {\"path\": \"a\"}; files_list {}",
            ),
            ("text.count {\n  \"path\": \"a\"\n}\nfiles.list {}", "text_count {\n  \"path\": \"a\"\n}; files_list {}"),
            ("files.list", "files_list {}"),
            (
                "text.count {\"big\": 123456789012345678901234567890}",
                "text_count {\"big\": 123456789012345678901234567890}",
            ),
            ("text.count", "none"),
            ("files.list the rest", "none"),
            ("run text.count {\"path\": \"a\"}", "none"),
            ("{\"path\": \"a\"}", "none"),
            ("no.such {\"path\": \"a\"}", "unknown no.such"),
            ("struct {a}", "none"),
            ("", "none"),
        ];
        for (prompt, expected) in cases {
            assert_eq!(parsed(prompt), expected, "{prompt}");
        }
    }

    /// M4: if a prompt contains calls, a note lists the lines that are not calls.
    #[test]
    fn m4_ignored_lines_are_reported() {
        let note = |prompt: &str| ignored_lines_note(prompt, &tools()).unwrap_or_default();
        assert_eq!(note("files.list {}\n\n  \nfiles.list\n"), "");
        assert_eq!(note("just prose"), "");
        assert_eq!(note("files.list {}\nand also please"), "Line 2 of the prompt is not a tool call and was ignored.");
        assert_eq!(
            note("Please:\nfiles.list {\n}\nand\nthanks"),
            "Lines 1, 4, 5 of the prompt are not tool calls and were ignored."
        );
    }

    #[test]
    fn a_duplicate_key_is_rejected_with_its_position() {
        insta::assert_snapshot!(parsed("text.count {\"path\": \"a\", \"path\": \"b\"}"), @"The call to text.count in line 1 is invalid: the key `path` appears twice at line 1, column 31. Nothing was run.");
        insta::assert_snapshot!(parsed("files.list {\"path\": [{\n \"a\": 1,\n \"a\": 2}]}"), @"The call to files.list in line 1 is invalid: the key `a` appears twice at line 3, column 4. Nothing was run.");
    }

    #[test]
    fn invalid_lines_are_reported_with_their_position() {
        insta::assert_snapshot!(parsed("text.count {\"path\": a}"), @"The call to text.count in line 1 is invalid: expected value at line 1, column 21. Nothing was run.");
        insta::assert_snapshot!(parsed("files.list {}\ntext.count {\n  \"path\" \"a\"}"), @"The call to text.count in line 2 is invalid: expected `:` at line 3, column 10. Nothing was run.");
        insta::assert_snapshot!(parsed("text.count {\"path\": \"a\""), @"The call to text.count in line 1 is invalid: EOF while parsing an object at line 1, column 23. Nothing was run.");
        insta::assert_snapshot!(parsed("text.count {\"path\": \"a\"} and more"), @"The call to text.count in line 1 is invalid: unexpected text `and more` after the JSON object. Nothing was run.");
        insta::assert_snapshot!(parsed(&"files.list {}\n".repeat(65)), @"The prompt has 65 calls, but at most 64 can run for one prompt. Nothing was run.");
    }
}
