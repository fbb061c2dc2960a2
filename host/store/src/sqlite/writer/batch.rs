//! Runs a batch of jobs in one transaction. Each job succeeds or fails independently of the other jobs. The caller of a
//! job gets the result only after the commit.

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

/// The write connection, with the settings and counters that a commit needs.
pub(super) struct Committer {
    pub(super) connection: Connection,
    pub(super) path: Arc<Path>,
    pub(super) counters: Arc<Counters>,
    /// Time for which SQLite waits until another process releases its lock. Not used if the leader must not block.
    pub(super) lock_wait: Duration,
    /// Whether a write may wait for disk space. A write does not wait if the file has reached its configured
    /// maximum size.
    pub(super) space: SpaceLimit,
    pub(super) last: LastCommit,
}

/// Size and duration of the last commit.
#[derive(Clone, Copy, Default)]
pub(super) struct LastCommit {
    /// Number of jobs in the transaction.
    pub(super) jobs: usize,
    /// Duration of the statement `COMMIT`, not counting the time in which the jobs ran.
    pub(super) duration: Duration,
}

/// Whether to wait if another process holds the write lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenLocked {
    /// Wait until the other process releases the lock.
    Wait,
    /// Fail without waiting, and leave the jobs in the queue.
    Fail,
}

/// The limit that a full database has reached. The kind of limit decides whether waiting for free space can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum SpaceLimit {
    /// The free space on the disk, which other programs may increase.
    Disk,
    /// A fixed limit of the file size, or the available memory. Waiting does not make more space available.
    Fixed,
}

/// Outcome of an attempt to commit a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// Every job that was taken from the batch has succeeded or failed, and the caller of each job was notified.
    Finished,
    /// A temporary problem prevents the commit: another process is writing, or the disk is full. Nothing is stored, and
    /// all jobs are back in the batch. The number counts the jobs at the front of the batch that could not be committed
    /// because of the problem.
    Blocked(StoreError, usize),
}

/// State of a transaction after its jobs have run.
enum TransactionState {
    /// The jobs in this list succeeded, but the changes of these jobs are not committed yet.
    Ready(Vec<QueuedJob>),
    /// The transaction was rolled back. All jobs of the transaction have failed or were put back into the batch.
    Aborted(BatchOutcome),
}

/// Puts jobs back at the front of the batch in their original order, and returns the number of these jobs.
fn put_back(batch: &mut VecDeque<QueuedJob>, taken: Vec<QueuedJob>) -> usize {
    let count = taken.len();
    taken.into_iter().rev().for_each(|queued| batch.push_front(queued));
    count
}

impl Committer {
    /// Commits the jobs of the batch in one transaction. If a failure aborts the whole transaction, the jobs behind the
    /// failed job stay in the batch.
    pub(super) fn commit_together(&mut self, batch: &mut VecDeque<QueuedJob>, when_locked: WhenLocked) -> BatchOutcome {
        let changes_before = self.connection.total_changes();
        self.roll_back();
        match self.begin(when_locked) {
            Ok(()) => {}
            Err(error) if self.is_temporary(&error) => return BatchOutcome::Blocked(error, batch.len()),
            Err(error) => {
                self.roll_back();
                batch.drain(..).for_each(|queued| queued.fail(&error));
                return BatchOutcome::Finished;
            }
        }
        let done = match self.run_jobs(batch) {
            TransactionState::Ready(done) => done,
            TransactionState::Aborted(outcome) => return outcome,
        };
        let started = Instant::now();
        let committed = self.execute("COMMIT");
        self.last = LastCommit { jobs: done.len(), duration: started.elapsed() };
        if let Err(error) = &committed {
            self.roll_back();
            if self.is_temporary(error) {
                return BatchOutcome::Blocked(error.clone(), put_back(batch, done));
            }
        }
        if committed.is_ok() && self.connection.total_changes() > changes_before {
            self.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.counters.jobs.fetch_add(done.len() as u64, Ordering::Relaxed);
            self.counters.durations.add(self.last.duration);
        }
        for queued in done {
            queued.finish(committed.clone());
        }
        BatchOutcome::Finished
    }

    fn run_jobs(&self, batch: &mut VecDeque<QueuedJob>) -> TransactionState {
        let mut done = Vec::with_capacity(batch.len());
        while let Some(mut queued) = batch.pop_front() {
            if !queued.job.is_awaited() {
                continue;
            }
            // A savepoint protects the changes of the previous jobs in the transaction. The first job does not need a
            // savepoint: if it fails, the whole transaction can be aborted.
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
            queued.fail(&error);
            if self.connection.is_autocommit() {
                done.into_iter().for_each(|queued: QueuedJob| queued.fail(&error));
                return TransactionState::Aborted(BatchOutcome::Finished);
            }
        }
        TransactionState::Ready(done)
    }

    /// Returns whether the failed write can succeed later even if nothing in the store changes.
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
            // SQLite has already rolled back the whole transaction, because of a full disk, an I/O error, or a lack of
            // memory.
            return result.and(Err(StoreError::Closed));
        }
        let undone = if result.is_err() { self.execute("ROLLBACK TO job") } else { Ok(()) };
        let closed = undone.and_then(|()| self.execute("RELEASE job"));
        if closed.is_err() {
            // The changes of a job that was only partly rolled back must not be committed with the other jobs.
            self.roll_back();
        }
        result.and(closed)
    }

    /// Runs a job. A panic counts as a failure, so that the job's changes are rolled back.
    fn run(&self, queued: &mut QueuedJob) -> Result<(), StoreError> {
        let run = catch_unwind(AssertUnwindSafe(|| queued.job.run(&self.connection)));
        run.unwrap_or_else(|_| {
            let problem = "the write job panicked, and none of its changes were stored".to_owned();
            Err(StoreError::Failed { path: self.path.to_path_buf(), problem })
        })
    }

    /// Adds the next messages to the search index.
    pub(super) fn index_next_batch(&self) -> search::Progress {
        // Do not wait for the lock of another process, because the write jobs in the queue would have to wait too.
        // While another process writes, the index is not updated.
        let progress = self.set_busy_timeout(WhenLocked::Fail).map_err(Failure::from).and_then(|()| {
            let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
            schema::check_version(&transaction, &self.path)?;
            let progress = search::index_next_batch(&transaction)?;
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
                // The next search updates the index again and reports the problem.
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

    /// Rolls back the transaction if one is open. If the rollback fails, the transaction stays open, and the next
    /// `BEGIN` fails and reports the problem.
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
