//! Identifies the process that has a session open, without exposing how a store identifies the owners of sessions.

use serde::{Serialize, Serializer};
use std::fmt;

/// The process that holds a session's lease. `Display` writes a name for users, such as `process 1234`. The holder is
/// serialised as the process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// Process id, or 0 if the process is unknown.
    process: u32,
}

impl SessionHolder {
    /// Creates a holder for a process on this machine. An `id` of 0 means that the process is unknown.
    pub(crate) fn process(id: u32) -> Self {
        Self { process: id }
    }

    /// Returns whether the current process has the session open, through any of its stores.
    pub fn is_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the id of the process, so that a user can find and stop it. `None` if the process is unknown or not on
    /// this machine.
    pub fn process_id(&self) -> Option<u32> {
        (self.process != 0).then_some(self.process)
    }
}

impl fmt::Display for SessionHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process_id() {
            Some(process) => write!(formatter, "process {process}"),
            None => formatter.write_str("another process"),
        }
    }
}

impl Serialize for SessionHolder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.process)
    }
}
