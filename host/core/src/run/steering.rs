//! Prompts that steer the open turn: they are added to the conversation before the next model call (I9).

use super::planning::ModelRole;
use super::state::Run;
use super::{depth, state::QueuedPrompt};
use crate::change::{Body, Change};
use crate::event::EventKind;
use crate::tokens;

impl Run {
    /// Moves the queued prompts that steer the turn from the queue to the end of the conversation. If the turn ends
    /// before its next model call, these prompts stay in the queue and begin turns.
    ///
    /// A plan that was already made does not consider the new messages, so it is abandoned, and the agent's own model
    /// continues (L24).
    pub(super) fn add_steering_prompts(&mut self, change: &mut Change) {
        if !self.queued_prompts.iter().any(|prompt| prompt.steers) {
            return;
        }
        let prompts = std::mem::take(&mut self.queued_prompts);
        let (steering, queued): (Vec<QueuedPrompt>, Vec<_>) = prompts.into_iter().partition(|prompt| prompt.steers);
        self.queued_prompts = queued;
        let role = self.turn.as_ref().map_or(ModelRole::Agent, |turn| turn.model_role());
        if matches!(role, ModelRole::Executor { .. } | ModelRole::Synthesizer) {
            self.abandon_plan("a new message of the user arrived", change);
        }
        for prompt in steering {
            let message = prompt.input.message();
            let text = message.plain_text();
            let parts = depth::shallow_parts(message.parts);
            let tokens = tokens::of_parts(&parts);
            self.append(change, message.role, Body::Parts(parts), tokens);
            self.emit(change, EventKind::Steered { text });
        }
    }
}
