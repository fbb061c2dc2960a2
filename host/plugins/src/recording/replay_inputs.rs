//! The recorded inputs of a replayed call, which replace the current time, random numbers and files.

use super::files::ReplayTrees;
use std::sync::Arc;
use std::time::Duration;

/// The time, random numbers and files that the original call saw.
#[derive(Clone, Debug, Default)]
pub struct ReplayInputs {
    /// Time since 1970 when the call first read the clock. None: the call did not read the clock.
    pub time: Option<Duration>,
    /// Secure random bytes in the order in which the call read them. If the replayed call reads more bytes, it gets new
    /// random bytes.
    pub random: Vec<u8>,
    /// The granted directories in the state in which the call found them. None: the call did not use
    /// granted directories.
    pub trees: Option<Arc<ReplayTrees>>,
}
