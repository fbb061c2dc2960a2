//! Prompts for models that call tools in their text: the list of tools, and earlier calls as text (L20, L22). They
//! only change what is sent.

use crate::message::{Content, Message, Part, Role, ToolResult};
use crate::model::OfferedTool;
use crate::plugin::{Section, Stability};
use crate::prompt::section;
use crate::tool::ToolSource;
use serde_json::{Value, json};

const LOCAL: &str = "local";
const MCP: &str = "mcp";
const SERVICE: &str = "service";

const HOW_TO_CALL: &str = r#"To call a tool, write this and nothing else on the line, outside of code blocks:
<tool>{"server_name": "SERVER", "tool_name": "NAME", "arguments": {}}</tool>
SERVER, NAME and the JSON Schema of the arguments stand below, a tool a line. Several calls in a reply are several such lines. The results come with the next message: wait for them."#;

/// The address under which such a model finds a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAddress {
    /// `local`, an MCP server's name, or `service`.
    pub server: String,
    /// Name of the tool there. For an MCP tool, it does not contain the server.
    pub tool: String,
}

impl ToolAddress {
    /// The address of a tool in the registry.
    pub fn new(name: &str, source: Option<&ToolSource>) -> Self {
        let (server, tool) = match source {
            Some(ToolSource::Mcp { server, .. }) => {
                let tool = name.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix('.'));
                (server.as_str(), tool.unwrap_or(name))
            }
            Some(ToolSource::Service { .. }) => (SERVICE, name),
            Some(ToolSource::Plugin { .. } | ToolSource::BuiltIn | ToolSource::Agent { .. }) | None => (LOCAL, name),
        };
        Self { server: server.to_owned(), tool: tool.to_owned() }
    }

    /// Names in the registry that the address may refer to: the tool's own, and with its server as prefix.
    pub fn names(&self) -> [String; 2] {
        [self.tool.clone(), format!("{}.{}", self.server, self.tool)]
    }

    /// Finds the tool that the address refers to: the one with its name or, if the address is `mcp` without a server,
    /// the only tool with that name on any server.
    pub fn among<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t ToolSource)> + Clone) -> ToolMatch<'t> {
        let covered = tools.filter(|(_, source)| self.covers(source));
        let named = |wanted: &String| covered.clone().map(|(name, _)| name).find(|name| name == wanted);
        if let Some(name) = self.names().iter().find_map(named) {
            return ToolMatch::One(name);
        }
        let of_any = covered
            .clone()
            .filter(|(name, source)| self.server == MCP && ToolAddress::new(name, Some(source)).tool == self.tool);
        let of_any: Vec<&str> = of_any.map(|(name, _)| name).collect();
        match of_any[..] {
            [] => ToolMatch::None,
            [name] => ToolMatch::One(name),
            _ => ToolMatch::Several(of_any),
        }
    }

    /// Whether a tool with this source is looked up under this address.
    pub fn covers(&self, source: &ToolSource) -> bool {
        match source {
            ToolSource::Mcp { server, .. } => self.server == MCP || self.server == *server,
            ToolSource::Service { .. } => self.server == SERVICE,
            ToolSource::Plugin { .. } | ToolSource::BuiltIn | ToolSource::Agent { .. } => self.server == LOCAL,
        }
    }
}

/// The tools in a registry that an address refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolMatch<'t> {
    /// Exactly this tool.
    One(&'t str),
    /// Several tools, so the address is ambiguous.
    Several(Vec<&'t str>),
    /// No tool.
    None,
}

/// Lists the tools in sections of the turn's message, with those of MCP servers in their own section. The first
/// section begins with instructions for calling a tool.
pub fn schema_sections<'t>(tools: impl Iterator<Item = (&'t OfferedTool, Option<&'t ToolSource>)>) -> Vec<Section> {
    let (mut own, mut mcp) = (Vec::new(), Vec::new());
    for (tool, source) in tools {
        let address = ToolAddress::new(&tool.author_name, source);
        let line = json!({
            "server_name": address.server,
            "tool_name": address.tool,
            "description": tool.description,
            "arguments": tool.input_schema,
        });
        let lines = if matches!(source, Some(ToolSource::Mcp { .. })) { &mut mcp } else { &mut own };
        lines.push(line.to_string());
    }
    let sections = [(section::TOOL_SCHEMAS, own), (section::MCP_TOOL_SCHEMAS, mcp)];
    let sections = sections.into_iter().filter(|(_, lines)| !lines.is_empty());
    let sections = sections.enumerate().map(|(index, (name, lines))| {
        let text = if index == 0 { format!("{HOW_TO_CALL}\n\n{}", lines.join("\n")) } else { lines.join("\n") };
        Section { name: name.to_owned(), text, stability: Stability::Fixed }
    });
    sections.collect()
}

/// A call as a model of this dialect writes it.
pub fn written_call(address: &ToolAddress, arguments: &Value) -> String {
    let call = json!({"server_name": address.server, "tool_name": address.tool, "arguments": arguments});
    format!("<tool>{call}</tool>")
}

/// Rewrites all calls and results in messages as text: calls in the model's syntax, and the results of one reply as
/// one message with role `user`.
pub fn calls_as_text(messages: Vec<Message>, address: &dyn Fn(&str) -> ToolAddress) -> Vec<Message> {
    let mut shown: Vec<Message> = Vec::with_capacity(messages.len());
    let mut before = None;
    for mut message in messages {
        let role = message.role;
        message.parts = message.parts.into_iter().flat_map(|part| part_as_text(part, address)).collect();
        match (shown.last_mut(), role) {
            (Some(last), Role::Tool) if before == Some(Role::Tool) => last.parts.append(&mut message.parts),
            (_, Role::Tool) => shown.push(Message { role: Role::User, ..message }),
            _ => shown.push(message),
        }
        before = Some(role);
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
