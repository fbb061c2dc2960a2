//! Determines from a tool's schema which kinds of values its properties accept.

use serde_json::{Value, json};

/// A string property is assumed to contain a path if its name is one of these names, or ends with `_` followed by one
/// of these names.
const PATH_NAMES: &[&str] =
    &["path", "file", "filename", "directory", "dir", "folder", "from", "to", "source", "destination", "target"];

/// A string property is assumed to contain an arithmetic expression if its name is one of these names.
const EXPRESSION_NAMES: &[&str] = &["expression", "expr", "formula"];

/// Maximum depth to which references (`$ref`), alternatives and objects inside one another are followed.
const MAX_DEPTH: usize = 8;

/// Maximum number of required properties that the placeholder for an object contains.
const MAX_OBJECT_PROPERTIES: usize = 16;

/// Maximum number of items that the placeholder for a list contains.
const MAX_LIST_ITEMS: u64 = 4;

/// Maximum size of a proposed value as JSON, in bytes. Schemas can contain long examples.
const MAX_PROPOSED_BYTES: usize = 200;

/// One property of a tool's arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    /// Name of the property.
    pub(super) name: String,
    /// Kind of the property's value.
    pub(super) kind: Kind,
    /// Whether the property is required.
    pub(super) presence: Presence,
    /// A value that the property's schema itself proposes, or that the schema's limits require.
    pub(super) proposed: Option<Value>,
}

impl Property {
    /// Returns a placeholder value for the property. If `path` is not `None`, the placeholder for a path is `path`.
    pub(super) fn placeholder(&self, path: Option<&str>) -> Value {
        match (&self.kind, path, &self.proposed) {
            (Kind::Path, Some(path), _) => json!(path),
            (_, _, Some(proposed)) => proposed.clone(),
            _ => self.kind.placeholder(path),
        }
    }
}

/// Whether a property is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The property is required.
    Required,
    /// The property is optional.
    Optional,
}

/// Kind of a property's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A path.
    Path,
    /// A URL.
    Url,
    /// An arithmetic expression.
    Expression,
    /// A string that is not a path, URL or expression.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// One of these values.
    Choice(Vec<Value>),
    /// A list.
    List,
    /// An object with these required properties. If the schema has alternatives, these are the properties of the first
    /// alternative. This variant is used only to build placeholders in suggested call lines.
    Object(Vec<Property>),
    /// A value of a kind that is unknown or has no variant in this enum.
    Other,
}

