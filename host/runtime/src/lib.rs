//! Drives the loop of `agent-core` with plugins, models and memory: the only place where an action becomes a deed.

pub mod agent;
pub mod builtins;
mod calls;
pub mod checkpoint;
mod context;
mod dialect;
mod drive;
mod events;
pub mod media;
mod model_step;
pub mod models;
mod offering;
mod output;
mod plan_step;
mod policy;
pub mod registry;
pub mod session;
mod trace;

pub use agent::{Agent, AgentConfig, AgentError, PluginAllowance};
pub use checkpoint::{Checkpoint, CheckpointObserver};
pub use media::Downscaler;
pub use models::{Models, PlanningModels};
pub use registry::{Registry, RegistryError};
pub use session::{Host, OpenSession, Session, SessionError, TurnResult};
