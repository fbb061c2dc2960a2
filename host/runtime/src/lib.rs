//! Drives the loop of `agent-core` with plugins, models and memory: the only place where an action becomes a deed.

pub mod agent;
pub mod session;
pub mod registry;
pub mod builtins;
pub mod media;
pub mod checkpoint;
mod drive;
mod context;
mod model_step;
mod policy;
mod output;
mod calls;
mod events;
mod trace;

pub use agent::{Agent, AgentConfig, AgentError, PluginAllowance};
pub use checkpoint::{Checkpoint, CheckpointObserver};
pub use registry::{Registry, RegistryError};
pub use session::{Host, OpenSession, Session, SessionError, TurnResult};
