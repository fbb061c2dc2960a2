//! The tools that end a turn (L18). They run nowhere: the loop itself does what they ask for.

use crate::registry::{Availability, RegisteredTool};
use agent_core::loop_break::{LoopBreak, argument, name};
use agent_core::tool::{ToolDefinition, ToolSource, Traits, Violation};
use serde_json::{Map, Value, json};

/// What they say of themselves. The result of `task_completion` is what the agent's output must be.
pub fn finishing_definitions(output_schema: Option<&Value>) -> Vec<(ToolDefinition, ToolSource, Availability)> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let result = match output_schema {
        Some(schema) => embedded(schema, &format!("#/properties/{}", argument::RESULT)),
        None => text("Your answer to the user, whole."),
    };
    let tools = [
        (
            name::TASK_COMPLETION,
            "Ends the turn: the task is done, and this is its result. Other calls of the same reply finish first. A \
             result that is not accepted comes back with what is wrong with it.",
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

/// What a call of this tool does to the loop.
pub(crate) fn loop_break(tool: &RegisteredTool) -> Option<LoopBreak> {
    LoopBreak::of_tool(&tool.definition.name).filter(|_| tool.source == ToolSource::BuiltIn)
}

/// What is wrong with the arguments apart from a result that no text is: that is for the validators and the output schema,
/// as with any output (L12).
pub(crate) fn but_the_result(tool: &RegisteredTool, mut violations: Vec<Violation>) -> Vec<Violation> {
    let plain =
        tool.definition.input_schema.pointer(&format!("/properties/{}/description", argument::RESULT)).is_some();
    let is_output = loop_break(tool) == Some(LoopBreak::Complete) && !plain;
    let of_result = format!("/{}", argument::RESULT);
    violations.retain(|violation| !is_output || !violation.pointer.starts_with(&of_result));
    violations
}

/// A schema at another place of a document: its references to itself go there.
fn embedded(schema: &Value, place: &str) -> Value {
    match schema {
        Value::Object(fields) if fields.get("$id").is_some_and(Value::is_string) => schema.clone(),
        Value::Object(fields) => {
            let moved = fields.iter().filter(|(key, _)| *key != "$schema").map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("$ref", Value::String(target)) if target == "#" || target.starts_with("#/") => {
                        Value::String(format!("{place}{}", &target[1..]))
                    }
                    ("const" | "enum" | "default" | "examples", data) => data.clone(),
                    (_, value) => embedded(value, place),
                };
                (key.clone(), value)
            });
            Value::Object(moved.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| embedded(item, place)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use agent_core::model::RequestedCall;
    use agent_core::run::Disposition;

    fn disposition(output_schema: Option<&Value>, arguments: &str) -> Disposition {
        let registry = Registry::new(finishing_definitions(output_schema)).unwrap();
        let (name, arguments) = (name::TASK_COMPLETION.to_owned(), arguments.to_owned());
        registry.resolve(&RequestedCall { provider_id: None, name, arguments }).disposition
    }

    /// L18: the model is shown the output schema; what its references mean does not change.
    #[test]
    fn l18_the_result_has_the_output_schema() {
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

    /// L8, L12: a result must be there; whether it is one is for the validators and the output schema to say.
    #[test]
    fn l18_a_bad_result_is_a_matter_of_l12_and_none_of_l8() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let breaks = |disposition| matches!(disposition, Disposition::Breaks(LoopBreak::Complete));
        assert!(breaks(disposition(Some(&schema), r#"{"result": {"n": "three"}}"#)));
        assert!(!breaks(disposition(Some(&schema), "{}")));
        assert!(!breaks(disposition(Some(&schema), r#"{"result": {"n": 1}, "more": 1}"#)));
        assert!(breaks(disposition(None, r#"{"result": "three"}"#)));
        assert!(!breaks(disposition(None, r#"{"result": 3}"#)), "without an output schema it is a text (L13)");
    }
}
