//! Jobs that wait for the write connection, and the channels that return their results to the callers.

use crate::StoreError;
use crate::sqlite::failure::Failure;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Estimate of how long a job keeps the leader's thread busy, not counting fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Effort {
    /// The job writes a few rows and kilobytes, which takes well under a millisecond.
    Short,
    /// The job may take longer, because it writes large values or many rows or updates an index.
    Long,
}

/// Maximum number of bytes that a short job writes. Writing them takes less than a millisecond.
const MAX_SHORT_BYTES: usize = 128 << 10;

impl Effort {
    /// Estimates the effort of writing this many bytes.
    pub(in crate::sqlite) fn of(bytes: usize) -> Self {
        if bytes <= MAX_SHORT_BYTES { Self::Short } else { Self::Long }
    }
}

/// A job that waits in the queue, with its estimated effort and its slot.
pub(super) struct QueuedJob {
    pub(super) job: Box<dyn Job>,
    pub(super) effort: Effort,
    /// The job's slot in the queue. The number of slots limits the length of the queue.
    pub(super) slot: OwnedSemaphorePermit,
}

/// A unit of work, with a channel that sends the result of the work to the caller.
pub(super) trait Job: Send {
    /// Returns whether the caller still waits for the result.
    fn is_awaited(&self) -> bool;
    /// Runs the job and keeps its result until [`Job::finish`] is called. The job may run again if its
    /// transaction is lost.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Sends the job's result to the caller, or the error of the transaction if the transaction failed.
    fn finish(self: Box<Self>, transaction: Result<(), StoreError>);
}

impl QueuedJob {
    pub(super) fn finish(self, transaction: Result<(), StoreError>) {
        drop(self.slot);
        self.job.finish(transaction);
    }

    pub(super) fn fail(self, error: &StoreError) {
        self.finish(Err(error.clone()));
    }
}

/// A job that calls a closure and sends the closure's result to the caller.
pub(super) struct ClosureJob<T, F> {
    path: Arc<Path>,
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> ClosureJob<T, F> {
    pub(super) fn new(path: Arc<Path>, work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, receiver) = oneshot::channel();
        (Self { path, work, result: None, reply }, receiver)
    }
}

impl<T, F> Job for ClosureJob<T, F>
where
    T: Send + 'static,
    F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
{
    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.result = None;
        self.result = Some((self.work)(connection).map_err(|failure| failure.into_error(&self.path))?);
        Ok(())
    }

    fn finish(self: Box<Self>, transaction: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // Ignore this error: the caller no longer waits for the result.
        let _ = reply.send(transaction.and_then(|()| result.ok_or(StoreError::Closed)));
    }
}
