//! What the process can do, one file per noun.

pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod memory;
pub(crate) mod opening;
pub(crate) mod plugin;
pub(crate) mod run;
pub(crate) mod session;
