//! The output schema: an inline table, or the path of a JSON file.

use super::document::Found;
use serde_json::Value;
use std::path::Path;

/// Reads it; a relative path is relative to `folder`.
pub(super) fn output_schema(found: &Found<'_>, folder: &Path) -> Option<Value> {
    let schema = if found.is_text() { from_file(found, folder)? } else { inline(found)? };
    if schema.is_object() {
        return Some(schema);
    }
    found.problem("is no JSON Schema", "allowed: a JSON Schema that is an object");
    None
}

fn inline(found: &Found<'_>) -> Option<Value> {
    found.map()?;
    found.json()
}

fn from_file(found: &Found<'_>, folder: &Path) -> Option<Value> {
    let path = folder.join(found.text()?);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("names {}, which cannot be read: {error}", path.display());
            found.problem(&what, "allowed: a table, or the path of a JSON file, relative to this file");
            return None;
        }
    };
    match serde_json::from_str(&text) {
        Ok(schema) => Some(schema),
        Err(error) => {
            found.problem(&format!("names {}, which is no JSON: {error}", path.display()), "allowed: a JSON Schema");
            None
        }
    }
}
