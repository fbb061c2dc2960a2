//! Expectations that a script can define for each of its replies. The request for a reply must meet the expectations
//! that the script defines for the reply.

use agent_core::message::{Content, Message, Part, Role};
use agent_core::model::ModelRequest;
use agent_core::plugin::Lifecycle;
use serde::Deserialize;
use std::fmt::Debug;

/// Maximum length, in characters, of a text that an error message quotes from a request.
const MAX_EXCERPT_CHARACTERS: usize = 300;

/// Expectations about a request. The request must match each field that the script sets. Fields that the script does
/// not set are not checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expectation {
    /// Expected reason for which the host built the prompt (L2).
    lifecycle: Option<Lifecycle>,
    /// Exact number of messages that the request must contain.
    messages: Option<usize>,
    /// Roles that the messages of the request must have, in order.
    roles: Option<Vec<Role>>,
    /// The `seen_count` that each message must have (L3), in the order of the messages.
    seen_counts: Option<Vec<u32>>,
    /// Names of all tools that the request must offer, in any order. The names are spelled as the tools' authors wrote
    /// them. If the list is empty, the request must not offer any tools.
    tools: Option<Vec<String>>,
    /// Names of tools that the request must offer.
    offers: Texts,
    /// Names of tools that the request must not offer.
    withholds: Texts,
    /// Texts that the last message must contain.
    last_contains: Texts,
    /// Texts that at least one message must contain.
    contains: Texts,
    /// Texts that no message may contain.
    lacks: Texts,
    /// Texts that the system text must contain.
    system_contains: Texts,
    /// Whether the request must have an output schema (L12).
    output_schema: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Default for Texts {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Texts {
    fn iter(&self) -> std::slice::Iter<'_, String> {
        match self {
            Self::One(text) => std::slice::from_ref(text).iter(),
            Self::Several(texts) => texts.iter(),
        }
    }
}

impl Expectation {
    /// Returns descriptions of the failed expectations, each with the expected and the actual value.
    pub(crate) fn problems(&self, request: &ModelRequest) -> Vec<String> {
        let messages = &request.messages;
        let mut problems = Vec::new();
        check_equal("lifecycle", &self.lifecycle, request.lifecycle, &mut problems);
        check_equal("messages", &self.messages, messages.len(), &mut problems);
        check_equal("roles", &self.roles, messages.iter().map(|message| message.role).collect(), &mut problems);
        check_equal(
            "seen_counts",
            &self.seen_counts,
            messages.iter().map(|message| message.seen_count).collect(),
            &mut problems,
        );
        check_equal("output_schema", &self.output_schema, request.output_schema.is_some(), &mut problems);
        self.check_tools(request, &mut problems);
        self.check_texts(request, &mut problems);
        problems
    }

    fn check_tools(&self, request: &ModelRequest, problems: &mut Vec<String>) {
        let mut offered: Vec<&str> = request.tools.iter().map(|tool| tool.author_name.as_str()).collect();
        offered.sort_unstable();
        if let Some(tools) = &self.tools {
            let mut tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            tools.sort_unstable();
            check_equal("tools", &Some(tools), offered.clone(), problems);
        }
        for name in self.offers.iter().filter(|name| !offered.contains(&name.as_str())) {
            problems.push(format!("offers: expected tool `{name}`, found {offered:?}"));
        }
        for name in self.withholds.iter().filter(|name| offered.contains(&name.as_str())) {
            problems.push(format!("withholds: expected no tool `{name}`, found {offered:?}"));
        }
    }

    fn check_texts(&self, request: &ModelRequest, problems: &mut Vec<String>) {
        let texts: Vec<String> = request.messages.iter().map(message_text).collect();
        let last = texts.last().map_or("", String::as_str);
        let (conversation, system) = (texts.join("\n"), request.system.join("\n\n"));
        let expected = [
            ("last_contains", &self.last_contains, last),
            ("contains", &self.contains, conversation.as_str()),
            ("system_contains", &self.system_contains, system.as_str()),
        ];
        for (key, wanted, found) in expected {
            for wanted in wanted.iter().filter(|wanted| !found.contains(wanted.as_str())) {
                problems.push(format!("{key}: expected {wanted:?}, found {:?}", excerpt(found)));
            }
        }
        for unwanted in self.lacks.iter().filter(|unwanted| conversation.contains(unwanted.as_str())) {
            problems.push(format!("lacks: expected no {unwanted:?}, found it in {:?}", excerpt(&conversation)));
        }
    }
}

