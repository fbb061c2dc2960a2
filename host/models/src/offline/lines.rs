//! Finds the lines `tool {json}` of a prompt, which the router obeys.

use super::duplicates;
use super::schema::{self, Presence};
use agent_core::model::OfferedTool;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// Lines that are named at most.
const SHOWN: usize = 10;

/// Most calls of one prompt.
const CALL_LIMIT: usize = 64;

/// What the lines of a prompt ask for.
#[derive(Debug, PartialEq)]
pub(super) enum Lines<'a> {
    /// There is no such line.
    None,
    /// Calls in order, with the arguments as they were typed, and the numbers of the lines that are none.
    Calls(Vec<(&'a OfferedTool, String)>, Vec<usize>),
    /// A line begins like a call, but is none: nothing is run.
    Wrong(String),
    /// A line calls a tool that is not offered: nothing is run.
    Unknown(String),
}

/// Reads a prompt. A tool goes by its author's name or by the name under which it is offered. The JSON may go on over
/// several lines. A tool that requires nothing may stand alone in its line.
pub(super) fn read<'a>(prompt: &str, tools: &'a [OfferedTool]) -> Lines<'a> {
    let mut calls = Vec::new();
    let mut others = Vec::new();
    let mut offset = 0;
    while offset < prompt.len() {
        let line = prompt[offset..].lines().next().unwrap_or_default();
        let next = offset + prompt[offset..].find('\n').map_or(prompt.len() - offset, |end| end + 1);
        let number = prompt[..offset].matches('\n').count() + 1;
        let (name, rest) = split_name(line);
        let tool = tools.iter().find(|tool| !name.is_empty() && (tool.author_name == name || tool.name == name));
        match (tool, rest.starts_with('{')) {
            (Some(tool), true) => {
                let start = offset + (line.len() - rest.len());
                match object(&prompt[start..]) {
                    Ok(length) => {
                        let typed = &prompt[start..start + length];
                        if let Err(error) = duplicates::check(typed) {
                            return wrong(name, number, &located(&error, number, line.len() - rest.len()));
                        }
                        calls.push((tool, typed.to_owned()));
                        offset = start + length;
                        let after = prompt[offset..].lines().next().unwrap_or_default();
                        if !after.trim().is_empty() {
                            return wrong(name, number, &format!("`{}` stands after the JSON object", after.trim()));
                        }
                        offset += prompt[offset..].find('\n').map_or(prompt.len() - offset, |end| end + 1);
                        continue;
                    }
                    Err(error) => return wrong(name, number, &located(&error, number, line.len() - rest.len())),
                }
            }
            (Some(tool), false) if rest.is_empty() && requires_nothing(tool) => calls.push((tool, "{}".to_owned())),
            (None, true) if !name.is_empty() && object(rest).is_ok() => return Lines::Unknown(name.to_owned()),
            _ if line.trim().is_empty() => {}
            _ => others.push(number),
        }
        offset = next;
    }
    match calls.len() {
        0 => Lines::None,
        1..=CALL_LIMIT => Lines::Calls(calls, others),
        number => Lines::Wrong(format!("Those are {number} calls; at most {CALL_LIMIT} run at once. Nothing was run.")),
    }
}

/// What an answer says about the lines that are no calls; none where all of them are.
pub(super) fn not_obeyed(prompt: &str, tools: &[OfferedTool]) -> Option<String> {
    let Lines::Calls(_, others) = read(prompt, tools) else { return None };
    let shown: Vec<String> = others.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if others.len() > SHOWN { " …" } else { "" };
    match others.len() {
        0 => None,
        1 => Some(format!("Line {} of the prompt is no call, and was not obeyed.", shown.join(", "))),
        _ => Some(format!("Lines {}{more} of the prompt are no calls, and were not obeyed.", shown.join(", "))),
    }
}

/// The name at the beginning of a line, and what follows it without white space at either end.
fn split_name(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let in_name = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    let end = line.find(|character| !in_name(character)).unwrap_or(line.len());
    (&line[..end], line[end..].trim_start())
}

