//! The one write connection, and who leads: takes what waits and commits it together (group commit). Nothing is answered
//! before the transaction that holds it is committed.
//!
//! A commit that waits for the disk is led by a thread of its own, which callers wake and await. Where no commit waits
//! for the disk, that costs more than the commit: a caller that finds the connection at home leads by itself.

mod batch;
mod hindrance;
mod job;

pub(super) use job::Effort;

use super::failure::Failure;
use super::{Counters, search};
use crate::StoreError;
pub(super) use batch::Room;
use batch::{Committer, LastCommit, Patience, Progress};
use hindrance::Hindrance;
use job::{Queued, Task};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Jobs that may wait; further callers wait for a place.
const QUEUE: usize = 256;

/// Jobs that share a transaction at most.
const BATCH: usize = 128;

/// Jobs that a caller does before it gives the connection back: its own, and those that came meanwhile.
const LED_BY_CALLER: usize = 16;

/// Jobs of one commit that show that many sessions work at the same pace.
const CROWD: usize = 16;

/// They are waited for at most for this part of what the commit took.
const CROWD_WAIT: u32 = 4;

/// Between two tries to store what could not be stored.
const RETRY: Duration = Duration::from_millis(100);

/// How long nothing was written before the thread brings the search index up to date.
const IDLE: Duration = Duration::from_millis(500);

/// How a file is committed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conduct {
    /// Who may lead.
    pub(super) leaders: Leaders,
    /// How long another process that writes is waited for in silence.
    pub(super) lock_wait: Duration,
    /// How long is waited in all for another process, or for room on the disk.
    pub(super) patience: Duration,
    /// Whether there may be room later where there is none.
    pub(super) room: Room,
}

/// Who may take the connection and commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaders {
    /// The thread alone: a commit waits for the disk, which no caller's thread should.
    Thread,
    /// Whoever finds the connection at home, as long as nothing takes long or waits for another process.
    Callers,
}

/// The way to the connection.
pub(super) struct Writer {
    desk: Arc<Desk>,
    path: Arc<Path>,
    thread: Option<JoinHandle<()>>,
}

/// Where jobs wait, and where the connection lies when nobody leads.
struct Desk {
    state: Mutex<State>,
    /// The thread waits here.
    summons: Condvar,
    places: Arc<Semaphore>,
    leaders: Leaders,
    path: Arc<Path>,
    patience: Duration,
}

struct State {
    /// Bounded by the places.
    queue: VecDeque<Queued>,
    /// Away while somebody leads.
    committer: Option<Committer>,
    thread: ThreadIs,
    store: StoreIs,
    index: Index,
    /// How many jobs wake the thread.
    wakes_at: usize,
    /// How often somebody has led.
    led: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadIs {
    Waiting,
    Awake,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreIs {
    Open,
    Closing,
}

/// Whether messages may wait for the search index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Behind,
    UpToDate,
}

/// What there is to do for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// Many shared the last commit and are about to come again: one commit for all of them is worth a short wait.
    Crowd {
        jobs: usize,
        within: Duration,
    },
    Commit,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    ByOthers,
    ByTime,
}

