//! Reads the tool lists of servers up to the configured limits, and converts the tools of the servers to the host's
//! tool definitions.

use crate::configuration::{McpLimits, ServerConfig, ToolSelection};
use crate::error::{McpError, printable};
use agent_core::schema::Schema;
use agent_core::tool::{ToolDefinition, Traits};
use rmcp::RoleClient;
use rmcp::model::{PaginatedRequestParams, Tool, ToolAnnotations};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum length of a tool name in bytes (P2), including the name of its server and the dot after it.
const MAX_NAME_BYTES: usize = 128;
/// Maximum length of a tool's title, and of a tool name that a message quotes, in characters.
const MAX_DISPLAYED_CHARACTERS: usize = 100;
/// Maximum number of tools that a message lists.
const MAX_LISTED_TOOLS: usize = 20;

/// A tool that an MCP server provides and the host offers.
#[derive(Clone, Debug, PartialEq)]
pub struct McpTool {
    /// Name that the configuration gives to the server.
    pub server: String,
    /// Name of the tool as the server spells it, without the server's name as prefix.
    pub remote_name: String,
    /// Definition with which the host offers the tool. Its name is `server.tool`, in which `_` replaces each character
    /// that the host does not allow in tool names.
    pub definition: ToolDefinition,
}

/// Immutable snapshot of the tools of all servers, with the reasons why other servers or tools are missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// Tools of all servers, keyed by the name under which the host offers the tool.
    tools: BTreeMap<String, McpTool>,
    /// Reasons why servers or tools are missing from `tools`, ordered by server.
    problems: Vec<McpError>,
}

impl Catalogue {
    /// Returns all tools, ordered by name.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &McpTool> {
        self.tools.values()
    }

    /// Returns the tool that the host offers under `name`, if there is one.
    pub fn tool(&self, name: &str) -> Option<&McpTool> {
        self.tools.get(name)
    }

    /// Returns the reasons why servers or tools are missing from this catalogue, ordered by server.
    pub fn problems(&self) -> &[McpError] {
        &self.problems
    }

    pub(crate) fn add(&mut self, listing: &Listing) {
        self.tools.extend(listing.tools.iter().map(|tool| (tool.definition.name.clone(), tool.clone())));
        self.problems.extend(listing.problems.iter().cloned());
    }

    pub(crate) fn add_problem(&mut self, problem: McpError) {
        self.problems.push(problem);
    }
}

/// The tools that one server offers, and the reasons why other tools of the server are left out.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<McpTool>,
    pub(crate) problems: Vec<McpError>,
}

/// Reads the tool list of a server.
pub(crate) async fn read_tool_list(peer: &Peer<RoleClient>, config: &ServerConfig) -> Result<Listing, ServiceError> {
    let info = peer.peer_info();
    if info.is_some_and(|info| info.capabilities.tools.is_none()) {
        let reason = "it offers no tools".to_owned();
        return Ok(Listing {
            tools: Vec::new(),
            problems: vec![McpError::IncompleteList { server: config.name.clone(), reason }],
        });
    }
    let limits = &config.limits;
    let (mut tools, mut bytes, mut pages, mut truncated) = (Vec::new(), 0, 0, None);
    let mut cursor: Option<String> = None;
    loop {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor.clone()))).await?;
        pages += 1;
        for tool in page.tools {
            bytes += json_size(&tool);
            truncated = truncated.or(exceeded_limit(limits, tools.len(), bytes));
            if truncated.is_none() {
                tools.push(tool);
            }
        }
        let next_cursor = page.next_cursor.filter(|next| !next.is_empty());
        match next_cursor {
            _ if truncated.is_some() => break,
            None => break,
            Some(next) if cursor.as_ref() == Some(&next) => {
                truncated = Some("the last page of its tool list refers to itself as the next page".to_owned());
                break;
            }
            Some(_) if pages == limits.pages => {
                truncated = Some(format!("its tool list has more than {pages} pages"));
                break;
            }
            Some(next) => cursor = Some(next),
        }
    }
    let mut listing = read_tools(tools, config);
    listing.problems.extend(truncated.map(|reason| McpError::IncompleteList { server: config.name.clone(), reason }));
    Ok(listing)
}

/// Returns a description of the limit that the next tool would exceed, or `None` if the tool fits. `tools` is the
/// number of earlier tools, and `bytes` is the total size including the next tool.
fn exceeded_limit(limits: &McpLimits, tools: usize, bytes: usize) -> Option<String> {
    if tools == limits.tools {
        return Some(format!("it has more than {tools} tools"));
    }
    (bytes > limits.catalogue_bytes)
        .then(|| format!("the definitions of its tools have more than {} bytes in total", limits.catalogue_bytes))
}

/// Returns the size of a tool as JSON, in bytes.
fn json_size(tool: &Tool) -> usize {
    serde_json::to_string(tool).map_or(0, |json| json.len())
}

