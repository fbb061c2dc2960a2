//! The changes that calls of plugins make to files in their granted directories, for a user interface that shows them
//! (I7).

use agent_core::message::CallId;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of changes that are kept until they are taken. Older changes are dropped.
const MAX_CHANGES: usize = 64;

/// A text file before and after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Path of the file on the host: the granted directory, and the path in it.
    pub path: PathBuf,
    /// Content before the call. `None` means that the file did not exist.
    pub old: Option<String>,
    /// Content after the call.
    pub new: String,
}

/// Collects the changes that calls make to files. A process that shows changes sets
/// [`Host::file_changes`](crate::Host::file_changes), and takes the changes of a call when the call has its result.
#[derive(Clone, Debug, Default)]
pub struct FileChanges(Arc<Mutex<VecDeque<(String, CallId, FileChange)>>>);

impl FileChanges {
    /// Removes and returns the changes of this call.
    pub fn take(&self, session: &str, call: &CallId) -> Vec<FileChange> {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, kept) = std::mem::take(&mut *changes)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(owner, id, _)| owner == session && id == call);
        *changes = kept;
        taken.into_iter().map(|(_, _, change)| change).collect()
    }

    /// Removes and returns the changes of all calls of all sessions, in the order of the calls.
    pub fn take_all(&self) -> Vec<FileChange> {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *changes).into_iter().map(|(_, _, change)| change).collect()
    }

    pub(crate) fn add(&self, session: &str, call: &CallId, change: FileChange) {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() == MAX_CHANGES {
            changes.pop_front();
        }
        changes.push_back((session.to_owned(), call.clone(), change));
    }
}
