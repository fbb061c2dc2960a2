//! Waits while another process has the write lock or the disk is full. A warning is logged when the wait starts, and
//! another warning when the write succeeds (row 46).

use crate::StoreError;
use std::path::Path;
use std::time::{Duration, Instant};

/// State of a batch that waits until a temporary problem is resolved.
pub(super) struct BlockedWrite<'p> {
    path: &'p Path,
    max_wait: Duration,
    since: Option<Instant>,
}

impl<'p> BlockedWrite<'p> {
    /// Creates the state of a batch that has not had to wait yet. `max_wait` is the total time that the batch may wait.
    pub(super) fn new(path: &'p Path, max_wait: Duration) -> Self {
        Self { path, max_wait, since: None }
    }

    /// Logs a warning if the batch has just started to wait. Returns whether the batch may wait longer.
    pub(super) fn should_wait(&mut self, error: &StoreError) -> bool {
        if self.max_wait.is_zero() {
            return false;
        }
        match self.since {
            Some(since) => since.elapsed() < self.max_wait,
            None => {
                self.since = Some(Instant::now());
                let max_seconds = self.max_wait.as_secs();
                match error {
                    StoreError::DiskFull { .. } => {
                        tracing::warn!("{error}; the write waits for free space for up to {max_seconds} s");
                    }
                    StoreError::Locked { holder, .. } => {
                        let path = self.path.display();
                        tracing::warn!(
                            "another process{holder} keeps the database `{path}` locked; the write waits for up to {max_seconds} s"
                        );
                    }
                    error => tracing::warn!("{error}; the write waits for up to {max_seconds} s"),
                }
                true
            }
        }
    }

    /// If the batch had to wait, logs that writing to the database is possible again, and for how long the
    /// batch waited.
    pub(super) fn log_if_resolved(&mut self) {
        if let Some(since) = self.since.take() {
            let path = self.path.display();
            tracing::warn!("the database `{path}` can be written again, after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}
