//! The embedded store: one SQLite file in WAL mode (D1). The store has one write connection, which commits waiting jobs
//! together, and a few read connections. Several processes may share the file. Each open store locks a separate file,
//! which shows other stores that this store is alive.

mod approvals;
mod audit;
mod blobs;
mod budget_ledger;
mod commit;
mod copy;
mod failure;
mod file;
mod key_value;
mod lock_holder;
mod memories;
mod monitoring;
mod outbox;
mod owners;
mod projections;
mod queries;
mod readers;
mod schedules;
mod schema;
mod search;
mod session_index;
mod session_requests;
mod sessions;
mod trace_exports;
mod usage;
mod versions;
mod writer;

use crate::encoding::versions::TurnPluginCache;
use crate::{Clock, Integrity, StoreError};
use async_trait::async_trait;
use failure::Failure;
use owners::Owner;
use readers::Readers;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::{Effort, LeaderPolicy, SpaceLimit, Writer, WriterOptions};

/// A store in one SQLite file, or in memory. Dropping the store writes the queued jobs and stops the writer thread.
///
/// ```
/// use agent_store::{Commit, OpenMode, Options, SessionIndex, SessionLog, SessionMeta, SessionState, SqliteStore, Status};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let store = SqliteStore::open(folder.path().join("agent.db"), Options::default())?;
///
/// let meta = SessionMeta { agent: "helper".to_owned(), ..SessionMeta::default() };
/// let opened = store.open("helper/1", OpenMode::CreateNew, meta).await?;
/// let status = Status { state: SessionState::Idle, turn: 1, title: Some("Hello".to_owned()), ..Status::default() };
/// let commit = Commit { snapshot: b"{}".to_vec(), status, ..Commit::default() };
/// let revision = store.commit(&opened.lease, opened.revision, commit).await?;
/// store.release(opened.lease).await?;
///
/// assert_eq!(revision, 1);
/// assert_eq!(store.latest("helper").await?.as_deref(), Some("helper/1"));
/// # Ok(())
/// # }
/// ```
pub struct SqliteStore {
    // Fields are dropped in the order of their declaration. The writer must finish before the owner releases its lock
    // file, because that file shows that this store is alive.
    writer: Writer,
    readers: Option<Readers>,
    owner: Arc<Owner>,
    counters: Arc<Counters>,
    turn_plugins: TurnPluginCache,
    access: Access,
}

/// Whether the store may write to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// Options for opening a store in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Determines when a commit counts as durable. The default is [`Synchronous::Full`].
    pub synchronous: Synchronous,
    /// Maximum size of the database file in bytes. A commit that would exceed this size fails with
    /// [`StoreError::DiskFull`]. The default is `None`: only the free disk space limits the size.
    pub max_bytes: Option<u64>,
    /// Time to wait for another process that is writing, before a warning is logged. The default is 5 seconds.
    pub lock_wait: Duration,
    /// Total time that a write waits while another process writes or the disk is full. If the wait takes longer,
    /// the write fails with [`StoreError::Locked`] or [`StoreError::DiskFull`]. A write does not wait if the file has
    /// reached `max_bytes`. The default is 10 minutes.
    pub max_wait: Duration,
    /// Whether to accept a file whose search indexes are damaged. By default, a file with damaged search indexes
    /// is refused.
    pub indexes: Indexes,
}

/// Whether damaged search indexes are accepted when a file is opened. All data outside of the search indexes must
/// always be intact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexes {
    /// Damaged indexes are refused with [`StoreError::DamagedIndex`]. The store does not
    /// find every kind of damage when it opens a file.
    #[default]
    Intact,
    /// Damaged indexes are accepted, because the caller is about to rebuild the indexes.
    ToBeRebuilt,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            max_bytes: None,
            lock_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(600),
            indexes: Indexes::Intact,
        }
    }
}

/// The point in time at which a commit counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A commit is durable when its data is on the disk.
    #[default]
    Full,
    /// A commit counts as durable when the operating system has its data. With this setting, a crash of the machine can
    /// lose or damage all data, so it is only for benchmarks.
    Off,
}

/// How often a store has performed each operation since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of successful session commits.
    pub commits: u64,
    /// Number of successful write jobs of all kinds, including commits.
    pub jobs: u64,
    /// Number of transactions in which write jobs were committed. With [`Synchronous::Full`], each transaction needs
    /// one fsync, not counting checkpoints.
    pub transactions: u64,
    /// Number of transactions that updated the search index of messages.
    pub index_transactions: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    jobs: AtomicU64,
    transactions: AtomicU64,
    index_transactions: AtomicU64,
    durations: crate::monitoring::DurationCounters,
}

