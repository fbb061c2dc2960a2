//! The token budget of the model's context window (L26).

use super::config::LoopConfig;
use crate::plugin::Budget;
use serde::{Deserialize, Serialize};

/// Whether a prompt fits into the context window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Fits,
    DoesNotFit,
}

/// The token budget of a model's context window (L26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBudget {
    /// Size of the model's context window, in tokens. The size is 0 before the prompt is built.
    pub window: u32,
    /// Tokens of the system text.
    pub system: u32,
    /// Estimated tokens of the tool definitions.
    pub tools: u32,
    /// Tokens reserved for the reply.
    pub reserved: u32,
}

impl PromptBudget {
    /// Returns how many tokens remain in the context window if the messages use `messages` tokens.
    pub fn remaining(&self, messages: u32) -> u32 {
        [self.system, self.tools, self.reserved, messages].into_iter().fold(self.window, u32::saturating_sub)
    }

    /// Whether too few tokens for a step remain in the context window if the messages use `messages` tokens. A step
    /// needs at least one token.
    pub(super) fn is_full(&self, messages: u32, config: &LoopConfig) -> bool {
        self.remaining(messages) < config.minimum_remaining.max(1)
    }

    /// Whether the prompt of a turn's last model call fits into the context window. This call offers no tools.
    pub(super) fn fits_without_tools(&self, messages: u32) -> Fit {
        let prompt = self.system.saturating_add(self.reserved).saturating_add(messages);
        if prompt < self.window { Fit::Fits } else { Fit::DoesNotFit }
    }

    /// Returns the budget in the form that plugins receive.
    pub fn for_plugins(&self) -> Budget {
        let available = self.window.saturating_sub(self.tools).saturating_sub(self.reserved);
        Budget { available, reserved: self.reserved, tools: self.tools }
    }
}
