//! Who leads, and what becomes of those who wait.

use super::*;
use crate::sqlite::file::open_in_memory;
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const THREAD: Conduct =
    Conduct { leaders: Leaders::Thread, lock_wait: Duration::ZERO, patience: Duration::ZERO, room: Room::OnDisk };

fn insert(connection: &Connection) -> Result<i64, Failure> {
    connection.execute("INSERT INTO sessions (subject, agent, created, updated) VALUES (random(), '', 0, 0)", [])?;
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
    let writer = Writer::start(connection, PathBuf::from(":memory:"), THREAD, Arc::default()).unwrap();
    // The first job keeps the thread busy until the others are queued, so that they are one batch.
    let (go, wait) = mpsc::channel::<()>();
    let (begin, begun) = oneshot::channel();
    let mut begin = Some(begin);
    let busy = writer.run(Effort::Short, move |_| {
        begin.take().map(|begin| begin.send(()));
        let _ = wait.recv();
        Ok(0)
    });
    let behind = async {
        begun.await.unwrap();
        let [first, losing, last] = [insert, lose_the_transaction, insert].map(|job| writer.run(Effort::Short, job));
        // Polled in this order: when the last is polled, the others are queued.
        tokio::join!(biased; first, losing, last, async { drop(go) })
    };
    let (busy, (first, losing, last, ())) = tokio::join!(busy, behind);
    let full = Err(StoreError::DiskFull { path: PathBuf::from(":memory:") });
    assert_eq!((busy, first, losing, last), (Ok(0), full.clone(), full, Ok(1)));
}

const CALLERS: Conduct = Conduct { leaders: Leaders::Callers, ..THREAD };

fn writer(conduct: Conduct) -> Writer {
    Writer::start(open_in_memory().unwrap(), PathBuf::from(":memory:"), conduct, Arc::default()).unwrap()
}

fn panicking(connection: &Connection) -> Result<i64, Failure> {
    insert(connection)?;
    panic!("this job panics for the test");
}

fn thread_of_job(_: &Connection) -> Result<ThreadId, Failure> {
    Ok(thread::current().id())
}

/// A job that keeps who leads busy until it is let go, and says when it has begun.
fn held() -> (impl FnMut(&Connection) -> Result<ThreadId, Failure>, oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (begin, begun) = oneshot::channel();
    let (go, wait) = mpsc::channel();
    let mut begin = Some(begin);
    let job = move |connection: &Connection| {
        begin.take().map(|begin| begin.send(()));
        let _ = wait.recv();
        thread_of_job(connection)
    };
    (job, begun, go)
}

/// D1: no caller's thread waits for a disk or does what takes long.
#[tokio::test(flavor = "current_thread")]
async fn callers_lead_what_is_short_where_no_commit_waits_for_the_disk() {
    let here = thread::current().id();
    for (conduct, effort, leads) in
        [(CALLERS, Effort::Short, true), (CALLERS, Effort::Long, false), (THREAD, Effort::Short, false)]
    {
        let led = writer(conduct).run(effort, thread_of_job).await.unwrap() == here;
        assert_eq!(led, leads, "{:?} {effort:?}", conduct.leaders);
    }
}

/// A thread that leads with the job, or waits until the writer's thread has done it.
fn busy<F>(writer: &Arc<Writer>, job: F) -> thread::JoinHandle<Result<ThreadId, StoreError>>
where
    F: FnMut(&Connection) -> Result<ThreadId, Failure> + Send + 'static,
{
    let writer = writer.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(writer.run(Effort::Short, job))
    })
}

/// Queues the job while somebody else leads.
async fn queue<T: Send + 'static>(
    writer: &Arc<Writer>,
    job: fn(&Connection) -> Result<T, Failure>,
) -> JoinHandle<Result<T, StoreError>> {
    let waiting = writer.clone();
    let queued = tokio::spawn(async move { waiting.run(Effort::Short, job).await });
    tokio::task::yield_now().await;
    queued
}

/// A caller that leads does a bounded number of jobs, its own first; the rest is the thread's.
#[tokio::test(flavor = "current_thread")]
async fn a_caller_leads_a_bounded_number_of_jobs() {
    let writer = Arc::new(writer(CALLERS));
    let (job, begun, go) = held();
    let leader = busy(&writer, job);
    begun.await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..3 * LED_BY_CALLER {
        jobs.push(queue(&writer, thread_of_job).await);
    }
    drop(go);
    let mut by_leader = 0;
    for job in jobs {
        by_leader += usize::from(job.await.unwrap().unwrap() == leader.thread().id());
    }
    assert_eq!(by_leader, LED_BY_CALLER - 1);
    let leader_thread = leader.thread().id();
    assert_eq!(leader.join().unwrap(), Ok(leader_thread));
}

