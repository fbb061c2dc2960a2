//! Describes who has a session open, without exposing how a store identifies its owners.

use serde::{Serialize, Serializer};
use std::fmt;

/// The holder of a session's lease. `Display` names it for people, such as `process 1234`. It is serialised as the process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHolder {
    /// 0 if the process is unknown.
    process: u32,
}

impl SessionHolder {
    /// The holder is a process on this machine; 0 if its id is unknown.
    pub(crate) fn process(id: u32) -> Self {
        Self { process: id }
    }

    /// Returns whether this process holds the session, with this store or another open one.
    pub fn is_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the id of the process, to tell people which process to signal. `None` if it is unknown or not on this machine.
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