/// What the thread does next.
enum Next<'a> {
    Commit(Lead<'a>),
    Index(Lead<'a>),
    End,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: PathBuf,
        conduct: Conduct,
        counters: Arc<Counters>,
    ) -> Result<Self, StoreError> {
        let path: Arc<Path> = path.into();
        let Conduct { leaders, lock_wait, patience, room } = conduct;
        let last = LastCommit::default();
        let committer = Committer { connection, path: path.clone(), counters, lock_wait, room, last };
        let state = State {
            queue: VecDeque::new(),
            committer: Some(committer),
            thread: ThreadIs::Awake,
            store: StoreIs::Open,
            index: Index::Behind,
            wakes_at: 1,
            led: 0,
        };
        let places = Arc::new(Semaphore::new(QUEUE));
        let (state, summons) = (Mutex::new(state), Condvar::new());
        let desk = Arc::new(Desk { state, summons, places, leaders, path: path.clone(), patience });
        let served = desk.clone();
        let thread = std::thread::Builder::new()
            .name("memory-writer".to_owned())
            .spawn(move || {
                // A panic is one job's matter, not everybody's.
                while catch_unwind(AssertUnwindSafe(|| served.serve())).is_err() {
                    tracing::error!("the database's writer has panicked; it goes on");
                }
            })
            .map_err(|error| StoreError::Failed { path: path.to_path_buf(), problem: error.to_string() })?;
        Ok(Self { desk, path, thread: Some(thread) })
    }

    /// Returns when the work is durable. A caller that gives up before its turn has not been served; later, it may have
    /// been. Where the transaction is lost because the disk is full, the work is done again.
    pub(super) async fn run<T, F>(&self, effort: Effort, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let place = self.desk.places.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (task, answer) = Task::new(self.path.clone(), work);
        self.desk.accept(Queued { job: Box::new(task), effort, place });
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.store = StoreIs::Closing;
        self.desk.summon(state);
        // The thread ends as soon as the queue is empty.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(database = %self.path.display(), "the database's writer has panicked");
        }
    }
}

impl Desk {
    /// Queues the job, and leads where that is this caller's part. A caller leads within one poll, so it cannot be
    /// dropped in the middle.
    fn accept(&self, queued: Queued) {
        let mut state = self.lock();
        // Where jobs wait at a connection that is at home, the thread is on its way.
        let leads = self.leaders == Leaders::Callers && queued.effort == Effort::Short && state.queue.is_empty();
        state.queue.push_back(queued);
        match state.committer.take_if(|_| leads) {
            Some(committer) => {
                drop(state);
                self.lead(Lead::new(self, committer));
            }
            None if state.committer.is_some() && state.queue.len() >= state.wakes_at => self.summon(state),
            None => {}
        }
    }

    /// A caller's part: what is short, and not for long.
    fn lead(&self, mut lead: Lead<'_>) {
        let mut left = LED_BY_CALLER;
        while left > 0 {
            let mut batch = self.take(left, |queued| queued.effort == Effort::Short);
            left -= batch.len().min(left);
            if batch.is_empty() {
                break;
            }
            while !batch.is_empty() {
                if lead.commit_together(&mut batch, Patience::GivesUp) != Progress::Answered {
                    self.put_back(batch);
                    return;
                }
            }
        }
    }

    /// The thread's part.
    fn serve(&self) {
        loop {
            match self.next() {
                Next::Commit(mut lead) => {
                    let mut batch = self.take(BATCH, |_| true);
                    let mut hindrance = Hindrance::new(&self.path, self.patience);
                    while !batch.is_empty() {
                        match lead.commit_together(&mut batch, Patience::Waits) {
                            Progress::Answered => hindrance.has_passed(),
                            Progress::Hindered(error, _) if hindrance.is_worth_waiting(&error) && self.is_open() => {
                                std::thread::sleep(RETRY);
                            }
                            Progress::Hindered(error, failed) => {
                                batch.drain(..failed).for_each(|queued| queued.refuse(&error));
                            }
                        }
                    }
                }
                Next::Index(lead) => lead.index_some(),
                Next::End => return,
            }
        }
    }

    /// Waits until there is something to do for the thread.
    fn next(&self) -> Next<'_> {
        let mut state = self.lock();
        let (ready, mut led) = (Instant::now(), state.led);
        loop {
            let due = state.due(ready);
            match (due, state.committer.take_if(|_| matches!(due, Due::Commit | Due::End))) {
                (Due::Commit, Some(committer)) => return Next::Commit(Lead::new(self, committer)),
                (Due::End, Some(committer)) => {
                    // Closing the connection may move the log into the database.
                    drop(state);
                    drop(committer);
                    return Next::End;
                }
                (Due::Crowd { jobs, within }, _) => {
                    state.wakes_at = jobs;
                    state = self.wait(state, Some(within)).0;
                    state.wakes_at = 1;
                }
                _ => {
                    let at_most = (state.index == Index::Behind).then_some(IDLE);
                    let (woken, why) = self.wait(state, at_most);
                    state = woken;
                    let is_idle = why == Woken::ByTime && state.queue.is_empty() && state.led == led;
                    led = state.led;
                    if let Some(committer) = state.committer.take_if(|_| is_idle) {
                        return Next::Index(Lead::new(self, committer));
                    }
                }
            }
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, at_most: Option<Duration>) -> (MutexGuard<'a, State>, Woken) {
        state.thread = ThreadIs::Waiting;
        let (mut state, woken) = match at_most {
            None => (self.summons.wait(state).unwrap_or_else(PoisonError::into_inner), Woken::ByOthers),
            Some(time) => {
                let (state, waited) = self.summons.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
                (state, if waited.timed_out() { Woken::ByTime } else { Woken::ByOthers })
            }
        };
        state.thread = ThreadIs::Awake;
        (state, woken)
    }

