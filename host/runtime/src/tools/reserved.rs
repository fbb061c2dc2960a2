//! The fields of a service request's data that are reserved for the host, such as the field for the subject of the
//! requesting session (L15).

use serde_json::{Value, json};

/// The field in a service request's data that the host sets to the subject of the requesting session (L15).
pub(crate) const RESERVED_FIELD: &str = "parentSubject$$";
/// Suffix of all field names that are reserved for the host.
const RESERVED_SUFFIX: &str = "$$";

/// Whether the host fills in a field of the tool's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// The tool's schema has no reserved field.
    Nothing,
    /// The tool's schema has the field [`RESERVED_FIELD`], which the host sets to the session's subject.
    Subject,
}

/// Removes the field that is reserved for the host from a schema and its subschemas, before the model sees the
/// schema (L15).
pub(crate) fn without_reserved(schema: &mut Value) -> Reserved {
    let Some(object) = schema.as_object_mut() else { return Reserved::Nothing };
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    let mut is_reserved = properties.is_some_and(|properties| properties.remove(RESERVED_FIELD).is_some());
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        let old_length = required.len();
        required.retain(|name| name != RESERVED_FIELD);
        is_reserved |= required.len() < old_length;
    }
    for (keyword, part) in object.iter_mut() {
        let parts: Vec<&mut Value> = match (keyword.as_str(), part) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter_mut().collect(),
            ("$defs" | "definitions" | "dependentSchemas", Value::Object(parts)) => parts.values_mut().collect(),
            ("if" | "then" | "else", part) => vec![part],
            _ => continue,
        };
        for part in parts {
            is_reserved |= without_reserved(part) == Reserved::Subject;
        }
    }
    if is_reserved { Reserved::Subject } else { Reserved::Nothing }
}

/// Removes the host's reserved field from the arguments of a call, because the model must not set this field (L15).
pub(crate) fn without_reserved_value(mut arguments: Value) -> Value {
    if let Value::Object(fields) = &mut arguments {
        fields.remove(RESERVED_FIELD);
    }
    arguments
}

/// Returns the arguments with the session's subject in the field that is reserved for the host (L15).
pub(crate) fn with_reserved(arguments: &Value, subject: &str) -> Value {
    let mut fields = arguments.as_object().cloned().unwrap_or_default();
    fields.insert(RESERVED_FIELD.to_owned(), json!(subject));
    Value::Object(fields)
}

/// Returns the JSON pointer of the first reserved key in a plugin's data, at any depth. `None` if no key is reserved.
pub(crate) fn reserved_key(data: &Value) -> Option<String> {
    let nested = |key: String, value: &Value| reserved_key(value).map(|pointer| format!("/{key}{pointer}"));
    match data {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let shown = || key.chars().take(64).flat_map(char::escape_debug).collect::<String>();
            if is_reserved_key(key) { Some(format!("/{}", shown())) } else { nested(shown(), value) }
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| nested(index.to_string(), item)),
        _ => None,
    }
}

/// Whether a key is reserved. Services that receive a request may trim and normalise its keys. Therefore a key counts
/// as reserved even if invisible characters follow `$$`, or if the dollar signs have full-width or small forms.
fn is_reserved_key(key: &str) -> bool {
    let normalized =
        key.chars().map(|character| if matches!(character, '\u{ff04}' | '\u{fe69}') { '$' } else { character });
    let normalized: String =
        normalized.filter(|character| character.is_ascii_graphic() || character.is_alphanumeric()).collect();
    normalized.ends_with(RESERVED_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 51, L15: reserved keys are found at any depth, even if other characters disguise them.
    #[test]
    fn row51_reserved_keys_are_found_at_any_depth() {
        for (data, pointer) in [
            (json!({"parentSubject$$": "x"}), "/parentSubject$$"),
            (json!({"PARENTSUBJECT$$": "x"}), "/PARENTSUBJECT$$"),
            (json!({"parentSubject$$ ": "x"}), "/parentSubject$$ "),
            (json!({"parentSubject$$\u{200b}": "x"}), "/parentSubject$$\\u{200b}"),
            (json!({"parentSubject＄＄": "x"}), "/parentSubject＄＄"),
            (json!({"anything$$": null}), "/anything$$"),
            (json!({"a": [1, {"b": {"parentSubject$$": {}}}]}), "/a/1/b/parentSubject$$"),
            (json!([[{"parentSubject$$": 1}]]), "/0/0/parentSubject$$"),
        ] {
            assert_eq!(reserved_key(&data).as_deref(), Some(pointer), "{data}");
        }
        for allowed in
            [json!({"price$": 1, "$ref": "x", "$$typeof": 1, "a": ["parentSubject$$"]}), json!(null), json!("a$$")]
        {
            assert_eq!(reserved_key(&allowed), None, "{allowed}");
        }
    }

    /// L15: the model does not see the field that is reserved for the host, and the host fills this field in.
    #[test]
    fn l15_the_reserved_field_is_removed_and_filled_in() {
        let mut schema = json!({"type": "object", "required": ["n", "parentSubject$$"],
            "properties": {"n": {"type": "integer"}, "parentSubject$$": {"type": "string"}}});
        assert_eq!(without_reserved(&mut schema), Reserved::Subject);
        assert_eq!(schema, json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}));
        assert_eq!(without_reserved(&mut schema), Reserved::Nothing);
        let mut composed = json!({"$ref": "#/$defs/r", "$defs": {"r": {"allOf": [
            {"properties": {"parentSubject$$": {"type": "string"}}}, {"required": ["parentSubject$$", "n"]}]}}});
        assert_eq!(without_reserved(&mut composed), Reserved::Subject);
        assert!(!composed.to_string().contains("parentSubject"), "{composed}");
        let from_the_model = without_reserved_value(json!({"n": 1, "parentSubject$$": "somebody else"}));
        assert_eq!(with_reserved(&from_the_model, "agent/1"), json!({"n": 1, "parentSubject$$": "agent/1"}));
    }
}
