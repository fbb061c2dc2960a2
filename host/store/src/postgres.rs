//! The store of a fleet: a PostgreSQL database (F1). Every process has a few connections. A commit is one transaction, in
//! which one conditional statement checks the lease, the revision and the version of the schema.
//!
//! All tables of sessions have primary keys that begin with the session, so that they can be partitioned by session.

mod address;
mod announcements;
mod approvals;
mod audit;
mod blobs;
mod budget_ledger;
mod clock;
mod commit;
mod connections;
mod copy;
mod failure;
mod key_value;
mod memories;
mod monitoring;
mod outbox;
mod owner;
mod projections;
mod queries;
mod schedules;
mod schema;
mod search;
mod session_index;
mod session_requests;
mod sessions;
mod text;
mod tls;
mod trace_exports;
mod usage;
mod versions;

use crate::encoding::versions::TurnPluginCache;
use crate::monitoring::DurationCounters;
use crate::{Integrity, StoreError};
pub use address::PostgresAddress;
use announcements::Listener;
use async_trait::async_trait;
use clock::DatabaseClock;
use deadpool_postgres::Pool;
use failure::Failure;
use owner::Owner;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tls::Tls;

/// A store in a PostgreSQL database, which many processes on many machines can share. Dropping the store releases its
/// leases.
pub struct PostgresStore {
    pool: Pool,
    owner: Owner,
    clock: DatabaseClock,
    turn_plugins: TurnPluginCache,
    listener: Listener,
    /// The address of the database without secrets.
    path: PathBuf,
    max_wait: Duration,
    /// The commits of this process.
    writes: CommitCounters,
}

/// Counts the commits of sessions.
#[derive(Debug, Default)]
struct CommitCounters {
    commits: AtomicU64,
    durations: DurationCounters,
}

/// Options for opening a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Whether the database must make commits durable before it confirms them. The default is
    /// [`Durability::Synchronous`].
    pub durability: Durability,
    /// Maximum number of connections of this store, in addition to the connection that renews its leases. The default is
    /// 10.
    pub connections: u32,
    /// Time after which other processes may take over the sessions of a process that no longer renews its leases. A lease
    /// is renewed three times in this period. Only the clock of the database counts. The default is 15 seconds.
    pub lease: Duration,
    /// Time for which an operation is repeated while the database is not reachable, for example during a failover, or
    /// while other operations interfere. The default is 30 seconds.
    pub max_wait: Duration,
}

/// Whether confirmed commits survive a crash of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A database whose settings allow that confirmed commits are lost is refused with [`StoreError::NotDurable`].
    #[default]
    Synchronous,
    /// Confirmed commits may be lost. An action whose intent was lost runs again, so this is only for tests and benchmarks.
    MayLoseCommits,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let (lease, max_wait) = (Duration::from_secs(15), Duration::from_secs(30));
        Self { durability: Durability::Synchronous, connections: 10, lease, max_wait }
    }
}

impl PostgresStore {
    /// Opens the database, and creates or migrates its tables. A database is refused if a newer host has migrated it, if it
    /// belongs to another program, or if it confirms commits before they are durable.
    pub async fn open(address: PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let (mut store, tls) = Self::connect(&address, &options)?;
        store.prepare(options.durability).await.map_err(|failure| failure.into_error(&store.path))?;
        store.owner.start_renewal(address.clone(), tls.clone(), store.clock.clone())?;
        store.listener.start(address, tls);
        Ok(store)
    }

    /// Checks whether the database can be used, without changing anything in it.
    pub async fn examine(address: PostgresAddress, options: PostgresOptions) -> Result<DatabaseState, StoreError> {
        let (store, _) = Self::connect(&address, &options)?;
        let state = store.run(|| async {
            let connection = store.connection().await?;
            schema::check_settings(&connection, options.durability, &store.path).await?;
            let Some(version) = schema::version(&connection).await? else { return Ok(DatabaseState::Empty) };
            version.check(&store.path)?;
            Ok(if version.is_current() { DatabaseState::Current } else { DatabaseState::Older })
        });
        state.await
    }

    fn connect(address: &PostgresAddress, options: &PostgresOptions) -> Result<(Self, Tls), StoreError> {
        let path = address.path();
        let tls = Tls::new().map_err(|error| StoreError::Failed {
            path: path.clone(),
            problem: format!("TLS cannot be used: {error}"),
        })?;
        let pool = connections::pool(address, tls.clone(), options)?;
        let (owner, clock, turn_plugins) =
            (Owner::new(options.lease), DatabaseClock::default(), TurnPluginCache::default());
        let (max_wait, writes) = (options.max_wait, CommitCounters::default());
        let listener = Listener::new();
        Ok((Self { pool, owner, clock, turn_plugins, listener, path, max_wait, writes }, tls))
    }

    /// Checks the settings of the server, migrates the database, and registers the store as an owner of leases.
    async fn prepare(&self, durability: Durability) -> Result<(), Failure> {
        {
            let connection = self.connection().await?;
            schema::check_settings(&connection, durability, &self.path).await?;
        }
        let until = Instant::now() + self.max_wait;
        self.run_until(until, || schema::migrate(self)).await?;
        let connection = self.connection().await?;
        self.clock.measure(connection.client()).await?;
        self.owner.register(&connection).await
    }
}

/// The tables of a database, as [`PostgresStore::examine`] found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseState {
    /// The database has no tables of this host yet.
    Empty,
    /// The tables have the version that this host uses.
    Current,
    /// The tables have an older version. Opening the store migrates them.
    Older,
}

#[async_trait]
impl Integrity for PostgresStore {
    /// Reads all blobs and compares them with their digests. PostgreSQL checks its own files if the cluster has checksums.
    async fn integrity_check(&self) -> Result<(), StoreError> {
        self.run(|| blobs::check_digests(self)).await
    }
}
