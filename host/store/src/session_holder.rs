//! Identifies the process that has a session open, without exposing how a store identifies the owners of sessions.

use serde::{Serialize, Serializer};
use std::fmt;

/// The process that holds a session's lease. `Display` writes a name for users, such as `process 1234` or
/// `process 1234 on db-worker-2`. The holder is serialised as the process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// Process id, or 0 if the process is unknown.
    process: u32,
    /// Name of the machine of the process. `None` if the process runs on this machine.
    other_machine: Option<String>,
}

impl SessionHolder {
    /// Creates a holder for a process on this machine. An `id` of 0 means that the process is unknown.
    pub(crate) fn process(id: u32) -> Self {
        Self { process: id, other_machine: None }
    }

    /// Creates a holder for a process on another machine, or in another container.
    pub(crate) fn elsewhere(id: u32, machine: String) -> Self {
        Self { process: id, other_machine: Some(machine) }
    }

    /// Returns whether the current process has the session open, through any of its stores.
    pub fn is_this_process(&self) -> bool {
        self.other_machine.is_none() && self.process == std::process::id()
    }

    /// Returns the id of the process, so that a user can find and stop it. `None` if the process is unknown or not on
    /// this machine.
    pub fn process_id(&self) -> Option<u32> {
        (self.process != 0 && self.other_machine.is_none()).then_some(self.process)
    }
}

impl fmt::Display for SessionHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, &self.other_machine) {
            (0, None) => formatter.write_str("another process"),
            (0, Some(machine)) => write!(formatter, "a process on {machine}"),
            (process, None) => write!(formatter, "process {process}"),
            (process, Some(machine)) => write!(formatter, "process {process} on {machine}"),
        }
    }
}

impl Serialize for SessionHolder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.process)
    }
}
