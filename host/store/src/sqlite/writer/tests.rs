//! Tests which thread becomes the leader, and what happens to waiting jobs.

use super::*;
use crate::sqlite::file::open_in_memory;
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const WRITER_THREAD: WriterOptions = WriterOptions {
    leaders: LeaderPolicy::WriterThread,
    lock_wait: Duration::ZERO,
    max_wait: Duration::ZERO,
    space: SpaceLimit::Disk,
};

fn insert(connection: &Connection) -> Result<i64, Failure> {
    connection.execute("INSERT INTO sessions (subject, agent, created, updated) VALUES (random(), '', 0, 0)", [])?;
    Ok(connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))?)
}

/// Rolls back the transaction, as SQLite itself does when the disk becomes full during a transaction.
fn abort_the_transaction(connection: &Connection) -> Result<i64, Failure> {
    connection.execute_batch("ROLLBACK")?;
    Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None).into())
}

/// Limit 28: if a whole transaction is lost, every job in it fails, and no job is reported as stored. Later jobs still
/// succeed.
#[tokio::test(flavor = "current_thread")]
async fn lost_transaction_fails_all_of_its_jobs() {
    let connection = open_in_memory().unwrap();
    let writer = Writer::start(connection, PathBuf::from(":memory:"), WRITER_THREAD, Arc::default()).unwrap();
    // The first job keeps the thread busy until the other jobs are queued, so that the other jobs form one batch.
    let (release, released) = mpsc::channel::<()>();
    let (signal_start, started) = oneshot::channel();
    let mut signal_start = Some(signal_start);
    let busy = writer.run(Effort::Short, move |_| {
        signal_start.take().map(|signal_start| signal_start.send(()));
        let _ = released.recv();
        Ok(0)
    });
    let queue_jobs = async {
        started.await.unwrap();
        let [first, losing, last] = [insert, abort_the_transaction, insert].map(|job| writer.run(Effort::Short, job));
        // The futures are polled in the order of the arguments. When the last future is polled, the jobs of the other
        // futures are already queued.
        tokio::join!(biased; first, losing, last, async { drop(release) })
    };
    let (busy, (first, losing, last, ())) = tokio::join!(busy, queue_jobs);
    let full = Err(StoreError::DiskFull { path: PathBuf::from(":memory:") });
    assert_eq!((busy, first, losing, last), (Ok(0), full.clone(), full, Ok(1)));
}

const CALLERS: WriterOptions = WriterOptions { leaders: LeaderPolicy::Callers, ..WRITER_THREAD };

fn writer(options: WriterOptions) -> Writer {
    Writer::start(open_in_memory().unwrap(), PathBuf::from(":memory:"), options, Arc::default()).unwrap()
}

fn panicking(connection: &Connection) -> Result<i64, Failure> {
    insert(connection)?;
    panic!("this job panics for the test");
}

fn thread_of_job(_: &Connection) -> Result<ThreadId, Failure> {
    Ok(thread::current().id())
}

/// Returns a job that keeps the leader busy, a receiver that is notified when the job starts, and a sender. Dropping
/// the sender ends the job.
fn blocking_job() -> (impl FnMut(&Connection) -> Result<ThreadId, Failure>, oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (signal_start, started) = oneshot::channel();
    let (release, released) = mpsc::channel();
    let mut signal_start = Some(signal_start);
    let job = move |connection: &Connection| {
        signal_start.take().map(|signal_start| signal_start.send(()));
        let _ = released.recv();
        thread_of_job(connection)
    };
    (job, started, release)
}

/// D1: a caller's thread never waits for a disk and never runs a long job.
#[tokio::test(flavor = "current_thread")]
async fn callers_run_short_jobs_if_commits_do_not_wait_for_the_disk() {
    let test_thread = thread::current().id();
    for (options, effort, leads) in
        [(CALLERS, Effort::Short, true), (CALLERS, Effort::Long, false), (WRITER_THREAD, Effort::Short, false)]
    {
        let led = writer(options).run(effort, thread_of_job).await.unwrap() == test_thread;
        assert_eq!(led, leads, "{:?} {effort:?}", options.leaders);
    }
}

/// Runs the job on a new thread. That thread becomes the leader, or waits until the writer thread has run the job.
fn run_on_thread<F>(writer: &Arc<Writer>, job: F) -> thread::JoinHandle<Result<ThreadId, StoreError>>
where
    F: FnMut(&Connection) -> Result<ThreadId, Failure> + Send + 'static,
{
    let writer = writer.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(writer.run(Effort::Short, job))
    })
}

/// Queues the job while another thread is the leader.
async fn queue<T: Send + 'static>(
    writer: &Arc<Writer>,
    job: fn(&Connection) -> Result<T, Failure>,
) -> JoinHandle<Result<T, StoreError>> {
    let waiting = writer.clone();
    let queued = tokio::spawn(async move { waiting.run(Effort::Short, job).await });
    tokio::task::yield_now().await;
    queued
}

