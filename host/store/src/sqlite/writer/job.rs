//! Work that waits for the connection, and the way back to who waits for it.

use crate::StoreError;
use crate::sqlite::failure::Failure;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How long a job keeps a thread busy, fsync apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Effort {
    /// Some rows, some kilobytes: well under a millisecond.
    Short,
    /// Perhaps longer: large bytes, an index of words, many rows.
    Long,
}

/// Bytes that are written in well under a millisecond.
const SHORT_BYTES: usize = 128 << 10;

impl Effort {
    /// What writing this many bytes is.
    pub(in crate::sqlite) fn of(bytes: usize) -> Self {
        if bytes <= SHORT_BYTES { Self::Short } else { Self::Long }
    }
}

/// A job in the queue.
pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) effort: Effort,
    /// What bounds the queue.
    pub(super) place: OwnedSemaphorePermit,
}

/// Work and the way back to who waits for it.
pub(super) trait Job: Send {
    /// Whether anybody still waits.
    fn is_wanted(&self) -> bool;
    /// Does the work and keeps its result. Where the transaction around it is lost, it may be done again.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Answers with the result, or with the failure of the transaction around it.
    fn answer(self: Box<Self>, transaction: Result<(), StoreError>);
}

impl Queued {
    pub(super) fn answer(self, transaction: Result<(), StoreError>) {
        drop(self.place);
        self.job.answer(transaction);
    }

    pub(super) fn refuse(self, error: &StoreError) {
        self.answer(Err(error.clone()));
    }
}

/// A job of a closure.
pub(super) struct Task<T, F> {
    path: Arc<Path>,
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Task<T, F> {
    pub(super) fn new(path: Arc<Path>, work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { path, work, result: None, reply }, answer)
    }
}

impl<T, F> Job for Task<T, F>
where
    T: Send + 'static,
    F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.result = None;
        self.result = Some((self.work)(connection).map_err(|failure| failure.at(&self.path))?);
        Ok(())
    }

    fn answer(self: Box<Self>, transaction: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // Who no longer waits needs no answer.
        let _ = reply.send(transaction.and_then(|()| result.ok_or(StoreError::Closed)));
    }
}
