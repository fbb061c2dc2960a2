//! Output validators, which accept, correct or reject the output that would end a turn. The only host functions that a
//! validator can call are those that write log lines.

use crate::bindings::output_validator::exports::agent_host::plugin::output_validator as generated;
use crate::types::Failure;
pub use generated::{Output, Problem, Request, Verdict};
use serde_json::Value;

/// A plugin that is an output validator. Export the plugin
/// with [`export_output_validator!`](crate::export_output_validator).
pub trait OutputValidator {
    /// Checks one output. The host calls this function for each reply of the model that contains no tool call. The
    /// default time limit is 250 ms.
    fn validate(request: Request) -> Result<Verdict, Failure>;
}

impl Request {
    /// Returns the parsed output, or `None` if the output is not JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(self.structured.as_ref()?).ok()
    }

    /// Returns the agent's output schema, or `None` if the agent has no output schema.
    pub fn schema(&self) -> Option<Value> {
        serde_json::from_str(self.output_schema.as_ref()?).ok()
    }
}

impl Verdict {
    /// Creates a verdict that accepts the output, but replaces the output with this text.
    pub fn accept_text(text: impl Into<String>) -> Self {
        Self::AcceptAs(Output::Text(text.into()))
    }

    /// Creates a verdict that accepts the output, but replaces the output with this JSON value.
    pub fn accept_json(value: &Value) -> Self {
        Self::AcceptAs(Output::Json(value.to_string()))
    }

    /// Creates a verdict that rejects the output for one reason. `pointer` is a JSON pointer to the invalid value. The
    /// pointer is empty if the message describes the whole output.
    pub fn reject(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Reject(vec![Problem::new(pointer, message)])
    }
}

impl Problem {
    /// Creates the description of a problem with the value at this JSON pointer. The message must explain what is wrong
    /// and what a valid value is.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl<P: OutputValidator> generated::Guest for crate::Exported<P> {
    fn validate(request: Request) -> Result<Verdict, Failure> {
        P::validate(request)
    }
}

/// Exports an [`OutputValidator`](crate::output_validator::OutputValidator) from the component.
#[macro_export]
macro_rules! export_output_validator {
    ($plugin:ty) => {
        $crate::__export!($plugin, $crate::output_validator::OutputValidator, output_validator);
    };
}
