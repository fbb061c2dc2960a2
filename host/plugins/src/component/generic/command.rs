//! The definition of the tool for a command-line program (`wasi:cli/command`).

use agent_core::tool::{ToolDefinition, Traits};
use serde_json::json;

/// The end of the description of every program.
pub(crate) const USAGE: &str = "Runs this command-line program once and returns what it prints to standard output.";

/// Creates the definition of the tool. `description` is the plugin's description from its manifest.
pub(super) fn definition(name: String, description: Option<&str>, traits: Traits) -> ToolDefinition {
    let about = description.map(|text| format!("{}\n", text.trim_end())).unwrap_or_default();
    ToolDefinition {
        name,
        title: None,
        description: format!("{about}{USAGE}"),
        input_schema: json!({
            "type": "object",
            "properties": {
                "args": {
                    "type": "array", "items": {"type": "string"},
                    "description": "The program's arguments, without its own name. No shell reads them.",
                },
                "stdin": {"type": "string", "description": "What the program reads on standard input."},
            },
            "additionalProperties": false,
        }),
        output_schema: None,
        traits,
        priority: 0,
    }
}
