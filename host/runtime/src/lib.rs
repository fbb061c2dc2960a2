//! Runs agent sessions: drives the loop of `agent-core` with plugins, models, MCP servers and the store. The loop in
//! `agent-core` only decides which actions are necessary; this crate performs the actions.
//!
//! Each module imports only modules that come before it in this list: `text_difference`, `signature`, `http_sink`, `schedule_times`, `usage_days`, `refusals`, `records`, `tools`, `media`,
//! `events`, `agent`, `requests`, `news`, `fleet`, `mirrored_reply`, `open_sessions`, `event_stream`, `turn_events`, `turn_positions`, `host`, `history`, `outbox`, `approvals`, `session`, `waiting`, `turn`,
//! `swap`, `transfer`, `replay`, `inspection`, `supervisor`.

pub mod agent;
pub mod approvals;
mod event_stream;
mod events;
mod fleet;
mod history;
mod host;
mod http_sink;
pub mod inspection;
pub mod media;
mod mirrored_reply;
mod news;
mod open_sessions;
pub mod outbox;
mod prompts;
mod records;
mod refusals;
pub mod replay;
mod requests;
mod schedule_times;
pub mod session;
mod signature;
mod supervisor;
pub mod swap;
mod text_difference;
mod tools;
pub mod transfer;
mod turn;
mod turn_events;
mod turn_positions;
mod usage_days;
mod waiting;

pub use agent::models;
pub use agent::{
    Agent, AgentConfig, AgentError, AnsweredGrants, AskPolicy, Delegate, EventInput, LiveAgent, MemoryUse, MissedRuns,
    Models, OutboxConfig, PlanningModels, PluginAllowance, PluginVersions, RuleBinding, Schedule, ServiceConfig,
    SummaryWriter, UserName, UserNameError, VersionTrial, Webhook, WebhookAuthentication,
};
pub use agent_core::run::{AnnouncedEvents, Emission};
pub use agent_models::decode::stored_thinking;
pub use agent_plugins::{Access, NewMediaItem, TreeGrant};
pub use approvals::{ApprovalDecision, ApprovalError, Verdict};
pub use event_stream::{SessionEvent, SessionEvents};
pub use events::{EventPosition, MissedReply, PartialReply, SessionWatch, Subscription};
pub use fleet::Fleet;
pub use host::{
    BudgetUse, CallsInFlight, Checkpoint, CheckpointObserver, CommittedEvents, FileChange, FileChanges, FirstUse,
    FirstUses, Host, ModelCallEnding, Observation, ObservedModelCall, Observer, StoredValues,
};
pub use http_sink::{ContentMode, HttpSink, HttpSinkConfig, HttpSinkError, InvalidSink};
pub use media::Downscaler;
pub use news::SessionNews;
pub use open_sessions::OpenSessions;
pub use outbox::OutboxError;
pub use refusals::{EDITOR_PROTOCOL, RefusalLog, RefusedRequest};
pub use requests::{
    Accepted, ClientResult, DuringTurn, Prompt, ProposedChange, RequestError, RequestProblem, SessionKind, SessionName,
    SessionRequest, begins_unattended, send_to_holder,
};
pub use schedule_times::{InvalidTimes, ScheduleTimes};
pub use session::{OpenSession, Session, SessionError, TurnResult};
pub use signature::{InvalidKey, SignatureError, SignedMessage, SigningKey};
pub use supervisor::{Supervisor, SupervisorOptions};
pub use swap::{Notice, PluginWatcher};
pub use text_difference::{DifferenceLine, LineKind, TextDifference, unified_diff};
pub use tools::registry::{Registry, RegistryError};
pub use tools::{CommandTools, builtins, registry};
pub use turn::{TURN_SPANS, summary};
pub use turn_events::{TurnEvents, TurnUpdate};
pub use turn_positions::last_event_before_turn;
pub use usage_days::{InvalidDays, MAX_REPORTED_DAYS, day_starts};
pub use waiting::{RespondError, ResponseOutcome, question};
