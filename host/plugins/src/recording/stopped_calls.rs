//! Collects the denials of stopped calls. A call whose future is dropped returns no report, but its denials must still
//! be recorded (O3).

use super::CallRecord;
use crate::sync::lock;
use agent_core::change::Denial;
use std::sync::{Arc, Mutex};

/// Collects the denials of stopped calls, each with the id of its call, until the denials are taken.
#[derive(Debug, Default)]
pub struct StoppedCalls(Mutex<Vec<(String, Denial)>>);

impl StoppedCalls {
    /// Adds the denials of a stopped call.
    pub fn note(&self, call: &str, denials: Vec<Denial>) {
        lock(&self.0).extend(denials.into_iter().map(|denial| (call.to_owned(), denial)));
    }

    /// Removes and returns all collected denials, in the order in which they were added.
    pub fn take(&self) -> Vec<(String, Denial)> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// A value that a running call keeps in its future. If the future is dropped before the call has reported its denials,
/// this value adds the denials to the collected denials.
pub(crate) struct DenialsOnDrop {
    record: Arc<CallRecord>,
    stopped: Option<Arc<StoppedCalls>>,
}

impl DenialsOnDrop {
    pub(crate) fn new(record: &Arc<CallRecord>, stopped: Option<Arc<StoppedCalls>>) -> Self {
        Self { record: Arc::clone(record), stopped }
    }

    /// Disables this guard, because the call reports its denials itself.
    pub(crate) fn reported(mut self) {
        self.stopped = None;
    }
}

impl Drop for DenialsOnDrop {
    fn drop(&mut self) {
        if let Some(stopped) = &self.stopped {
            self.record.note_denials();
            stopped.note(&self.record.call, self.record.denials().iter().map(Denial::from).collect());
        }
    }
}
