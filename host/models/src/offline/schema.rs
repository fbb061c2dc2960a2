//! What a tool's schema says about its arguments, as far as the router can read values for them.

use serde_json::{Map, Value, json};

/// Names of string properties that hold a path in a tree. A name that ends with `_` and one of these does, too.
const PATH_NAMES: &[&str] = &[
    "path",
    "file",
    "filename",
    "directory",
    "dir",
    "folder",
    "from",
    "to",
    "source",
    "destination",
    "target",
];

/// Names of string properties that hold arithmetic.
const EXPRESSION_NAMES: &[&str] = &["expression", "expr", "formula"];

/// Steps through `$ref` and alternatives after which a schema is not understood.
const DEPTH: usize = 8;

/// One property of the arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    /// Its key.
    pub(super) name: String,
    /// What stands there.
    pub(super) kind: Kind,
    /// Whether it must be there.
    pub(super) presence: Presence,
}

/// Whether a property must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It must.
    Required,
    /// It need not.
    Optional,
}

/// What stands in a property.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A string with a path.
    Path,
    /// A string with a URL.
    Url,
    /// A string with arithmetic.
    Expression,
    /// Any other string.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// One of these.
    Choice(Vec<Value>),
    /// A list.
    List,
    /// Anything else.
    Other,
}

impl Kind {
    /// A value of this kind that shows where to write one's own.
    pub(super) fn placeholder(&self) -> Value {
        match self {
            Self::Path | Self::Url | Self::Expression | Self::Text => json!("…"),
            Self::Number | Self::Integer => json!(0),
            Self::Boolean => json!(false),
            Self::Choice(values) => values.first().cloned().unwrap_or(Value::Null),
            Self::List => json!([]),
            Self::Other => json!({}),
        }
    }
}

/// The properties in the order of the schema.
pub(super) fn properties(schema: &Value) -> Vec<Property> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let declared = properties.iter().map(|(name, property)| Property {
        name: name.clone(),
        kind: kind(name, property, schema, DEPTH),
        presence: if required.contains(&name.as_str()) {
            Presence::Required
        } else {
            Presence::Optional
        },
    });
    let undeclared = required
        .iter()
        .filter(|name| !properties.contains_key(**name))
        .map(|name| Property {
            name: (*name).to_owned(),
            kind: Kind::Other,
            presence: Presence::Required,
        });
    declared.chain(undeclared).collect()
}

fn kind(name: &str, property: &Value, schema: &Value, depth: usize) -> Kind {
    if depth == 0 {
        return Kind::Other;
    }
    if let Some(value) = property.get("const") {
        return Kind::Choice(vec![value.clone()]);
    }
    if let Some(values) = property.get("enum").and_then(Value::as_array) {
        return Kind::Choice(values.iter().filter(|value| !value.is_null()).cloned().collect());
    }
    if let Some(pointer) = property
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|target| target.strip_prefix('#'))
    {
        return schema
            .pointer(pointer)
            .map_or(Kind::Other, |target| kind(name, target, schema, depth - 1));
    }
    if let Some(alternatives) = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| property.get(key)?.as_array())
    {
        return one_of(name, alternatives, schema, depth - 1);
    }
    match type_of(property) {
        Some("string") => text_kind(name, property),
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::List,
        _ => Kind::Other,
    }
}

/// The one alternative besides null, or a choice of constants; more of them are not understood.
fn one_of(name: &str, alternatives: &[Value], schema: &Value, depth: usize) -> Kind {
    let mut kinds: Vec<Kind> = alternatives
        .iter()
        .filter(|alternative| type_of(alternative) != Some("null"))
        .map(|alternative| kind(name, alternative, schema, depth))
        .collect();
    if kinds.len() == 1 {
        return kinds.remove(0);
    }
    let constants = kinds.into_iter().map(|kind| match kind {
        Kind::Choice(values) => Some(values),
        _ => None,
    });
    constants
        .collect::<Option<Vec<_>>>()
        .map_or(Kind::Other, |values| Kind::Choice(values.concat()))
}

/// The one type besides null.
fn type_of(property: &Value) -> Option<&str> {
    match property.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => {
            let mut names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.next().filter(|_| names.next().is_none())
        }
        _ => None,
    }
}

fn text_kind(name: &str, property: &Value) -> Kind {
    let name = name.to_lowercase();
    let named = |names: &[&str]| {
        names
            .iter()
            .any(|known| name == *known || name.ends_with(&format!("_{known}")))
    };
    match property.get("format").and_then(Value::as_str) {
        Some("uri" | "url") => Kind::Url,
        Some("path") => Kind::Path,
        _ if named(&["url", "uri"]) => Kind::Url,
        _ if named(PATH_NAMES) => Kind::Path,
        _ if named(EXPRESSION_NAMES) => Kind::Expression,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_properties() {
        let cases = [
            ("path", json!({"type": "string"}), Kind::Path),
            ("old_file", json!({"type": ["string", "null"]}), Kind::Path),
            ("profile", json!({"type": "string"}), Kind::Text),
            ("url", json!({"type": "string"}), Kind::Url),
            ("link", json!({"type": "string", "format": "uri"}), Kind::Url),
            ("expression", json!({"type": "string"}), Kind::Expression),
            ("n", json!({"type": "integer"}), Kind::Integer),
            (
                "n",
                json!({"anyOf": [{"type": "number"}, {"type": "null"}]}),
                Kind::Number,
            ),
            ("n", json!({"type": ["number", "string"]}), Kind::Other),
            ("list", json!({"type": "array"}), Kind::List),
            (
                "unit",
                json!({"$ref": "#/$defs/Unit"}),
                Kind::Choice(vec![json!("words"), json!("lines")]),
            ),
            (
                "unit",
                json!({"oneOf": [{"const": "a"}, {"const": "b"}]}),
                Kind::Choice(vec![json!("a"), json!("b")]),
            ),
            ("loop", json!({"$ref": "#/$defs/Loop"}), Kind::Other),
            ("far", json!({"$ref": "https://example.com/x"}), Kind::Other),
        ];
        for (name, property, expected) in cases {
            let schema = json!({
                "properties": {name: property.clone()}, "required": [name],
                "$defs": {"Unit": {"enum": ["words", "lines"]}, "Loop": {"$ref": "#/$defs/Loop"}},
            });
            let expected = Property {
                name: name.into(),
                kind: expected,
                presence: Presence::Required,
            };
            assert_eq!(properties(&schema), [expected], "{name}: {property}");
        }
    }

    #[test]
    fn what_is_required_without_being_declared_is_not_understood() {
        let found = properties(&json!({"required": ["x"]}));
        assert_eq!(
            found,
            [Property {
                name: "x".into(),
                kind: Kind::Other,
                presence: Presence::Required
            }]
        );
        assert!(properties(&json!(true)).is_empty());
    }
}
