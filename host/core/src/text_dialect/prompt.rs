//! Prompts for models that write tool calls into their text (L20, L22): the list of tools, and the earlier calls as
//! text. Only the messages in the prompt are rewritten, not the stored messages.

use crate::message::{Content, Message, Part, Role, ToolResult};
use crate::model::OfferedTool;
use crate::plugin::{Section, Stability};
use crate::prompt::section;
use crate::tool::ToolSource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const LOCAL: &str = "local";
const MCP: &str = "mcp";
const SERVICE: &str = "service";

const HOW_TO_CALL: &str = r#"To call a tool, write this and nothing else on the line, outside of code blocks:
<tool>{"server_name": "SERVER", "tool_name": "NAME", "arguments": {}}</tool>
SERVER, NAME and the JSON Schema of the arguments stand below, a tool a line. Several calls in a reply are several such lines. The results come with the next message: wait for them."#;

/// The server and the name of a tool, in the form in which a model writes them if it writes its tool calls as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAddress {
    /// Where the host looks up the tool: `local`, `mcp`, the name of an MCP server, or `service`.
    pub server: String,
    /// Name of the tool. [`ToolAddress::new`] removes the name of the server from the name of an MCP tool.
    pub tool: String,
}

impl ToolAddress {
    /// Creates the address of a tool. `name` is the tool's name in the registry.
    pub fn new(name: &str, source: Option<&ToolSource>) -> Self {
        let (server, tool) = match source {
            Some(ToolSource::Mcp { server, .. }) => {
                let tool = name.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix('.'));
                (server.as_str(), tool.unwrap_or(name))
            }
            Some(ToolSource::Service { .. }) => (SERVICE, name),
            Some(ToolSource::Plugin { .. } | ToolSource::BuiltIn | ToolSource::Agent { .. } | ToolSource::Client)
            | None => (LOCAL, name),
        };
        Self { server: server.to_owned(), tool: tool.to_owned() }
    }

    /// Returns the two names that the tool with this address may have in the registry. The first name is the name in
    /// the address. The second name has the server's name as an additional prefix.
    pub fn names(&self) -> [String; 2] {
        [self.tool.clone(), format!("{}.{}", self.server, self.tool)]
    }

    /// Finds the tool to which the address refers. If the server in the address is `mcp`, the tool may belong to any
    /// MCP server. The address is ambiguous if several MCP servers have a tool with this name.
    pub fn among<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t ToolSource)> + Clone) -> ToolMatch<'t> {
        let covered = tools.filter(|(_, source)| self.covers(source));
        let named = |wanted: &String| covered.clone().map(|(name, _)| name).find(|name| name == wanted);
        if let Some(name) = self.names().iter().find_map(named) {
            return ToolMatch::One(name);
        }
        let candidates = covered
            .clone()
            .filter(|(name, source)| self.server == MCP && ToolAddress::new(name, Some(source)).tool == self.tool);
        let candidates: Vec<&str> = candidates.map(|(name, _)| name).collect();
        match candidates[..] {
            [] => ToolMatch::None,
            [name] => ToolMatch::One(name),
            _ => ToolMatch::Several(candidates),
        }
    }

    /// Whether this address can refer to a tool from this source.
    pub fn covers(&self, source: &ToolSource) -> bool {
        match source {
            ToolSource::Mcp { server, .. } => self.server == MCP || self.server == *server,
            ToolSource::Service { .. } => self.server == SERVICE,
            ToolSource::Plugin { .. } | ToolSource::BuiltIn | ToolSource::Agent { .. } | ToolSource::Client => {
                self.server == LOCAL
            }
        }
    }
}

/// The result of looking up an address among the tools of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolMatch<'t> {
    /// The address refers to the tool with this name.
    One(&'t str),
    /// The address is ambiguous: it refers to the tools with these names.
    Several(Vec<&'t str>),
    /// No tool has this address.
    None,
}

/// Returns the sections of the turn's message that list the tools. The tools of MCP servers have their own section. The
/// first section begins with instructions for calling a tool.
pub fn schema_sections<'t>(tools: impl Iterator<Item = (&'t OfferedTool, Option<&'t ToolSource>)>) -> Vec<Section> {
    let (mut other_lines, mut mcp_lines) = (Vec::new(), Vec::new());
    for (tool, source) in tools {
        let address = ToolAddress::new(&tool.author_name, source);
        let line = json!({
            "server_name": address.server,
            "tool_name": address.tool,
            "description": tool.description,
            "arguments": tool.input_schema,
        });
        let lines = if matches!(source, Some(ToolSource::Mcp { .. })) { &mut mcp_lines } else { &mut other_lines };
        lines.push(line.to_string());
    }
    let sections = [(section::TOOL_SCHEMAS, other_lines), (section::MCP_TOOL_SCHEMAS, mcp_lines)];
    let sections = sections.into_iter().filter(|(_, lines)| !lines.is_empty());
    let sections = sections.enumerate().map(|(index, (name, lines))| {
        let text = if index == 0 { format!("{HOW_TO_CALL}\n\n{}", lines.join("\n")) } else { lines.join("\n") };
        Section { name: name.to_owned(), text, stability: Stability::Fixed }
    });
    sections.collect()
}

/// Writes a call in the syntax of [`ToolDialect::Text`](super::ToolDialect::Text).
pub fn written_call(address: &ToolAddress, arguments: &Value) -> String {
    let call = json!({"server_name": address.server, "tool_name": address.tool, "arguments": arguments});
    format!("<tool>{call}</tool>")
}

/// Rewrites all calls and results in messages as text. A call is written in the syntax that the model must use. The
/// results of all calls of one reply become one message with the role `user`.
pub fn calls_as_text(messages: Vec<Message>, address: &dyn Fn(&str) -> ToolAddress) -> Vec<Message> {
    let mut shown: Vec<Message> = Vec::with_capacity(messages.len());
    let mut previous_role = None;
    for mut message in messages {
        let role = message.role;
        message.parts = message.parts.into_iter().flat_map(|part| part_as_text(part, address)).collect();
        match (shown.last_mut(), role) {
            (Some(last), Role::Tool) if previous_role == Some(Role::Tool) => last.parts.append(&mut message.parts),
            (_, Role::Tool) => shown.push(Message { role: Role::User, ..message }),
            _ => shown.push(message),
        }
        previous_role = Some(role);
    }
    shown
}

fn part_as_text(part: Part, address: &dyn Fn(&str) -> ToolAddress) -> Vec<Part> {
    match part {
        Part::ToolCall(call) => vec![Part::Text(written_call(&address(&call.name), &call.arguments))],
        Part::ToolResult(result) => result_as_text(result, address),
        other => vec![other],
    }
}

fn result_as_text(result: ToolResult, address: &dyn Fn(&str) -> ToolAddress) -> Vec<Part> {
    let ToolAddress { server, tool } = address(&result.name);
    let word = if result.is_error { "Error" } else { "Result" };
    let head = format!("{word} of `{tool}` ({server}), call_id {}:", result.call_id);
    let content = result.content.into_iter().map(|content| match content {
        Content::Text(text) => Part::Text(text),
        Content::Json(json) => Part::Text(json.to_string()),
        Content::Media(media) => Part::Media(media),
    });
    std::iter::once(Part::Text(head)).chain(content).collect()
}
