//! Drives the loop of `agent-core` with plugins, models and memory: the only place where an action becomes a deed.

pub mod agent;
pub mod approvals;
pub mod builtins;
mod calls;
pub mod checkpoint;
mod children;
mod context;
mod delegation;
mod drive;
mod events;
pub mod media;
mod model_step;
pub mod models;
pub mod outbox;
mod output;
mod policy;
pub mod portable;
mod questions;
pub mod registry;
mod remember;
mod respond;
pub mod services;
pub mod session;
mod trace;

pub use agent::{Agent, AgentConfig, AgentError, PluginAllowance};
pub use approvals::{ApprovalDecision, ApprovalError, Verdict};
pub use checkpoint::{Checkpoint, CheckpointObserver};
pub use delegation::Delegate;
pub use media::Downscaler;
pub use models::Models;
pub use outbox::{Completions, OutboxConfig, OutboxError};
pub use questions::question;
pub use registry::{Registry, RegistryError};
pub use respond::{RespondError, Responded};
pub use services::ServiceConfig;
pub use session::{Host, OpenSession, Session, SessionError, TurnResult};
