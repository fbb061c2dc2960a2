//! The embedded store: one SQLite file in WAL mode, one writer thread with group commit, a few readers (D1).
//! Several processes may share the file; a lock file per store instance says who is alive.

mod approvals;
mod audit;
mod blobs;
mod commit;
mod failure;
mod file;
mod holder;
mod key_value;
mod memories;
mod outbox;
mod owners;
mod projections;
mod queries;
mod readers;
mod schema;
mod search;
mod sessions;
mod versions;
mod writer;

use crate::StoreError;
use failure::Failure;
use owners::Owner;
use readers::Readers;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::{Conduct, Effort, Leaders, Room, Writer};

/// A store in one SQLite file, or in memory. Dropping it writes what is queued and stops its thread.
pub struct SqliteStore {
    // Dropped in this order: the writer finishes before the lock that says it is alive goes.
    writer: Writer,
    readers: Option<Readers>,
    owner: Arc<Owner>,
    counters: Arc<Counters>,
    begun: versions::BegunComponents,
    access: Access,
}

/// What a store does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a commit counts as done.
    pub synchronous: Synchronous,
    /// Most bytes of the database file; a commit past it fails with [`StoreError::DiskFull`]. Default: what the disk
    /// holds.
    pub max_bytes: Option<u64>,
    /// How long to wait for another process that writes before a warning says so. Default: 5 seconds.
    pub lock_wait: Duration,
    /// How long a write waits in all while another process writes or the disk is full, before it fails with
    /// [`StoreError::Locked`] or [`StoreError::DiskFull`]. A file that has reached `max_bytes` is not waited for. Default: 10
    /// minutes.
    pub patience: Duration,
    /// What is made of a file whose search indexes are damaged. Default: it is refused.
    pub indexes: Indexes,
}

/// How the indexes of words in a file must be. All else of a file must be whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexes {
    /// Whole, as far as is looked when the file is opened: else it is [`StoreError::DamagedIndex`].
    #[default]
    Whole,
    /// In any state, since they are about to be made anew.
    ToBeRebuilt,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            max_bytes: None,
            lock_wait: Duration::from_secs(5),
            patience: Duration::from_secs(600),
            indexes: Indexes::Whole,
        }
    }
}

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// When it is on the disk.
    #[default]
    Full,
    /// When the system has it: a crash of the machine may lose or damage everything. For measurements.
    Off,
}

/// Counts since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Session commits that were taken.
    pub commits: u64,
    /// Write jobs of all kinds that were taken, commits included.
    pub jobs: u64,
    /// Transactions that wrote for them; with [`Synchronous::Full`] each is one fsync, checkpoints apart.
    pub transactions: u64,
    /// Transactions that brought the search index up to date.
    pub index_transactions: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    jobs: AtomicU64,
    transactions: AtomicU64,
    index_transactions: AtomicU64,
}

