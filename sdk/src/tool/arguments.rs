//! Parses arguments from JSON text. Errors contain a JSON pointer to the wrong value.

use super::{ToolError, Violation};
use crate::json::pointer_at;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The arguments of a tool without arguments: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// Deserialises arguments. The pointer comes from the parser's position. A deserialiser that tracks the path would be
/// compiled again for each argument type and took up to a tenth of a component. If a type rejects a field's value
/// only after it was read (`try_from`), the pointer may lead to the object around it.
pub(super) fn parse<A: DeserializeOwned>(text: &str) -> Result<A, ToolError> {
    serde_json::from_str(text).map_err(|error| violation(text, &error))
}

fn violation(text: &str, error: &serde_json::Error) -> ToolError {
    let lines_before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let pointer = pointer_at(text, lines_before + error.column());
    ToolError::InvalidArguments(vec![Violation { pointer, message: without_position(&error.to_string()) }])
}

/// Cuts ` at line 1 column 20`, which does not help a model that wrote an object.
fn without_position(message: &str) -> String {
    match message.rsplit_once(" at line ") {
        Some((message, position)) if position.contains(" column ") => message.to_owned(),
        _ => message.to_owned(),
    }
}
