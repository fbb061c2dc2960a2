//! One transaction for a batch of jobs: each job succeeds or fails on its own, and is answered only after the commit.

use super::job::QueuedJob;
use crate::StoreError;
use crate::sqlite::failure::Failure;
use crate::sqlite::{Counters, schema, search};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The write connection, with what it needs to commit.
pub(super) struct Committer {
    pub(super) connection: Connection,
    pub(super) path: Arc<Path>,
    pub(super) counters: Arc<Counters>,
    /// How long SQLite waits for another process, if the leader may block.
    pub(super) lock_wait: Duration,
    /// Whether to wait for disk space. A file that has reached its own size limit does not wait.
    pub(super) space: SpaceLimit,
    pub(super) last: LastCommit,
}

/// Size and duration of the last commit.
#[derive(Clone, Copy, Default)]
pub(super) struct LastCommit {
    /// Number of jobs in the transaction.
    pub(super) jobs: usize,
    /// Duration of the commit itself, without the jobs.
    pub(super) took: Duration,
}

/// What to do if another process holds the write lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenLocked {
    /// Wait for it.
    Wait,
    /// Fail at once, and leave the jobs in the queue.
    Fail,
}

/// What limits the space for the database, and so whether waiting for space can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum SpaceLimit {
    /// The disk, on which others may free space.
    Disk,
    /// A fixed limit of the file, or memory.
    Fixed,
}

/// Outcome of an attempt to commit a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// Every job that was taken from the batch has its answer.
    Answered,
    /// A temporary problem prevents the commit: another process writes, or the disk is full. Nothing is stored, and all jobs are
    /// in the batch again. The number says how many jobs at its front failed together.
    Blocked(StoreError, usize),
}

/// State of a transaction after its jobs have run.
enum TransactionState {
    /// These jobs succeeded and wait for the commit.
    Ready(Vec<QueuedJob>),
    /// The transaction was rolled back. All jobs were answered or put back into the batch.
    Aborted(BatchOutcome),
}

/// Puts jobs back to the front of the batch in their order, and returns how many there are.
fn put_back(batch: &mut VecDeque<QueuedJob>, taken: Vec<QueuedJob>) -> usize {
    let count = taken.len();
    taken.into_iter().rev().for_each(|queued| batch.push_front(queued));
    count
}

impl Committer {
    /// Commits as much of the batch as one transaction can hold. That is all of it, unless a failure aborts the whole
    /// transaction; the jobs behind the failed one then stay in the batch.
    pub(super) fn commit_together(&mut self, batch: &mut VecDeque<QueuedJob>, when_locked: WhenLocked) -> BatchOutcome {
        let changes_before = self.connection.total_changes();
        self.roll_back();
        match self.begin(when_locked) {
            Ok(()) => {}
            Err(error) if self.is_temporary(&error) => return BatchOutcome::Blocked(error, batch.len()),
            Err(error) => {
                self.roll_back();
                batch.drain(..).for_each(|queued| queued.refuse(&error));
                return BatchOutcome::Answered;
            }
        }
        let done = match self.run_all(batch) {
            TransactionState::Ready(done) => done,
            TransactionState::Aborted(progress) => return progress,
        };
        let started = Instant::now();
        let committed = self.execute("COMMIT");
        self.last = LastCommit { jobs: done.len(), took: started.elapsed() };
        if let Err(error) = &committed {
            self.roll_back();
            if self.is_temporary(error) {
                return BatchOutcome::Blocked(error.clone(), put_back(batch, done));
            }
        }
        if committed.is_ok() && self.connection.total_changes() > changes_before {
            self.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.counters.jobs.fetch_add(done.len() as u64, Ordering::Relaxed);
        }
        for queued in done {
            queued.answer(committed.clone());
        }
        BatchOutcome::Answered
    }

