//! Denials of calls that are stopped: a call whose future is dropped reports nothing, and what it was denied is recorded all the
//! same (O3).

use crate::record::{CallRecord, lock};
use agent_core::change::Denial;
use std::sync::{Arc, Mutex};

/// Denials of calls that were stopped, with the calls' ids, until somebody takes them.
#[derive(Debug, Default)]
pub struct StoppedCalls(Mutex<Vec<(String, Denial)>>);

impl StoppedCalls {
    /// Keeps the denials of a call that reports nothing any more.
    pub fn note(&self, call: &str, denials: Vec<Denial>) {
        lock(&self.0).extend(denials.into_iter().map(|denial| (call.to_owned(), denial)));
    }

    /// All denials since the last time, in order.
    pub fn take(&self) -> Vec<(String, Denial)> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// Notes the denials of a running call when it is dropped, unless the call reports them itself.
pub(crate) struct UnlessReported {
    record: Arc<CallRecord>,
    stopped: Option<Arc<StoppedCalls>>,
}

impl UnlessReported {
    pub(crate) fn new(record: &Arc<CallRecord>, stopped: Option<Arc<StoppedCalls>>) -> Self {
        Self { record: Arc::clone(record), stopped }
    }

    /// The call reports its denials.
    pub(crate) fn reported(mut self) {
        self.stopped = None;
    }
}

impl Drop for UnlessReported {
    fn drop(&mut self) {
        if let Some(stopped) = &self.stopped {
            self.record.note_denials();
            stopped.note(&self.record.call, self.record.denials().iter().map(Denial::from).collect());
        }
    }
}
