//! Generates JSON Schemas (draft 2020-12) from Rust types. A schema includes the schemas of all nested types. A schema
//! contains `$ref` only for recursive types, and such a reference points to a part of the same schema.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the schema of the JSON that can be deserialised as `T`. Use this function for the arguments of tools.
pub fn input<T: JsonSchema>() -> Value {
    generate::<T>(settings().for_deserialize())
}

/// Returns the schema of the JSON that serialising a `T` produces. Use this function for the results of tools.
pub fn output<T: JsonSchema>() -> Value {
    generate::<T>(settings().for_serialize())
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms.push(Box::new(RecursiveTransform(remove_number_format)));
    })
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    normalise(settings.into_generator().into_root_schema_for::<T>())
}

/// Removes formats such as `uint32`, which are names of Rust types. No standard defines them, and the schemas of SDKs for other
/// languages do not contain them. The limits of the types stay in the schema.
fn remove_number_format(schema: &mut Schema) {
    let is_number = schema.get("type").is_some_and(|kind| {
        let is_numeric = |kind: &Value| kind == "integer" || kind == "number";
        is_numeric(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_numeric))
    });
    if is_number {
        schema.remove("format");
    }
}

/// Removes the title and description of the root type, and adds `properties` to an object schema without properties.
fn normalise(schema: Schema) -> Value {
    let mut schema = Value::from(schema);
    if let Some(object) = schema.as_object_mut() {
        // The title and description are the Rust name and doc comment of the type. The schema does not need the title
        // and description, because every tool has a description.
        object.remove("title");
        object.remove("description");
        if object.get("type") == Some(&Value::from("object")) {
            object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
    }
    schema
}
