//! The definitions of the host's built-in tools that the model is shown.

use super::name;
use crate::tools::availability::Availability;
use agent_core::tool::{ToolDefinition, ToolSource, Traits};
use serde_json::{Value, json};

/// Returns the built-in tools of an agent. If no directory is granted to the host's file tools, the result contains the
/// file tools, but they are not offered to the model.
pub fn definitions(trees_granted: bool) -> Vec<(ToolDefinition, ToolSource, Availability)> {
    let files = if trees_granted { Availability::Offered } else { withheld_without_grant() };
    let tools = [
        (
            name::LIST_DIRECTORY,
            "Lists a directory of a granted file tree: name, kind and size of each entry, by name.",
            object(&["path"], json!({"path": {"type": "string", "description": "Directory. Example: `src`."}})),
            files.clone(),
        ),
        (
            name::READ_FILE,
            "Reads lines of a text file of a granted file tree, with their numbers.",
            object(
                &["path"],
                json!({
                    "path": {"type": "string", "description": "File. Example: `src/main.rs`."},
                    "from_line": {"type": "integer", "minimum": 1, "default": 1, "description": "First line."},
                    "lines": {"type": "integer", "minimum": 1, "maximum": 10000,
                        "description": "How many. Default: to the end, at most 1,000."},
                }),
            ),
            files,
        ),
        (
            name::READ_RESULT,
            "Reads on in the result of an earlier call of this session that was cut.",
            object(
                &["call_id"],
                json!({
                    "call_id": {"type": "string", "description": "As the line at the cut names it."},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "In characters."},
                }),
            ),
            Availability::Offered,
        ),
        (
            name::MEMORY_SEARCH,
            "Searches what is remembered of this user from earlier sessions, and the messages of this session that are no \
             longer shown; the closest matches first.",
            object(
                &["query"],
                json!({
                    "query": {"type": "string", "description": "Words to look for."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
                }),
            ),
            Availability::Offered,
        ),
    ];
    let tools = tools.map(|(name, description, input_schema, availability)| {
        let traits = Traits { read_only: true, idempotent: true, ..Traits::default() };
        let definition = ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema,
            output_schema: None,
            traits,
            priority: 0,
        };
        (definition, ToolSource::BuiltIn, availability)
    });
    tools.into()
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn withheld_without_grant() -> Availability {
    let advice = "add `[host.grants]` `read = [\".\"]` to the agent's configuration, or `--grant host:read=.` to the \
        command line";
    let message = format!("no file tree is granted to the host's own file tools; {advice}");
    Availability::Withheld { message, advice: advice.to_owned() }
}
