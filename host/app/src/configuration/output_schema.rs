//! The output schema: an inline table, or the path of a JSON file.

use super::document::Found;
use serde_json::Value;
use std::path::Path;

/// Largest file that is read as a schema.
const MOST_BYTES: u64 = 1024 * 1024;

/// Reads it; a relative path is relative to `folder`.
pub(super) fn output_schema(found: &Found<'_>, folder: &Path) -> Option<Value> {
    if let Some(path) = found.text() {
        return from_file(found, &path, folder);
    }
    if found.table().is_none() {
        let allowed = "allowed: a table, or the path of a JSON file, relative to this file";
        found.problem(&format!("is {}", found.kind()), allowed);
        return None;
    }
    let schema = found.json();
    if schema.is_none() {
        found.problem("holds a date or a number that JSON has not", "allowed: what JSON has");
    }
    schema
}

fn from_file(found: &Found<'_>, path: &str, folder: &Path) -> Option<Value> {
    let path = folder.join(path);
    found.names_file(&path);
    let text = match super::read_bounded(&path, MOST_BYTES) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("names {}, which cannot be read: {error}", path.display());
            found.problem(&what, "allowed: a table, or the path of a JSON file, relative to this file");
            return None;
        }
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(schema) if schema.is_object() => return Some(schema),
        Ok(_) => found.problem("is no JSON Schema", "allowed: a JSON Schema that is an object"),
        Err(error) => {
            found.problem(&format!("names {}, which is no JSON: {error}", path.display()), "allowed: a JSON Schema");
        }
    }
    None
}