fn check_equal<T: PartialEq + Debug>(key: &str, expected: &Option<T>, found: T, problems: &mut Vec<String>) {
    if let Some(expected) = expected.as_ref().filter(|expected| **expected != found) {
        problems.push(format!("{key}: expected {expected:?}, found {found:?}"));
    }
}

/// Returns all parts of a message that a model reads as text, including tool calls and their results.
fn message_text(message: &Message) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::Preface(text) => text.clone(),
        Part::Json(json) => json.to_string(),
        Part::Media(media) => media.digest.to_string(),
        Part::ToolCall(call) => format!("{} {}", call.name, call.arguments),
        Part::Replay(_) => String::new(),
        Part::ToolResult(result) => result.content.iter().map(content_text).collect::<Vec<_>>().join("\n"),
    };
    message.parts.iter().map(part).collect::<Vec<_>>().join("\n")
}

fn content_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => json.to_string(),
        Content::Media(media) => media.digest.to_string(),
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_check::tests::{calls, request, result, tool};
    use serde_json::json;

    fn problems(expectation: serde_json::Value) -> String {
        let messages = vec![
            Message { seen_count: 1, ..Message::text(Role::User, "count them") },
            calls(&[("c1", "text.count", json!({"path": "a"}))]),
            result("c1", "text.count", vec![Content::Text("42".into()), Content::Json(json!({"n": 42}))], false),
        ];
        let request = request(messages, vec![tool("text.count", "", json!({})), tool("calc", "", json!({}))]);
        let expectation: Expectation = serde_json::from_value(expectation).unwrap();
        expectation.problems(&request).join("; ")
    }

    #[test]
    fn met_expectations_are_not_reported() {
        let cases = [
            json!({}),
            json!({"lifecycle": "init", "messages": 3, "roles": ["user", "assistant", "tool"], "seen_counts": [1, 1, 0]}),
            json!({"tools": ["text.count", "calc"], "offers": "calc", "withholds": ["files.read"]}),
            json!({"last_contains": ["42", "{\"n\":42}"], "contains": "text.count {\"path\":\"a\"}", "lacks": "secret"}),
            json!({"system_contains": "You help", "output_schema": false}),
        ];
        for case in cases {
            assert_eq!(problems(case.clone()), "", "{case}");
        }
    }

    #[test]
    fn failed_expectations_are_reported() {
        let cases = [
            (json!({"lifecycle": "tool_result"}), "lifecycle: expected ToolResult, found Init"),
            (json!({"messages": 2}), "messages: expected 2, found 3"),
            (json!({"seen_counts": [1, 1, 1]}), "seen_counts: expected [1, 1, 1], found [1, 1, 0]"),
            (json!({"roles": ["user"]}), "roles: expected [User], found [User, Assistant, Tool]"),
            (json!({"tools": []}), r#"tools: expected [], found ["calc", "text.count"]"#),
            (json!({"offers": "x"}), r#"offers: expected tool `x`, found ["calc", "text.count"]"#),
            (json!({"withholds": "calc"}), r#"withholds: expected no tool `calc`, found ["calc", "text.count"]"#),
            (json!({"last_contains": "43"}), r#"last_contains: expected "43", found "42\n{\"n\":42}""#),
            (json!({"system_contains": "x"}), r#"system_contains: expected "x", found "You help.""#),
            (json!({"output_schema": true}), "output_schema: expected true, found false"),
        ];
        for (case, expected) in cases {
            assert_eq!(problems(case), expected);
        }
        assert!(problems(json!({"contains": "moon"})).starts_with(r#"contains: expected "moon", found "count them\n"#));
        assert!(problems(json!({"lacks": "42"})).starts_with(r#"lacks: expected no "42", found it in "#));
        assert_eq!(problems(json!({"messages": 1, "offers": ["x", "y"]})).matches("; ").count(), 2);
    }
}
