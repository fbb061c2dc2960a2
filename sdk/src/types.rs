//! Words that all plugin kinds share: messages, media, scope, model, failure. JSON stands in them as text.

pub use crate::bindings::imports::agent_host::plugin::types::{
    Content, Dimensions, Failure, Media, Message, Model, Part, Role, Scope, ToolCall, ToolResult, TraceContext,
};
