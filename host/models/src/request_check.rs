//! Checks the rules that apply to every request to any provider. With these checks, the host detects its own bugs
//! before a provider rejects the request.

use crate::provider::ToolNameRules;
use agent_core::message::{Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::{ModelRequest, OfferedTool};
use std::collections::HashSet;

/// Maximum size of a tool description in bytes (P2).
const DESCRIPTION_LIMIT: usize = 2048;

/// Returns descriptions of the violated rules, or an empty list if the request is well-formed.
pub(crate) fn find_problems(request: &ModelRequest, tool_names: ToolNameRules) -> Vec<String> {
    let mut problems = Vec::new();
    if request.messages.is_empty() {
        problems.push("it has no messages".to_owned());
    }
    if request.max_tokens == 0 {
        problems.push("its `max_tokens` is 0".to_owned());
    }
    check_tools(&request.tools, tool_names, &mut problems);
    check_call_results(&request.messages, &mut problems);
    problems
}

fn check_tools(tools: &[OfferedTool], tool_names: ToolNameRules, problems: &mut Vec<String>) {
    let mut names = HashSet::new();
    for OfferedTool { name, description, input_schema, .. } in tools {
        if !tool_names.accepts(name) {
            problems.push(format!(
                "the tool name `{name}` is too long or contains characters that the provider does not allow"
            ));
        }
        if !names.insert(name) {
            problems.push(format!("the tool `{name}` is offered twice"));
        }
        if description.len() > DESCRIPTION_LIMIT {
            problems.push(format!("the description of tool `{name}` has {} bytes", description.len()));
        }
        if !input_schema.is_object() {
            problems.push(format!("the schema of tool `{name}` is not an object"));
        }
    }
}

/// Checks that every call has exactly one result, and that the results of the calls in a message directly follow this
/// message, in the order of the calls.
fn check_call_results(messages: &[Message], problems: &mut Vec<String>) {
    let mut unanswered: std::collections::VecDeque<&ToolCall> = Default::default();
    let mut ids = HashSet::new();
    for (position, message) in messages.iter().enumerate() {
        let position = position + 1;
        if message.role != Role::Tool {
            for call in unanswered.drain(..) {
                problems.push(format!("call {} of `{}` has no result before message {position}", call.id, call.name));
            }
        }
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if message.role == Role::Assistant => {
                    if !ids.insert(&call.id) {
                        problems.push(format!("message {position} has a second call with the id {}", call.id));
                    }
                    unanswered.push_back(call);
                }
                Part::ToolResult(result) if message.role == Role::Tool => match unanswered.pop_front() {
                    Some(call) => check_call_result(position, call, result, problems),
                    None => {
                        problems.push(format!("message {position} has a result of {} without its call", result.call_id))
                    }
                },
                Part::ToolCall(_) | Part::ToolResult(_) => {
                    problems.push(format!(
                        "message {position} has the role {} but contains a tool call or result",
                        message.role.as_str()
                    ));
                }
                _ if message.role == Role::Tool => {
                    problems
                        .push(format!("message {position} has the role tool but contains a part that is not a result"));
                }
                _ => {}
            }
        }
    }
    problems.extend(unanswered.iter().map(|call| format!("call {} of `{}` has no result", call.id, call.name)));
}

