//! The tools that an agent can call. One registry holds the host's own tools and those of plugins, MCP servers,
//! services and other agents. The other modules here are common to all of them.

mod availability;
pub mod builtins;
pub mod registry;

pub(crate) mod reserved;
pub(crate) mod results;
pub(crate) mod rules;
mod tagged_calls;
mod vectors;

pub(crate) use vectors::ToolVectors;
