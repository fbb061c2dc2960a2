//! The commands of the program. Each file contains one command, one group of subcommands, or code that several
//! commands share.

pub(crate) mod acp;
mod agent_settings;
mod approval_prompt;
pub(crate) mod approvals;
mod attachments;
pub(crate) mod audit;
mod build_projects;
pub(crate) mod chat;
pub(crate) mod config;
mod decision;
mod delegation;
pub(crate) mod dev;
mod drive_turn;
mod event_file;
mod first_use;
mod images;
pub(crate) mod key;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod model;
mod open_session;
pub(crate) mod outbox;
pub(crate) mod plugin;
mod prompt;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod serve;
mod served_agents;
pub(crate) mod session;
pub(crate) mod store;
mod stored_sessions;
pub(crate) mod test;
pub(crate) mod token;
mod user_presence;
mod yes_patterns;
