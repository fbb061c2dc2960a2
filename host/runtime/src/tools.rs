//! The tools that an agent can call. One registry contains the host's built-in tools and the tools of plugins, MCP
//! servers, services and other agents. The other modules contain code for all kinds of tools.

mod availability;
pub mod builtins;
pub mod registry;

pub(crate) mod reserved;
pub(crate) mod results;
pub(crate) mod rules;
mod tagged_calls;
mod vectors;

pub(crate) use vectors::ToolVectors;
