//! Output validators: accept, repair or reject what the model wants to end the turn with. What they import is inert.

use crate::bindings::output_validator::exports::agent_host::plugin::output_validator as generated;
use crate::types::Failure;
pub use generated::{Output, Problem, Request, Verdict};
use serde_json::Value;

/// A validator. Export it with [`export_output_validator!`](crate::export_output_validator).
pub trait OutputValidator {
    /// Asked once for each output of the model that holds no tool call; within 250 ms by default.
    fn validate(request: Request) -> Result<Verdict, Failure>;
}

impl Request {
    /// The output as JSON: parsed, where it is JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(self.structured.as_ref()?).ok()
    }

    /// The agent's output schema, if it has one.
    pub fn schema(&self) -> Option<Value> {
        serde_json::from_str(self.output_schema.as_ref()?).ok()
    }
}

impl Verdict {
    /// Accepts this text in place of the output.
    pub fn accept_text(text: impl Into<String>) -> Self {
        Self::AcceptAs(Output::Text(text.into()))
    }

    /// Accepts this JSON in place of the output.
    pub fn accept_json(value: &Value) -> Self {
        Self::AcceptAs(Output::Json(value.to_string()))
    }

    /// Rejects for one reason. `pointer` is a JSON pointer into the output; empty for the whole.
    pub fn reject(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Reject(vec![Problem::new(pointer, message)])
    }
}

impl Problem {
    /// What is wrong where, and what would be right.
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
