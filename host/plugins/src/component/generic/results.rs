//! Converts values of WIT types to JSON.

use super::arguments::{BASE64_OUT, SAFE_INTEGER};
use super::shape::Shape;
use base64::Engine;
use serde_json::{Map, Number, Value, json};
use wasmtime::component::Val;

/// Converts one value to JSON. wasmtime has already checked the type of the value, so an error means that the host has
/// a bug.
pub(crate) fn write(shape: &Shape, value: Val) -> Result<Value, String> {
    Ok(match (shape, value) {
        (_, Val::Bool(value)) => Value::Bool(value),
        (_, Val::S8(value)) => integer(value.into()),
        (_, Val::U8(value)) => integer(value.into()),
        (_, Val::S16(value)) => integer(value.into()),
        (_, Val::U16(value)) => integer(value.into()),
        (_, Val::S32(value)) => integer(value.into()),
        (_, Val::U32(value)) => integer(value.into()),
        (_, Val::S64(value)) => integer(value.into()),
        (_, Val::U64(value)) => integer(value.into()),
        (_, Val::Float32(value)) => float32(value),
        (_, Val::Float64(value)) => float(value),
        (_, Val::Char(value)) => Value::String(value.to_string()),
        (_, Val::String(value) | Val::Enum(value)) => Value::String(value),
        (_, Val::Flags(names)) => json!(names),
        (Shape::Bytes, Val::List(items)) => Value::String(BASE64_OUT.encode(bytes(items)?)),
        (Shape::List(item), Val::List(values)) => {
            Value::Array(values.into_iter().map(|value| write(item, value)).collect::<Result<_, _>>()?)
        }
        (Shape::Tuple(items), Val::Tuple(values)) => {
            let written = items.iter().zip(values).map(|(item, value)| write(item, value));
            Value::Array(written.collect::<Result<_, _>>()?)
        }
        (Shape::Record(fields), Val::Record(values)) => {
            let written = fields.iter().zip(values).map(|((_, shape), (name, value))| Ok((name, write(shape, value)?)));
            Value::Object(written.collect::<Result<Map<_, _>, String>>()?)
        }
        (Shape::Option(_), Val::Option(None)) => Value::Null,
        (Shape::Option(item), Val::Option(Some(value))) if item.has_null() => json!({"some": write(item, *value)?}),
        (Shape::Option(item), Val::Option(Some(value))) => write(item, *value)?,
        (Shape::Result { ok, .. }, Val::Result(Ok(value))) => case("ok".to_owned(), ok.as_deref(), value)?,
        (Shape::Result { error, .. }, Val::Result(Err(value))) => case("err".to_owned(), error.as_deref(), value)?,
        (Shape::Variant(cases), Val::Variant(name, value)) => {
            let payload = cases.iter().find(|(known, _)| *known == name).and_then(|(_, payload)| payload.as_ref());
            case(name, payload, value)?
        }
        (shape, value) => return Err(format!("the value does not have the type {shape:?}: {}", kind(&value))),
    })
}

fn case(name: String, payload: Option<&Shape>, value: Option<Box<Val>>) -> Result<Value, String> {
    match (payload, value) {
        (Some(shape), Some(value)) => Ok(Value::Object(Map::from_iter([(name, write(shape, *value)?)]))),
        _ => Ok(Value::String(name)),
    }
}

/// Writes an integer as a string if the integer is so large that some JSON parsers would round it.
fn integer(value: i128) -> Value {
    match (i64::try_from(value), u64::try_from(value)) {
        _ if value.abs() > SAFE_INTEGER => Value::String(value.to_string()),
        (Ok(value), _) => Value::from(value),
        (_, Ok(value)) => Value::from(value),
        _ => Value::String(value.to_string()),
    }
}

/// Writes the shortest decimal number that has the same value as a 32-bit float: for example 0.1
/// instead of 0.10000000149011612.
fn float32(value: f32) -> Value {
    if value.is_finite() { float(value.to_string().parse().unwrap_or(f64::from(value))) } else { float(value.into()) }
}

fn float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => json!("NaN"),
        None if value > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}

fn bytes(items: Vec<Val>) -> Result<Vec<u8>, String> {
    let byte = |value| match value {
        Val::U8(byte) => Ok(byte),
        other => Err(format!("an item of a byte list is {}", kind(&other))),
    };
    items.into_iter().map(byte).collect()
}

fn kind(value: &Val) -> &'static str {
    match value {
        Val::Resource(_) => "a handle",
        Val::Future(_) | Val::Stream(_) => "a future or a stream",
        _ => "data",
    }
}