fn check_call_result(position: usize, call: &ToolCall, result: &ToolResult, problems: &mut Vec<String>) {
    if call.id != result.call_id {
        let (wanted, actual) = (&call.id, &result.call_id);
        problems
            .push(format!("message {position} has the result of {actual} where the result of {wanted} is expected"));
    } else if call.name != result.name {
        let (wanted, actual) = (&call.name, &result.name);
        problems
            .push(format!("the result of call {} names the tool `{actual}`, but the call names `{wanted}`", call.id));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use agent_core::message::{CallId, Content};
    use agent_core::model::Model;
    use agent_core::plugin::Lifecycle;
    use serde_json::{Value, json};

    /// Builds a request to a test model with the given messages and tools.
    pub(crate) fn request(messages: Vec<Message>, tools: Vec<OfferedTool>) -> ModelRequest {
        let model = Model { provider: "scripted".into(), name: "test".into(), window: 1000 };
        let system = vec!["You help.".to_owned()];
        ModelRequest {
            model,
            lifecycle: Lifecycle::Init,
            system,
            messages,
            downscaled: vec![],
            tools,
            output_schema: None,
            max_tokens: 1000,
        }
    }

    /// Builds a tool that a request offers. The provider sees the tool under the name `author_name`, with each `.`
    /// replaced by `_`. The runtime uses the same name unless two names collide.
    pub(crate) fn tool(author_name: &str, description: &str, input_schema: Value) -> OfferedTool {
        let name = author_name.replace('.', "_");
        OfferedTool { name, author_name: author_name.into(), description: description.into(), input_schema }
    }

    /// Builds an assistant message with the given calls, each of which is an id, a name and the arguments.
    pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Message {
        let part = |(id, name, arguments): &(&str, &str, Value)| {
            let (id, name) = (CallId((*id).into()), (*name).into());
            Part::ToolCall(ToolCall { id, name, arguments: arguments.clone() })
        };
        Message { role: Role::Assistant, parts: calls.iter().map(part).collect(), seen_count: 1 }
    }

    /// Builds a tool message with one result.
    pub(crate) fn result(id: &str, name: &str, content: Vec<Content>, is_error: bool) -> Message {
        let result = ToolResult { call_id: CallId(id.into()), name: name.into(), content, is_error };
        Message { role: Role::Tool, parts: vec![Part::ToolResult(result)], seen_count: 0 }
    }

    fn problems_of(messages: Vec<Message>) -> Vec<String> {
        find_problems(&request(messages, vec![]), ToolNameRules::COMMON)
    }

    fn user() -> Message {
        Message::text(Role::User, "go")
    }

    fn two_calls() -> Message {
        calls(&[("c1", "a", json!({})), ("c2", "b", json!({}))])
    }

    fn done(id: &str, name: &str) -> Message {
        result(id, name, vec![Content::Text("ok".into())], false)
    }

    #[test]
    fn calls_with_their_results_are_well_formed() {
        assert_eq!(
            problems_of(vec![user(), two_calls(), done("c1", "a"), done("c2", "b"), user()]),
            Vec::<String>::new()
        );
        let mut both_results = done("c1", "a");
        both_results.parts.extend(done("c2", "b").parts);
        assert_eq!(problems_of(vec![user(), two_calls(), both_results]), Vec::<String>::new());
    }

    #[test]
    fn calls_without_matching_results_are_reported() {
        let cases: Vec<(Vec<Message>, &str)> = vec![
            (vec![], "it has no messages"),
            (vec![user(), two_calls(), done("c1", "a")], "call c2 of `b` has no result"),
            (vec![user(), two_calls(), done("c1", "a"), user()], "call c2 of `b` has no result before message 4"),
            (vec![done("c1", "a")], "message 1 has a result of c1 without its call"),
            (
                vec![user(), two_calls(), done("c1", "a"), done("c2", "b"), done("c2", "b")],
                "message 5 has a result of c2 without its call",
            ),
            (
                vec![two_calls(), done("c2", "b"), done("c1", "a")],
                "message 2 has the result of c2 where the result of c1 is expected; \
                 message 3 has the result of c1 where the result of c2 is expected",
            ),
            (
                vec![two_calls(), done("c1", "x"), done("c2", "b")],
                "the result of call c1 names the tool `x`, but the call names `a`",
            ),
            (
                vec![two_calls(), done("c1", "a"), done("c2", "b"), calls(&[("c1", "a", json!({}))]), done("c1", "a")],
                "message 4 has a second call with the id c1",
            ),
            (
                vec![Message::text(Role::Tool, "x")],
                "message 1 has the role tool but contains a part that is not a result",
            ),
            (
                vec![Message { role: Role::User, ..two_calls() }],
                "message 1 has the role user but contains a tool call or result; \
                 message 1 has the role user but contains a tool call or result",
            ),
        ];
        for (messages, expected) in cases {
            assert_eq!(problems_of(messages).join("; "), expected);
        }
    }

    /// L14, P2: a tool is reported if its name is invalid or a duplicate, or if its description or schema is invalid.
    #[test]
    fn l14_invalid_tools_are_reported() {
        let mut tools = vec![tool("a.b", "", json!({})), tool("a_b", &"x".repeat(2049), json!([]))];
        tools.push(OfferedTool { name: "ä".into(), ..tool("x", "", json!({})) });
        let expected = "the tool `a_b` is offered twice; the description of tool `a_b` has 2049 bytes; \
                        the schema of tool `a_b` is not an object; \
                        the tool name `ä` is too long or contains characters that the provider does not allow";
        assert_eq!(find_problems(&request(vec![user()], tools), ToolNameRules::COMMON).join("; "), expected);
    }
}