impl SqliteStore {
    /// Opens the file, or makes it in a folder that exists. A file that is damaged, foreign, newer or no database is
    /// refused and left as it is. Blocks while it checks and migrates.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let file = file::DatabaseFile::locate(path.as_ref(), options)?;
        let connection = file.open()?;
        let owner = Owner::on_disk(file.path())?;
        let leaders = match options.synchronous {
            Synchronous::Full => Leaders::Thread,
            Synchronous::Off => Leaders::Callers,
        };
        let room = if options.max_bytes.is_some() { Room::Limited } else { Room::OnDisk };
        let conduct = Conduct { leaders, lock_wait: options.lock_wait, patience: options.patience, room };
        Self::start(connection, file.path().to_owned(), conduct, owner)
    }

    /// Opens a file that is not written to, since its disk is full or it may only be read. What writes fails with
    /// [`StoreError::ReadOnly`]. A file of an older host is refused: it would have to be brought to this host's version.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let path = path.as_ref();
        let path = std::fs::canonicalize(path)
            .map_err(|error| StoreError::Failed { path: path.to_owned(), problem: error.to_string() })?;
        let connection = file::open_to_read(&path).map_err(|failure| failure.at(&path))?;
        let conduct = Conduct {
            leaders: Leaders::Callers,
            lock_wait: Duration::ZERO,
            patience: Duration::ZERO,
            room: Room::Limited,
        };
        let counters = Arc::new(Counters::default());
        let readers = Some(Readers::new(path.clone(), Access::Read));
        let writer = Writer::start(connection, path, conduct, counters.clone())?;
        let (owner, begun) = (Arc::new(Owner::in_memory()), versions::BegunComponents::default());
        Ok(Self { writer, readers, owner, counters, begun, access: Access::Read })
    }

    /// A store that lives as long as this value.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        Self::private(":memory:", file::open_in_memory)
    }

    /// A store that lives as long as this value, and whose memory does not grow with what it holds: the rest of it is in a file
    /// without a name in the system's folder for temporary files.
    pub fn open_temporary() -> Result<Self, StoreError> {
        Self::private("a temporary database", file::open_temporary)
    }

    fn private(name: &str, open: impl FnOnce() -> Result<Connection, Failure>) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let path = PathBuf::from(name);
        let connection = open().map_err(|failure| failure.at(&path))?;
        let (lock_wait, patience) = (Duration::ZERO, Duration::ZERO);
        let conduct = Conduct { leaders: Leaders::Callers, lock_wait, patience, room: Room::Limited };
        Self::start(connection, path, conduct, Owner::in_memory())
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            commits: read(&self.counters.commits),
            jobs: read(&self.counters.jobs),
            transactions: read(&self.counters.transactions),
            index_transactions: read(&self.counters.index_transactions),
        }
    }

    /// SQLite's own full check of the file; for tests and for people who doubt their disk.
    pub async fn integrity_check(&self) -> Result<(), StoreError> {
        self.read(|connection| file::verdict(connection, "PRAGMA integrity_check(100)", Indexes::Whole)).await
    }

    fn start(connection: Connection, path: PathBuf, conduct: Conduct, owner: Owner) -> Result<Self, StoreError> {
        let counters = Arc::new(Counters::default());
        let readers = owner.shares_a_file().then(|| Readers::new(path.clone(), Access::Write));
        let writer = Writer::start(connection, path, conduct, counters.clone())?;
        let begun = versions::BegunComponents::default();
        Ok(Self { writer, readers, owner: Arc::new(owner), counters, begun, access: Access::Write })
    }

    /// Moves the write-ahead log into the file and empties it, as far as nobody reads in it now: what was deleted stands
    /// in neither then.
    async fn empty_log(&self) {
        let Some(readers) = &self.readers else { return };
        if let Err(error) = readers.empty_log().await {
            tracing::warn!(%error, "the database's log was not emptied; it will be when the last process closes it");
        }
    }

    /// Runs `work` in a transaction that it shares with others, and stands or falls alone. Where the transaction is lost because
    /// the disk is full, it runs again.
    async fn write<T, F>(&self, effort: Effort, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        self.writer.run(effort, work).await
    }

    /// Runs `work` on one consistent view of what is committed. In memory there is only the writer's connection.
    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        match &self.readers {
            Some(readers) => readers.run(work).await,
            // Reading in memory fails in no way that passes, so it runs once.
            None => {
                let mut work = Some(work);
                let once = move |connection: &Connection| work.take().ok_or(StoreError::Closed)?(connection);
                self.writer.run(Effort::Long, once).await
            }
        }
    }
}

/// Before 3.51.3, two connections that reset the write-ahead log at the same moment could damage the database.
const OLDEST_SQLITE: i32 = 3_051_003;

fn check_library(found: i32) -> Result<(), StoreError> {
    if found >= OLDEST_SQLITE { Ok(()) } else { Err(StoreError::OldSqlite { found, needed: OLDEST_SQLITE }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D1: the library's version is checked at start.
    #[test]
    fn an_old_library_is_refused() {
        assert_eq!(check_library(3_051_002), Err(StoreError::OldSqlite { found: 3_051_002, needed: 3_051_003 }));
        assert_eq!(check_library(3_051_003), Ok(()));
        assert_eq!(check_library(rusqlite::version_number()), Ok(()));
    }
}
