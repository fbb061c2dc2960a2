//! The tools that end a turn (L18). The loop itself handles the calls to these tools; nothing else runs these calls.

use crate::tools::availability::Availability;
use agent_core::loop_break::{LoopBreak, argument, name};
use agent_core::tool::{ToolDefinition, ToolSource, Traits, Violation};
use serde_json::{Map, Value, json};

/// Returns the definitions of the tools that end a turn. The argument `result` of `task_completion` has the agent's
/// output schema, if there is one.
pub fn finishing_definitions(output_schema: Option<&Value>) -> Vec<(ToolDefinition, ToolSource, Availability)> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let result = match output_schema {
        Some(schema) => embedded(schema, &format!("#/properties/{}", argument::RESULT)),
        None => text("Your answer to the user, whole."),
    };
    let tools = [
        (
            name::TASK_COMPLETION,
            "Ends the turn: the task is done, and this is its result. Other calls of the same reply finish first. If \
             the result is not accepted, you are told what is wrong with it.",
            (argument::RESULT, result),
        ),
        (
            name::ASK_QUESTION,
            "Asks the user one question and waits for the answer. Only for what you cannot find out yourself.",
            (argument::QUESTION, text("The question, to be understood without anything else.")),
        ),
        (
            name::CONVERSE,
            "Ends the turn with a message, where nothing is to be done: a greeting, an explanation, a remark.",
            (argument::MESSAGE, text("What the user is told.")),
        ),
    ];
    let tools = tools.map(|(name, description, (argument, schema))| {
        let definition = ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {argument: schema},
                "required": [argument],
                "additionalProperties": false,
            }),
            output_schema: None,
            traits: Traits { idempotent: true, ..Traits::default() },
            priority: 0,
        };
        (definition, ToolSource::BuiltIn, Availability::Offered)
    });
    tools.into()
}

/// Returns how a call to this tool ends the turn, or `None` if the tool does not end the turn.
pub(crate) fn loop_break(definition: &ToolDefinition, source: &ToolSource) -> Option<LoopBreak> {
    LoopBreak::of_tool(&definition.name).filter(|_| *source == ToolSource::BuiltIn)
}

/// Removes those schema violations that concern the structured argument `result` of `task_completion`. The validators
/// and the output schema check this result when the turn ends, as they check every output (L12).
pub(crate) fn ignoring_result_violations(
    definition: &ToolDefinition,
    source: &ToolSource,
    mut violations: Vec<Violation>,
) -> Vec<Violation> {
    let is_text = definition.input_schema.pointer(&format!("/properties/{}/description", argument::RESULT)).is_some();
    let is_output = loop_break(definition, source) == Some(LoopBreak::Complete) && !is_text;
    let of_result = format!("/{}", argument::RESULT);
    violations.retain(|violation| !is_output || !violation.pointer.starts_with(&of_result));
    violations
}

/// Returns a copy of the schema that can be inserted at the location `pointer` of another document. The references
/// inside the copy are correct for its new location.
fn embedded(schema: &Value, pointer: &str) -> Value {
    match schema {
        Value::Object(fields) if fields.get("$id").is_some_and(Value::is_string) => schema.clone(),
        Value::Object(fields) => {
            let moved = fields.iter().filter(|(key, _)| *key != "$schema").map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("$ref", Value::String(target)) if target == "#" || target.starts_with("#/") => {
                        Value::String(format!("{pointer}{}", &target[1..]))
                    }
                    ("const" | "enum" | "default" | "examples", data) => data.clone(),
                    (_, value) => embedded(value, pointer),
                };
                (key.clone(), value)
            });
            Value::Object(moved.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| embedded(item, pointer)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::registry::Registry;
    use agent_core::model::RequestedCall;
    use agent_core::run::Disposition;

    fn disposition(output_schema: Option<&Value>, arguments: &str) -> Disposition {
        let registry = Registry::new(finishing_definitions(output_schema)).unwrap();
        let (name, arguments) = (name::TASK_COMPLETION.to_owned(), arguments.to_owned());
        registry.resolve(&RequestedCall { provider_id: None, name, arguments }).disposition
    }

    /// L18: the model sees the output schema, and the references in the schema still resolve.
    #[test]
    fn l18_the_result_argument_has_the_output_schema() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}, "$ref": {"type": "string"}},
            "$defs": {"item": {"type": "object", "properties": {"inner": {"$ref": "#"}}, "const": {"$ref": "#/x"}}},
        });
        let tools = finishing_definitions(Some(&schema));
        let shown = &tools[0].0.input_schema;
        assert_eq!(
            shown["properties"]["result"]["properties"]["items"]["items"]["$ref"],
            "#/properties/result/$defs/item"
        );
        let item = &shown["properties"]["result"]["$defs"]["item"];
        assert_eq!(
            (&item["properties"]["inner"]["$ref"], &item["const"]),
            (&json!("#/properties/result"), &json!({"$ref": "#/x"}))
        );
        assert!(shown["properties"]["result"].get("$schema").is_none());
        assert!(matches!(disposition(Some(&schema), r#"{"result": {}}"#), Disposition::Breaks(LoopBreak::Complete)));
    }

    /// L8, L12: the argument `result` is required, but its content is checked only later, by the validators and the
    /// output schema.
    #[test]
    fn l18_an_invalid_result_is_found_only_by_the_later_output_check() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let breaks = |disposition| matches!(disposition, Disposition::Breaks(LoopBreak::Complete));
        assert!(breaks(disposition(Some(&schema), r#"{"result": {"n": "three"}}"#)));
        assert!(!breaks(disposition(Some(&schema), "{}")));
        assert!(!breaks(disposition(Some(&schema), r#"{"result": {"n": 1}, "more": 1}"#)));
        assert!(breaks(disposition(None, r#"{"result": "three"}"#)));
        assert!(
            !breaks(disposition(None, r#"{"result": 3}"#)),
            "without an output schema, the result must be a string (L13)"
        );
    }
}
