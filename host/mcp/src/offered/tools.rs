//! Converts tools to the protocol's form.

use super::OfferedTool;
use agent_core::tool::Traits;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of characters of a tool's name.
const MAX_NAME_CHARACTERS: usize = 128;

/// Which results a client's version of the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StructuredResults {
    /// A structured result is an object.
    Objects,
    /// A structured result is any JSON.
    AnyJson,
}

/// Converts a tool to the protocol's form, with this name.
pub(super) fn tool_of(name: String, tool: OfferedTool, results: StructuredResults) -> Tool {
    let mut described = Tool::new(name, tool.description, Arc::new(argument_schema(tool.input_schema)));
    if let Some(title) = tool.title {
        described = described.with_title(title);
    }
    if let Some(Value::Object(schema)) = tool.output_schema
        && (results == StructuredResults::AnyJson || schema.get("type") == Some(&json!("object")))
    {
        described = described.with_raw_output_schema(Arc::new(schema));
    }
    described.with_annotations(annotations(tool.traits))
}

/// Clients require that the schema says that the arguments are an object.
fn argument_schema(schema: Value) -> JsonObject {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    schema.entry("type").or_insert_with(|| json!("object"));
    schema
}

fn annotations(traits: Traits) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(traits.read_only)
        // A tool that changes nothing destroys nothing and can be repeated.
        .destructive(traits.destructive && !traits.read_only)
        .idempotent(traits.repeatable())
        .open_world(traits.open_world)
}

/// Returns the name of each tool for clients, in the order of `names`. A name that contains characters which the protocol
/// does not allow is changed, and differs from all other names.
pub(super) fn client_names(names: &[&str]) -> Vec<String> {
    let mut taken: std::collections::HashSet<String> =
        names.iter().filter(|name| is_valid(name)).map(|name| (*name).to_owned()).collect();
    let name_for = |name: &&str| {
        if is_valid(name) {
            return (*name).to_owned();
        }
        let replaced = name.chars().map(|letter| if is_allowed(letter) { letter } else { '_' });
        let base: String = replaced.take(MAX_NAME_CHARACTERS - 4).collect();
        let base = if base.is_empty() { "tool".to_owned() } else { base };
        let numbered = (2..).map(|number| format!("{base}_{number}"));
        let mut candidates = std::iter::once(base.clone()).chain(numbered);
        let free = candidates.find(|candidate| !taken.contains(candidate)).unwrap_or(base);
        taken.insert(free.clone());
        free
    };
    names.iter().map(name_for).collect()
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.".contains(letter)
}

fn is_valid(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= MAX_NAME_CHARACTERS && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I4: names of tools contain only characters of the protocol, and stay different. Valid names do not change.
    #[test]
    fn i4_names_are_valid_and_unique() {
        let long = "x".repeat(200);
        let names = ["a.b", "zähle", "z_hle", "z hle", "", &long];
        let changed = client_names(&names);
        assert_eq!(changed[..5], ["a.b", "z_hle_2", "z_hle", "z_hle_3", "tool"]);
        assert!(changed.iter().all(|name| is_valid(name)), "{changed:?}");
    }

    /// I4: annotations come from the tool's traits, and a schema of another type is offered only where it is allowed.
    #[test]
    fn i4_annotations_and_schemas_follow_the_tool() {
        let traits = Traits { read_only: true, open_world: true, ..Traits::default() };
        let tool = OfferedTool {
            name: "look".to_owned(),
            title: Some("Look".to_owned()),
            description: "Looks.".to_owned(),
            input_schema: json!({"properties": {}}),
            output_schema: Some(json!({"type": "array"})),
            traits,
        };
        let written = |results| serde_json::to_value(tool_of("look".to_owned(), tool.clone(), results)).unwrap();
        let older = written(StructuredResults::Objects);
        assert_eq!(older["inputSchema"], json!({"properties": {}, "type": "object"}));
        assert_eq!(
            older["annotations"],
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true})
        );
        assert!(older.get("outputSchema").is_none());
        assert_eq!(written(StructuredResults::AnyJson)["outputSchema"], json!({"type": "array"}));
    }
}
