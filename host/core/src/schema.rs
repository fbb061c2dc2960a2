//! Validates JSON against JSON Schemas (L8, L12). A schema is compiled once. References to other documents are never
//! fetched. The work of each check is bounded.

mod check_cost;

use crate::tool::{ToolError, Violation};
use check_cost::{CheckCost, MAX_CHECKS, MAX_SUBSCHEMAS, NoEstimate};
use serde_json::Value;

/// Maximum size of a schema, in bytes of JSON text.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Maximum nesting depth of a schema and of checked data. `serde_json` has the same limit.
const MAX_DEPTH: usize = 128;
/// Maximum number of violations that are reported for one document.
const MAX_VIOLATIONS: usize = 10;
/// Maximum number of characters of one violation's message.
const MAX_MESSAGE_LENGTH: usize = 500;
/// Maximum size of one compiled regular expression, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
    /// Graph of the subschemas. The graph is used to estimate the work of a check before the check starts. `None` means
    /// that no estimate is needed, because this schema checks every document quickly.
    check_cost: Option<CheckCost>,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema exceeds a limit.
    #[error("the JSON Schema is too large: {0}")]
    TooLarge(String),
    /// The schema refers to another document.
    #[error(
        "the JSON Schema refers to `{0}`; only references within the schema (`#…`) are allowed, and nothing is fetched"
    )]
    RemoteReference(String),
    /// The schema is not a valid JSON Schema.
    #[error("the JSON Schema is invalid: {0}")]
    Invalid(String),
}

impl Schema {
    /// Checks and compiles a schema. The draft is 2020-12 unless `$schema` names another draft.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !schema.is_object() && !schema.is_boolean() {
            return Err(SchemaError::Invalid("it must be an object or a boolean".to_owned()));
        }
        check_depth_and_references(schema, 0)?;
        let bytes = schema.to_string().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLarge(format!("it has {bytes} bytes; the maximum is {MAX_SCHEMA_BYTES}")));
        }
        let check_cost = check_cost(schema)?;
        let patterns = jsonschema::PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| SchemaError::Invalid(shorten(&error.to_string())))?;
        Ok(Self { validator, check_cost })
    }

    /// Validates a value against the schema. The error lists at most ten violations.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        if let Some(check_cost) = &self.check_cost
            && check_cost.checks(value) > MAX_CHECKS
        {
            let message = "it is too large or nested too deeply for its schema, which checks the same value many times"
                .to_owned();
            return Err(vec![Violation { pointer: String::new(), rule: Some("effort".to_owned()), message }]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let errors = self.validator.iter_errors(value).take(MAX_VIOLATIONS);
        let violations = errors.map(|error| Violation {
            pointer: error.instance_path().as_str().to_owned(),
            rule: Some(error.kind().keyword().to_owned()),
            message: shorten(&error.masked_with("the value").to_string()),
        });
        Err(violations.collect())
    }
}

/// Returns a graph that estimates the work of checking a document against the schema. `None` means that no estimate is
/// needed, because the schema checks every document quickly.
fn check_cost(schema: &Value) -> Result<Option<CheckCost>, SchemaError> {
    let check_cost = CheckCost::of(schema).map_err(|reason| match reason {
        NoEstimate::Circular => {
            SchemaError::Invalid("a subschema refers to itself without descending into the data".to_owned())
        }
        NoEstimate::TooManySubschemas => SchemaError::TooLarge(format!("it has more than {MAX_SUBSCHEMAS} subschemas")),
    })?;
    if check_cost.checks(&Value::Null) > MAX_CHECKS {
        return Err(SchemaError::TooLarge(format!("it checks a single value more than {MAX_CHECKS} times")));
    }
    Ok((!check_cost.is_always_small()).then_some(check_cost))
}

/// Parses the arguments of a call. An empty text is parsed as an empty object.
pub fn parse_arguments(text: &str) -> Result<Value, ToolError> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Default::default()));
    }
    serde_json::from_str(text).map_err(|error| ToolError::InvalidArguments {
        violations: vec![Violation {
            pointer: String::new(),
            rule: Some("json".to_owned()),
            message: format!("the arguments are not JSON: {error}"),
        }],
    })
}

