//! The Rust SDK for agent-host plugins. The SDK contains a trait and an export macro for each kind of plugin,
//! tool arguments whose schemas are generated from Rust types, functions that call the host, and a test host for
//! native tests.
//!
//! The following example defines a tool with typed arguments and calls the tool as a native test would do:
//!
//! ```
//! use agent_host_sdk::prelude::*;
//!
//! /// Arguments of `text.shout`.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Shout {
//!     /// The text to convert to capitals.
//!     text: String,
//! }
//!
//! struct Plugin;
//!
//! impl ToolPlugin for Plugin {
//!     fn tools() -> Tools {
//!         Tools::new().tool(
//!             Tool::new("text.shout", "Returns the text in capitals.")
//!                 .read_only()
//!                 .run(|arguments: Shout, _: &Call| Ok(Done::text(arguments.text.to_uppercase()))),
//!         )
//!     }
//! }
//!
//! agent_host_sdk::export_tools!(Plugin);
//!
//! let outcome = Plugin::tools().call("text.shout", json!({ "text": "hello" }));
//! assert_eq!(outcome, Ok(Outcome::Done(Done::text("HELLO"))));
//! ```

#[doc(hidden)]
pub mod bindings;

pub mod tool;

pub mod context_builder;
pub mod media_policy;
pub mod output_validator;
pub mod step_context;

pub mod config;
pub mod http;
pub mod key_value;
pub mod log;
pub mod media;
pub mod model;
pub mod trees;

pub mod json;
pub mod schema;
pub mod types;

#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use schemars;
pub use serde;
pub use serde_json;

/// The items that most plugins need. To import these items, write `use agent_host_sdk::prelude::*;`.
pub mod prelude {
    pub use crate::context_builder::ContextBuilder;
    pub use crate::media_policy::MediaPolicy;
    pub use crate::output_validator::OutputValidator;
    pub use crate::step_context::StepContext;
    pub use crate::tool::{
        Call, Content, Done, IntoOutcome, NewMedia, NoArguments, Outcome, ServiceRequest, Tool, ToolError, ToolPlugin,
        Tools, Violation,
    };
    pub use crate::types::{Failure, Media, Message, Model, Part, Role, Scope};
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// A wrapper for a plugin type, which implements the generated traits of all plugin kinds. Only the export macros use
/// this wrapper.
#[doc(hidden)]
pub struct Exported<Plugin>(std::marker::PhantomData<Plugin>);

/// Exports a plugin type through the bindings of one kind. Plugins do not use this macro: the macro for each plugin
/// kind calls it.
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($plugin:ty, $kind:path, $bindings:ident) => {
        #[allow(unsafe_code, reason = "the component's exports are linked by name")]
        const _: () = {
            fn implements_kind<P: $kind>() {}
            const _: fn() = implements_kind::<$plugin>;
            #[cfg(target_arch = "wasm32")]
            type Exported = $crate::Exported<$plugin>;
            #[cfg(target_arch = "wasm32")]
    $crate::bindings::$bindings::export!(Exported with_types_in $crate::bindings::$bindings);
        };
    };
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
