//! The messages and calls of a session: the part that is kept in memory, and the complete conversation from the store.

mod conversation;
mod loaded;

pub(crate) use conversation::output_for_event;
pub(crate) use loaded::LoadedHistory;
