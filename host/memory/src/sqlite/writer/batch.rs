//! One transaction for what waits together: each job stands or falls alone, and nothing is answered before the commit.

use super::job::Queued;
use crate::StoreError;
use crate::sqlite::failure::Failure;
use crate::sqlite::{Counters, search};
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
    /// How long another process is waited for by who may wait.
    pub(super) lock_wait: Duration,
    pub(super) last: LastCommit,
}

/// How the last commit went.
#[derive(Clone, Copy, Default)]
pub(super) struct LastCommit {
    /// That shared it.
    pub(super) jobs: usize,
    /// The commit alone, not the jobs.
    pub(super) took: Duration,
}

/// What is done when another process holds the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It is waited for.
    Waits,
    /// The jobs stay where they are.
    GivesUp,
}

/// What has become of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Every job taken from it has its answer.
    Answered,
    /// Another process writes; the batch is as it was.
    Locked,
}

impl Committer {
    /// Takes as much of the batch as one transaction can hold: all of it, but for a failure that takes the whole
    /// transaction down, behind which the rest waits for the next.
    pub(super) fn commit_together(&mut self, batch: &mut VecDeque<Queued>, patience: Patience) -> Progress {
        let changes_before = self.connection.total_changes();
        self.roll_back();
        match self.begin(patience) {
            Ok(()) => {}
            Err(StoreError::Locked { .. }) if patience == Patience::GivesUp => return Progress::Locked,
            Err(error) => {
                batch.drain(..).for_each(|queued| queued.refuse(&error));
                return Progress::Answered;
            }
        }
        let Some(done) = self.run_all(batch) else { return Progress::Answered };
        let started = Instant::now();
        let committed = self.execute("COMMIT");
        self.last = LastCommit { jobs: done.len(), took: started.elapsed() };
        if committed.is_err() {
            self.roll_back();
        }
        if committed.is_ok() && self.connection.total_changes() > changes_before {
            self.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.counters.jobs.fetch_add(done.len() as u64, Ordering::Relaxed);
        }
        for queued in done {
            queued.answer(committed.clone());
        }
        Progress::Answered
    }

    /// Those that are done and wait for the commit. None where the transaction is lost and everybody knows.
    fn run_all(&self, batch: &mut VecDeque<Queued>) -> Option<Vec<Queued>> {
        let mut done = Vec::with_capacity(batch.len());
        while let Some(mut queued) = batch.pop_front() {
            if !queued.job.is_wanted() {
                continue;
            }
            // A savepoint is for what came before; alone, a job's failure may take the transaction with it.
            let result = if done.is_empty() { self.run_first(&mut queued) } else { self.run_in_savepoint(&mut queued) };
            let Err(error) = result else {
                done.push(queued);
                continue;
            };
            queued.refuse(&error);
            if self.connection.is_autocommit() {
                done.into_iter().for_each(|queued: Queued| queued.refuse(&error));
                return None;
            }
        }
        Some(done)
    }

    fn run_first(&self, queued: &mut Queued) -> Result<(), StoreError> {
        let result = self.run(queued);
        if self.connection.is_autocommit() {
            return result.and(Err(StoreError::Closed));
        }
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    fn run_in_savepoint(&self, queued: &mut Queued) -> Result<(), StoreError> {
        self.execute("SAVEPOINT job")?;
        let result = self.run(queued);
        if self.connection.is_autocommit() {
            // SQLite has rolled everything back by itself: disk full, I/O error, out of memory.
            return result.and(Err(StoreError::Closed));
        }
        let undone = if result.is_err() { self.execute("ROLLBACK TO job") } else { Ok(()) };
        let closed = undone.and_then(|()| self.execute("RELEASE job"));
        if closed.is_err() {
            // Half a job must not be committed with the others.
            self.roll_back();
        }
        result.and(closed)
    }

    /// A job that panics fails like another; what it did is undone like another's.
    fn run(&self, queued: &mut Queued) -> Result<(), StoreError> {
        let run = catch_unwind(AssertUnwindSafe(|| queued.job.run(&self.connection)));
        run.unwrap_or_else(|_| {
            let problem = "the work on it has panicked; nothing of it is stored".to_owned();
            Err(StoreError::Failed { path: self.path.to_path_buf(), problem })
        })
    }

    /// Indexes some of the messages that searching does not find yet.
    pub(super) fn index_some(&self) -> search::Progress {
        let progress = self.wait_for_others(Patience::Waits).map_err(Failure::from).and_then(|()| {
            let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
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
                // Searching tries again and then says what is wrong.
                tracing::warn!(error = %failure.at(&self.path), "the search index waits");
                search::Progress::Done
            }
        }
    }

    fn begin(&self, patience: Patience) -> Result<(), StoreError> {
        self.wait_for_others(patience).map_err(|error| Failure::from(error).at(&self.path))?;
        self.execute("BEGIN IMMEDIATE")
    }

    fn wait_for_others(&self, patience: Patience) -> rusqlite::Result<()> {
        self.connection.busy_timeout(match patience {
            Patience::Waits => self.lock_wait,
            Patience::GivesUp => Duration::ZERO,
        })
    }

    /// A rollback that fails leaves the transaction open: the next `BEGIN` fails and says so.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        let executed = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        executed.map(|_| ()).map_err(|error| Failure::from(error).at(&self.path))
    }
}