/// Limit 10: what nobody waits for any more is left out, and the others get their answers.
#[tokio::test(flavor = "current_thread")]
async fn a_caller_that_gives_up_in_the_queue_is_not_served() {
    for conduct in [THREAD, CALLERS] {
        let writer = Arc::new(writer(conduct));
        let (job, begun, go) = held();
        let leader = busy(&writer, job);
        begun.await.unwrap();
        let [first, given_up, last] =
            [queue(&writer, insert).await, queue(&writer, insert).await, queue(&writer, insert).await];
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        drop(go);
        assert_eq!((first.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2)), "{:?}", conduct.leaders);
        assert!(leader.join().unwrap().is_ok());
    }
}

/// Limit 10: a job that panics fails, and nothing else does; nothing of it is stored.
#[tokio::test(flavor = "current_thread")]
async fn a_job_that_panics_fails_alone() {
    for conduct in [THREAD, CALLERS] {
        let writer = Arc::new(writer(conduct));
        let (job, begun, go) = held();
        let leader = busy(&writer, job);
        begun.await.unwrap();
        let [first, panics, last] =
            [queue(&writer, insert).await, queue(&writer, panicking).await, queue(&writer, insert).await];
        drop(go);
        let refused = panics.await.unwrap().unwrap_err();
        assert!(matches!(&refused, StoreError::Failed { problem, .. } if problem.contains("panicked")), "{refused:?}");
        assert_eq!((first.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2)), "{:?}", conduct.leaders);
        assert!(leader.join().unwrap().is_ok());
        assert!(writer.run(Effort::Short, panicking).await.is_err(), "alone, too");
        assert_eq!(writer.run(Effort::Short, insert).await, Ok(3));
    }
}

/// D1: only a crowd that has just committed together is waited for, and for a part of what that took.
#[test]
fn a_crowd_is_waited_for_and_nobody_else() {
    let [took, now, late] = [Duration::from_millis(8), Duration::ZERO, Duration::from_millis(2)];
    let crowd = LastCommit { jobs: 100, took };
    assert_eq!(crowd.crowd(1, now), Some(Due::Crowd { jobs: 100, within: late }));
    assert_eq!((crowd.crowd(100, now), crowd.crowd(1, late)), (None, None));
    assert_eq!(LastCommit { jobs: CROWD - 1, took }.crowd(1, now), None);
    assert_eq!(LastCommit::default().crowd(1, now), None);
}

/// Row 46: what the disk had no room for is stored when there is room, in its order and once; nobody is told of a failure.
#[tokio::test(flavor = "current_thread")]
async fn row_46_a_full_disk_is_waited_for() {
    for leaders in [Leaders::Thread, Leaders::Callers] {
        let writer = Arc::new(writer(Conduct { leaders, patience: Duration::from_secs(60), ..THREAD }));
        let (job, begun, go) = held();
        let leader = busy(&writer, job);
        begun.await.unwrap();
        let (tried, counted) = mpsc::channel();
        let first = queue(&writer, insert).await;
        let waiting = writer.clone();
        let mut tries = 0;
        let hindered = tokio::spawn(async move {
            let job = move |connection: &Connection| {
                tries += 1;
                let _ = tried.send(tries);
                if tries < 3 { lose_the_transaction(connection) } else { insert(connection) }
            };
            waiting.run(Effort::Short, job).await
        });
        tokio::task::yield_now().await;
        let last = queue(&writer, insert).await;
        drop(go);
        assert_eq!((first.await.unwrap(), hindered.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(counted.iter().collect::<Vec<i32>>(), [1, 2, 3]);
        leader.join().unwrap().unwrap();
    }
}

/// Row 46: a file with a limit of its own gets no more room by waiting, and a store that is closed waits for nothing.
#[tokio::test(flavor = "current_thread")]
async fn row_46_what_cannot_pass_is_not_waited_for() {
    let patient = Conduct { patience: Duration::from_secs(3_600), ..THREAD };
    let limited = writer(Conduct { room: Room::Limited, ..patient });
    let full = Err(StoreError::DiskFull { path: PathBuf::from(":memory:") });
    assert_eq!(limited.run(Effort::Short, lose_the_transaction).await, full);
    let closed = Arc::new(writer(patient));
    let waiting = queue(&closed, lose_the_transaction).await;
    drop(Arc::into_inner(closed));
    waiting.abort();
}
