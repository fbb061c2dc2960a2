//! The recorded inputs for a replayed call. These inputs replace the current time, new random numbers and the
//! current files.

use super::files::ReplayTrees;
use std::sync::Arc;
use std::time::Duration;

/// The time, random numbers and files that the original call saw.
#[derive(Clone, Debug, Default)]
pub struct ReplayInputs {
    /// Time since 1970 when the call first read the clock. `None` means that the call did not read the clock.
    pub time: Option<Duration>,
    /// Secure random bytes in the order in which the call read them. If the replayed call reads more bytes than the
    /// original call, the additional bytes are new random bytes.
    pub random: Vec<u8>,
    /// The granted directories in the state that they had before the original call. `None` means that the original call
    /// did not use granted directories.
    pub trees: Option<Arc<ReplayTrees>>,
}
