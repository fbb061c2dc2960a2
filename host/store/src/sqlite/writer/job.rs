//! Jobs that wait for the write connection, and how their callers receive the result.

use crate::StoreError;
use crate::sqlite::failure::Failure;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How long a job keeps the leader's thread busy, not counting fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Effort {
    /// Some rows and kilobytes: well under a millisecond.
    Short,
    /// Possibly longer: large values, an index update or many rows.
    Long,
}

/// Number of bytes that can be written in well under a millisecond.
const SHORT_BYTES: usize = 128 << 10;

impl Effort {
    /// Estimates the effort of writing this many bytes.
    pub(in crate::sqlite) fn of(bytes: usize) -> Self {
        if bytes <= SHORT_BYTES { Self::Short } else { Self::Long }
    }
}

/// A job in the queue.
pub(super) struct QueuedJob {
    pub(super) job: Box<dyn Job>,
    pub(super) effort: Effort,
    /// The job's slot, which bounds the length of the queue.
    pub(super) slot: OwnedSemaphorePermit,
}

/// A unit of work, and the channel to its caller.
pub(super) trait Job: Send {
    /// Whether the caller still waits for the result.
    fn is_awaited(&self) -> bool;
    /// Runs the job and keeps its result. It may run again if the transaction is lost.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Sends the caller the job's result, or the failure of the transaction.
    fn answer(self: Box<Self>, transaction: Result<(), StoreError>);
}

impl QueuedJob {
    pub(super) fn answer(self, transaction: Result<(), StoreError>) {
        drop(self.slot);
        self.job.answer(transaction);
    }

    pub(super) fn refuse(self, error: &StoreError) {
        self.answer(Err(error.clone()));
    }
}

/// A job that runs a closure.
pub(super) struct ClosureJob<T, F> {
    path: Arc<Path>,
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> ClosureJob<T, F> {
    pub(super) fn new(path: Arc<Path>, work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { path, work, result: None, reply }, answer)
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

    fn answer(self: Box<Self>, transaction: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // A caller that no longer waits needs no answer.
        let _ = reply.send(transaction.and_then(|()| result.ok_or(StoreError::Closed)));
    }
}
