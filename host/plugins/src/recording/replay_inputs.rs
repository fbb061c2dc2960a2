//! The recorded inputs of a replayed call, which replace the current time, random numbers and files.

use super::files::ReplayTrees;
use std::sync::Arc;
use std::time::Duration;

/// The time, random numbers and files that the original call saw.
#[derive(Clone, Debug, Default)]
pub struct ReplayInputs {
    /// Time since 1970 at the first reading of the clock. None: the call did not read it.
    pub time: Option<Duration>,
    /// Secure random bytes in the order in which the call read them. After the last one, the replayed call gets new ones.
    pub random: Vec<u8>,
    /// The file trees as the call found them. None: the call did not use any.
    pub trees: Option<Arc<ReplayTrees>>,
}
