//! JSON Schemas from Rust types: draft 2020-12, everything inlined, `$ref` only within the schema (for recursive
//! types).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Schema of the JSON from which `T` is deserialised: what a caller may send.
pub fn input<T: JsonSchema>() -> Value {
    generate::<T>(settings().for_deserialize())
}

/// Schema of the JSON into which `T` is serialised: what a caller gets.
pub fn output<T: JsonSchema>() -> Value {
    generate::<T>(settings().for_serialize())
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    })
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    finish(settings.into_generator().into_root_schema_for::<T>())
}

fn finish(schema: Schema) -> Value {
    let mut schema = Value::from(schema);
    if let Some(object) = schema.as_object_mut() {
        // The type's Rust name and doc comment: the tool's own name and description say it better.
        object.remove("title");
        object.remove("description");
        if object.get("type") == Some(&Value::from("object")) {
            object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
    }
    schema
}