impl SqliteStore {
    /// Opens the database file. A missing file is created, but its folder must exist. A file is refused and left
    /// unchanged if it is damaged, was migrated by a newer host, belongs to another program, or is not a database. This
    /// function blocks while it checks and migrates the file.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let file = file::DatabaseFile::locate(path.as_ref(), options)?;
        let connection = file.open()?;
        let owner = Owner::on_disk(file.path())?;
        let leaders = match options.synchronous {
            Synchronous::Full => LeaderPolicy::WriterThread,
            Synchronous::Off => LeaderPolicy::Callers,
        };
        let space = if options.max_bytes.is_some() { SpaceLimit::Fixed } else { SpaceLimit::Disk };
        let writer_options = WriterOptions { leaders, lock_wait: options.lock_wait, max_wait: options.max_wait, space };
        Self::start(connection, file.path().to_owned(), writer_options, owner)
    }

    /// Opens a file for reading only, for example because its disk is full or not writable. Every write fails with
    /// [`StoreError::ReadOnly`]. A file that an older host wrote is refused, because it would have to be migrated
    /// first.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let path = path.as_ref();
        let path = std::fs::canonicalize(path)
            .map_err(|error| StoreError::Failed { path: path.to_owned(), problem: error.to_string() })?;
        let connection = file::open_to_read(&path).map_err(|failure| failure.into_error(&path))?;
        let writer_options = WriterOptions {
            leaders: LeaderPolicy::Callers,
            lock_wait: Duration::ZERO,
            max_wait: Duration::ZERO,
            space: SpaceLimit::Fixed,
        };
        let counters = Arc::new(Counters::default());
        let readers = Some(Readers::new(path.clone(), Access::ReadOnly));
        let writer = Writer::start(connection, path, writer_options, counters.clone())?;
        let (owner, turn_plugins) = (Arc::new(Owner::in_memory()), TurnPluginCache::default());
        Ok(Self { writer, readers, owner, counters, turn_plugins, access: Access::ReadOnly })
    }

    /// Opens an empty store in memory. Dropping the store deletes the data.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        Self::open_private(":memory:", file::open_in_memory)
    }

    /// Opens an empty store that is deleted when it is dropped. Unlike a store in memory, this store moves data that
    /// exceeds its cache to an unnamed file in the system's temporary folder.
    pub fn open_temporary() -> Result<Self, StoreError> {
        Self::open_private("a temporary database", file::open_temporary)
    }

    fn open_private(name: &str, open: impl FnOnce() -> Result<Connection, Failure>) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let path = PathBuf::from(name);
        let connection = open().map_err(|failure| failure.into_error(&path))?;
        let (lock_wait, max_wait) = (Duration::ZERO, Duration::ZERO);
        let writer_options =
            WriterOptions { leaders: LeaderPolicy::Callers, lock_wait, max_wait, space: SpaceLimit::Fixed };
        Self::start(connection, path, writer_options, Owner::in_memory())
    }

    /// Returns the counts of the store's operations since the store was opened.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            commits: read(&self.counters.commits),
            jobs: read(&self.counters.jobs),
            transactions: read(&self.counters.transactions),
            index_transactions: read(&self.counters.index_transactions),
        }
    }

    fn start(
        connection: Connection,
        path: PathBuf,
        writer_options: WriterOptions,
        owner: Owner,
    ) -> Result<Self, StoreError> {
        let counters = Arc::new(Counters::default());
        let readers = owner.shares_a_file().then(|| Readers::new(path.clone(), Access::ReadWrite));
        let writer = Writer::start(connection, path, writer_options, counters.clone())?;
        let turn_plugins = TurnPluginCache::default();
        Ok(Self { writer, readers, owner: Arc::new(owner), counters, turn_plugins, access: Access::ReadWrite })
    }

    /// Moves the content of the write-ahead log into the database file and empties the log, so that neither of these
    /// two files contains deleted data. The log cannot be emptied while a reader uses it.
    async fn empty_log(&self) {
        let Some(readers) = &self.readers else { return };
        if let Err(error) = readers.empty_log().await {
            tracing::warn!(%error, "could not empty the database's write-ahead log; the last process that closes the database will empty it");
        }
    }

    /// Runs `work` in a transaction that may also contain other jobs. Each job succeeds or fails independently of the
    /// other jobs. If the transaction is lost because the disk is full, `work` runs again.
    async fn write<T, F>(&self, effort: Effort, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        self.writer.run(effort, work).await
    }

    /// Runs `work` in one read transaction, so that all of its queries read the same committed data. An in-memory store
    /// uses the writer's connection for this transaction, because it has no other connection.
    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        match &self.readers {
            Some(readers) => readers.run(work).await,
            // A failed read from memory is never retried, so `work` runs only once.
            None => {
                let mut work = Some(work);
                let once = move |connection: &Connection| work.take().ok_or(StoreError::Closed)?(connection);
                self.writer.run(Effort::Long, once).await
            }
        }
    }
}

/// All processes of a file run on one machine.
impl Clock for SqliteStore {}

#[async_trait]
impl Integrity for SqliteStore {
    async fn integrity_check(&self) -> Result<(), StoreError> {
        self.read(|connection| file::run_check(connection, "PRAGMA integrity_check(100)", Indexes::Intact)).await
    }
}

/// Oldest supported version of SQLite. Before 3.51.3, two connections that reset the write-ahead log at the same time
/// could damage the database.
const OLDEST_SQLITE: i32 = 3_051_003;

fn check_library(found: i32) -> Result<(), StoreError> {
    if found >= OLDEST_SQLITE { Ok(()) } else { Err(StoreError::OldSqlite { found, needed: OLDEST_SQLITE }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D1: opening a store checks the version of the SQLite library.
    #[test]
    fn old_sqlite_library_is_refused() {
        assert_eq!(check_library(3_051_002), Err(StoreError::OldSqlite { found: 3_051_002, needed: 3_051_003 }));
        assert_eq!(check_library(3_051_003), Ok(()));
        assert_eq!(check_library(rusqlite::version_number()), Ok(()));
    }
}
