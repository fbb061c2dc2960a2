//! The times of recorded actions, so that a trace can show how long they took (O1).

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When an action began, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The beginning of the action, in microseconds since the Unix epoch.
    pub started_us: u64,
    /// The duration of the action, in microseconds.
    pub took_us: u64,
}

/// Measures the duration of an action. Changes of the system's time do not affect the duration.
#[derive(Clone, Copy, Debug)]
pub struct TimingClock {
    started: SystemTime,
    since: Instant,
}

impl TimingClock {
    /// Starts to measure an action that begins now.
    pub fn start() -> Self {
        Self { started: SystemTime::now(), since: Instant::now() }
    }

    /// Returns the timing of an action that ends now.
    pub fn stop(self) -> Timing {
        self.timing(self.elapsed())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    pub(crate) fn timing(self, took: Duration) -> Timing {
        let microseconds = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timing { started_us: microseconds(started), took_us: microseconds(took) }
    }
}
