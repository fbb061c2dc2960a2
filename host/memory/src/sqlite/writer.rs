//! The one writer: a thread that owns the write connection and commits together what waits together (group commit).
//! Nothing is answered before the transaction that holds it is committed.

use super::failure::Failure;
use super::{Counters, search};
use crate::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that may wait; further callers wait for a place.
const QUEUE: usize = 256;

/// Jobs that share a transaction at most.
const BATCH: usize = 64;

/// How long the writer has nothing to do before it brings the search index up to date.
const IDLE: Duration = Duration::from_millis(500);

/// The way to the thread.
pub(super) struct Writer {
    sender: Option<Sender<Queued>>,
    places: Arc<Semaphore>,
    path: Arc<Path>,
    thread: Option<JoinHandle<()>>,
}

/// The channel itself has no bound: the place that each job holds bounds it.
struct Queued {
    job: Box<dyn Job>,
    place: OwnedSemaphorePermit,
}

/// Work and the way back to who waits for it.
trait Job: Send {
    /// Whether anybody still waits.
    fn is_wanted(&self) -> bool;
    /// Does the work and keeps its result.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Answers with the result, or with the failure of the transaction around it.
    fn answer(self: Box<Self>, transaction: Result<(), StoreError>);
}

impl Writer {
    pub(super) fn start(connection: Connection, path: PathBuf, counters: Arc<Counters>) -> Result<Self, StoreError> {
        let (sender, jobs) = channel();
        let path: Arc<Path> = path.into();
        let loop_path = path.clone();
        let thread = std::thread::Builder::new()
            .name("memory-writer".to_owned())
            .spawn(move || Loop { connection, path: loop_path, counters }.run(&jobs))
            .map_err(|error| StoreError::Failed { path: path.to_path_buf(), problem: error.to_string() })?;
        Ok(Self { sender: Some(sender), places: Arc::new(Semaphore::new(QUEUE)), path, thread: Some(thread) })
    }

    /// Returns when the work is durable. A caller that gives up before its turn has not been served; later, it may have
    /// been.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let place = self.places.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Task { path: self.path.clone(), work: Some(work), result: None, reply });
        let sender = self.sender.as_ref().ok_or(StoreError::Closed)?;
        sender.send(Queued { job, place }).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Without a sender the thread ends as soon as the queue is empty.
        drop(self.sender.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(database = %self.path.display(), "the database's writer has panicked");
        }
    }
}

struct Task<T, F> {
    path: Arc<Path>,
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let work = self.work.take().ok_or(StoreError::Closed)?;
        self.result = Some(work(connection).map_err(|failure| failure.at(&self.path))?);
        Ok(())
    }

    fn answer(self: Box<Self>, transaction: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // Who no longer waits needs no answer.
        let _ = reply.send(transaction.and_then(|()| result.ok_or(StoreError::Closed)));
    }
}

/// What runs on the thread.
struct Loop {
    connection: Connection,
    path: Arc<Path>,
    counters: Arc<Counters>,
}

/// Whether messages may wait for the search index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Behind,
    UpToDate,
}

