//! One transaction for what waits together: each job stands or falls alone, and nothing is answered before the commit.

use super::job::Queued;
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
    /// How long SQLite itself waits for another process, where who leads may wait.
    pub(super) lock_wait: Duration,
    /// Whether a disk without room is waited for. A file that has reached its own limit is not.
    pub(super) room: Room,
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

/// Whether there may be room for a commit later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) enum Room {
    /// On the disk, where others free some.
    OnDisk,
    /// In a file that has a limit of its own, or in memory.
    Limited,
}

/// What has become of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Every job taken from it has its answer.
    Answered,
    /// What keeps it from being stored may pass: another process writes, or the disk is full. Nothing of it is stored, and all
    /// jobs are in it as they were; so many of the first have failed together.
    Hindered(StoreError, usize),
}

/// What has become of the jobs of a transaction before its commit.
enum Ran {
    /// These are done and wait for the commit.
    Done(Vec<Queued>),
    /// The transaction is lost, and everybody knows, or is in the batch again.
    Lost(Progress),
}

/// To the front of the batch, in the order in which they were taken; returns how many.
fn put_back(batch: &mut VecDeque<Queued>, taken: Vec<Queued>) -> usize {
    let count = taken.len();
    taken.into_iter().rev().for_each(|queued| batch.push_front(queued));
    count
}

impl Committer {
    /// Takes as much of the batch as one transaction can hold: all of it, but for a failure that takes the whole
    /// transaction down, behind which the rest waits for the next.
    pub(super) fn commit_together(&mut self, batch: &mut VecDeque<Queued>, patience: Patience) -> Progress {
        let changes_before = self.connection.total_changes();
        self.roll_back();
        match self.begin(patience) {
            Ok(()) => {}
            Err(error) if self.may_pass(&error) => return Progress::Hindered(error, batch.len()),
            Err(error) => {
                self.roll_back();
                batch.drain(..).for_each(|queued| queued.refuse(&error));
                return Progress::Answered;
            }
        }
        let done = match self.run_all(batch) {
            Ran::Done(done) => done,
            Ran::Lost(progress) => return progress,
        };
        let started = Instant::now();
        let committed = self.execute("COMMIT");
        self.last = LastCommit { jobs: done.len(), took: started.elapsed() };
        if let Err(error) = &committed {
            self.roll_back();
            if self.may_pass(error) {
                return Progress::Hindered(error.clone(), put_back(batch, done));
            }
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

    fn run_all(&self, batch: &mut VecDeque<Queued>) -> Ran {
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
            if self.may_pass(&error) {
                self.roll_back();
                done.push(queued);
                return Ran::Lost(Progress::Hindered(error, put_back(batch, done)));
            }
            queued.refuse(&error);
            if self.connection.is_autocommit() {
                done.into_iter().for_each(|queued: Queued| queued.refuse(&error));
                return Ran::Lost(Progress::Answered);
            }
        }
        Ran::Done(done)
    }

    /// Whether the same may be stored later without anything being done about it here.
    fn may_pass(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Locked { .. } => true,
            StoreError::DiskFull { .. } => self.room == Room::OnDisk,
            _ => false,
        }
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
        // What is to be stored does not wait for this: while another process writes, the index stays behind.
        let progress = self.wait_for_others(Patience::GivesUp).map_err(Failure::from).and_then(|()| {
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
                // Searching tries again and then says what is wrong.
                match failure.at(&self.path) {
                    StoreError::Locked { .. } => {}
                    error => tracing::warn!(%error, "the search index waits"),
                }
                search::Progress::Done
            }
        }
    }

    fn begin(&self, patience: Patience) -> Result<(), StoreError> {
        self.wait_for_others(patience).map_err(|error| Failure::from(error).at(&self.path))?;
        self.execute("BEGIN IMMEDIATE")?;
        schema::check_version(&self.connection, &self.path).map_err(|failure| failure.at(&self.path))
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
