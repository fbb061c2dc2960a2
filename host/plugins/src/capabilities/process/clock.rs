//! The wall clock of a call, and the stopped clock of output validators and media policies. In a replay, the wall clock
//! starts at the recorded time.

use crate::recording::CallRecord;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// The wall clock of a call.
pub(super) struct CallClock {
    pub(super) record: Arc<CallRecord>,
    /// In a replay, the result of the original call's first reading of the clock. `None` means that the clock is
    /// not replayed.
    pub(super) recorded_start: Option<Duration>,
    /// The moment at which this call first read the clock.
    pub(super) first_read: OnceLock<Instant>,
}

impl HostWallClock for CallClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        let now = match self.recorded_start {
            Some(time) => time + self.first_read.get().map(Instant::elapsed).unwrap_or_default(),
            // A system clock that is set to a time before 1970 must not make the call fail.
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        self.first_read.get_or_init(Instant::now);
        self.record.answers.time(now);
        now
    }
}

/// The clock of output validators and media policies, which always returns the Unix epoch.
pub(super) struct StoppedClock;

impl HostWallClock for StoppedClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for StoppedClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}
