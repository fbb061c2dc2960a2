//! The messages and calls of a session. Some of them are kept in memory; the complete conversation is read
//! from the store.

mod conversation;
mod loaded;

pub(crate) use conversation::output_for_event;
pub(crate) use loaded::LoadedHistory;