    /// From the front of the queue, as long as it is wanted.
    fn take(&self, most: usize, mut is_wanted: impl FnMut(&Queued) -> bool) -> VecDeque<Queued> {
        let mut state = self.lock();
        let wanted = state.queue.iter().take(most).take_while(|queued| is_wanted(queued)).count();
        state.queue.drain(..wanted).collect()
    }

    /// To the front of the queue.
    fn put_back(&self, batch: VecDeque<Queued>) {
        let mut state = self.lock();
        batch.into_iter().rev().for_each(|queued| state.queue.push_front(queued));
    }

    /// Who closes the store does not wait for what may never come.
    fn is_open(&self) -> bool {
        self.lock().store == StoreIs::Open
    }

    /// Wakes the thread where it waits.
    fn summon(&self, mut state: MutexGuard<'_, State>) {
        if state.thread == ThreadIs::Waiting {
            state.thread = ThreadIs::Awake;
            drop(state);
            self.summons.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `ready` is when the thread had done what it did before.
    fn due(&self, ready: Instant) -> Due {
        let Some(committer) = &self.committer else { return Due::Nothing };
        match (self.queue.len(), self.store) {
            (0, StoreIs::Open) => Due::Nothing,
            (0, StoreIs::Closing) => Due::End,
            (_, StoreIs::Closing) => Due::Commit,
            (waiting, StoreIs::Open) => match committer.last.crowd(waiting, ready.elapsed()) {
                Some(crowd) => crowd,
                None => Due::Commit,
            },
        }
    }
}

impl LastCommit {
    /// Who is worth waiting for, when so many have come already and so much time has passed.
    fn crowd(self, waiting: usize, since: Duration) -> Option<Due> {
        let Self { jobs, took } = self;
        let within = (took / CROWD_WAIT).saturating_sub(since);
        (jobs >= CROWD && waiting < jobs && !within.is_zero()).then_some(Due::Crowd { jobs, within })
    }
}

/// The connection in the hands of who leads. It comes back whatever happens to them.
struct Lead<'a> {
    desk: &'a Desk,
    committer: Option<Committer>,
    leaves_index: Index,
}

impl<'a> Lead<'a> {
    fn new(desk: &'a Desk, committer: Committer) -> Self {
        Self { desk, committer: Some(committer), leaves_index: Index::Behind }
    }

    fn commit_together(&mut self, batch: &mut VecDeque<Queued>, patience: Patience) -> Progress {
        match &mut self.committer {
            Some(committer) => committer.commit_together(batch, patience),
            None => {
                batch.drain(..).for_each(|queued| queued.refuse(&StoreError::Closed));
                Progress::Answered
            }
        }
    }

    fn index_some(mut self) {
        let progress = self.committer.as_ref().map(Committer::index_some);
        if progress == Some(search::Progress::Done) {
            self.leaves_index = Index::UpToDate;
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.committer = self.committer.take();
        state.led += 1;
        let was = std::mem::replace(&mut state.index, self.leaves_index);
        // Whatever came meanwhile is the thread's; and where it sleeps without end, it is to look after the index again.
        if !state.queue.is_empty() || was == Index::UpToDate {
            self.desk.summon(state);
        }
    }
}

#[cfg(test)]
mod tests;
