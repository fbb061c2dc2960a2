//! Tools with typed arguments, which return content or a typed error. The SDK generates the schema of the arguments
//! from the Rust type of the arguments, and the host sends the schema to the model.

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

/// A plugin with tools. Export the plugin with [`export_tools!`](crate::export_tools).
pub trait ToolPlugin {
    /// Returns all tools of the plugin. The list must not depend on time, configuration or environment. The SDK calls
    /// this function for every tool call, so the function should only create the list.
    fn tools() -> Tools;
}

type SchemaFunction = Box<dyn Fn() -> Value>;
type RunFunction = Box<dyn Fn(&str, &Call) -> Result<Outcome, ToolError>>;

/// The tools of one plugin, in the order in which the model sees the tools.
#[derive(Default)]
pub struct Tools {
    tools: Vec<Tool>,
}

impl Tools {
    /// Creates an empty list of tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool to the list. The host rejects a plugin if two of its tools have the same name.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Returns the definitions of the tools, with the schemas of the arguments and results.
    pub fn definitions(&self) -> Vec<Definition> {
        self.tools.iter().map(Tool::definition).collect()
    }

    /// Runs a tool as the host does. `arguments` is JSON text. If no tool has this name, the result is the error
    /// `not-found`. If the arguments do not match the tool's argument type, the result is the error `invalid-arguments`
    /// with a JSON pointer.
    pub fn run(&self, name: &str, arguments: &str, call: &Call) -> Result<Outcome, ToolError> {
        match self.tools.iter().find(|tool| tool.definition.name == name) {
            Some(tool) => tool.run(arguments, call),
            None => Err(ToolError::not_found(format!("this plugin has no tool `{name}`"))),
        }
    }

    /// Runs a tool in a native test. The tool gets the [`Call`] that [`testing::call`](crate::testing::call) creates.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn call(&self, name: &str, arguments: Value) -> Result<Outcome, ToolError> {
        self.run(name, &arguments.to_string(), &crate::testing::call())
    }
}

/// A tool, which consists of a definition and the function that runs when the tool is called.
pub struct Tool {
    definition: DefinitionParts,
    run: RunFunction,
}

/// The values from which a [`Definition`] is created.
struct DefinitionParts {
    name: Cow<'static, str>,
    title: Option<String>,
    description: Cow<'static, str>,
    input: Option<SchemaFunction>,
    output: Option<SchemaFunction>,
    traits: Traits,
    priority: i32,
}

impl Tool {
    /// Creates a builder for a tool. `name` has 1 to 128 letters, digits, `_`, `-` and `.`, for example `table.filter`.
    /// `description` is text for the model. The description should explain the effect and the result of the tool, and
    /// when to use the tool. The host sends at most 2 KiB of the description to the model.
    #[allow(clippy::new_ret_no_self, reason = "a tool can be created only together with its function")]
    pub fn new(name: impl Into<Cow<'static, str>>, description: impl Into<Cow<'static, str>>) -> ToolBuilder {
        ToolBuilder {
            definition: DefinitionParts {
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
        let parts = &self.definition;
        Definition {
            name: parts.name.to_string(),
            title: parts.title.clone(),
            description: parts.description.to_string(),
            input_schema: parts.input.as_ref().map_or_else(|| "{}".to_owned(), |schema| schema().to_string()),
            output_schema: parts.output.as_ref().map(|schema| schema().to_string()),
            traits: parts.traits,
            priority: parts.priority,
        }
    }

    fn run(&self, arguments: &str, call: &Call) -> Result<Outcome, ToolError> {
        let mut outcome = (self.run)(arguments, call)?;
        if let (Some(_), Outcome::Done(done)) = (&self.definition.output, &mut outcome) {
            done.use_only_json_as_structured();
        }
        Ok(outcome)
    }
}

/// A builder for a tool. Set the properties of the tool first, and call [`run`](Self::run) last.
#[must_use = "call `run` to create the tool"]
pub struct ToolBuilder {
    definition: DefinitionParts,
}

impl ToolBuilder {
    /// Sets a title that is shown to users, for example `Filter a table`.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Declares that the tool changes nothing. The host may run and repeat calls to the tool at any time.
    pub fn read_only(self) -> Self {
        self.with_traits(Traits::READ_ONLY)
    }

    /// Declares that the tool may delete or overwrite data.
    pub fn destructive(self) -> Self {
        self.with_traits(Traits::DESTRUCTIVE)
    }

    /// Declares that a second call with the same call id has no further effect. The host may repeat the call after
    /// a crash.
    pub fn idempotent(self) -> Self {
        self.with_traits(Traits::IDEMPOTENT)
    }

    /// Declares that the tool must not run in parallel with another call.
    pub fn sequential(self) -> Self {
        self.with_traits(Traits::SEQUENTIAL)
    }

    /// Declares that the tool uses external systems, such as the web or mail.
    pub fn open_world(self) -> Self {
        self.with_traits(Traits::OPEN_WORLD)
    }

    /// Declares that a user must approve each call. The host rejects the call if no user can be asked.
    pub fn needs_approval(self) -> Self {
        self.with_traits(Traits::NEEDS_APPROVAL)
    }

    /// Sets the priority of the tool. Of the calls in one reply, the host runs only those whose tools have the highest
    /// priority. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.definition.priority = priority;
        self
    }

    /// Declares that the machine-readable result has the schema of `T`. The function of the tool must return
    /// [`Done::structured`], or content that is a single JSON value.
    pub fn output<T: JsonSchema + 'static>(mut self) -> Self {
        self.definition.output = Some(Box::new(crate::schema::output::<T>));
        self
    }

    /// Sets the schema of the arguments, for tools whose argument type is `serde_json::Value`. By default, the SDK
    /// generates the schema from the argument type.
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.definition.input = Some(Box::new(move || schema.clone()));
        self
    }

    /// Creates the tool with the function that runs when the tool is called. The SDK deserialises the arguments as
    /// `A`. The input schema of the tool is the schema of `A`, unless [`input_schema`](Self::input_schema) has set
    /// another schema.
    pub fn run<A, O, F>(mut self, function: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + 'static,
        O: IntoOutcome,
        F: Fn(A, &Call) -> Result<O, ToolError> + 'static,
    {
        self.definition.input.get_or_insert_with(|| Box::new(crate::schema::input::<A>));
        let run = Box::new(move |text: &str, call: &Call| {
            function(arguments::parse(text)?, call).map(IntoOutcome::into_outcome)
        });
        Tool { definition: self.definition, run }
    }

    fn with_traits(mut self, traits: Traits) -> Self {
        self.definition.traits |= traits;
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
