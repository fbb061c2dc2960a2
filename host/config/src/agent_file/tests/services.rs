//! Tests of `[services.NAME]`, `[outbox]`, `[schedules.NAME]` and `[webhooks.NAME]`.

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

/// I2, I9: the tables of events report missing and contradictory keys with their lines.
#[test]
fn i9_event_tables_report_their_problems() {
    for (text, line, problem) in [
        ("[outbox.server]\nmode = \"binary\"", 1, "`outbox.server` has no `url`"),
        ("[schedules.a]\nprompt = \"Go.\"", 1, "`schedules.a` has no `times`"),
        ("[schedules.a]\ntimes = \"every 1 hour\"", 1, "`schedules.a` has no `prompt`"),
        ("[schedules.a]\ntimes = \"0 0 31 2 *\"\nprompt = \"Go.\"", 2, "matches no time in the next four years"),
        ("[schedules.a]\ntimes = \"hourly\"\nprompt = \"Go.\"", 2, "every 15 minutes"),
        ("[schedules.a]\ntimes = \"* * * * *\"\nprompt = \"Go.\"\ntime_zone = \"Berlin\"", 4, "Europe/Berlin"),
        ("[schedules.a]\ntimes = \"* * * * *\"\nprompt = \"Go.\"\nuser = \" ann\"", 4, "is not a user name"),
        ("[webhooks.a]\nsignature = \"hub\"", 2, "needs `key_env`"),
        ("[webhooks.\"a/b\"]", 1, "1 to 64 letters"),
    ] {
        let error = parse(&format!("{text}\n")).expect_err(text);
        assert!(error.contains(&format!("agents/agent.toml:{line}:")) && error.contains(problem), "{text}: {error}");
    }
}
