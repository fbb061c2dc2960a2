//! The messages and calls of a session: those that are kept in memory, and the complete conversation, which is read
//! from the store.

mod conversation;
mod loaded;

pub(crate) use conversation::output_for_event;
pub(crate) use loaded::LoadedHistory;
