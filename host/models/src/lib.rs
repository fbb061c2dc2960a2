//! Model providers: one trait, and what stands behind it. Alone knows wire formats.
//! Here: Chat Completions over HTTP (M1), `scripted` (a file of replies) and `offline` (a router without a model) (M4).

pub mod chat;
pub mod chat_stream;
pub mod configuration;
mod conversation;
pub mod error;
mod estimate;
pub mod known_models;
pub mod local;
pub mod offline;
pub mod provider;
pub mod providers;
pub mod retry;
pub mod scripted;
pub mod sse;
mod stream;

pub use chat::Embedder;
pub use configuration::{
    KNOWN_PROVIDERS, KnownProvider, ModelConfig, Price, ProviderConfig, Secret, Timeouts, known_provider,
};
pub use error::ModelError;
pub use local::LocalServer;
pub use provider::{Facts, MediaBytes, MediaSource, NoMedia, Provider, Purpose, RawReply, ReplyContext, ToolNames};
pub use providers::{Providers, provider};
pub use retry::RetryPolicy;
pub use scripted::{Replies, Scripted, ScriptedReply};