/// A caller that is the leader runs its own job first and then a limited number of other jobs. The writer thread runs
/// the remaining jobs.
#[tokio::test(flavor = "current_thread")]
async fn caller_runs_a_limited_number_of_jobs() {
    let writer = Arc::new(writer(CALLERS));
    let (job, started, release) = blocking_job();
    let leader = run_on_thread(&writer, job);
    started.await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..3 * MAX_JOBS_PER_CALLER {
        jobs.push(queue(&writer, thread_of_job).await);
    }
    drop(release);
    let mut by_leader = 0;
    for job in jobs {
        by_leader += usize::from(job.await.unwrap().unwrap() == leader.thread().id());
    }
    assert_eq!(by_leader, MAX_JOBS_PER_CALLER - 1);
    let leader_thread = leader.thread().id();
    assert_eq!(leader.join().unwrap(), Ok(leader_thread));
}

/// Limit 10: a job whose caller stopped waiting is skipped, and the other callers get their results.
#[tokio::test(flavor = "current_thread")]
async fn job_of_a_cancelled_caller_is_skipped() {
    for options in [WRITER_THREAD, CALLERS] {
        let writer = Arc::new(writer(options));
        let (job, started, release) = blocking_job();
        let leader = run_on_thread(&writer, job);
        started.await.unwrap();
        let [first, abandoned, last] =
            [queue(&writer, insert).await, queue(&writer, insert).await, queue(&writer, insert).await];
        abandoned.abort();
        assert!(abandoned.await.unwrap_err().is_cancelled());
        drop(release);
        assert_eq!((first.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2)), "{:?}", options.leaders);
        assert!(leader.join().unwrap().is_ok());
    }
}

/// Limit 10: if a job panics, only this job fails, and none of its changes are stored.
#[tokio::test(flavor = "current_thread")]
async fn panicking_job_fails_alone() {
    for options in [WRITER_THREAD, CALLERS] {
        let writer = Arc::new(writer(options));
        let (job, started, release) = blocking_job();
        let leader = run_on_thread(&writer, job);
        started.await.unwrap();
        let [first, panics, last] =
            [queue(&writer, insert).await, queue(&writer, panicking).await, queue(&writer, insert).await];
        drop(release);
        let refused = panics.await.unwrap().unwrap_err();
        assert!(matches!(&refused, StoreError::Failed { problem, .. } if problem.contains("panicked")), "{refused:?}");
        assert_eq!((first.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2)), "{:?}", options.leaders);
        assert!(leader.join().unwrap().is_ok());
        assert!(writer.run(Effort::Short, panicking).await.is_err(), "the only job of a batch fails if it panics");
        assert_eq!(writer.run(Effort::Short, insert).await, Ok(3));
    }
}

/// D1: the writer thread waits only for callers that have just committed together, and only for a fraction of the
/// duration of that commit.
#[test]
fn writer_thread_waits_for_more_jobs_only_after_a_shared_commit() {
    let [duration, zero, max_wait] = [Duration::from_millis(8), Duration::ZERO, Duration::from_millis(2)];
    let last = LastCommit { jobs: 100, duration };
    assert_eq!(last.wait_for_more(1, zero), Some(PendingWork::WaitForMore { jobs: 100, max_wait }));
    assert_eq!((last.wait_for_more(100, zero), last.wait_for_more(1, max_wait)), (None, None));
    assert_eq!(LastCommit { jobs: MIN_SHARED_JOBS - 1, duration }.wait_for_more(1, zero), None);
    assert_eq!(LastCommit::default().wait_for_more(1, zero), None);
}

/// Row 46: jobs that fail because the disk is full are stored once and in order when there is space again. No caller
/// gets an error.
#[tokio::test(flavor = "current_thread")]
async fn row_46_write_waits_while_the_disk_is_full() {
    for leaders in [LeaderPolicy::WriterThread, LeaderPolicy::Callers] {
        let writer = Arc::new(writer(WriterOptions { leaders, max_wait: Duration::from_secs(60), ..WRITER_THREAD }));
        let (job, started, release) = blocking_job();
        let leader = run_on_thread(&writer, job);
        started.await.unwrap();
        let (attempts_sender, attempts) = mpsc::channel();
        let first = queue(&writer, insert).await;
        let waiting = writer.clone();
        let mut attempt = 0;
        let retried = tokio::spawn(async move {
            let job = move |connection: &Connection| {
                attempt += 1;
                let _ = attempts_sender.send(attempt);
                if attempt < 3 { abort_the_transaction(connection) } else { insert(connection) }
            };
            waiting.run(Effort::Short, job).await
        });
        tokio::task::yield_now().await;
        let last = queue(&writer, insert).await;
        drop(release);
        assert_eq!((first.await.unwrap(), retried.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(attempts.iter().collect::<Vec<i32>>(), [1, 2, 3]);
        leader.join().unwrap().unwrap();
    }
}

/// Row 46: a write does not wait for space if its file has a configured maximum size. A store that is closing waits
/// neither for space nor for a lock.
#[tokio::test(flavor = "current_thread")]
async fn row_46_write_does_not_wait_if_the_file_has_a_maximum_size() {
    let long_wait = WriterOptions { max_wait: Duration::from_secs(3_600), ..WRITER_THREAD };
    let limited = writer(WriterOptions { space: SpaceLimit::Fixed, ..long_wait });
    let full = Err(StoreError::DiskFull { path: PathBuf::from(":memory:") });
    assert_eq!(limited.run(Effort::Short, abort_the_transaction).await, full);
    let closed = Arc::new(writer(long_wait));
    let waiting = queue(&closed, abort_the_transaction).await;
    drop(Arc::into_inner(closed));
    waiting.abort();
}
