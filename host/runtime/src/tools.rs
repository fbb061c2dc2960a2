//! The tools that an agent can call. The registry contains the host's built-in tools and the tools of plugins, MCP
//! servers, services and other agents.

mod availability;
pub mod builtins;
pub(crate) mod commands;
pub mod registry;

pub(crate) mod reserved;
pub(crate) mod results;
pub(crate) mod rules;
mod tagged_calls;
pub(crate) mod tool_list;
mod vectors;

pub use commands::CommandTools;
pub(crate) use vectors::ToolVectors;
