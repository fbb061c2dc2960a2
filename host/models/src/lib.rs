//! Model providers behind the trait [`Provider`]. No other crate encodes or decodes the wire formats of models.
//!
//! The crate contains a client for models over HTTP in four wire formats (M1), the model `scripted`, which replies from a file
//! (M4), and the model `offline`, a router that needs no language model (M4).

mod cassette;
pub mod configuration;
pub mod decode;
mod delta_sender;
pub mod direct_call;
mod effort;
mod encode;
pub mod error;
mod estimate;
mod http;
pub mod known_models;
pub mod local;
pub mod offline;
mod progress;
pub mod protocol;
pub mod provider;
pub mod providers;
mod request_check;
pub mod retry;
pub mod scripted;
mod sent_body;
pub mod sse;

pub use configuration::{
    KNOWN_PROVIDERS, KnownProvider, ModelConfig, Price, ProviderConfig, Secret, Timeouts, known_provider,
};
pub use effort::{Effort, UnknownEffort};
pub use error::ModelError;
pub use http::Embedder;
pub use local::LocalServer;
pub use progress::CallProgress;
pub use protocol::Protocol;
pub use provider::{
    MediaBytes, MediaSource, ModelInfo, NoMedia, Provider, Purpose, RawReply, ReplyContext, ToolNameRules,
};
pub use providers::{Providers, provider};
pub use retry::RetryPolicy;
pub use scripted::{ScriptedModel, ScriptedReplies, ScriptedReply};
pub use sent_body::SentBody;
