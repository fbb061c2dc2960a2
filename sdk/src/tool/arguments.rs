//! Arguments from JSON text: what does not fit is told with a JSON pointer to the place.

use super::{ToolError, Violation};
use crate::json::pointer_at;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Arguments of a tool that takes none: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// Deserialises arguments. The pointer comes from the parser's position and not from a deserialiser that keeps the
/// path: that one would be compiled anew for each argument type, which was up to a tenth of a component. Where a type
/// refuses a field's value only after it was read (`try_from`), the place may be the object around it.
pub(super) fn parse<A: DeserializeOwned>(text: &str) -> Result<A, ToolError> {
    serde_json::from_str(text).map_err(|error| violation(text, &error))
}

fn violation(text: &str, error: &serde_json::Error) -> ToolError {
    let lines_before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let pointer = pointer_at(text, lines_before + error.column());
    ToolError::InvalidArguments(vec![Violation { pointer, message: without_position(&error.to_string()) }])
}

/// Cuts ` at line 1 column 20`, which says nothing to a model that wrote an object.
fn without_position(message: &str) -> String {
    match message.rsplit_once(" at line ") {
        Some((message, position)) if position.contains(" column ") => message.to_owned(),
        _ => message.to_owned(),
    }
}
