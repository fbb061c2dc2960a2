//! Output validators, which accept, repair or reject the output that would end a turn. They have no effective
//! imports.

use crate::bindings::output_validator::exports::agent_host::plugin::output_validator as generated;
use crate::types::Failure;
pub use generated::{Output, Problem, Request, Verdict};
use serde_json::Value;

/// An output validator. Export it with [`export_output_validator!`](crate::export_output_validator).
pub trait OutputValidator {
    /// Called once for each model output without a tool call. Default time limit: 250 ms.
    fn validate(request: Request) -> Result<Verdict, Failure>;
}

impl Request {
    /// The parsed output; `None` if it is not JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(self.structured.as_ref()?).ok()
    }

    /// The agent's output schema; `None` if it has none.
    pub fn schema(&self) -> Option<Value> {
        serde_json::from_str(self.output_schema.as_ref()?).ok()
    }
}

impl Verdict {
    /// Accepts the output and replaces it with this text.
    pub fn accept_text(text: impl Into<String>) -> Self {
        Self::AcceptAs(Output::Text(text.into()))
    }

    /// Accepts the output and replaces it with this JSON.
    pub fn accept_json(value: &Value) -> Self {
        Self::AcceptAs(Output::Json(value.to_string()))
    }

    /// Rejects the output for one reason. `pointer` is a JSON pointer into the output; empty for the whole output.
    pub fn reject(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Reject(vec![Problem::new(pointer, message)])
    }
}

impl Problem {
    /// A problem at a position of the output. The message says what is wrong and what would be right.
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
