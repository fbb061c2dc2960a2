//! The outgoing prompt: the copy of the history that is prepared for the model.

use crate::prompts;
use crate::records::CommitNotes;
use agent_core::message::{MessageId, Part};
use agent_core::model::ModelRequest;
use agent_core::run::Mask;

/// The outgoing prompt, and the notes about it that are committed together with the reply.
pub(super) struct OutgoingPrompt {
    pub(super) request: ModelRequest,
    /// Ids of those messages of the prompt that come from the history, in the order of the prompt.
    pub(super) ids: Vec<MessageId>,
    pub(super) new_masks: Vec<Mask>,
    /// Estimated number of tokens by which media policies shortened the prompt.
    pub(super) saved_tokens: u64,
    /// Whether the media in the prompt have labels, by which the model refers to them in tool calls.
    pub(super) labels: bool,
    pub(super) notes: CommitNotes,
}

impl OutgoingPrompt {
    /// Adds parts to the message that follows the messages from the history. If the prompt ends with the messages from
    /// the history, appends a new message to the prompt.
    pub(super) fn add_last(&mut self, parts: Vec<Part>) {
        prompts::add_last(&mut self.request, self.ids.len(), parts);
    }
}