/// Refuses schemas that are nested too deeply or refer to other documents.
fn check_depth_and_references(value: &Value, depth: usize) -> Result<(), SchemaError> {
    if depth > MAX_DEPTH {
        return Err(SchemaError::TooLarge(format!("it has more than {MAX_DEPTH} levels")));
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check_depth_and_references(item, depth + 1)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, field)| {
            match (key.as_str(), field) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) if !target.starts_with('#') => {
                    return Err(SchemaError::RemoteReference(shorten(target)));
                }
                _ => {}
            }
            check_depth_and_references(field, depth + 1)
        }),
        _ => Ok(()),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_LENGTH) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn l8_a_violation_contains_the_pointer_and_the_rule() {
        let schema = json!({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
            "path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}}}});
        let schema = Schema::compile(&schema).unwrap();
        assert_eq!(schema.check(&json!({"path": "a", "lines": [1]})), Ok(()));
        let violations = schema.check(&json!({"lines": [3, 0], "colour": "red"})).unwrap_err();
        let found: Vec<_> = violations.iter().map(|v| (v.pointer.as_str(), v.rule.as_deref().unwrap())).collect();
        assert!(found.contains(&("", "required")), "{found:?}");
        assert!(found.contains(&("/lines/1", "minimum")), "{found:?}");
        assert!(found.contains(&("", "additionalProperties")), "{found:?}");
    }

    #[test]
    fn l8_remote_references_are_refused() {
        for target in ["http://example.org/a.json", "file:///etc/passwd", "other.json", "//x"] {
            let schema = json!({"properties": {"a": {"$ref": target}}});
            assert_eq!(Schema::compile(&schema).unwrap_err(), SchemaError::RemoteReference(target.to_owned()));
        }
        let own = json!({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}});
        assert!(Schema::compile(&own).unwrap().check(&json!({"a": "x"})).is_err());
    }

    #[test]
    fn row_34_expensive_schemas_are_refused() {
        let mut deep = json!({"type": "object"});
        for _ in 0..10_000 {
            // The `json!` macro is not used here, because the macro would copy the nested value.
            deep = Value::Object([("not".to_owned(), deep)].into_iter().collect());
        }
        assert!(matches!(Schema::compile(&deep), Err(SchemaError::TooLarge(_))));
        // The value is not dropped, because dropping 10,000 levels recursively would overflow the stack of the test.
        std::mem::forget(deep);
        let wide = json!({"description": "x".repeat(10 << 20)});
        assert!(matches!(Schema::compile(&wide), Err(SchemaError::TooLarge(_))));
        let many = json!({"allOf": vec![true; MAX_SUBSCHEMAS]});
        assert!(
            matches!(Schema::compile(&many), Err(SchemaError::TooLarge(message)) if message.contains("subschemas"))
        );
        let pattern = json!({"type": "string", "pattern": "^(a+)+$"});
        let text = format!("{}!", "a".repeat(100_000));
        assert!(Schema::compile(&pattern).unwrap().check(&json!(text)).is_err());
        assert!(matches!(Schema::compile(&json!({"pattern": "(?=a)b"})), Err(SchemaError::Invalid(_))));
        assert!(matches!(Schema::compile(&json!({"pattern": "(a{1000}){1000}"})), Err(SchemaError::Invalid(_))));
    }

    #[test]
    fn row_34_exponential_numbers_of_checks_are_refused() {
        let twice = json!({"$ref": "#/$defs/n"});
        let doubling = json!({"$defs": {"n": {"anyOf": [
            {"type": "object", "required": ["end"], "properties": {"x": twice}},
            {"type": "object", "required": ["end"], "properties": {"x": twice}},
        ]}}, "$ref": "#/$defs/n"});
        let schema = Schema::compile(&doubling).unwrap();
        let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        assert_eq!(schema.check(&nested(3)).unwrap_err()[0].rule.as_deref(), Some("anyOf"));
        assert_eq!(schema.check(&nested(60)).unwrap_err()[0].rule.as_deref(), Some("effort"));

        let mut chain = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/n{}", level + 1)});
            chain.insert(format!("n{level}"), json!({"allOf": [next, next]}));
        }
        chain.insert("n40".to_owned(), json!(true));
        let chain = json!({"$defs": chain, "$ref": "#/$defs/n0"});
        assert!(matches!(Schema::compile(&chain), Err(SchemaError::TooLarge(_))));
        let circle = json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"});
        assert!(matches!(Schema::compile(&circle), Err(SchemaError::Invalid(_))));
    }

    #[test]
    fn row_34_an_ordinary_recursive_schema_is_accepted() {
        let tree = json!({"$defs": {"node": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}, "$ref": "#/$defs/node"});
        let schema = Schema::compile(&tree).unwrap();
        let two = json!({"$defs": {
            "a": {"properties": {"left": {"$ref": "#/$defs/a"}, "right": {"$ref": "#/$defs/b"}}},
            "b": {"properties": {"left": {"$ref": "#/$defs/b"}, "right": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"});
        let two = Schema::compile(&two).unwrap();
        let both = (0..12).fold(json!({}), |inner, _| json!({ "left": inner, "right": inner }));
        assert_eq!(two.check(&both), Ok(()));
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "left": inner, "children": [] }));
        assert_eq!(schema.check(&deep), Ok(()));
        let flat = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        assert!(Schema::compile(&flat).unwrap().check_cost.is_none(), "a simple schema needs no estimate");
    }

    #[test]
    fn l8_the_error_for_invalid_json_contains_the_position() {
        assert_eq!(parse_arguments("").unwrap(), json!({}));
        let Err(ToolError::InvalidArguments { violations }) = parse_arguments("{\"a\": ") else { panic!() };
        assert!(violations[0].message.contains("line 1 column 6"), "{violations:?}");
    }

    /// Row 26: numbers in arguments stay exactly the same when the arguments are stored and read again.
    #[test]
    fn row_26_numbers_are_stored_exactly() {
        for text in ["0.1", "0.30000000000000004", "5e-324", "1.7976931348623157e308", "18446744073709551615", "-0.0"] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            let stored = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&stored).unwrap(), value, "{text}");
        }
        let value: f64 = serde_json::from_str("122.416294033786585").unwrap();
        assert_eq!(value.to_bits(), "122.416294033786585".parse::<f64>().unwrap().to_bits());
    }
}
