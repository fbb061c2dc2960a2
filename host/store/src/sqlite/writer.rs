//! The write connection. Jobs that wait at the same time are committed in one transaction (group commit). The thread
//! that currently owns the connection is the leader. The leader takes the waiting jobs and commits these jobs together.
//! The caller of a job gets the result only after the transaction is committed.
//!
//! If commits wait for the disk, a dedicated thread is the leader, and callers wake this thread and wait for it. If
//! commits do not wait for the disk, a caller that finds the connection free becomes the leader, because switching to
//! another thread would take longer than the commit.

mod batch;
mod blocked;
mod job;

pub(super) use job::Effort;

use super::failure::Failure;
use super::{Counters, search};
use crate::StoreError;
pub(super) use batch::SpaceLimit;
use batch::{BatchOutcome, Committer, LastCommit, WhenLocked};
use blocked::BlockedWrite;
use job::{ClosureJob, QueuedJob};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Maximum number of waiting jobs. Further callers wait until there is a free slot in the queue.
const QUEUE_CAPACITY: usize = 256;

/// Maximum number of jobs in one transaction.
const MAX_BATCH: usize = 128;

/// Maximum number of jobs that a caller runs as the leader: its own job, and jobs that arrive while the caller is
/// the leader.
const MAX_JOBS_PER_CALLER: usize = 16;

/// After a commit of at least this number of jobs, the writer thread waits for further jobs, because many sessions are
/// probably committing at the same pace.
const MIN_SHARED_JOBS: usize = 16;

/// The maximum time for which the writer thread waits for further jobs is the duration of the last commit divided by
/// this number.
const WAIT_DIVISOR: u32 = 4;

/// Time between attempts to write while another process has the write lock or the disk is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Time without writes after which the writer thread updates the search index.
const IDLE_TIME: Duration = Duration::from_millis(500);

/// The settings of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriterOptions {
    /// The policy that decides which threads may become the leader.
    pub(super) leaders: LeaderPolicy,
    /// Time to wait for another process before a warning is logged.
    pub(super) lock_wait: Duration,
    /// Total time to wait for another process or for disk space before a write fails.
    pub(super) max_wait: Duration,
    /// The limit that the database reaches when no space is left. This limit determines whether waiting can help.
    pub(super) space: SpaceLimit,
}

/// The policy that decides which threads may use the write connection and commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaderPolicy {
    /// Only the writer thread may become the leader. A commit waits for the disk and must not block a caller's thread.
    WriterThread,
    /// A caller that finds the connection free may become the leader if its job is short. The caller commits only if no
    /// other process has the write lock.
    Callers,
}

/// Sends jobs to the write connection.
pub(super) struct Writer {
    queue: Arc<WriteQueue>,
    path: Arc<Path>,
    thread: Option<JoinHandle<()>>,
}

/// The queue of waiting jobs. While no thread is the leader, the queue also contains the write connection.
struct WriteQueue {
    state: Mutex<QueueState>,
    /// Condition variable that wakes the writer thread.
    wakeup: Condvar,
    slots: Arc<Semaphore>,
    leaders: LeaderPolicy,
    path: Arc<Path>,
    max_wait: Duration,
}

struct QueueState {
    /// The waiting jobs. Each job in the queue needs a slot, so the number of slots limits the length of the queue.
    jobs: VecDeque<QueuedJob>,
    /// The write connection. `None` while a leader is using the connection.
    committer: Option<Committer>,
    thread: ThreadState,
    store: StoreState,
    index: IndexState,
    /// Number of waiting jobs at which the writer thread is woken.
    wake_threshold: usize,
    /// Number of times that a leader has returned the connection.
    times_led: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Waiting,
    Awake,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreState {
    Open,
    Closing,
}

/// Whether committed messages may be missing from the search index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IndexState {
    Behind,
    UpToDate,
}

/// The next action of the writer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingWork {
    Nothing,
    /// Many jobs shared the last commit, and their callers are likely to commit again soon. If the writer waits for a
    /// short time, the next commits of these callers share a transaction.
    WaitForMore {
        jobs: usize,
        max_wait: Duration,
    },
    Commit,
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    Notified,
    TimedOut,
}