/// Converts the tools that the server lists. Invalid tools are left out, and the returned listing contains a problem
/// for each of them.
fn read_tools(tools: Vec<Tool>, config: &ServerConfig) -> Listing {
    let mut listing = Listing::default();
    let problem = |tool: &str, reason: String| McpError::SkippedTool {
        server: config.name.clone(),
        tool: printable(tool, MAX_DISPLAYED_CHARACTERS),
        reason,
    };
    let selected = match &config.tools {
        ToolSelection::All => tools,
        ToolSelection::Only(names) => {
            let existing: Vec<String> = tools.iter().map(|tool| tool.name.to_string()).collect();
            let missing = names.iter().filter(|name| !existing.contains(name));
            listing.problems.extend(missing.map(|name| problem(name, missing_tool(&existing))));
            tools.into_iter().filter(|tool| names.iter().any(|name| *name == tool.name)).collect()
        }
    };
    let mut by_name: BTreeMap<String, Vec<McpTool>> = BTreeMap::new();
    for tool in selected {
        match McpTool::read(&tool, config) {
            Ok(tool) => by_name.entry(tool.definition.name.clone()).or_default().push(tool),
            Err(reason) => listing.problems.push(problem(&tool.name, reason)),
        }
    }
    for (name, mut tools) in by_name {
        match tools.len() {
            1 => listing.tools.append(&mut tools),
            // The host offers none of the tools with the same name, because a call with this name could mean any of
            // them (row 18).
            _ => {
                let names: Vec<String> = tools
                    .iter()
                    .map(|tool| format!("`{}`", printable(&tool.remote_name, MAX_DISPLAYED_CHARACTERS)))
                    .collect();
                let reason = format!(
                    "{} of its tools have the same name `{name}` in the host: {}",
                    tools.len(),
                    names.join(" and ")
                );
                listing.problems.push(problem(&tools[0].remote_name, reason));
            }
        }
    }
    listing
}

fn missing_tool(names: &[String]) -> String {
    let existing: Vec<String> =
        names.iter().take(MAX_LISTED_TOOLS).map(|name| printable(name, MAX_DISPLAYED_CHARACTERS)).collect();
    let more = if names.len() > MAX_LISTED_TOOLS { " …" } else { "" };
    let existing = existing.join(", ");
    format!("it is listed in `tools`, but the server has no tool with this name; its tools are {existing}{more}")
}

impl McpTool {
    fn read(tool: &Tool, config: &ServerConfig) -> Result<Self, String> {
        let limits = &config.limits;
        let name = format!("{}.{}", config.name, to_allowed_characters(&tool.name));
        if tool.name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(format!(
                "its name is empty, or has more than {MAX_NAME_BYTES} characters including the server name"
            ));
        }
        let input_schema = Value::Object(tool.input_schema.as_ref().clone());
        let output_schema = tool.output_schema.as_ref().map(|schema| Value::Object(schema.as_ref().clone()));
        for (kind, schema) in [("input", Some(&input_schema)), ("output", output_schema.as_ref())] {
            let Some(schema) = schema else { continue };
            if is_deeper(schema, limits.schema_depth) {
                return Err(format!("its {kind} schema is nested more than {} levels deep", limits.schema_depth));
            }
            Schema::compile(schema).map_err(|error| format!("its {kind} schema: {error}"))?;
        }
        let title = tool.title.as_deref().or(tool.annotations.as_ref().and_then(|hints| hints.title.as_deref()));
        let definition = ToolDefinition {
            name,
            title: title.map(|title| printable(title, MAX_DISPLAYED_CHARACTERS)),
            description: truncate(tool.description.as_deref().unwrap_or_default(), limits.description_bytes),
            input_schema,
            output_schema,
            traits: traits(tool.annotations.as_ref()),
            priority: 0,
        };
        Ok(Self { server: config.name.clone(), remote_name: tool.name.to_string(), definition })
    }
}

/// Converts the hints that a server gives about a tool to traits. The hints can contradict each other, so a tool that
/// may be destructive never counts as read-only.
fn traits(hints: Option<&ToolAnnotations>) -> Traits {
    let hint = |field: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(field);
    let destructive = hint(|hints| hints.destructive_hint);
    let read_only = hint(|hints| hints.read_only_hint) == Some(true) && destructive != Some(true);
    Traits {
        read_only,
        destructive: !read_only && destructive.unwrap_or(true),
        idempotent: hint(|hints| hints.idempotent_hint) == Some(true),
        open_world: hint(|hints| hints.open_world_hint).unwrap_or(true),
        ..Traits::default()
    }
}

/// Replaces each character that the host does not allow in tool names with `_`.
fn to_allowed_characters(name: &str) -> String {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    name.chars().map(|char| if is_allowed(char) { char } else { '_' }).collect()
}

