//! Converts JSON arguments to values of WIT types. The arguments have been checked against the tool's schema, but a
//! schema cannot express every rule of a WIT type. The conversion therefore checks the arguments a second time before
//! the guest receives them.

use super::schema::UNUSUAL_FLOATS;
use super::shape::{Integer, Shape};
use agent_core::tool::Violation;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use serde_json::{Map, Value};
use std::fmt::Write;
use wasmtime::component::Val;

/// The decoder for standard base64. The decoder accepts text with and without padding at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The encoder for standard base64.
pub(crate) const BASE64_OUT: GeneralPurpose = general_purpose::STANDARD;

/// The largest integer that every JSON parser reads exactly.
pub(crate) const SAFE_INTEGER: i128 = (1 << 53) - 1;

/// Reads the values of these fields from a JSON object. `pointer` is the JSON pointer to the object within the
/// tool's arguments.
pub(crate) fn read_fields(
    fields: &[(String, Shape)],
    object: &Value,
    pointer: &str,
) -> Result<Vec<(String, Val)>, Violation> {
    Reader { pointer: pointer.to_owned() }.fields(fields, object)
}

struct Reader {
    pointer: String,
}

impl Reader {
    fn fields(&mut self, fields: &[(String, Shape)], value: &Value) -> Result<Vec<(String, Val)>, Violation> {
        let Value::Object(object) = value else { return Err(self.violation("type", "it must be an object")) };
        if let Some(key) = object.keys().find(|key| !fields.iter().any(|(name, _)| name == *key)) {
            let message = format!("unknown property {key:?}");
            return Err(self.violation("additionalProperties", &message));
        }
        let read = |(name, shape): &(String, Shape)| Ok((name.clone(), self.field(name, shape, object)?));
        fields.iter().map(read).collect()
    }

    fn field(&mut self, name: &str, shape: &Shape, object: &Map<String, Value>) -> Result<Val, Violation> {
        match object.get(name) {
            Some(value) => self.nested(name, |reader| reader.value(shape, value)),
            None if shape.has_null() => Ok(Val::Option(None)),
            None => Err(self.violation("required", &format!("{name:?} is missing"))),
        }
    }

    fn value(&mut self, shape: &Shape, value: &Value) -> Result<Val, Violation> {
        match shape {
            Shape::Bool => {
                value.as_bool().map(Val::Bool).ok_or_else(|| self.violation("type", "it must be true or false"))
            }
            Shape::Integer(integer) => self.integer(*integer, value),
            Shape::Float32 => {
                let float = self.float(value)?;
                let as_float32 = float as f32;
                if as_float32.is_infinite() && float.is_finite() {
                    return Err(self.violation("maximum", "it is too large for a 32-bit number"));
                }
                Ok(Val::Float32(as_float32))
            }
            Shape::Float64 => self.float(value).map(Val::Float64),
            Shape::Char => {
                let mut characters = self.text(value)?.chars();
                match (characters.next(), characters.next()) {
                    (Some(character), None) => Ok(Val::Char(character)),
                    _ => Err(self.violation("maxLength", "it must be one character")),
                }
            }
            Shape::String => Ok(Val::String(self.text(value)?.to_owned())),
            Shape::Bytes => self.bytes(value),
            Shape::List(item) => Ok(Val::List(self.items(value, |_| Some(item))?)),
            Shape::Tuple(items) => {
                let values = self.items(value, |index| items.get(index))?;
                if values.len() < items.len() {
                    return Err(self.violation("minItems", &format!("it must have {} items", items.len())));
                }
                Ok(Val::Tuple(values))
            }
            Shape::Record(fields) => Ok(Val::Record(self.fields(fields, value)?)),
            Shape::Enum(names) => {
                let name = self.text(value)?;
                self.known_name(names, name).map(Val::Enum)
            }
            Shape::Flags(names) => self.flags(names, value),
            Shape::Option(_) if value.is_null() => Ok(Val::Option(None)),
            Shape::Option(item) if item.has_null() => match value.get("some") {
                Some(some) => Ok(Val::Option(Some(Box::new(self.nested("some", |reader| reader.value(item, some))?)))),
                None => Err(self.violation("required", "it must be null or an object with \"some\"")),
            },
            Shape::Option(item) => Ok(Val::Option(Some(Box::new(self.value(item, value)?)))),
            Shape::Variant(_) | Shape::Result { .. } => self.case(shape, value),
        }
    }

