//! Named points around every commit and every deed, for tests that kill the process there (limits and threats, row 27).

use std::fmt;
use std::sync::Arc;

/// Where the runtime is. Its name is `before-commit:reply`, `after-call:text.count` …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint<'a> {
    /// The state is computed and not stored. With the input's name.
    BeforeCommit(&'a str),
    /// It is stored. With the input's name.
    AfterCommit(&'a str),
    /// A model is about to be asked.
    BeforeModel,
    /// It has answered; nothing of that is stored.
    AfterModel,
    /// A call's intent is stored and it is about to run. With the tool's name.
    BeforeCall(&'a str),
    /// It has run; nothing of that is stored. With the tool's name.
    AfterCall(&'a str),
    /// An item of the outbox is delivered; that is not noted yet. With its id.
    Delivered(&'a str),
}

impl fmt::Display for Checkpoint<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Checkpoint::BeforeCommit(input) => write!(formatter, "before-commit:{input}"),
            Checkpoint::AfterCommit(input) => write!(formatter, "after-commit:{input}"),
            Checkpoint::BeforeModel => formatter.write_str("before-model"),
            Checkpoint::AfterModel => formatter.write_str("after-model"),
            Checkpoint::BeforeCall(tool) => write!(formatter, "before-call:{tool}"),
            Checkpoint::AfterCall(tool) => write!(formatter, "after-call:{tool}"),
            Checkpoint::Delivered(id) => write!(formatter, "delivered:{id}"),
        }
    }
}

/// Told of every checkpoint that is passed.
pub type CheckpointObserver = Arc<dyn Fn(Checkpoint<'_>) + Send + Sync>;
