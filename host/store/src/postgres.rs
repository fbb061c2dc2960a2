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
mod object_collection;
mod objects;
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
use crate::{Integrity, ObjectStoreAddress, StoreError};
pub use address::PostgresAddress;
use announcements::Listener;
use async_trait::async_trait;
use clock::DatabaseClock;
use deadpool_postgres::Pool;
use failure::Failure;
pub use object_collection::CollectedObjects;
use object_collection::CollectionTask;
use objects::Objects;
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
    /// Where media and large parts are kept. `None` means in the database.
    objects: Option<Objects>,
    collection: CollectionTask,
    /// Held by the transaction of this process that adds audit entries (see [`PostgresStore::audit_turn`]).
    audit_turn: tokio::sync::Mutex<()>,
}

/// Counts the commits of sessions.
#[derive(Debug, Default)]
struct CommitCounters {
    commits: AtomicU64,
    durations: DurationCounters,
}

/// Options for opening a database.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The object store for media and large parts. All processes that use the database must name the same one. `None`, the
    /// default, keeps everything in the database.
    pub object_store: Option<ObjectStoreAddress>,
    /// Size from which media and texts are kept in the object store, in bytes. Smaller ones stay in the database, where they cost
    /// less than a request. The default is 64 KiB, and at least one byte counts.
    pub smallest_object: usize,
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
        let durability = Durability::Synchronous;
        Self { durability, connections: 10, lease, max_wait, object_store: None, smallest_object: 64 << 10 }
    }
}

impl PostgresStore {
    /// Opens the database, and creates or migrates its tables. A database is refused if a newer host has migrated it, if it
    /// belongs to another program, or if it confirms commits before they are durable.
    pub async fn open(address: PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let (mut store, tls) = Self::connect(&address, &options)?;
        let objects = store.prepare(&options).await.map_err(|failure| failure.into_error(&store.path))?;
        store.objects = objects;
        store.owner.start_renewal(address.clone(), tls.clone(), store.clock.clone())?;
        store.listener.start(address, tls);
        store.collection.start(store.collector());
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
            if version.has_objects() {
                objects::check_registered(&connection, &store.path, options.object_store.as_ref()).await?;
            }
            Ok(if version.is_current() { DatabaseState::Current } else { DatabaseState::Older })
        });
        state.await
    }

    /// Returns the address of the object store that a database uses, without changing anything in the database.
    pub async fn object_store_of(
        address: PostgresAddress,
        options: PostgresOptions,
    ) -> Result<Option<String>, StoreError> {
        let (store, _) = Self::connect(&address, &options)?;
        let registered = store.run(|| async {
            let connection = store.connection().await?;
            match schema::version(&connection).await? {
                Some(version) if version.has_objects() => objects::registered(&connection).await,
                _ => Ok(None),
            }
        });
        Ok(registered.await?.map(|registered| registered.address))
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
        let (objects, collection, audit_turn) = (None, CollectionTask::default(), tokio::sync::Mutex::default());
        let store = Self {
            pool,
            owner,
            clock,
            turn_plugins,
            listener,
            path,
            max_wait,
            writes,
            objects,
            collection,
            audit_turn,
        };
        Ok((store, tls))
    }

    /// Checks the settings of the server, migrates the database, opens the object store, and registers the store as an owner of leases.
    async fn prepare(&self, options: &PostgresOptions) -> Result<Option<Objects>, Failure> {
        {
            let connection = self.connection().await?;
            schema::check_settings(&connection, options.durability, &self.path).await?;
        }
        let until = Instant::now() + self.max_wait;
        self.run_until(until, || schema::migrate(self)).await?;
        let objects = self.run_until(until, || objects::register(self, options)).await?;
        let connection = self.connection().await?;
        self.clock.measure(connection.client()).await?;
        self.owner.register(&connection).await?;
        Ok(objects)
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
    /// Reads all blobs, also those in the object store, and compares them with their digests. PostgreSQL checks its own files if the cluster has checksums.
    async fn integrity_check(&self) -> Result<(), StoreError> {
        self.run(|| blobs::check_digests(self)).await
    }
}
