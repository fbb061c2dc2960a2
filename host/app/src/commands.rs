//! What the process can do, one file per noun.

pub(crate) mod approvals;
pub(crate) mod asking;
pub(crate) mod audit;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod dev;
pub(crate) mod first_use;
pub(crate) mod key;
pub(crate) mod memory;
pub(crate) mod opening;
pub(crate) mod outbox;
pub(crate) mod plugin;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod store;
pub(crate) mod test;