    fn run_all(&self, batch: &mut VecDeque<QueuedJob>) -> TransactionState {
        let mut done = Vec::with_capacity(batch.len());
        while let Some(mut queued) = batch.pop_front() {
            if !queued.job.is_awaited() {
                continue;
            }
            // A savepoint protects the jobs before this one. The first job needs none: its failure may abort the transaction.
            let result = if done.is_empty() { self.run_first(&mut queued) } else { self.run_in_savepoint(&mut queued) };
            let Err(error) = result else {
                done.push(queued);
                continue;
            };
            if self.is_temporary(&error) {
                self.roll_back();
                done.push(queued);
                return TransactionState::Aborted(BatchOutcome::Blocked(error, put_back(batch, done)));
            }
            queued.refuse(&error);
            if self.connection.is_autocommit() {
                done.into_iter().for_each(|queued: QueuedJob| queued.refuse(&error));
                return TransactionState::Aborted(BatchOutcome::Answered);
            }
        }
        TransactionState::Ready(done)
    }

    /// Whether a later attempt can succeed without any action here.
    fn is_temporary(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Locked { .. } => true,
            StoreError::DiskFull { .. } => self.space == SpaceLimit::Disk,
            _ => false,
        }
    }

    fn run_first(&self, queued: &mut QueuedJob) -> Result<(), StoreError> {
        let result = self.run(queued);
        if self.connection.is_autocommit() {
            return result.and(Err(StoreError::Closed));
        }
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    fn run_in_savepoint(&self, queued: &mut QueuedJob) -> Result<(), StoreError> {
        self.execute("SAVEPOINT job")?;
        let result = self.run(queued);
        if self.connection.is_autocommit() {
            // SQLite has already rolled back the whole transaction: disk full, I/O error, or out of memory.
            return result.and(Err(StoreError::Closed));
        }
        let undone = if result.is_err() { self.execute("ROLLBACK TO job") } else { Ok(()) };
        let closed = undone.and_then(|()| self.execute("RELEASE job"));
        if closed.is_err() {
            // A partly undone job must not be committed with the others.
            self.roll_back();
        }
        result.and(closed)
    }

    /// Runs a job. A panic counts as a failure, and its changes are undone like those of any failed job.
    fn run(&self, queued: &mut QueuedJob) -> Result<(), StoreError> {
        let run = catch_unwind(AssertUnwindSafe(|| queued.job.run(&self.connection)));
        run.unwrap_or_else(|_| {
            let problem = "the write job panicked; nothing of it was stored".to_owned();
            Err(StoreError::Failed { path: self.path.to_path_buf(), problem })
        })
    }

    /// Indexes some of the messages that searches do not find yet.
    pub(super) fn index_some(&self) -> search::Progress {
        // Jobs must not wait for this: while another process writes, the index stays behind.
        let progress = self.set_busy_timeout(WhenLocked::Fail).map_err(Failure::from).and_then(|()| {
            let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
            schema::check_version(&transaction, &self.path)?;
            let progress = search::index_some(&transaction)?;
            transaction.commit()?;
            Ok(progress)
        });
        match progress {
            Ok(search::Progress::Indexed) => {
                self.counters.index_transactions.fetch_add(1, Ordering::Relaxed);
                search::Progress::Indexed
            }
            Ok(search::Progress::Done) => search::Progress::Done,
            Err(failure) => {
                // The next search tries again and reports the problem.
                match failure.into_error(&self.path) {
                    StoreError::Locked { .. } => {}
                    error => tracing::warn!(%error, "could not update the search index; the next search tries again"),
                }
                search::Progress::Done
            }
        }
    }

    fn begin(&self, when_locked: WhenLocked) -> Result<(), StoreError> {
        self.set_busy_timeout(when_locked).map_err(|error| Failure::from(error).into_error(&self.path))?;
        self.execute("BEGIN IMMEDIATE")?;
        schema::check_version(&self.connection, &self.path).map_err(|failure| failure.into_error(&self.path))
    }

    fn set_busy_timeout(&self, when_locked: WhenLocked) -> rusqlite::Result<()> {
        self.connection.busy_timeout(match when_locked {
            WhenLocked::Wait => self.lock_wait,
            WhenLocked::Fail => Duration::ZERO,
        })
    }

    /// If the rollback fails, the transaction stays open, and the next `BEGIN` fails and reports it.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "could not roll back a transaction");
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        let executed = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        executed.map(|_| ()).map_err(|error| Failure::from(error).into_error(&self.path))
    }
}
