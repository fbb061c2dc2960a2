//! The types that all plugin kinds share: messages, media, scope, model and failure. A JSON value in these types is
//! stored as JSON text.

pub use crate::bindings::imports::agent_host::plugin::types::{
    Content, Dimensions, Failure, Media, Message, Model, Part, Role, Scope, ToolCall, ToolResult, TraceContext,
};
