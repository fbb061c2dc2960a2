//! Types that all plugin kinds share: messages, media, scope, model, failure. JSON values are texts in them.

pub use crate::bindings::imports::agent_host::plugin::types::{
    Content, Dimensions, Failure, Media, Message, Model, Part, Role, Scope, ToolCall, ToolResult, TraceContext,
};
