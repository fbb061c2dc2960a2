//! The outgoing prompt: the copy of the history that is prepared for the model.

use crate::records::CommitNotes;
use agent_core::message::{Message, MessageId, Part, Role};
use agent_core::model::ModelRequest;
use agent_core::run::Mask;

/// The outgoing prompt, and the notes about it that are committed together with the reply.
pub(super) struct OutgoingPrompt {
    pub(super) request: ModelRequest,
    /// Ids of those messages of the prompt that come from the history, in the order of the prompt.
    pub(super) ids: Vec<MessageId>,
    pub(super) new_masks: Vec<Mask>,
    pub(super) notes: CommitNotes,
}

impl OutgoingPrompt {
    /// Adds parts to the message that follows the messages from the history. If no message follows them, appends a new
    /// message to the prompt.
    pub(super) fn add_last(&mut self, parts: Vec<Part>) {
        let messages = &mut self.request.messages;
        match messages.get_mut(self.ids.len()) {
            Some(message) => message.parts.extend(parts),
            None if parts.is_empty() => {}
            None => messages.push(Message { role: Role::User, parts, seen_count: 0 }),
        }
    }
}
