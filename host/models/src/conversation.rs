//! What holds for every request, whatever the provider: the host's own faults are found here, not at a provider.

use crate::provider::ToolNames;
use agent_core::message::{Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::{ModelRequest, OfferedTool};
use std::collections::HashSet;

/// Most bytes of a tool's description (P2).
const DESCRIPTION_LIMIT: usize = 2048;

/// What is broken in the request; nothing where it is well formed.
pub(crate) fn problems(request: &ModelRequest, tool_names: ToolNames) -> Vec<String> {
    let mut problems = Vec::new();
    if request.messages.is_empty() {
        problems.push("it has no message".to_owned());
    }
    if request.max_tokens == 0 {
        problems.push("its reply may have no token".to_owned());
    }
    check_tools(&request.tools, tool_names, &mut problems);
    check_pairs(&request.messages, &mut problems);
    problems
}

fn check_tools(tools: &[OfferedTool], tool_names: ToolNames, problems: &mut Vec<String>) {
    let mut names = HashSet::new();
    for OfferedTool { name, description, input_schema, .. } in tools {
        if !tool_names.accepts(name) {
            problems.push(format!("the tool name `{name}` is not in the provider's alphabet, or too long"));
        }
        if !names.insert(name) {
            problems.push(format!("the tool `{name}` is offered twice"));
        }
        if description.len() > DESCRIPTION_LIMIT {
            problems.push(format!("the description of tool `{name}` has {} bytes", description.len()));
        }
        if !input_schema.is_object() {
            problems.push(format!("the schema of tool `{name}` is no object"));
        }
    }
}

/// Every call has exactly one result, which follows in call order before anybody else speaks.
fn check_pairs(messages: &[Message], problems: &mut Vec<String>) {
    let mut open: std::collections::VecDeque<&ToolCall> = Default::default();
    let mut ids = HashSet::new();
    for (place, message) in messages.iter().enumerate() {
        let place = place + 1;
        if message.role != Role::Tool {
            for call in open.drain(..) {
                problems.push(format!("call {} of `{}` has no result before message {place}", call.id, call.name));
            }
        }
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if message.role == Role::Assistant => {
                    if !ids.insert(&call.id) {
                        problems.push(format!("message {place} has a second call {}", call.id));
                    }
                    open.push_back(call);
                }
                Part::ToolResult(result) if message.role == Role::Tool => match open.pop_front() {
                    Some(call) => check_pair(place, call, result, problems),
                    None => {
                        problems.push(format!("message {place} has a result of {} without its call", result.call_id))
                    }
                },
                Part::ToolCall(_) | Part::ToolResult(_) => {
                    problems.push(format!("message {place} of {} has a tool call or result", message.role.as_str()));
                }
                _ if message.role == Role::Tool => {
                    problems.push(format!("message {place} of tool has a part that is no result"));
                }
                _ => {}
            }
        }
    }
    let unanswered = open.iter().map(|call| format!("call {} of `{}` has no result", call.id, call.name));
    problems.extend(unanswered);
}

fn check_pair(place: usize, call: &ToolCall, result: &ToolResult, problems: &mut Vec<String>) {
    if call.id != result.call_id {
        let (wanted, found) = (&call.id, &result.call_id);
        problems.push(format!("message {place} has the result of {found} where that of {wanted} is due"));
    } else if call.name != result.name {
        let (wanted, found) = (&call.name, &result.name);
        problems.push(format!("the result of call {} is named `{found}`, the call `{wanted}`", call.id));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use agent_core::message::{CallId, Content};
    use agent_core::model::Model;
    use agent_core::plugin::Lifecycle;
    use serde_json::{Value, json};

    /// A request of these messages to a model of the tests.
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

    /// An offered tool whose name is translated as the runtime does where nothing collides.
    pub(crate) fn tool(author_name: &str, description: &str, input_schema: Value) -> OfferedTool {
        let name = author_name.replace('.', "_");
        OfferedTool { name, author_name: author_name.into(), description: description.into(), input_schema }
    }

    /// The assistant's message of these calls `(id, name, arguments)`.
    pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Message {
        let part = |(id, name, arguments): &(&str, &str, Value)| {
            let (id, name) = (CallId((*id).into()), (*name).into());
            Part::ToolCall(ToolCall { id, name, arguments: arguments.clone() })
        };
        Message { role: Role::Assistant, parts: calls.iter().map(part).collect(), seen_count: 1 }
    }

    /// The message of one result.
    pub(crate) fn result(id: &str, name: &str, content: Vec<Content>, is_error: bool) -> Message {
        let result = ToolResult { call_id: CallId(id.into()), name: name.into(), content, is_error };
        Message { role: Role::Tool, parts: vec![Part::ToolResult(result)], seen_count: 0 }
    }

    fn found(messages: Vec<Message>) -> Vec<String> {
        problems(&request(messages, vec![]), ToolNames::COMMON)
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
    fn whole_pairs_are_well_formed() {
        assert_eq!(found(vec![user(), two_calls(), done("c1", "a"), done("c2", "b"), user()]), Vec::<String>::new());
        let mut both = done("c1", "a");
        both.parts.extend(done("c2", "b").parts);
        assert_eq!(found(vec![user(), two_calls(), both]), Vec::<String>::new());
    }

    /// Invariant 3 of the design: every tool call has exactly one result.
    #[test]
    fn broken_pairs_are_named() {
        let cases: Vec<(Vec<Message>, &str)> = vec![
            (vec![], "it has no message"),
            (vec![user(), two_calls(), done("c1", "a")], "call c2 of `b` has no result"),
            (vec![user(), two_calls(), done("c1", "a"), user()], "call c2 of `b` has no result before message 4"),
            (vec![done("c1", "a")], "message 1 has a result of c1 without its call"),
            (
                vec![user(), two_calls(), done("c1", "a"), done("c2", "b"), done("c2", "b")],
                "message 5 has a result of c2 without its call",
            ),
            (
                vec![two_calls(), done("c2", "b"), done("c1", "a")],
                "message 2 has the result of c2 where that of c1 is due; \
                 message 3 has the result of c1 where that of c2 is due",
            ),
            (vec![two_calls(), done("c1", "x"), done("c2", "b")], "the result of call c1 is named `x`, the call `a`"),
            (
                vec![two_calls(), done("c1", "a"), done("c2", "b"), calls(&[("c1", "a", json!({}))]), done("c1", "a")],
                "message 4 has a second call c1",
            ),
            (vec![Message::text(Role::Tool, "x")], "message 1 of tool has a part that is no result"),
            (
                vec![Message { role: Role::User, ..two_calls() }],
                "message 1 of user has a tool call or result; message 1 of user has a tool call or result",
            ),
        ];
        for (messages, expected) in cases {
            assert_eq!(found(messages).join("; "), expected);
        }
    }

    /// L14, P2
    #[test]
    fn tools_are_named_in_the_alphabet_and_once() {
        let mut tools = vec![tool("a.b", "", json!({})), tool("a_b", &"x".repeat(2049), json!([]))];
        tools.push(OfferedTool { name: "ä".into(), ..tool("x", "", json!({})) });
        let expected = "the tool `a_b` is offered twice; the description of tool `a_b` has 2049 bytes; \
                        the schema of tool `a_b` is no object; \
                        the tool name `ä` is not in the provider's alphabet, or too long";
        assert_eq!(problems(&request(vec![user()], tools), ToolNames::COMMON).join("; "), expected);
    }
}