impl Loop {
    fn run(mut self, jobs: &Receiver<Queued>) {
        let mut index = Index::Behind;
        loop {
            let first = match index {
                Index::UpToDate => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Index::Behind => jobs.recv_timeout(IDLE),
            };
            match first {
                Ok(first) => {
                    let mut batch = VecDeque::from([first]);
                    batch.extend(jobs.try_iter().take(BATCH - 1));
                    while !batch.is_empty() {
                        self.commit_together(&mut batch);
                    }
                    index = Index::Behind;
                }
                Err(RecvTimeoutError::Timeout) => index = self.bring_index_up_to_date(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    /// One transaction for as much of the batch as it can hold: all of it, but for a failure that takes the whole
    /// transaction down, behind which the rest begins anew.
    fn commit_together(&mut self, batch: &mut VecDeque<Queued>) {
        let changes_before = self.connection.total_changes();
        self.roll_back();
        if let Err(error) = self.execute("BEGIN IMMEDIATE") {
            batch.drain(..).for_each(|queued| queued.refuse(&error));
            return;
        }
        let mut done = Vec::with_capacity(batch.len());
        while let Some(mut queued) = batch.pop_front() {
            if !queued.job.is_wanted() {
                continue;
            }
            match self.run_in_savepoint(queued.job.as_mut()) {
                Ok(()) => done.push(queued),
                Err(error) => {
                    queued.refuse(&error);
                    if self.connection.is_autocommit() {
                        done.into_iter().for_each(|queued| queued.refuse(&error));
                        return;
                    }
                }
            }
        }
        let committed = self.execute("COMMIT");
        if committed.is_err() {
            self.roll_back();
        }
        if committed.is_ok() && self.connection.total_changes() > changes_before {
            self.counters.transactions.fetch_add(1, Ordering::Relaxed);
            self.counters.jobs.fetch_add(done.len() as u64, Ordering::Relaxed);
        }
        for Queued { job, place } in done {
            drop(place);
            job.answer(committed.clone());
        }
    }

    fn run_in_savepoint(&self, job: &mut dyn Job) -> Result<(), StoreError> {
        self.execute("SAVEPOINT job")?;
        let result = job.run(&self.connection);
        if self.connection.is_autocommit() {
            // SQLite has rolled everything back by itself: disk full, I/O error, out of memory.
            return Err(result.err().unwrap_or(StoreError::Closed));
        }
        let undone = if result.is_err() { self.execute("ROLLBACK TO job") } else { Ok(()) };
        let closed = undone.and_then(|()| self.execute("RELEASE job"));
        if closed.is_err() {
            // Half a job must not be committed with the others.
            self.roll_back();
        }
        result.and(closed)
    }

    fn bring_index_up_to_date(&mut self) -> Index {
        match self.index_some() {
            Ok(search::Progress::Done) => Index::UpToDate,
            Ok(search::Progress::Indexed) => {
                self.counters.index_transactions.fetch_add(1, Ordering::Relaxed);
                Index::Behind
            }
            Err(failure) => {
                // Searching tries again and then says what is wrong.
                tracing::warn!(error = %failure.at(&self.path), "the search index waits");
                Index::UpToDate
            }
        }
    }

    fn index_some(&self) -> Result<search::Progress, Failure> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let progress = search::index_some(&transaction)?;
        transaction.commit()?;
        Ok(progress)
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

impl Queued {
    fn refuse(self, error: &StoreError) {
        drop(self.place);
        self.job.answer(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::file::open_in_memory;
    use std::sync::mpsc;

    fn insert(connection: &Connection) -> Result<i64, Failure> {
        connection
            .execute("INSERT INTO sessions (subject, agent, created, updated) VALUES (random(), '', 0, 0)", [])?;
        Ok(connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))?)
    }

    /// What SQLite does by itself when the disk is full at the wrong moment.
    fn lose_the_transaction(connection: &Connection) -> Result<i64, Failure> {
        connection.execute_batch("ROLLBACK")?;
        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None).into())
    }

    /// Limit 28: when the whole transaction is lost, so is what shared it, and nobody is told otherwise; what comes
    /// behind is taken.
    #[tokio::test(flavor = "current_thread")]
    async fn a_lost_transaction_is_acknowledged_to_nobody() {
        let connection = open_in_memory().unwrap();
        let writer = Writer::start(connection, PathBuf::from(":memory:"), Arc::default()).unwrap();
        // The first job keeps the thread busy until the others are queued, so that they are one batch.
        let (go, wait) = mpsc::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let busy = writer.run(move |_| {
            let _ = begin.send(());
            let _ = wait.recv();
            Ok(0)
        });
        let behind = async {
            begun.await.unwrap();
            let [first, losing, last] = [insert, lose_the_transaction, insert].map(|job| writer.run(job));
            // Polled in this order: when the last is polled, the others are queued.
            tokio::join!(biased; first, losing, last, async { drop(go) })
        };
        let (busy, (first, losing, last, ())) = tokio::join!(busy, behind);
        let full = Err(StoreError::DiskFull { path: PathBuf::from(":memory:") });
        assert_eq!((busy, first, losing, last), (Ok(0), full.clone(), full, Ok(1)));
    }
}