/// The next task of the writer thread, with the connection that it needs.
enum NextTask<'a> {
    Commit(Leader<'a>),
    Index(Leader<'a>),
    Stop,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: PathBuf,
        options: WriterOptions,
        counters: Arc<Counters>,
    ) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.into();
        let WriterOptions { leaders, lock_wait, max_wait, space } = options;
        let last = LastCommit::default();
        let committer = Committer { connection, path: path.clone(), counters, lock_wait, space, last };
        let state = QueueState {
            jobs: VecDeque::new(),
            committer: Some(committer),
            thread: ThreadState::Awake,
            store: StoreState::Open,
            index: IndexState::Behind,
            wake_threshold: 1,
            times_led: 0,
        };
        let slots = Arc::new(Semaphore::new(QUEUE_CAPACITY));
        let (state, wakeup) = (Mutex::new(state), Condvar::new());
        let queue = Arc::new(WriteQueue { state, wakeup, slots, leaders, path: path.clone(), max_wait });
        let thread_queue = queue.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                // A panic in one job must not stop the writer.
                while catch_unwind(AssertUnwindSafe(|| thread_queue.run_thread())).is_err() {
                    tracing::error!("a write job panicked in the database writer; the writer continues");
                }
            })
            .map_err(|error| StoreError::Failed { path: path.to_path_buf(), problem: error.to_string() })?;
        Ok(Self { queue, path, thread: Some(thread) })
    }

    /// Returns the number of jobs that wait or run.
    pub(super) fn waiting(&self) -> usize {
        QUEUE_CAPACITY.saturating_sub(self.queue.slots.available_permits())
    }

    /// Runs `work` and returns when its result is durable. If the caller's future is dropped while the job is waiting,
    /// the job does not run. If the future is dropped later, the job may still be committed. If the transaction is lost
    /// because the disk is full, `work` runs again.
    pub(super) async fn run<T, F>(&self, effort: Effort, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let slot = self.queue.slots.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (job, reply) = ClosureJob::new(self.path.clone(), work);
        self.queue.submit(QueuedJob { job: Box::new(job), effort, slot });
        reply.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.store = StoreState::Closing;
        self.queue.wake_thread(state);
        // The writer thread stops when no jobs are left.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(database = %self.path.display(), "the database writer panicked");
        }
    }
}

impl WriteQueue {
    /// Adds the job to the queue. If the policy allows it, the calling thread becomes the leader and runs the job. The
    /// job runs within a single poll, so the future cannot be dropped while the job runs.
    fn submit(&self, queued: QueuedJob) {
        let mut state = self.lock();
        // If jobs are waiting although the connection is free, the thread was already woken.
        let may_lead = self.leaders == LeaderPolicy::Callers && queued.effort == Effort::Short && state.jobs.is_empty();
        state.jobs.push_back(queued);
        match state.committer.take_if(|_| may_lead) {
            Some(committer) => {
                drop(state);
                self.lead_as_caller(Leader::new(self, committer));
            }
            None if state.committer.is_some() && state.jobs.len() >= state.wake_threshold => self.wake_thread(state),
            None => {}
        }
    }

    /// Runs up to [`MAX_JOBS_PER_CALLER`] short jobs on the calling thread.
    fn lead_as_caller(&self, mut leader: Leader<'_>) {
        let mut remaining = MAX_JOBS_PER_CALLER;
        while remaining > 0 {
            let mut batch = self.take(remaining, |queued| queued.effort == Effort::Short);
            remaining -= batch.len().min(remaining);
            if batch.is_empty() {
                break;
            }
            while !batch.is_empty() {
                if leader.commit_together(&mut batch, WhenLocked::Fail) != BatchOutcome::Finished {
                    self.put_back(batch);
                    return;
                }
            }
        }
    }

    /// Runs the tasks of the writer thread until the store is closed.
    fn run_thread(&self) {
        loop {
            match self.next_task() {
                NextTask::Commit(mut leader) => {
                    let mut batch = self.take(MAX_BATCH, |_| true);
                    let mut blocked = BlockedWrite::new(&self.path, self.max_wait);
                    while !batch.is_empty() {
                        match leader.commit_together(&mut batch, WhenLocked::Wait) {
                            BatchOutcome::Finished => blocked.log_if_resolved(),
                            BatchOutcome::Blocked(error, _) if blocked.should_wait(&error) && self.is_open() => {
                                std::thread::sleep(RETRY_INTERVAL);
                            }
                            BatchOutcome::Blocked(error, failed) => {
                                batch.drain(..failed).for_each(|queued| queued.fail(&error));
                            }
                        }
                    }
                }
                NextTask::Index(leader) => leader.index_next_batch(),
                NextTask::Stop => return,
            }
        }
    }

