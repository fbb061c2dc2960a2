//! JSON Schemas of WIT types. What a schema takes, `arguments` reads; what `results` writes, it takes.

use super::makers::Maker;
use super::shape::{Integer, Shape, Signature};
use super::words::{self, Words};
use serde_json::{Map, Value, json};

/// Floats that JSON numbers cannot be.
pub(super) const UNUSUAL_FLOATS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Of a function's arguments: an object with a property for each parameter. What is optional may be left out.
pub(crate) fn of_parameters(parameters: &[(String, Shape)], words: &Words) -> Value {
    of_fields(parameters, words)
}

/// Of a method's arguments: those of what makes its instance stand under `self`, where there are several makers below the
/// name of one.
pub(super) fn of_method(makers: &[Maker], method: &Signature, words: &Words) -> Value {
    let mut schema = of_fields(&method.parameters, words);
    let mut own = match makers {
        [maker] => of_fields(&maker.signature.parameters, words),
        makers => {
            let of_maker = |maker: &Maker| (maker.key().to_owned(), of_fields(&maker.signature.parameters, words));
            of_one(makers.iter().map(of_maker).collect())
        }
    };
    let is_required = makers.len() > 1 || own["required"].as_array().is_some_and(|required| !required.is_empty());
    if is_required {
        own["description"] = json!("The arguments from which the instance is made for this call.");
        let required = schema["required"].as_array_mut();
        required.into_iter().for_each(|required| required.insert(0, json!(super::SELF)));
    } else {
        own["description"] = json!("The arguments from which the instance is made for this call; may be left out.");
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.shift_insert(0, super::SELF.to_owned(), own);
    }
    schema
}

/// Of what a function gives, its failure left out; None: nothing, or text.
pub(crate) fn of_result(signature: &Signature, words: &Words) -> Option<Value> {
    let given = match &signature.result {
        Some(Shape::Result { ok, .. }) => ok.as_deref(),
        other => other.as_ref(),
    };
    given.filter(|shape| **shape != Shape::String).map(|shape| of(shape, words))
}

/// Of the values of one type, with what is said about it.
pub(crate) fn of(shape: &Shape, words: &Words) -> Value {
    let mut schema = of_values(shape, words);
    words.describe(shape, &mut schema);
    schema
}

fn of_values(shape: &Shape, words: &Words) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(integer) => of_integer(*integer),
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
        Shape::List(item) => json!({"type": "array", "items": of(item, words)}),
        Shape::Record(fields) => {
            let mut schema = of_fields(fields, words);
            for (name, _) in fields {
                about(words.item(shape, name), &mut schema["properties"][name]);
            }
            schema
        }
        Shape::Tuple(items) => {
            let (count, items): (usize, Vec<_>) = (items.len(), items.iter().map(|item| of(item, words)).collect());
            json!({"type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count})
        }
        Shape::Enum(names) => json!({"type": "string", "enum": names}),
        Shape::Flags(names) => {
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
        Shape::Option(item) if item.has_null() => {
            let some = of_fields(&[("some".to_owned(), (**item).clone())], words);
            let mut some = some;
            some["required"] = json!(["some"]);
            nullable(some)
        }
        Shape::Option(item) => nullable(of(item, words)),
        Shape::Variant(_) | Shape::Result { .. } => of_cases(shape, words),
    }
}

fn of_integer(integer: Integer) -> Value {
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
        // Within 64 bits all of them.
        _ => json!({"type": "integer", "minimum": smallest as i64, "maximum": largest as i64}),
    }
}

fn of_fields(fields: &[(String, Shape)], words: &Words) -> Value {
    let required: Vec<_> = fields.iter().filter(|(_, shape)| !shape.has_null()).map(|(name, _)| name).collect();
    let properties: Map<_, _> = fields.iter().map(|(name, shape)| (name.clone(), of(shape, words))).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A case without a payload is its name, one with a payload an object with this one property.
fn of_cases(shape: &Shape, words: &Words) -> Value {
    let cases = shape.cases().unwrap_or_default();
    let bare: Vec<_> = cases.iter().filter(|(_, payload)| payload.is_none()).map(|(name, _)| *name).collect();
    let loaded = cases.iter().filter_map(|(name, payload)| {
        let mut schema = of((*payload)?, words);
        about(words.item(shape, name), &mut schema);
        Some(((*name).to_owned(), schema))
    });
    let loaded: Map<_, _> = loaded.collect();
    let names = json!({"type": "string", "enum": bare});
    if loaded.is_empty() {
        return names;
    }
    let object = of_one(loaded);
    if bare.is_empty() { object } else { json!({"anyOf": [names, object]}) }
}

fn about(docs: Option<&str>, schema: &mut Value) {
    docs.into_iter().for_each(|docs| words::add(docs.trim(), schema));
}

/// An object with one of these properties.
fn of_one(properties: Map<String, Value>) -> Value {
    json!({
        "type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
    })
}

/// The same, or null.
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
