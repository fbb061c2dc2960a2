//! Tools: they take typed arguments and return content or a typed error. The schema that the model sees is generated
//! from the argument type.

mod arguments;
mod outcome;

use crate::bindings::tool::exports::agent_host::plugin::tool as generated;
pub use arguments::NoArguments;
pub use generated::{
    CallContext as Call, Content, Definition, Done, Error as ToolError, NewMedia, Outcome, ServiceRequest, Traits,
    Unavailable, Violation,
};
pub use outcome::IntoOutcome;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;

/// A plugin with tools. Export it with [`export_tools!`](crate::export_tools).
pub trait ToolPlugin {
    /// All tools of the plugin. The list must not depend on time, configuration or environment. It is created for
    /// every tool call, so this function should do nothing else.
    fn tools() -> Tools;
}

type Schema = Box<dyn Fn() -> Value>;
type Run = Box<dyn Fn(&str, &Call) -> Result<Outcome, ToolError>>;

/// The tools of one plugin, in the order in which the model sees them.
#[derive(Default)]
pub struct Tools {
    tools: Vec<Tool>,
}

impl Tools {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Its name must be unique in the plugin; otherwise the host rejects the plugin.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// The definitions of the tools, with their schemas.
    pub fn definitions(&self) -> Vec<Definition> {
        self.tools.iter().map(Tool::definition).collect()
    }

    /// Runs a tool as the host does; `arguments` is JSON text. The error is `not-found` for an unknown name, and
    /// `invalid-arguments` with a JSON pointer for arguments that do not match the tool's type.
    pub fn run(&self, name: &str, arguments: &str, call: &Call) -> Result<Outcome, ToolError> {
        match self.tools.iter().find(|tool| tool.about.name == name) {
            Some(tool) => tool.run(arguments, call),
            None => Err(ToolError::not_found(format!("this plugin has no tool `{name}`"))),
        }
    }

    /// Runs a tool in a native test, as the first attempt of the call in [`testing::call`](crate::testing::call).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn call(&self, name: &str, arguments: Value) -> Result<Outcome, ToolError> {
        self.run(name, &arguments.to_string(), &crate::testing::call())
    }
}

/// A tool: its definition and its function.
pub struct Tool {
    about: About,
    run: Run,
}

struct About {
    name: Cow<'static, str>,
    title: Option<String>,
    description: Cow<'static, str>,
    input: Option<Schema>,
    output: Option<Schema>,
    traits: Traits,
    priority: i32,
}

impl Tool {
    /// Starts a tool. `name` has 1 to 128 letters, digits, `_`, `-` and `.`, for example `table.filter`.
    /// `description` is for the model: say what the tool does, when to use it and what it returns. The model sees at
    /// most 2 KiB of it.
    #[allow(clippy::new_ret_no_self, reason = "a tool is complete only with its function")]
    pub fn new(name: impl Into<Cow<'static, str>>, description: impl Into<Cow<'static, str>>) -> ToolBuilder {
        ToolBuilder {
            about: About {
                name: name.into(),
                title: None,
                description: description.into(),
                input: None,
                output: None,
                traits: Traits::empty(),
                priority: 0,
            },
        }
    }

    fn definition(&self) -> Definition {
        let about = &self.about;
        Definition {
            name: about.name.to_string(),
            title: about.title.clone(),
            description: about.description.to_string(),
            input_schema: about.input.as_ref().map_or_else(|| "{}".to_owned(), |schema| schema().to_string()),
            output_schema: about.output.as_ref().map(|schema| schema().to_string()),
            traits: about.traits,
            priority: about.priority,
        }
    }

    fn run(&self, arguments: &str, call: &Call) -> Result<Outcome, ToolError> {
        let mut outcome = (self.run)(arguments, call)?;
        if let (Some(_), Outcome::Done(done)) = (&self.about.output, &mut outcome) {
            done.structure();
        }
        Ok(outcome)
    }
}

/// A tool that is being defined: set its properties first and call [`run`](Self::run) last.
#[must_use = "call `run` to create the tool"]
pub struct ToolBuilder {
    about: About,
}

impl ToolBuilder {
    /// Sets a title for people, for example `Filter a table`.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.about.title = Some(title.into());
        self
    }

    /// The tool changes nothing. Its calls may run at any time and may be repeated.
    pub fn read_only(self) -> Self {
        self.with(Traits::READ_ONLY)
    }

    /// The tool may delete or overwrite something.
    pub fn destructive(self) -> Self {
        self.with(Traits::DESTRUCTIVE)
    }

    /// A second call with the same id has no further effect. The host may therefore repeat the call after a crash.
    pub fn idempotent(self) -> Self {
        self.with(Traits::IDEMPOTENT)
    }

    /// The tool never runs in parallel with another call.
    pub fn sequential(self) -> Self {
        self.with(Traits::SEQUENTIAL)
    }

    /// The tool deals with an open set of things, such as the web or mail.
    pub fn open_world(self) -> Self {
        self.with(Traits::OPEN_WORLD)
    }

    /// A person must approve each call. A host that cannot ask rejects it.
    pub fn needs_approval(self) -> Self {
        self.with(Traits::NEEDS_APPROVAL)
    }

    /// Of the calls in one reply, only those with the highest priority run. Default: 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.about.priority = priority;
        self
    }

    /// The result has the schema of `T`. The machine-readable result is that of [`Done::structured`], or a single
    /// JSON content.
    pub fn output<T: JsonSchema + 'static>(mut self) -> Self {
        self.about.output = Some(Box::new(crate::schema::output::<T>));
        self
    }

    /// Sets the schema of the arguments, for tools that take `serde_json::Value`. Otherwise it is generated from the
    /// type.
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.about.input = Some(Box::new(move || schema.clone()));
        self
    }

    /// Sets the function of the tool. The arguments are deserialised as `A`, whose schema is the tool's input schema.
    pub fn run<A, O, F>(mut self, run: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + 'static,
        O: IntoOutcome,
        F: Fn(A, &Call) -> Result<O, ToolError> + 'static,
    {
        self.about.input.get_or_insert_with(|| Box::new(crate::schema::input::<A>));
        let run =
            Box::new(move |text: &str, call: &Call| run(arguments::parse(text)?, call).map(IntoOutcome::into_outcome));
        Tool { about: self.about, run }
    }

    fn with(mut self, traits: Traits) -> Self {
        self.about.traits |= traits;
        self
    }
}

impl<P: ToolPlugin> generated::Guest for crate::Exported<P> {
    fn definitions() -> Vec<Definition> {
        P::tools().definitions()
    }

    fn call(name: String, args: String, context: Call) -> Result<Outcome, ToolError> {
        P::tools().run(&name, &args, &context)
    }
}

/// Exports a [`ToolPlugin`](crate::tool::ToolPlugin) from the component.
#[macro_export]
macro_rules! export_tools {
    ($plugin:ty) => {
        $crate::__export!($plugin, $crate::tool::ToolPlugin, tool);
    };
}