impl Kind {
    /// Returns a placeholder value of this kind. If `path` is not `None`, the placeholder for a path is `path`.
    fn placeholder(&self, path: Option<&str>) -> Value {
        match (self, path) {
            (Self::Path, Some(path)) => return json!(path),
            (Self::Object(required), _) => {
                let placeholders = required.iter().map(|property| (property.name.clone(), property.placeholder(path)));
                return Value::Object(placeholders.collect());
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

/// Returns the properties of a tool's arguments, in the order of [`property_names`].
pub(super) fn properties(schema: &Value) -> Vec<Property> {
    let names = property_names(schema).into_iter();
    names.map(|(name, presence)| property(name, presence, schema, schema, MAX_DEPTH)).collect()
}

/// Returns the names of an object's properties. The declared properties come first, followed by properties that are
/// required but not declared.
fn property_names(object: &Value) -> Vec<(&str, Presence)> {
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
        kind: declared.map_or(Kind::Other, |declared| value_kind(name, declared, schema, depth)),
        presence,
        proposed: declared.and_then(|declared| proposed_value(name, declared, schema, depth)),
    }
}

/// Returns the value that the schema `property` proposes: its default, its first example, or the smallest value that its limits
/// allow. Returns `None` if the usual placeholder is within the limits.
fn proposed_value(name: &str, property: &Value, schema: &Value, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let example = property.get("examples").and_then(|examples| examples.get(0));
    let written = property.get("default").filter(|value| !value.is_null()).or(example);
    if let Some(written) = written.filter(|value| value.to_string().len() <= MAX_PROPOSED_BYTES) {
        return Some(written.clone());
    }
    match type_of(property) {
        Some("integer" | "number") => nearest_to_zero(property),
        Some("array") => {
            let count =
                property.get("minItems").and_then(Value::as_u64).filter(|count| *count > 0)?.min(MAX_LIST_ITEMS);
            let items = property.get("items").unwrap_or(&Value::Null);
            let item = Property {
                name: name.to_owned(),
                kind: value_kind(name, items, schema, depth),
                presence: Presence::Required,
                proposed: proposed_value(name, items, schema, depth),
            };
            let list = Value::Array((0..count).map(|_| item.placeholder(None)).collect());
            // Without this limit, lists inside lists would multiply.
            (list.to_string().len() <= MAX_PROPOSED_BYTES).then_some(list)
        }
        _ => None,
    }
}

/// Returns the allowed whole number that is nearest to zero. Returns `None` if zero is allowed.
fn nearest_to_zero(property: &Value) -> Option<Value> {
    let limit = |key: &str| property.get(key).and_then(Value::as_f64).filter(|limit| limit.abs() < 1e15);
    let least = limit("minimum").map(f64::ceil).or(limit("exclusiveMinimum").map(|limit| limit.floor() + 1.0));
    let greatest = limit("maximum").map(f64::floor).or(limit("exclusiveMaximum").map(|limit| limit.ceil() - 1.0));
    let number = least.filter(|least| *least > 0.0).or(greatest.filter(|greatest| *greatest < 0.0))?;
    // The limits above make this conversion exact.
    Some(json!(number as i64))
}

/// Returns [`Kind::Object`] with the object's required properties, or [`Kind::Other`] if no property is required. The
/// depth is limited, so that deeply nested schemas do not take too long.
fn object_kind(object: &Value, schema: &Value, depth: usize) -> Kind {
    let required = property_names(object).into_iter().filter(|(_, presence)| *presence == Presence::Required);
    let required: Vec<Property> = required
        .take(MAX_OBJECT_PROPERTIES)
        .map(|(name, presence)| property(name, presence, object, schema, depth.saturating_sub(2)))
        .collect();
    if required.is_empty() { Kind::Other } else { Kind::Object(required) }
}

/// Returns the kind of value that the schema `property` accepts. References (`$ref`) in `property` are resolved in
/// `schema`, the whole schema of the tool.
fn value_kind(name: &str, property: &Value, schema: &Value, depth: usize) -> Kind {
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
        return schema.pointer(pointer).map_or(Kind::Other, |target| value_kind(name, target, schema, depth - 1));
    }
    if let Some(alternatives) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| property.get(key)?.as_array()) {
        return match alternatives_kind(name, alternatives, schema, depth - 1) {
            Kind::Other if property.get("allOf").is_none() => first_object(alternatives, schema, depth - 1),
            kind => kind,
        };
    }
    match type_of(property) {
        Some("string") => string_kind(name, property),
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::List,
        _ => object_kind(property, schema, depth - 1),
    }
}

/// Returns the kind of the first alternative that is not null, if this alternative is an object. Returns
/// [`Kind::Other`] in all other cases.
fn first_object(alternatives: &[Value], schema: &Value, depth: usize) -> Kind {
    let first = alternatives.iter().find(|alternative| type_of(alternative) != Some("null"));
    match first.map(|first| value_kind("", first, schema, depth)) {
        Some(kind @ Kind::Object(_)) => kind,
        _ => Kind::Other,
    }
}

/// If there is exactly one alternative other than null, returns its kind. If all alternatives are constants, returns a
/// choice between them. In all other cases, returns `Other`.
fn alternatives_kind(name: &str, alternatives: &[Value], schema: &Value, depth: usize) -> Kind {
    let mut kinds: Vec<Kind> = alternatives
        .iter()
        .filter(|alternative| type_of(alternative) != Some("null"))
        .map(|alternative| value_kind(name, alternative, schema, depth))
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

/// Returns the type of the property if there is exactly one type other than null.
fn type_of(property: &Value) -> Option<&str> {
    match property.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(types) => {
            let mut types = types.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            types.next().filter(|_| types.next().is_none())
        }
        _ => None,
    }
}

fn string_kind(name: &str, property: &Value) -> Kind {
    let name = name.to_lowercase();
    let is_named =
        |known_names: &[&str]| known_names.iter().any(|known| name == *known || name.ends_with(&format!("_{known}")));
    match property.get("format").and_then(Value::as_str) {
        Some("uri" | "url") => Kind::Url,
        Some("path") => Kind::Path,
        _ if is_named(&["url", "uri"]) => Kind::Url,
        _ if is_named(PATH_NAMES) => Kind::Path,
        _ if is_named(EXPRESSION_NAMES) => Kind::Expression,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_kinds_are_recognised() {
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
            let expected = Property { name: name.into(), kind: expected, presence: Presence::Required, proposed: None };
            assert_eq!(properties(&schema), [expected], "{name}: {property}");
        }
    }

    /// M4: placeholders contain all required properties, so that suggested call lines are valid.
    #[test]
    fn m4_placeholders_of_objects_contain_required_properties() {
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
        for (property, expected) in cases {
            let schema = json!({
                "properties": {"from": property}, "required": ["from"],
                "$defs": {
                    "Nested": {"properties": {"n": {"type": "integer"}, "inner": path}, "required": ["inner", "n"]},
                    "Endless": {"properties": {"next": {"$ref": "#/$defs/Endless"}}, "required": ["next"]},
                },
            });
            let properties = properties(&schema);
            assert_eq!(properties[0].placeholder(None), expected, "{schema}");
        }
        let nested = Kind::Object(properties(&path));
        assert_eq!(nested.placeholder(Some("a.csv")), json!({"path": "a.csv"}));
    }

    /// M4: placeholders are within the limits of their schemas, and schemas can propose them.
    #[test]
    fn m4_placeholders_are_valid() {
        let cases = [
            (json!({"type": "integer", "minimum": 1}), json!(1)),
            (json!({"type": "integer", "exclusiveMinimum": 0, "maximum": 10}), json!(1)),
            (json!({"type": "number", "minimum": 0.5}), json!(1)),
            (json!({"type": "integer", "maximum": -3}), json!(-3)),
            (json!({"type": "integer", "exclusiveMaximum": 0}), json!(-1)),
            (json!({"type": "integer", "minimum": -5, "maximum": 5}), json!(0)),
            (json!({"type": "integer", "minimum": 1, "default": 20}), json!(20)),
            (json!({"type": "string", "minLength": 1, "examples": ["2026-11-29"]}), json!("2026-11-29")),
            (json!({"type": "array", "minItems": 1, "items": {"type": "string"}}), json!(["…"])),
            (
                json!({"type": "array", "minItems": 2, "items": {"properties": {"n": {"type": "integer", "minimum": 2}}, "required": ["n"]}}),
                json!([{"n": 2}, {"n": 2}]),
            ),
            (json!({"type": "array"}), json!([])),
        ];
        for (property, expected) in cases {
            let schema = json!({"properties": {"x": property}, "required": ["x"]});
            let placeholder = properties(&schema)[0].placeholder(None);
            assert_eq!(placeholder, expected, "{schema}");
            let compiled = agent_core::schema::Schema::compile(&schema).expect("a valid schema");
            assert_eq!(compiled.check(&json!({"x": placeholder})), Ok(()), "{schema}");
        }
        let long = json!({"properties": {"x": {"type": "string", "default": "a".repeat(300)}}, "required": ["x"]});
        assert_eq!(properties(&long)[0].placeholder(None), json!("…"));
        let nest = |items: Value| json!({"type": "array", "minItems": 4, "items": items});
        let nested = (0..6).fold(json!({"type": "string", "examples": ["a".repeat(90)]}), |items, _| nest(items));
        let nested = json!({"properties": {"x": nested}, "required": ["x"]});
        assert!(properties(&nested)[0].placeholder(None).to_string().len() <= MAX_PROPOSED_BYTES);
    }

    #[test]
    fn undeclared_required_properties_have_no_known_kind() {
        let undeclared = properties(&json!({"required": ["x"]}));
        let expected = Property { name: "x".into(), kind: Kind::Other, presence: Presence::Required, proposed: None };
        assert_eq!(undeclared, [expected]);
        assert!(properties(&json!(true)).is_empty());
    }
}
