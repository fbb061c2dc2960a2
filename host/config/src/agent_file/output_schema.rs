//! Reads a JSON Schema that is written as an inline table or as the path of a JSON file.

use super::document::TomlValue;
use serde_json::Value;
use std::path::Path;

/// Maximum size of a schema file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a JSON Schema. A relative path is relative to `folder`. If the schema is invalid, reports the problem to the
/// document and returns None.
pub(super) fn read_schema(value: &TomlValue<'_>, folder: &Path) -> Option<Value> {
    if let Some(path) = value.text() {
        return schema_from_file(value, &path, folder);
    }
    if value.table().is_none() {
        let allowed = "allowed: a table, or the path of a JSON file, relative to this file";
        value.problem(&format!("is {}", value.kind()), allowed);
        return None;
    }
    let schema = value.json();
    if schema.is_none() {
        value.problem(
            "contains a date or a number that JSON cannot represent",
            "allowed: values that JSON can represent",
        );
    }
    schema
}

fn schema_from_file(value: &TomlValue<'_>, path: &str, folder: &Path) -> Option<Value> {
    let path = folder.join(path);
    value.record_named_file(&path);
    let text = match super::read_bounded(&path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("names {}, which cannot be read: {error}", path.display());
            value.problem(&what, "allowed: a table, or the path of a JSON file, relative to this file");
            return None;
        }
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(schema) if schema.is_object() => return Some(schema),
        Ok(_) => value
            .problem("does not name a JSON Schema", "allowed: a JSON file that contains a JSON Schema as an object"),
        Err(error) => {
            value.problem(
                &format!("names {}, which is not valid JSON: {error}", path.display()),
                "allowed: a JSON file that contains a JSON Schema",
            );
        }
    }
    None
}
