//! What keeps a batch from being stored and may pass: people are told once, and once more when it has passed (row 46).

use crate::StoreError;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waiting for another process, or for room on the disk.
pub(super) struct Hindrance<'p> {
    path: &'p Path,
    patience: Duration,
    since: Option<Instant>,
}

impl<'p> Hindrance<'p> {
    /// Nothing hinders yet. `patience` is how long is waited in all.
    pub(super) fn new(path: &'p Path, patience: Duration) -> Self {
        Self { path, patience, since: None }
    }

    /// Tells of the hindrance when it is new. Afterwards says whether there is time left.
    pub(super) fn is_worth_waiting(&mut self, error: &StoreError) -> bool {
        if self.patience.is_zero() {
            return false;
        }
        match self.since {
            Some(since) => since.elapsed() < self.patience,
            None => {
                self.since = Some(Instant::now());
                let most = self.patience.as_secs();
                match error {
                    StoreError::DiskFull { .. } => {
                        tracing::warn!("{error}; what is to be stored waits for room, for at most {most} s");
                    }
                    StoreError::Locked { holder, .. } => {
                        let path = self.path.display();
                        tracing::warn!(
                            "another process{holder} keeps the database `{path}` locked; what is to be stored waits, for at most \
                             {most} s"
                        );
                    }
                    error => tracing::warn!("{error}; what is to be stored waits, for at most {most} s"),
                }
                true
            }
        }
    }

    /// It is stored.
    pub(super) fn has_passed(&mut self) {
        if let Some(since) = self.since.take() {
            let path = self.path.display();
            tracing::warn!("the database `{path}` can be written again, after {:.1} s", since.elapsed().as_secs_f64());
        }
    }
}
