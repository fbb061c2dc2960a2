//! What operators watch of a store: its sessions, its outbox and its writes (O2).

use crate::{SessionState, StoreError};
use async_trait::async_trait;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`WriteStatistics::durations`].
pub const COMMIT_DURATION_BOUNDS: [Duration; 12] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Describes the state of a store for monitoring.
#[async_trait]
pub trait Monitoring: Send + Sync {
    /// Returns the number of sessions of each agent and stored state, ordered by agent and state. The duration of this call
    /// grows with the number of sessions, so callers should not repeat it more often than every few seconds.
    async fn session_counts(&self) -> Result<Vec<SessionCount>, StoreError>;

    /// Returns the number and the age of the outbox items that are not delivered.
    async fn undelivered(&self) -> Result<Undelivered, StoreError>;

    /// Returns what this process has written since it opened the store.
    fn write_statistics(&self) -> WriteStatistics;
}

/// The number of sessions of an agent in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCount {
    /// Configured name of the agent.
    pub agent: String,
    /// The stored state. It is never [`SessionState::Interrupted`] or [`SessionState::Ready`].
    pub state: SessionState,
    /// Number of sessions.
    pub sessions: u64,
}

/// Outbox items that are not delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Number of items.
    pub items: u64,
    /// Time since the oldest of these items was stored. Zero if there is none, or if the clock was set back.
    pub oldest: Duration,
}

/// What a process has written to a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteStatistics {
    /// Number of commits of sessions.
    pub commits: u64,
    /// Number of transactions. A transaction may contain several commits and other writes.
    pub transactions: u64,
    /// Number of writes that wait for the next transaction.
    pub waiting: u64,
    /// Number of transactions whose commit took at most the time of the same position in [`COMMIT_DURATION_BOUNDS`]. The time
    /// includes the wait for the disk.
    pub durations: Vec<u64>,
    /// Sum of the durations.
    pub total: Duration,
}

/// Durations of commits. Each duration is counted in one bucket, and the last bucket has no bound.
#[derive(Debug, Default)]
pub(crate) struct DurationCounters {
    buckets: [AtomicU64; COMMIT_DURATION_BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl DurationCounters {
    pub(crate) fn add(&self, duration: Duration) {
        let bucket = COMMIT_DURATION_BOUNDS.partition_point(|bound| *bound < duration);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the number of durations up to each bound, and their sum.
    pub(crate) fn read(&self) -> (Vec<u64>, Duration) {
        let mut sum = 0;
        let bounded = self.buckets[..COMMIT_DURATION_BOUNDS.len()].iter().map(|bucket| {
            sum += bucket.load(Ordering::Relaxed);
            sum
        });
        (bounded.collect(), Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)))
    }
}