/// Length of the JSON object at the beginning of the text.
fn object(text: &str) -> Result<usize, serde_json::Error> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Err(error)) => Err(error),
        _ => Ok(values.byte_offset()),
    }
}

fn requires_nothing(tool: &OfferedTool) -> bool {
    schema::properties(&tool.input_schema).iter().all(|property| property.presence == Presence::Optional)
}

fn wrong<'a>(name: &str, line: usize, problem: &str) -> Lines<'a> {
    Lines::Wrong(format!("The call of {name} in line {line} is not right: {problem}. Nothing was run."))
}

/// Lines and columns of the prompt, not of the JSON.
fn located(error: &serde_json::Error, first_line: usize, indent: usize) -> String {
    let message = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    let line = first_line + error.line().saturating_sub(1);
    let column = if error.line() <= 1 { error.column() + indent } else { error.column() };
    format!("{} at line {line}, column {column}", message.strip_suffix(&end).unwrap_or(&message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::tests::tool;
    use serde_json::json;

    fn tools() -> Vec<OfferedTool> {
        let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        vec![tool("text.count", "", path), tool("files.list", "", json!({"properties": {"path": {}}}))]
    }

    fn shown(prompt: &str) -> String {
        match read(prompt, &tools()) {
            Lines::None => "none".into(),
            Lines::Calls(calls, _) => {
                calls.iter().map(|(tool, text)| format!("{} {text}", tool.name)).collect::<Vec<_>>().join("; ")
            }
            Lines::Wrong(text) => text,
            Lines::Unknown(name) => format!("unknown {name}"),
        }
    }

    /// M4
    #[test]
    fn lines_that_are_calls() {
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
            assert_eq!(shown(prompt), expected, "{prompt}");
        }
    }

    /// M4: nothing that was asked is dropped in silence.
    #[test]
    fn lines_that_are_no_calls_are_named() {
        let said = |prompt: &str| not_obeyed(prompt, &tools()).unwrap_or_default();
        assert_eq!(said("files.list {}\n\n  \nfiles.list\n"), "");
        assert_eq!(said("just prose"), "");
        assert_eq!(said("files.list {}\nand also please"), "Line 2 of the prompt is no call, and was not obeyed.");
        assert_eq!(
            said("Please:\nfiles.list {\n}\nand\nthanks"),
            "Lines 1, 4, 5 of the prompt are no calls, and were not obeyed."
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_place() {
        insta::assert_snapshot!(shown("text.count {\"path\": \"a\", \"path\": \"b\"}"), @"The call of text.count in line 1 is not right: the key `path` stands there twice at line 1, column 31. Nothing was run.");
        insta::assert_snapshot!(shown("files.list {\"path\": [{\n \"a\": 1,\n \"a\": 2}]}"), @"The call of files.list in line 1 is not right: the key `a` stands there twice at line 3, column 4. Nothing was run.");
    }

    #[test]
    fn malformed_lines_say_where() {
        insta::assert_snapshot!(shown("text.count {\"path\": a}"), @"The call of text.count in line 1 is not right: expected value at line 1, column 21. Nothing was run.");
        insta::assert_snapshot!(shown("files.list {}\ntext.count {\n  \"path\" \"a\"}"), @"The call of text.count in line 2 is not right: expected `:` at line 3, column 10. Nothing was run.");
        insta::assert_snapshot!(shown("text.count {\"path\": \"a\""), @"The call of text.count in line 1 is not right: EOF while parsing an object at line 1, column 23. Nothing was run.");
        insta::assert_snapshot!(shown("text.count {\"path\": \"a\"} and more"), @"The call of text.count in line 1 is not right: `and more` stands after the JSON object. Nothing was run.");
        insta::assert_snapshot!(shown(&"files.list {}\n".repeat(65)), @"Those are 65 calls; at most 64 run at once. Nothing was run.");
    }
}
