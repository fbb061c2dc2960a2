//! The services that the process provides to sessions: the store, the sandbox, the host functions for plugins (ports),
//! and the questions before a plugin's first use.

mod abandoned_calls;
mod budget;
mod checkpoint;
mod file_changes;
mod first_use;
mod first_use_question;
mod key_values;
mod observer;
mod plugin_model;
mod services;

pub(crate) use abandoned_calls::MeteredCall;
pub(crate) use budget::{Account, BudgetRefusal, Reservation, estimate};
pub use budget::{BudgetUse, CallsInFlight};
pub use checkpoint::{Checkpoint, CheckpointObserver};
pub use file_changes::{FileChange, FileChanges};
pub use first_use::{FirstUse, FirstUses};
pub(crate) use first_use_question::PluginUse;
pub use key_values::StoredValues;
pub use observer::{CommittedEvents, ModelCallEnding, Observation, ObservedModelCall, Observer};
pub(crate) use plugin_model::{FinishedQuestion, question_record};
pub use services::Host;
pub(crate) use services::{SessionServices, now_ms};
