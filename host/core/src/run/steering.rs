//! Prompts that steer the open turn: they are added to the conversation before the next model call (I9).

use super::depth;
use super::input::ResolvedReply;
use super::planning::ModelRole;
use super::state::{QueuedPrompt, Run};
use crate::change::{Body, Change};
use crate::event::EventKind;
use crate::tokens;

impl Run {
    /// Begins the next step, or an eviction that must happen before the step (L27). If the turn has reached its limit
    /// of interactions and its configuration allows no last model call, the turn ends with an error (L4).
    pub(super) fn next_step(&mut self, change: &mut Change) {
        self.add_steering_prompts(change);
        self.step_without_steering(change);
    }

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

    /// Appends a reply that the provider interrupted, so that the next model call continues it. The interrupted reply
    /// counts as an interaction, so the limit of interactions (L4) also limits such replies. No other message may
    /// follow an interrupted reply, so prompts that steer the turn are added after the complete reply.
    pub(super) fn continue_paused(&mut self, reply: ResolvedReply, change: &mut Change) {
        if !reply.text.is_empty() || reply.replay.is_some() {
            self.append_request(reply.text, reply.replay, &[], change);
        }
        self.step_without_steering(change);
    }
}
