//! Named points before and after every commit and action. Tests kill the process at these points (row 27 of
//! the threats).

use std::fmt;
use std::sync::Arc;

/// A named point in a turn that the runtime has reached. Formatted as text, a checkpoint is, for example,
/// `before-commit:reply` or `after-call:text.count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint<'a> {
    /// A new state of the session has been computed but not stored yet. Contains the name of the input that led to
    /// this state.
    BeforeCommit(&'a str),
    /// A new state of the session has been stored. Contains the name of the input that led to this state.
    AfterCommit(&'a str),
    /// A request is about to be sent to a model.
    BeforeModel,
    /// The model has replied, and no part of the reply is stored yet.
    AfterModel,
    /// The store has recorded that a tool call will run, and the call is about to run. Contains the name of the tool.
    BeforeCall(&'a str),
    /// A tool call has run, and no part of its result is stored yet. Contains the name of the tool.
    AfterCall(&'a str),
    /// An outbox item is delivered. Unless it adds a memory, it is not marked as delivered yet. Contains the id of the item.
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

/// A function that is called at every checkpoint.
pub type CheckpointObserver = Arc<dyn Fn(Checkpoint<'_>) + Send + Sync>;
