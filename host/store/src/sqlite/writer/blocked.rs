//! Waits while another process holds the write lock or the disk is full. Logs one warning when the wait begins, and one when it
//! ends (row 46).

use crate::StoreError;
use std::path::Path;
use std::time::{Duration, Instant};

/// The wait of one batch for a temporary problem to end.
pub(super) struct BlockedWrite<'p> {
    path: &'p Path,
    max_wait: Duration,
    since: Option<Instant>,
}

impl<'p> BlockedWrite<'p> {
    /// Creates the state before any problem. `max_wait` is the total time to wait.
    pub(super) fn new(path: &'p Path, max_wait: Duration) -> Self {
        Self { path, max_wait, since: None }
    }

    /// Logs a warning if the problem is new, and returns whether there is time left to wait.
    pub(super) fn should_wait(&mut self, error: &StoreError) -> bool {
        if self.max_wait.is_zero() {
            return false;
        }
        match self.since {
            Some(since) => since.elapsed() < self.max_wait,
            None => {
                self.since = Some(Instant::now());
                let most = self.max_wait.as_secs();
                match error {
                    StoreError::DiskFull { .. } => {
                        tracing::warn!("{error}; the write waits for free space for up to {most} s");
                    }
                    StoreError::Locked { holder, .. } => {
                        let path = self.path.display();
                        tracing::warn!(
                            "another process{holder} keeps the database `{path}` locked; the write waits for up to {most} s"
                        );
                    }
                    error => tracing::warn!("{error}; the write waits for up to {most} s"),
                }
                true
            }
        }
    }

    /// Logs that the batch is stored, if it had to wait.
    pub(super) fn resolved(&mut self) {
        if let Some(since) = self.since.take() {
            let path = self.path.display();
            tracing::warn!("the database `{path}` can be written again, after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}