/// Truncates the text to at most `bytes` bytes at a character boundary.
fn truncate(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes.min(text.len()))].to_owned()
}

/// Returns whether the arrays and objects in `value` are nested more than `levels` levels deep.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let exceeds = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(items) => items.iter().any(exceeds) || levels == 0,
        Value::Object(fields) => fields.values().any(exceeds) || levels == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{ChildCommand, Transport};
    use serde_json::json;

    fn config() -> ServerConfig {
        ServerConfig::new("desk", Transport::Stdio(ChildCommand::default()))
    }

    fn tool(json: Value) -> Tool {
        serde_json::from_value(json).unwrap()
    }

    fn named(name: &str) -> Tool {
        tool(json!({"name": name, "inputSchema": {"type": "object"}}))
    }

    fn tool_names(listing: &Listing) -> Vec<&str> {
        listing.tools.iter().map(|tool| tool.definition.name.as_str()).collect()
    }

    #[test]
    fn l7_tool_names_have_the_server_as_prefix_and_allowed_characters_only() {
        let listing = read_tools(vec![named("read file"), named("notes/list.all")], &config());
        assert_eq!(tool_names(&listing), ["desk.notes_list.all", "desk.read_file"]);
        assert_eq!(listing.tools[1].remote_name, "read file");
        let listing = read_tools(vec![named(&"x".repeat(124)), named("")], &config());
        assert!(listing.tools.is_empty() && listing.problems.len() == 2, "{listing:?}");
    }

    /// Row 18: if two tools of a server get the same name in the host, the host offers neither of them and reports both
    /// names that the server uses.
    #[test]
    fn l7_tools_with_colliding_names_are_rejected_and_both_are_named() {
        let listing = read_tools(vec![named("a b"), named("ok"), named("a_b")], &config());
        assert_eq!(tool_names(&listing), ["desk.ok"]);
        let message = listing.problems[0].to_string();
        assert!(message.contains("`a b`") && message.contains("`a_b`") && message.contains("desk"), "{message}");
    }

    #[test]
    fn p2_annotations_are_converted_to_traits() {
        let traits_of = |hints: Value| traits(Some(&serde_json::from_value(hints).unwrap()));
        let without_hints = traits(None);
        assert!(
            without_hints.destructive
                && without_hints.open_world
                && !without_hints.read_only
                && !without_hints.repeatable()
        );
        let read_only = traits_of(json!({"readOnlyHint": true, "openWorldHint": false}));
        assert!(read_only.read_only && !read_only.destructive && !read_only.open_world && read_only.repeatable());
        let additive = traits_of(json!({"destructiveHint": false, "idempotentHint": true}));
        assert!(!additive.destructive && additive.idempotent && additive.repeatable());
        let contradictory = traits_of(json!({"readOnlyHint": true, "destructiveHint": true}));
        assert!(contradictory.destructive && !contradictory.read_only && !contradictory.repeatable());
    }

    /// Rows 18 and 34: a long description is truncated. A tool is rejected if its schema is nested too deeply, refers
    /// to a remote schema or is invalid.
    #[test]
    fn l8_an_invalid_tool_does_not_affect_the_others() {
        let mut deep = json!({});
        for _ in 0..31 {
            deep = json!({"not": deep});
        }
        let deeper = json!({"not": deep.clone()});
        let tools = [
            json!({"name": "long", "description": "ä".repeat(2000), "inputSchema": {"type": "object"}}),
            json!({"name": "deep", "inputSchema": deep}),
            json!({"name": "deeper", "inputSchema": deeper}),
            json!({"name": "remote", "inputSchema": {"$ref": "http://127.0.0.1/schema"}}),
            json!({"name": "broken", "inputSchema": {}, "outputSchema": {"type": "nonsense"}}),
        ];
        let listing = read_tools(tools.map(tool).to_vec(), &config());
        assert_eq!(tool_names(&listing), ["desk.deep", "desk.long"]);
        assert_eq!(listing.tools[1].definition.description.len(), 2048);
        let problems: Vec<String> = listing.problems.iter().map(ToString::to_string).collect();
        for (name, reason) in [("deeper", "32 levels"), ("remote", "127.0.0.1"), ("broken", "output schema")] {
            let found = problems.iter().any(|problem| problem.contains(name) && problem.contains(reason));
            assert!(found, "{name}: {problems:?}");
        }
    }

    #[test]
    fn i5_only_selected_tools_are_offered_and_a_missing_one_is_reported() {
        let tools = ToolSelection::Only(vec!["one".to_owned(), "tow".to_owned()]);
        let listing = read_tools(vec![named("one"), named("two")], &ServerConfig { tools, ..config() });
        assert_eq!(tool_names(&listing), ["desk.one"]);
        let message = listing.problems[0].to_string();
        assert!(message.contains("`tow`") && message.contains("one, two"), "{message}");
    }
}
