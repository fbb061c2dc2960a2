//! Assembles replies of Anthropic Messages.
//!
//! The format is described at <https://docs.anthropic.com/en/docs/build-with-claude/streaming>. A reply ends with the
//! event `message_stop`, unless it was cut.

mod assembly;
mod blocks;
mod event;

pub(super) use assembly::ReplyAssembler;

#[cfg(test)]
mod tests;
