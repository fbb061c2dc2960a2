//! What a tool's schema says about its arguments, as far as the router can read values for them.

use serde_json::{Value, json};

/// Names of string properties that hold a path in a tree. A name that ends with `_` and one of these does, too.
const PATH_NAMES: &[&str] =
    &["path", "file", "filename", "directory", "dir", "folder", "from", "to", "source", "destination", "target"];

/// Names of string properties that hold arithmetic.
const EXPRESSION_NAMES: &[&str] = &["expression", "expr", "formula"];

/// Steps through `$ref` and alternatives after which a schema is not understood.
const DEPTH: usize = 8;

/// Required properties of an object in an argument that are shown.
const OBJECT: usize = 16;

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
    /// An object, or alternatives of which the first is one: what it must have. Only for lines to type.
    Object(Vec<Property>),
    /// Anything else.
    Other,
}

impl Kind {
    /// A value of this kind that shows where to write one's own; with this path where there must be one.
    pub(super) fn placeholder(&self, path: Option<&str>) -> Value {
        match (self, path) {
            (Self::Path, Some(path)) => return json!(path),
            (Self::Object(required), _) => {
                let places = required.iter().map(|property| (property.name.clone(), property.kind.placeholder(path)));
                return Value::Object(places.collect());
            }
            _ => {}
        }
        match self {
            Self::Path | Self::Url | Self::Expression | Self::Text => json!("…"),
            Self::Number | Self::Integer => json!(0),
            Self::Boolean => json!(false),
            Self::Choice(values) => values.first().cloned().unwrap_or(Value::Null),
            Self::List => json!([]),
            Self::Object(_) | Self::Other => json!({}),
        }
    }
}

/// The properties in the order of the schema.
pub(super) fn properties(schema: &Value) -> Vec<Property> {
    let found = names(schema).into_iter();
    found.map(|(name, presence)| property(name, presence, schema, schema, DEPTH)).collect()
}

/// The names of an object's properties: declared ones first, then those that are only required.
fn names(object: &Value) -> Vec<(&str, Presence)> {
    let required: Vec<&str> =
        object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let declared = object.get("properties").and_then(Value::as_object);
    let is_declared = |name: &str| declared.is_some_and(|declared| declared.contains_key(name));
    let presence = |name: &str| {
        if required.contains(&name) { Presence::Required } else { Presence::Optional }
    };
    let undeclared = required.iter().filter(|name| !is_declared(name)).copied();
    let declared = declared.into_iter().flat_map(|declared| declared.keys().map(String::as_str));
    declared.chain(undeclared).map(|name| (name, presence(name))).collect()
}

fn property(name: &str, presence: Presence, object: &Value, schema: &Value, depth: usize) -> Property {
    let declared = object.get("properties").and_then(|properties| properties.get(name));
    Property {
        name: name.to_owned(),
        kind: declared.map_or(Kind::Other, |declared| kind(name, declared, schema, depth)),
        presence,
    }
}

/// What an object must have; not understood where that is nothing. Objects in objects are looked into only so far that
/// no schema takes long.
fn object(found: &Value, schema: &Value, depth: usize) -> Kind {
    let required = names(found).into_iter().filter(|(_, presence)| *presence == Presence::Required);
    let required: Vec<Property> = required
        .take(OBJECT)
        .map(|(name, presence)| property(name, presence, found, schema, depth.saturating_sub(2)))
        .collect();
    if required.is_empty() { Kind::Other } else { Kind::Object(required) }
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
    if let Some(pointer) = property.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#')) {
        return schema.pointer(pointer).map_or(Kind::Other, |target| kind(name, target, schema, depth - 1));
    }
    if let Some(alternatives) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| property.get(key)?.as_array()) {
        return match one_of(name, alternatives, schema, depth - 1) {
            Kind::Other if property.get("allOf").is_none() => first_object(alternatives, schema, depth - 1),
            kind => kind,
        };
    }
    match type_of(property) {
        Some("string") => text_kind(name, property),
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::List,
        _ => object(property, schema, depth - 1),
    }
}

/// The first alternative, where it is an object.
fn first_object(alternatives: &[Value], schema: &Value, depth: usize) -> Kind {
    let first = alternatives.iter().find(|alternative| type_of(alternative) != Some("null"));
    match first.map(|first| kind("", first, schema, depth)) {
        Some(kind @ Kind::Object(_)) => kind,
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
    constants.collect::<Option<Vec<_>>>().map_or(Kind::Other, |values| Kind::Choice(values.concat()))
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
    let named = |names: &[&str]| names.iter().any(|known| name == *known || name.ends_with(&format!("_{known}")));
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
            ("n", json!({"anyOf": [{"type": "number"}, {"type": "null"}]}), Kind::Number),
            ("n", json!({"type": ["number", "string"]}), Kind::Other),
            ("list", json!({"type": "array"}), Kind::List),
            ("unit", json!({"$ref": "#/$defs/Unit"}), Kind::Choice(vec![json!("words"), json!("lines")])),
            ("unit", json!({"oneOf": [{"const": "a"}, {"const": "b"}]}), Kind::Choice(vec![json!("a"), json!("b")])),
            ("loop", json!({"$ref": "#/$defs/Loop"}), Kind::Other),
            ("far", json!({"$ref": "https://example.com/x"}), Kind::Other),
        ];
        for (name, property, expected) in cases {
            let schema = json!({
                "properties": {name: property.clone()}, "required": [name],
                "$defs": {"Unit": {"enum": ["words", "lines"]}, "Loop": {"$ref": "#/$defs/Loop"}},
            });
            let expected = Property { name: name.into(), kind: expected, presence: Presence::Required };
            assert_eq!(properties(&schema), [expected], "{name}: {property}");
        }
    }

    /// M4: a line to type can work.
    #[test]
    fn objects_are_shown_with_what_they_must_have() {
        let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let data = json!({"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]});
        let cases = [
            (json!({"oneOf": [path, data]}), json!({"path": "…"})),
            (json!({"anyOf": [{"type": "null"}, data, path]}), json!({"data": "…"})),
            (json!({"$ref": "#/$defs/Nested"}), json!({"inner": {"path": "…"}, "n": 0})),
            (json!({"$ref": "#/$defs/Endless"}), json!({"next": {"next": {}}})),
            (json!({"type": "object"}), json!({})),
            (json!({"oneOf": [{"type": "string"}, path]}), json!({})),
        ];
        for (from, expected) in cases {
            let schema = json!({
                "properties": {"from": from}, "required": ["from"],
                "$defs": {
                    "Nested": {"properties": {"n": {"type": "integer"}, "inner": path}, "required": ["inner", "n"]},
                    "Endless": {"properties": {"next": {"$ref": "#/$defs/Endless"}}, "required": ["next"]},
                },
            });
            let found = properties(&schema);
            assert_eq!(found[0].kind.placeholder(None), expected, "{schema}");
        }
        let nested = Kind::Object(properties(&path));
        assert_eq!(nested.placeholder(Some("a.csv")), json!({"path": "a.csv"}));
    }

    #[test]
    fn what_is_required_without_being_declared_is_not_understood() {
        let found = properties(&json!({"required": ["x"]}));
        assert_eq!(found, [Property { name: "x".into(), kind: Kind::Other, presence: Presence::Required }]);
        assert!(properties(&json!(true)).is_empty());
    }
}
