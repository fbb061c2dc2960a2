//! Tokens of the model's window (L26).

use super::config::LoopConfig;
use crate::plugin::Budget;
use serde::{Deserialize, Serialize};

/// Whether a prompt fits into the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Fits,
    Not,
}

/// How the tokens of the model's window are divided (L26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBudget {
    /// The model's window.
    pub window: u32,
    /// Tokens of the system text.
    pub system: u32,
    /// Measured tokens of the tool definitions.
    pub tools: u32,
    /// Tokens reserved for the reply.
    pub reserved: u32,
}

impl PromptBudget {
    /// Tokens that are left next to messages of this size.
    pub fn remaining(&self, messages: u32) -> u32 {
        [self.system, self.tools, self.reserved, messages].into_iter().fold(self.window, u32::saturating_sub)
    }

    /// Whether messages of this size leave less room than a step needs. A step needs at least one token.
    pub(super) fn is_full(&self, messages: u32, config: &LoopConfig) -> bool {
        self.remaining(messages) < config.minimum_remaining.max(1)
    }

    /// Whether the prompt of the last call, which offers no tools, fits into the window.
    pub(super) fn fits_without_tools(&self, messages: u32) -> Fit {
        let prompt = self.system.saturating_add(self.reserved).saturating_add(messages);
        if prompt < self.window { Fit::Fits } else { Fit::Not }
    }

    /// The budget in the form that plugins see.
    pub fn for_plugins(&self) -> Budget {
        let available = self.window.saturating_sub(self.tools).saturating_sub(self.reserved);
        Budget { available, reserved: self.reserved, tools: self.tools }
    }
}
