//! JSON Schemas generated from Rust types: draft 2020-12, with everything inlined. `$ref` is used only within the
//! schema, for recursive types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The schema of the JSON that `T` is deserialised from, that is, what a caller may send.
pub fn input<T: JsonSchema>() -> Value {
    generate::<T>(settings().for_deserialize())
}

/// The schema of the JSON that `T` is serialised to, that is, what a caller gets.
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
        // The title and description are the type's Rust name and doc comment; the tool has better ones.
        object.remove("title");
        object.remove("description");
        if object.get("type") == Some(&Value::from("object")) {
            object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
    }
    schema
}
