//! Context builders, which create the prompt at the start of a turn.

use crate::bindings::context_builder::exports::agent_host::plugin::context_builder as without_step;
use crate::bindings::step_context::exports::agent_host::plugin::context_builder as generated;
use crate::types::Failure;
pub use generated::{
    Budget, History, Input, Lifecycle, Memory, Prompt, Recollection, Request, Section, Stability, Tool as OfferedTool,
};

/// A plugin that is a context builder. Export the plugin with
/// [`export_context_builder!`](crate::export_context_builder). If the plugin implements
/// [`StepContext`](crate::step_context::StepContext) too, use [`export_step_context!`](crate::export_step_context).
pub trait ContextBuilder {
    /// Creates the prompt of a turn. The host calls this function once per turn, before the first model call. If the
    /// turn is resumed after an interruption, the host does not call this function again. The default time limit is
    /// 2 s.
    fn init(request: Request) -> Result<Prompt, Failure>;
}

impl Prompt {
    /// Creates a prompt without sections. The model gets the history and one user message with the input.
    pub fn new() -> Self {
        Self { system: Vec::new(), history: History::Keep, messages: Vec::new(), state: None }
    }

    /// Adds a section to the system prompt.
    pub fn section(mut self, section: Section) -> Self {
        self.system.push(section);
        self
    }

    /// Sets the state that the host passes to every step of the turn. The maximum size is 64 KiB.
    pub fn state(mut self, state: Vec<u8>) -> Self {
        self.state = Some(state);
        self
    }
}

impl Default for Prompt {
    fn default() -> Self {
        Self::new()
    }
}

impl Section {
    /// Creates a section whose text is the same in every step. The host puts the section into the part of the prompt
    /// that providers can cache.
    pub fn fixed(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), stability: Stability::Fixed }
    }

    /// Creates a section whose text may change from step to step.
    pub fn dynamic(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), stability: Stability::Dynamic }
    }
}

impl<P: ContextBuilder> generated::Guest for crate::Exported<P> {
    fn init(request: Request) -> Result<Prompt, Failure> {
        P::init(request)
    }
}

// A context builder without `step-context` is exported through a separate world. The types of the separate world and
// the public types of the SDK have the same fields, but are different Rust types.
impl<P: ContextBuilder> without_step::Guest for crate::Exported<P> {
    fn init(request: without_step::Request) -> Result<without_step::Prompt, Failure> {
        P::init(request.into()).map(Into::into)
    }
}

impl From<without_step::Request> for Request {
    fn from(request: without_step::Request) -> Self {
        let without_step::Request { lifecycle, scope, model, input, tools, memory, budget } = request;
        Self {
            lifecycle: match lifecycle {
                without_step::Lifecycle::Init => Lifecycle::Init,
                without_step::Lifecycle::ToolResult => Lifecycle::ToolResult,
                without_step::Lifecycle::OutputErrorFeedback => Lifecycle::OutputErrorFeedback,
            },
            scope,
            model,
            input: match input {
                without_step::Input::Text(text) => Input::Text(text),
                without_step::Input::Json(json) => Input::Json(json),
                without_step::Input::Message(message) => Input::Message(message),
            },
            tools: tools.into_iter().map(Into::into).collect(),
            memory: memory.into(),
            budget: Budget { available: budget.available, reserved: budget.reserved, tools: budget.tools },
        }
    }
}

impl From<without_step::Tool> for OfferedTool {
    fn from(tool: without_step::Tool) -> Self {
        let without_step::Tool { name, description, input_schema, tokens } = tool;
        Self { name, description, input_schema, tokens }
    }
}

impl From<without_step::Memory> for Memory {
    fn from(memory: without_step::Memory) -> Self {
        let without_step::Memory { history, hidden, summary, recollections } = memory;
        let recollections = recollections.into_iter().map(|recollection| {
            let without_step::Recollection { id, text, written, score } = recollection;
            Recollection { id, text, written, score }
        });
        Self { history, hidden, summary, recollections: recollections.collect() }
    }
}

impl From<Prompt> for without_step::Prompt {
    fn from(prompt: Prompt) -> Self {
        let system = prompt.system.into_iter().map(|section| without_step::Section {
            name: section.name,
            text: section.text,
            stability: match section.stability {
                Stability::Fixed => without_step::Stability::Fixed,
                Stability::Dynamic => without_step::Stability::Dynamic,
            },
        });
        Self {
            system: system.collect(),
            history: match prompt.history {
                History::Keep => without_step::History::Keep,
                History::LeaveOut => without_step::History::LeaveOut,
            },
            messages: prompt.messages,
            state: prompt.state,
        }
    }
}

/// Exports a [`ContextBuilder`](crate::context_builder::ContextBuilder) from the component.
#[macro_export]
macro_rules! export_context_builder {
    ($plugin:ty) => {
        $crate::__export!($plugin, $crate::context_builder::ContextBuilder, context_builder);
    };
}
