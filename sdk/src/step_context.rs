//! Step contexts, which add sections to the prompt of individual steps.

use crate::bindings::step_context::exports::agent_host::plugin::step_context as generated;
use crate::context_builder::{ContextBuilder, Section};
use crate::types::Failure;
pub use generated::Request;

/// A context builder that adds sections at the start of a turn and before each step. Export the plugin with
/// [`export_step_context!`](crate::export_step_context), which exports [`ContextBuilder`] and this trait.
pub trait StepContext: ContextBuilder {
    /// Returns sections for this step only. The host adds these sections after all other sections of the prompt and
    /// never stores them.
    fn step(request: Request) -> Result<Vec<Section>, Failure>;
}

impl<P: StepContext> generated::Guest for crate::Exported<P> {
    fn step(request: Request) -> Result<Vec<Section>, Failure> {
        P::step(request)
    }
}

/// Exports a [`StepContext`](crate::step_context::StepContext) and a
/// [`ContextBuilder`](crate::context_builder::ContextBuilder) from the component.
#[macro_export]
macro_rules! export_step_context {
    ($plugin:ty) => {
        $crate::__export!($plugin, $crate::step_context::StepContext, step_context);
    };
}
