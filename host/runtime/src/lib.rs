//! Runs agent sessions: drives the loop of `agent-core` with plugins, models, MCP servers and the store. The loop in
//! `agent-core` only decides which actions are necessary; this crate performs the actions.
//!
//! Each module imports only modules that come before it in this list: `records`, `tools`, `media`, `events`, `agent`,
//! `host`, `history`, `outbox`, `approvals`, `session`, `waiting`, `turn`, `swap`, `transfer`, `replay`.

pub mod agent;
pub mod approvals;
mod events;
mod history;
mod host;
pub mod media;
pub mod outbox;
mod prompts;
mod records;
pub mod replay;
pub mod session;
pub mod swap;
mod tools;
pub mod transfer;
mod turn;
mod waiting;

pub use agent::models;
pub use agent::{
    Agent, AgentConfig, AgentError, AnsweredGrants, AskPolicy, Delegate, LiveAgent, MemoryUse, Models, OutboxConfig,
    PlanningModels, PluginAllowance, PluginVersions, RuleBinding, ServiceConfig, SummaryWriter, UserName,
    UserNameError, VersionTrial,
};
pub use agent_core::run::{AnnouncedEvents, Emission};
pub use approvals::{ApprovalDecision, ApprovalError, Verdict};
pub use events::{EventPosition, MissedReply, PartialReply, SessionWatch, Subscription};
pub use host::{Checkpoint, CheckpointObserver, FirstUse, FirstUses, Host, StoredValues};
pub use media::Downscaler;
pub use outbox::OutboxError;
pub use session::{OpenSession, Session, SessionError, TurnResult};
pub use swap::{Notice, PluginWatcher};
pub use tools::registry::{Registry, RegistryError};
pub use tools::{builtins, registry};
pub use turn::summary;
pub use waiting::{RespondError, ResponseOutcome, question};
