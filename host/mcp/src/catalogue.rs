//! The tools of servers: asked for page by page within the limits, and written in the host's own words.

use crate::configuration::{McpLimits, ServerConfig, ToolSelection};
use crate::error::{McpError, shown};
use agent_core::schema::Schema;
use agent_core::tool::{ToolDefinition, Traits};
use rmcp::RoleClient;
use rmcp::model::{PaginatedRequestParams, Tool, ToolAnnotations};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Characters of a tool's name (P2).
const MAX_NAME: usize = 128;
/// Characters of a name in a message, and of a title.
const SHOWN_NAME: usize = 100;
/// Tools that a message lists.
const LISTED: usize = 20;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpTool {
    /// The server's configured name.
    pub server: String,
    /// As the server itself names the tool.
    pub remote_name: String,
    /// As the host offers it: its name is `server.tool` in the host's alphabet.
    pub definition: ToolDefinition,
}

/// All tools of all servers that answered, and what is wrong with the others: an immutable snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// By name.
    tools: BTreeMap<String, McpTool>,
    /// By server.
    problems: Vec<McpError>,
}

impl Catalogue {
    /// Its tools, by name.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &McpTool> {
        self.tools.values()
    }

    /// The tool of that name, as the host offers it.
    pub fn tool(&self, name: &str) -> Option<&McpTool> {
        self.tools.get(name)
    }

    /// Servers, and tools of servers, that are missing in it.
    pub fn problems(&self) -> &[McpError] {
        &self.problems
    }

    pub(crate) fn add(&mut self, listing: &Listing) {
        self.tools.extend(listing.tools.iter().map(|tool| (tool.definition.name.clone(), tool.clone())));
        self.problems.extend(listing.problems.iter().cloned());
    }

    pub(crate) fn miss(&mut self, problem: McpError) {
        self.problems.push(problem);
    }
}

/// The tools of one server.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<McpTool>,
    pub(crate) problems: Vec<McpError>,
}

/// Asks a server for its tools.
pub(crate) async fn list(peer: &Peer<RoleClient>, config: &ServerConfig) -> Result<Listing, ServiceError> {
    let info = peer.peer_info();
    if info.is_some_and(|info| info.capabilities.tools.is_none()) {
        let reason = "it offers no tools".to_owned();
        return Ok(Listing {
            tools: Vec::new(),
            problems: vec![McpError::Cut { server: config.name.clone(), reason }],
        });
    }
    let limits = &config.limits;
    let (mut tools, mut bytes, mut pages, mut cut) = (Vec::new(), 0, 0, None);
    let mut cursor: Option<String> = None;
    loop {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor.clone()))).await?;
        pages += 1;
        for tool in page.tools {
            bytes += bytes_of(&tool);
            cut = cut.or(over(limits, tools.len(), bytes));
            if cut.is_none() {
                tools.push(tool);
            }
        }
        let next = page.next_cursor.filter(|next| !next.is_empty());
        match next {
            _ if cut.is_some() => break,
            None => break,
            Some(next) if cursor.as_ref() == Some(&next) => {
                cut = Some("its pages go round in a circle".to_owned());
                break;
            }
            Some(_) if pages == limits.pages => {
                cut = Some(format!("it has more than {pages} pages"));
                break;
            }
            Some(next) => cursor = Some(next),
        }
    }
    let mut listing = read(tools, config);
    listing.problems.extend(cut.map(|reason| McpError::Cut { server: config.name.clone(), reason }));
    Ok(listing)
}

fn over(limits: &McpLimits, tools: usize, bytes: usize) -> Option<String> {
    if tools == limits.tools {
        return Some(format!("it has more than {tools} tools"));
    }
    (bytes > limits.catalogue_bytes).then(|| format!("it has more than {} bytes", limits.catalogue_bytes))
}

/// What a tool's words and schemas take.
fn bytes_of(tool: &Tool) -> usize {
    serde_json::to_string(tool).map_or(0, |json| json.len())
}

/// Takes the tools that can be taken; what is wrong with the others is in the listing too.
fn read(tools: Vec<Tool>, config: &ServerConfig) -> Listing {
    let mut listing = Listing::default();
    let problem = |tool: &str, reason: String| McpError::Tool {
        server: config.name.clone(),
        tool: shown(tool, SHOWN_NAME),
        reason,
    };
    let selected = match &config.tools {
        ToolSelection::All => tools,
        ToolSelection::Only(names) => {
            let there: Vec<String> = tools.iter().map(|tool| tool.name.to_string()).collect();
            let missing = names.iter().filter(|name| !there.contains(name));
            listing.problems.extend(missing.map(|name| problem(name, not_there(&there))));
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
            // Nobody could say which of them a call means (row 18).
            _ => {
                let names: Vec<String> =
                    tools.iter().map(|tool| format!("`{}`", shown(&tool.remote_name, SHOWN_NAME))).collect();
                let reason = format!("{} of its tools would be named `{name}`: {}", tools.len(), names.join(" and "));
                listing.problems.push(problem(&tools[0].remote_name, reason));
            }
        }
    }
    listing
}

fn not_there(names: &[String]) -> String {
    let known: Vec<String> = names.iter().take(LISTED).map(|name| shown(name, SHOWN_NAME)).collect();
    let more = if names.len() > LISTED { " …" } else { "" };
    format!("`tools` names it, and the server has none of that name; it has {}{more}", known.join(", "))
}

