//! Shows warnings and progress while agents are assembled from their configuration.

use super::{Terminal, YELLOW, show_load, text};
use agent_config::{Reporter, Warning};
use agent_core::redaction::Redaction;
use agent_plugins::LoadEvent;

impl Reporter for Terminal {
    fn warn(&self, warning: &Warning) {
        self.note(format!("{YELLOW}!{YELLOW:#} {}", text::harmless(&warning.to_string())));
    }

    fn loading(&self, event: &LoadEvent) {
        show_load(self, event);
    }

    fn loaded(&self) {
        self.idle();
    }

    fn keep_secret(&self, secrets: &Redaction) {
        Terminal::keep_secret(self, secrets);
    }
}
