//! Creates JSON Schemas for WIT types. The schemas describe the JSON that the module `arguments` reads and the module
//! `results` writes.

use super::constructors::Constructor;
use super::descriptions::{self, Descriptions};
use super::shape::{Integer, Shape, Signature};
use serde_json::{Map, Value, json};

/// The floats that JSON numbers cannot represent. The host writes these floats as JSON strings.
pub(super) const UNUSUAL_FLOATS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// The schema for a function's arguments: an object with a property for each parameter. The object may omit parameters
/// whose type is `option`.
pub(crate) fn for_parameters(parameters: &[(String, Shape)], descriptions: &Descriptions) -> Value {
    for_fields(parameters, descriptions)
}

/// The schema for a method's arguments. The constructor's arguments are in the property `self`. If there are several
/// constructors, the arguments are in a property of `self` that has the name of the chosen constructor.
pub(super) fn for_method(constructors: &[Constructor], method: &Signature, descriptions: &Descriptions) -> Value {
    let mut schema = for_fields(&method.parameters, descriptions);
    let mut self_schema = match constructors {
        [constructor] => for_fields(&constructor.signature.parameters, descriptions),
        constructors => {
            let for_constructor = |constructor: &Constructor| {
                (constructor.key().to_owned(), for_fields(&constructor.signature.parameters, descriptions))
            };
            with_one_property(constructors.iter().map(for_constructor).collect())
        }
    };
    let is_required =
        constructors.len() > 1 || self_schema["required"].as_array().is_some_and(|required| !required.is_empty());
    if is_required {
        self_schema["description"] = json!("The arguments from which the instance is made for this call.");
        let required = schema["required"].as_array_mut();
        required.into_iter().for_each(|required| required.insert(0, json!(super::SELF_ARGUMENT)));
    } else {
        self_schema["description"] =
            json!("The arguments from which the instance is made for this call; may be left out.");
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.shift_insert(0, super::SELF_ARGUMENT.to_owned(), self_schema);
    }
    schema
}

/// The schema for the value that a function returns if it does not fail. None if the function returns
/// a string or does not return a value.
pub(crate) fn for_result(signature: &Signature, descriptions: &Descriptions) -> Option<Value> {
    let returned = match &signature.result {
        Some(Shape::Result { ok, .. }) => ok.as_deref(),
        other => other.as_ref(),
    };
    returned.filter(|shape| **shape != Shape::String).map(|shape| for_shape(shape, descriptions))
}

/// The schema for the values of one type, with the documentation of the type.
pub(crate) fn for_shape(shape: &Shape, descriptions: &Descriptions) -> Value {
    let mut schema = without_description(shape, descriptions);
    descriptions.describe(shape, &mut schema);
    schema
}

fn without_description(shape: &Shape, descriptions: &Descriptions) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(integer) => for_integer(*integer),
        Shape::Float32 | Shape::Float64 => {
            json!({"type": ["number", "string"], "pattern": format!("^({})$", UNUSUAL_FLOATS.join("|"))})
        }
        Shape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Shape::String => json!({"type": "string"}),
        Shape::Bytes => json!({
            "type": ["string", "array"], "contentEncoding": "base64",
            "items": {"type": "integer", "minimum": 0, "maximum": 255},
            "description": "Bytes: base64, or a list of numbers.",
        }),
        Shape::List(item) => json!({"type": "array", "items": for_shape(item, descriptions)}),
        Shape::Record(fields) => {
            let mut schema = for_fields(fields, descriptions);
            for (name, _) in fields {
                add_docs(descriptions.item(shape, name), &mut schema["properties"][name]);
            }
            schema
        }
        Shape::Tuple(items) => {
            let (count, items): (usize, Vec<_>) =
                (items.len(), items.iter().map(|item| for_shape(item, descriptions)).collect());
            json!({"type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count})
        }
        Shape::Enum(names) => json!({"type": "string", "enum": names}),
        Shape::Flags(names) => {
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
        Shape::Option(item) if item.has_null() => {
            let some = for_fields(&[("some".to_owned(), (**item).clone())], descriptions);
            let mut some = some;
            some["required"] = json!(["some"]);
            nullable(some)
        }
        Shape::Option(item) => nullable(for_shape(item, descriptions)),
        Shape::Variant(_) | Shape::Result { .. } => for_cases(shape, descriptions),
    }
}

fn for_integer(integer: Integer) -> Value {
    let (smallest, largest) = integer.range();
    match integer {
        Integer::S64 => json!({
            "type": ["integer", "string"], "minimum": i64::MIN, "maximum": i64::MAX, "pattern": "^-?[0-9]{1,19}$",
            "description": "A number; as a string of digits beyond 2^53.",
        }),
        Integer::U64 => json!({
            "type": ["integer", "string"], "minimum": 0, "maximum": u64::MAX, "pattern": "^[0-9]{1,20}$",
            "description": "A number; as a string of digits beyond 2^53.",
        }),
        // Only `u64` has a bound that needs more than 63 bits. The bounds of all other integers fit into an `i64`.
        _ => json!({"type": "integer", "minimum": smallest as i64, "maximum": largest as i64}),
    }
}

fn for_fields(fields: &[(String, Shape)], descriptions: &Descriptions) -> Value {
    let required: Vec<_> = fields.iter().filter(|(_, shape)| !shape.has_null()).map(|(name, _)| name).collect();
    let properties: Map<_, _> =
        fields.iter().map(|(name, shape)| (name.clone(), for_shape(shape, descriptions))).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The schema for the cases of a variant. A case without a payload is represented by its name, and a case with a
/// payload by an object with one property.
fn for_cases(shape: &Shape, descriptions: &Descriptions) -> Value {
    let cases = shape.cases().unwrap_or_default();
    let bare: Vec<_> = cases.iter().filter(|(_, payload)| payload.is_none()).map(|(name, _)| *name).collect();
    let with_payload = cases.iter().filter_map(|(name, payload)| {
        let mut schema = for_shape((*payload)?, descriptions);
        add_docs(descriptions.item(shape, name), &mut schema);
        Some(((*name).to_owned(), schema))
    });
    let with_payload: Map<_, _> = with_payload.collect();
    let names = json!({"type": "string", "enum": bare});
    if with_payload.is_empty() {
        return names;
    }
    let object = with_one_property(with_payload);
    if bare.is_empty() { object } else { json!({"anyOf": [names, object]}) }
}

fn add_docs(docs: Option<&str>, schema: &mut Value) {
    docs.into_iter().for_each(|docs| descriptions::add(docs.trim(), schema));
}

/// Returns the schema for an object that has exactly one of these properties and no other property.
fn with_one_property(properties: Map<String, Value>) -> Value {
    json!({
        "type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
    })
}

/// Changes a schema so that it also accepts null.
fn nullable(mut schema: Value) -> Value {
    if schema.get("enum").is_some() || schema.get("type").is_none() {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    let kinds = match schema["type"].take() {
        Value::Array(mut kinds) => {
            kinds.push(json!("null"));
            kinds
        }
        kind => vec![kind, json!("null")],
    };
    schema["type"] = json!(kinds);
    schema
}