impl McpTool {
    fn read(tool: &Tool, config: &ServerConfig) -> Result<Self, String> {
        let limits = &config.limits;
        let name = format!("{}.{}", config.name, clean(&tool.name));
        if tool.name.is_empty() || name.len() > MAX_NAME {
            return Err(format!("its name is empty, or longer than {MAX_NAME} characters with the server's before it"));
        }
        let input_schema = Value::Object(tool.input_schema.as_ref().clone());
        let output_schema = tool.output_schema.as_ref().map(|schema| Value::Object(schema.as_ref().clone()));
        for (which, schema) in [("input", Some(&input_schema)), ("output", output_schema.as_ref())] {
            let Some(schema) = schema else { continue };
            if is_deeper(schema, limits.schema_depth) {
                return Err(format!("its {which} schema has more than {} levels", limits.schema_depth));
            }
            Schema::compile(schema).map_err(|error| format!("its {which} schema: {error}"))?;
        }
        let title = tool.title.as_deref().or(tool.annotations.as_ref().and_then(|hints| hints.title.as_deref()));
        let definition = ToolDefinition {
            name,
            title: title.map(|title| shown(title, SHOWN_NAME)),
            description: cut(tool.description.as_deref().unwrap_or_default(), limits.description_bytes),
            input_schema,
            output_schema,
            traits: traits(tool.annotations.as_ref()),
            priority: 0,
        };
        Ok(Self { server: config.name.clone(), remote_name: tool.name.to_string(), definition })
    }
}

/// The protocol's hints. They are a server's own words, so what they allow is taken back where they contradict
/// themselves: a tool that may destroy is not one that only reads.
fn traits(hints: Option<&ToolAnnotations>) -> Traits {
    let said = |hint: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(hint);
    let destructive = said(|hints| hints.destructive_hint);
    let read_only = said(|hints| hints.read_only_hint) == Some(true) && destructive != Some(true);
    Traits {
        read_only,
        destructive: !read_only && destructive.unwrap_or(true),
        idempotent: said(|hints| hints.idempotent_hint) == Some(true),
        open_world: said(|hints| hints.open_world_hint).unwrap_or(true),
        ..Traits::default()
    }
}

/// The name in the host's alphabet.
fn clean(name: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    name.chars().map(|char| if plain(char) { char } else { '_' }).collect()
}

/// At most so many bytes, on a character boundary.
fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes.min(text.len()))].to_owned()
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let inner = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(items) => items.iter().any(inner) || levels == 0,
        Value::Object(fields) => fields.values().any(inner) || levels == 0,
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

    fn taken(listing: &Listing) -> Vec<&str> {
        listing.tools.iter().map(|tool| tool.definition.name.as_str()).collect()
    }

    #[test]
    fn l7_a_tool_is_named_after_its_server_in_the_hosts_alphabet() {
        let listing = read(vec![named("read file"), named("notes/list.all")], &config());
        assert_eq!(taken(&listing), ["desk.notes_list.all", "desk.read_file"]);
        assert_eq!(listing.tools[1].remote_name, "read file");
        let listing = read(vec![named(&"x".repeat(124)), named("")], &config());
        assert!(listing.tools.is_empty() && listing.problems.len() == 2, "{listing:?}");
    }

    /// Row 18: neither of two tools of one name is taken, and both are named.
    #[test]
    fn l7_tools_that_would_have_one_name_are_refused_with_both_named() {
        let listing = read(vec![named("a b"), named("ok"), named("a_b")], &config());
        assert_eq!(taken(&listing), ["desk.ok"]);
        let message = listing.problems[0].to_string();
        assert!(message.contains("`a b`") && message.contains("`a_b`") && message.contains("desk"), "{message}");
    }

    #[test]
    fn p2_annotations_become_traits() {
        let of = |hints: Value| traits(Some(&serde_json::from_value(hints).unwrap()));
        let unsaid = traits(None);
        assert!(unsaid.destructive && unsaid.open_world && !unsaid.read_only && !unsaid.repeatable());
        let reads = of(json!({"readOnlyHint": true, "openWorldHint": false}));
        assert!(reads.read_only && !reads.destructive && !reads.open_world && reads.repeatable());
        let adds = of(json!({"destructiveHint": false, "idempotentHint": true}));
        assert!(!adds.destructive && adds.idempotent && adds.repeatable());
        let lies = of(json!({"readOnlyHint": true, "destructiveHint": true}));
        assert!(lies.destructive && !lies.read_only && !lies.repeatable());
    }

    /// Rows 18 and 34: long descriptions are cut, deep, remote and broken schemas are left out, each by itself.
    #[test]
    fn l8_a_tool_that_cannot_be_taken_leaves_the_others() {
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
        let listing = read(tools.map(tool).to_vec(), &config());
        assert_eq!(taken(&listing), ["desk.deep", "desk.long"]);
        assert_eq!(listing.tools[1].definition.description.len(), 2048);
        let problems: Vec<String> = listing.problems.iter().map(ToString::to_string).collect();
        for (name, reason) in [("deeper", "32 levels"), ("remote", "127.0.0.1"), ("broken", "output schema")] {
            let found = problems.iter().any(|problem| problem.contains(name) && problem.contains(reason));
            assert!(found, "{name}: {problems:?}");
        }
    }

    #[test]
    fn i5_only_the_chosen_tools_are_taken_and_a_missing_one_is_named() {
        let tools = ToolSelection::Only(vec!["one".to_owned(), "tow".to_owned()]);
        let listing = read(vec![named("one"), named("two")], &ServerConfig { tools, ..config() });
        assert_eq!(taken(&listing), ["desk.one"]);
        let message = listing.problems[0].to_string();
        assert!(message.contains("`tow`") && message.contains("one, two"), "{message}");
    }
}