    /// Blocks the writer thread until it has a task, and returns the task.
    fn next_task(&self) -> NextTask<'_> {
        let mut state = self.lock();
        let (ready, mut times_led) = (Instant::now(), state.times_led);
        loop {
            let work = state.pending_work(ready);
            match (work, state.committer.take_if(|_| matches!(work, PendingWork::Commit | PendingWork::Stop))) {
                (PendingWork::Commit, Some(committer)) => return NextTask::Commit(Leader::new(self, committer)),
                (PendingWork::Stop, Some(committer)) => {
                    // Closing the connection may move the write-ahead log into the database, so release the lock of the
                    // queue first.
                    drop(state);
                    drop(committer);
                    return NextTask::Stop;
                }
                (PendingWork::WaitForMore { jobs, max_wait }, _) => {
                    state.wake_threshold = jobs;
                    state = self.wait(state, Some(max_wait)).0;
                    state.wake_threshold = 1;
                }
                _ => {
                    let timeout = (state.index == IndexState::Behind).then_some(IDLE_TIME);
                    let (woken, reason) = self.wait(state, timeout);
                    state = woken;
                    let is_idle =
                        reason == WakeReason::TimedOut && state.jobs.is_empty() && state.times_led == times_led;
                    times_led = state.times_led;
                    if let Some(committer) = state.committer.take_if(|_| is_idle) {
                        return NextTask::Index(Leader::new(self, committer));
                    }
                }
            }
        }
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, QueueState>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, QueueState>, WakeReason) {
        state.thread = ThreadState::Waiting;
        let (mut state, woken) = match timeout {
            None => (self.wakeup.wait(state).unwrap_or_else(PoisonError::into_inner), WakeReason::Notified),
            Some(time) => {
                let (state, waited) = self.wakeup.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
                (state, if waited.timed_out() { WakeReason::TimedOut } else { WakeReason::Notified })
            }
        };
        state.thread = ThreadState::Awake;
        (state, woken)
    }

    /// Removes and returns up to `max_jobs` jobs from the front of the queue, and stops before the first job for which
    /// `accepts` returns false.
    fn take(&self, max_jobs: usize, mut accepts: impl FnMut(&QueuedJob) -> bool) -> VecDeque<QueuedJob> {
        let mut state = self.lock();
        let count = state.jobs.iter().take(max_jobs).take_while(|queued| accepts(queued)).count();
        state.jobs.drain(..count).collect()
    }

    /// Puts jobs back at the front of the queue, in their original order.
    fn put_back(&self, batch: VecDeque<QueuedJob>) {
        let mut state = self.lock();
        batch.into_iter().rev().for_each(|queued| state.jobs.push_front(queued));
    }

    /// Returns whether the store is open. A store that is closing does not wait for locks or disk space.
    fn is_open(&self) -> bool {
        self.lock().store == StoreState::Open
    }

    /// Wakes the writer thread if it is waiting.
    fn wake_thread(&self, mut state: MutexGuard<'_, QueueState>) {
        if state.thread == ThreadState::Waiting {
            state.thread = ThreadState::Awake;
            drop(state);
            self.wakeup.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Returns the next action of the writer thread. `ready` is the time at which the thread finished its
    /// previous task.
    fn pending_work(&self, ready: Instant) -> PendingWork {
        let Some(committer) = &self.committer else { return PendingWork::Nothing };
        match (self.jobs.len(), self.store) {
            (0, StoreState::Open) => PendingWork::Nothing,
            (0, StoreState::Closing) => PendingWork::Stop,
            (_, StoreState::Closing) => PendingWork::Commit,
            (waiting, StoreState::Open) => match committer.last.wait_for_more(waiting, ready.elapsed()) {
                Some(wait) => wait,
                None => PendingWork::Commit,
            },
        }
    }
}

impl LastCommit {
    /// Returns [`PendingWork::WaitForMore`] if the writer thread should wait for further jobs, or `None` if the thread
    /// must commit now. `waiting` is the number of waiting jobs, and `since` is the time since the thread finished its
    /// previous task.
    fn wait_for_more(self, waiting: usize, since: Duration) -> Option<PendingWork> {
        let Self { jobs, duration } = self;
        let max_wait = (duration / WAIT_DIVISOR).saturating_sub(since);
        (jobs >= MIN_SHARED_JOBS && waiting < jobs && !max_wait.is_zero())
            .then_some(PendingWork::WaitForMore { jobs, max_wait })
    }
}

/// A thread that is the leader, and therefore owns the connection. Dropping a leader returns the connection to the
/// queue, even after a panic.
struct Leader<'a> {
    queue: &'a WriteQueue,
    committer: Option<Committer>,
    index_after: IndexState,
}

impl<'a> Leader<'a> {
    fn new(queue: &'a WriteQueue, committer: Committer) -> Self {
        Self { queue, committer: Some(committer), index_after: IndexState::Behind }
    }

    fn commit_together(&mut self, batch: &mut VecDeque<QueuedJob>, when_locked: WhenLocked) -> BatchOutcome {
        match &mut self.committer {
            Some(committer) => committer.commit_together(batch, when_locked),
            None => {
                batch.drain(..).for_each(|queued| queued.fail(&StoreError::Closed));
                BatchOutcome::Finished
            }
        }
    }

    fn index_next_batch(mut self) {
        let progress = self.committer.as_ref().map(Committer::index_next_batch);
        if progress == Some(search::Progress::Done) {
            self.index_after = IndexState::UpToDate;
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.committer = self.committer.take();
        state.times_led += 1;
        let previous_index = std::mem::replace(&mut state.index, self.index_after);
        // Wake the writer thread to run the jobs that arrived while this thread was the leader. If the writer thread
        // waits without a timeout, it must also be woken to update the search index.
        if !state.jobs.is_empty() || previous_index == IndexState::UpToDate {
            self.queue.wake_thread(state);
        }
    }
}

#[cfg(test)]
mod tests;
