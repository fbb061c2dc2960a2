//! Parses arguments from JSON text. If parsing fails, the error contains a JSON pointer to the invalid value.

use super::{ToolError, Violation};
use crate::json::pointer_at;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The argument type of a tool without arguments. The JSON text must be an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// Deserialises arguments. The JSON pointer of an error is computed from the position at which the parser failed. A
/// deserialiser that tracks the path of the current value is not used, because the compiler would generate code for
/// each argument type: in tests, this code was up to a tenth of a component. If a type rejects the value of a field
/// after the parser has read it (`try_from`), the pointer may name the object that contains the field.
pub(super) fn parse<A: DeserializeOwned>(text: &str) -> Result<A, ToolError> {
    serde_json::from_str(text).map_err(|error| violation(text, &error))
}

fn violation(text: &str, error: &serde_json::Error) -> ToolError {
    let lines_before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let pointer = pointer_at(text, lines_before + error.column());
    ToolError::InvalidArguments(vec![Violation { pointer, message: without_position(&error.to_string()) }])
}

/// Removes a position such as ` at line 1 column 20` from the message. The position is useless for the model, which
/// does not see line numbers in its arguments.
fn without_position(message: &str) -> String {
    match message.rsplit_once(" at line ") {
        Some((message, position)) if position.contains(" column ") => message.to_owned(),
        _ => message.to_owned(),
    }
}
