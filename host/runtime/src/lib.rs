//! Drives the loop of `agent-core` with plugins, models and memory: the only place where an action becomes a deed.

pub mod agent;
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
mod output;
mod policy;
pub mod portable;
pub mod registry;
mod remember;
pub mod session;
pub mod summary;
mod trace;

pub use agent::{Agent, AgentConfig, AgentError, PluginAllowance};
pub use checkpoint::{Checkpoint, CheckpointObserver};
pub use delegation::Delegate;
pub use media::Downscaler;
pub use models::Models;
pub use registry::{Registry, RegistryError};
pub use session::{Host, OpenSession, Session, SessionError, TurnResult};
pub use summary::SummaryWriter;