    fn case(&mut self, shape: &Shape, value: &Value) -> Result<Val, Violation> {
        let cases = shape.cases().unwrap_or_default();
        let (name, payload) = match value {
            Value::String(name) => (name, None),
            Value::Object(object) if object.len() == 1 => match object.iter().next() {
                Some((name, payload)) => (name, Some(payload)),
                None => return Err(self.violation("minProperties", "it must name a case")),
            },
            _ => return Err(self.violation("type", "it must be the name of a case, or an object with one case")),
        };
        let payload = match (cases.iter().find(|(known, _)| known == name), payload) {
            (Some((_, None)), None) => None,
            (Some((_, Some(shape))), Some(value)) => {
                Some(Box::new(self.nested(name, |reader| reader.value(shape, value))?))
            }
            (Some((_, None)), Some(_)) => {
                return Err(self.violation("type", &format!("this case has no value; write only {name:?}")));
            }
            (Some((_, Some(_))), None) => {
                return Err(self.violation("type", &format!("this case needs a value; write {{{name:?}: …}}")));
            }
            (None, _) => return Err(self.violation("enum", &format!("unknown case {name:?}"))),
        };
        Ok(match shape {
            Shape::Result { .. } if name == "ok" => Val::Result(Ok(payload)),
            Shape::Result { .. } => Val::Result(Err(payload)),
            _ => Val::Variant(name.clone(), payload),
        })
    }

    fn integer(&self, integer: Integer, value: &Value) -> Result<Val, Violation> {
        let (smallest, largest) = integer.range();
        let wide = matches!(integer, Integer::S64 | Integer::U64);
        let number = match value {
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => Some(i128::from(number)),
                (_, Some(number), _) => Some(i128::from(number)),
                // JSON Schema accepts floats such as 1.0 and 1e18 as integers. The code below checks whether such
                // a float is in the range of the integer type.
                (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 2_f64.powi(64) => Some(float as i128),
                _ => None,
            },
            Value::String(digits) if wide => digits.parse().ok(),
            _ => None,
        };
        let Some(number) = number.filter(|number| (smallest..=largest).contains(number)) else {
            let message = format!("it must be a whole number from {smallest} to {largest}");
            return Err(self.violation("type", &message));
        };
        // The number is in range, so the casts do not change it.
        Ok(match integer {
            Integer::S8 => Val::S8(number as i8),
            Integer::U8 => Val::U8(number as u8),
            Integer::S16 => Val::S16(number as i16),
            Integer::U16 => Val::U16(number as u16),
            Integer::S32 => Val::S32(number as i32),
            Integer::U32 => Val::U32(number as u32),
            Integer::S64 => Val::S64(number as i64),
            Integer::U64 => Val::U64(number as u64),
        })
    }

    fn float(&self, value: &Value) -> Result<f64, Violation> {
        match value {
            Value::String(name) if UNUSUAL_FLOATS.contains(&name.as_str()) => match name.as_str() {
                "Infinity" => Ok(f64::INFINITY),
                "-Infinity" => Ok(f64::NEG_INFINITY),
                _ => Ok(f64::NAN),
            },
            other => other.as_f64().ok_or_else(|| {
                self.violation("type", "it must be a number, or one of \"NaN\", \"Infinity\" and \"-Infinity\"")
            }),
        }
    }

    fn bytes(&mut self, value: &Value) -> Result<Val, Violation> {
        if let Value::String(text) = value {
            let bytes = BASE64.decode(text).map_err(|error| self.violation("contentEncoding", &error.to_string()))?;
            return Ok(Val::List(bytes.into_iter().map(Val::U8).collect()));
        }
        Ok(Val::List(self.items(value, |_| Some(&Shape::Integer(Integer::U8)))?))
    }

    fn flags(&mut self, names: &[String], value: &Value) -> Result<Val, Violation> {
        let Value::Array(values) = value else { return Err(self.violation("type", "it must be an array of names")) };
        let mut set: Vec<String> = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let name = self.nested(&index.to_string(), |reader| {
                let name = reader.text(value)?;
                reader.known_name(names, name)
            })?;
            if !set.contains(&name) {
                set.push(name);
            }
        }
        Ok(Val::Flags(set))
    }

    fn items<'s>(&mut self, value: &Value, shape: impl Fn(usize) -> Option<&'s Shape>) -> Result<Vec<Val>, Violation> {
        let Value::Array(values) = value else { return Err(self.violation("type", "it must be an array")) };
        let mut items = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let shape =
                shape(index).ok_or_else(|| self.violation("maxItems", &format!("it has more than {index} items")))?;
            items.push(self.nested(&index.to_string(), |reader| reader.value(shape, value))?);
        }
        Ok(items)
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, Violation> {
        value.as_str().ok_or_else(|| self.violation("type", "it must be a string"))
    }

    fn known_name(&self, names: &[String], name: &str) -> Result<String, Violation> {
        let known = names.iter().find(|known| *known == name).cloned();
        known.ok_or_else(|| self.violation("enum", &format!("unknown name {name:?}")))
    }

    /// Reads a value inside the current value, with the function `read`. While `read` runs, the reader's JSON pointer
    /// ends with the name of that value.
    fn nested<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Result<T, Violation>) -> Result<T, Violation> {
        let length = self.pointer.len();
        let _ = write!(self.pointer, "/{}", name.replace('~', "~0").replace('/', "~1"));
        let value = read(self);
        self.pointer.truncate(length);
        value
    }

    fn violation(&self, rule: &str, message: &str) -> Violation {
        let message = crate::text::clean(message, 500);
        Violation { pointer: self.pointer.clone(), rule: Some(rule.to_owned()), message }
    }
}
