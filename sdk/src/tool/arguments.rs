//! Arguments from JSON text: what does not fit is told with a JSON pointer to the place.

use super::{ToolError, Violation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

/// Arguments of a tool that takes none: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// Deserialises arguments.
pub(super) fn parse<A: DeserializeOwned>(text: &str) -> Result<A, ToolError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        let message = without_position(&error.inner().to_string());
        ToolError::InvalidArguments(vec![Violation { pointer, message }])
    })
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        // An enum's variant stands in the JSON as a key only in some representations; leaving it out still points at
        // the enum.
        let token = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { .. } | Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&token);
    }
    pointer
}

/// Cuts ` at line 1 column 20`, which says nothing to a model that wrote an object.
fn without_position(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(at) if message[at..].contains(" column ") => message[..at].to_owned(),
        _ => message.to_owned(),
    }
}
