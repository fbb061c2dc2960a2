//! Model providers: one trait, and what stands behind it. Alone knows wire formats.
//! Here: `scripted` (a file of replies) and `offline` (a router without a model) (M4).

pub mod provider;
pub mod providers;
pub mod error;
pub mod scripted;
pub mod offline;
mod conversation;
mod estimate;
mod stream;

pub use error::ModelError;
pub use provider::{Facts, Provider, RawReply, ReplyContext, ToolNames};
pub use providers::provider;
