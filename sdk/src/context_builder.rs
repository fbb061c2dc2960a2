//! Context builders, which create the prompt at the start of a turn.

use crate::bindings::context_builder::exports::agent_host::plugin::context_builder as alone;
use crate::bindings::step_context::exports::agent_host::plugin::context_builder as generated;
use crate::types::Failure;
pub use generated::{
    Budget, History, Input, Lifecycle, Memory, Prompt, Recollection, Request, Section, Stability, Tool as OfferedTool,
};

/// A context builder. Export it with [`export_context_builder!`](crate::export_context_builder), or together with a
/// [`StepContext`](crate::step_context::StepContext) with [`export_step_context!`](crate::export_step_context).
pub trait ContextBuilder {
    /// Called once per turn before its first model call, and not again when the turn is resumed. Default time limit:
    /// 2 s.
    fn init(request: Request) -> Result<Prompt, Failure>;
}

impl Prompt {
    /// A prompt that adds nothing: the model gets the history and one user message with the input.
    pub fn new() -> Self {
        Self { system: Vec::new(), history: History::Keep, messages: Vec::new(), state: None }
    }

    /// Adds a section to the system prompt.
    pub fn section(mut self, section: Section) -> Self {
        self.system.push(section);
        self
    }

    /// Passes this state to every step of the turn. At most 64 KiB.
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
    /// A section whose text is the same in every step. It belongs to the cached part of the prompt.
    pub fn fixed(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), stability: Stability::Fixed }
    }

    /// A section whose text may change from step to step.
    pub fn dynamic(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), stability: Stability::Dynamic }
    }
}

impl<P: ContextBuilder> generated::Guest for crate::Exported<P> {
    fn init(request: Request) -> Result<Prompt, Failure> {
        P::init(request)
    }
}

// A builder without `step-context` is exported through its own world, whose types have the same shape but are
// different Rust types.
impl<P: ContextBuilder> alone::Guest for crate::Exported<P> {
    fn init(request: alone::Request) -> Result<alone::Prompt, Failure> {
        P::init(request.into()).map(Into::into)
    }
}

impl From<alone::Request> for Request {
    fn from(request: alone::Request) -> Self {
        let alone::Request { lifecycle, scope, model, input, tools, memory, budget } = request;
        Self {
            lifecycle: match lifecycle {
                alone::Lifecycle::Init => Lifecycle::Init,
                alone::Lifecycle::ToolResult => Lifecycle::ToolResult,
                alone::Lifecycle::OutputErrorFeedback => Lifecycle::OutputErrorFeedback,
            },
            scope,
            model,
            input: match input {
                alone::Input::Text(text) => Input::Text(text),
                alone::Input::Json(json) => Input::Json(json),
                alone::Input::Message(message) => Input::Message(message),
            },
            tools: tools.into_iter().map(Into::into).collect(),
            memory: memory.into(),
            budget: Budget { available: budget.available, reserved: budget.reserved, tools: budget.tools },
        }
    }
}

impl From<alone::Tool> for OfferedTool {
    fn from(tool: alone::Tool) -> Self {
        let alone::Tool { name, description, input_schema, tokens } = tool;
        Self { name, description, input_schema, tokens }
    }
}

impl From<alone::Memory> for Memory {
    fn from(memory: alone::Memory) -> Self {
        let alone::Memory { history, hidden, summary, recollections } = memory;
        let recollections = recollections.into_iter().map(|recollection| {
            let alone::Recollection { id, text, written, score } = recollection;
            Recollection { id, text, written, score }
        });
        Self { history, hidden, summary, recollections: recollections.collect() }
    }
}

impl From<Prompt> for alone::Prompt {
    fn from(prompt: Prompt) -> Self {
        let system = prompt.system.into_iter().map(|section| alone::Section {
            name: section.name,
            text: section.text,
            stability: match section.stability {
                Stability::Fixed => alone::Stability::Fixed,
                Stability::Dynamic => alone::Stability::Dynamic,
            },
        });
        Self {
            system: system.collect(),
            history: match prompt.history {
                History::Keep => alone::History::Keep,
                History::LeaveOut => alone::History::LeaveOut,
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
