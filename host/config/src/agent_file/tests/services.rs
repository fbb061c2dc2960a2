//! Tests of `[services.NAME]` and `[outbox]`.

use super::*;

/// I2, I6: services and the outbox are read with their types, schemas, priorities and locations.
#[test]
fn reads_services_and_outbox() {
    let file = parse(
        "[services.\"pay.now\"]\ntype = \"com.example.pay\"\nemits = { \"*\" = { type = \"object\" } }\npriority = -2\n\
         [services.ship]\nanswer_within_ms = 5\n[outbox]\ndirectory = \"out\"\n",
    );
    let file = file.expect("valid");
    let pay = &file.services["pay.now"];
    assert_eq!(
        (pay.event_type.as_ref().map(|event_type| event_type.as_str()), pay.priority),
        (Some("com.example.pay"), Some(-2))
    );
    assert_eq!(pay.emits, BTreeMap::from([("*".to_owned(), serde_json::json!({"type": "object"}))]));
    assert_eq!(file.services["ship"].answer_within_ms, Some(5));
    let directory = file.outbox.directory.expect("it is set");
    assert_eq!(directory.location, "agents/agent.toml:8: outbox.directory");
}

/// I2, row 34: an invalid schema is rejected when the file is read, and the error contains the line of the schema.
#[test]
fn row_34_rejects_unusable_schemas_with_their_line() {
    for (text, problem) in [
        ("accepts = { type = \"string\" }", "is not a JSON Schema for an object"),
        ("accepts = { \"$ref\" = \"http://example.org/a.json\" }", "nothing is fetched"),
        ("accepts = \"absent.json\"", "absent.json, which cannot be read"),
        ("emits = { a = { type = 3 } }", "cannot be used: the JSON Schema is invalid"),
        ("emits = { a = \"absent.json\" }", "absent.json, which cannot be read"),
        ("emits = [1]", "is a list"),
    ] {
        let error = parse(&format!("[services.pay]\n{text}\n")).expect_err(text);
        assert!(error.contains("agents/agent.toml:2:") && error.contains(problem), "{text}: {error}");
    }
}
