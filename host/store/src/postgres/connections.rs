//! Connections and transactions. Statements are prepared once for each connection.

use super::address::PostgresAddress;
use super::failure::{Failure, Remedy, described};
use super::tls::Tls;
use super::{Durability, PostgresOptions, PostgresStore};
use crate::StoreError;
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Parameters of a statement.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// Settings of every connection. A transaction of a process that no longer runs ends after 5 seconds, so that its locks
/// do not stay. If the process runs after all, it repeats the transaction.
const SETTINGS: &str = "SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '30s'; \
                        SET client_min_messages = error; SET TIME ZONE 'UTC'";

/// Makes commits durable in the connection if the settings of the server or of the user would not.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                       WHERE current_setting('synchronous_commit') = 'off'";

/// Begins a transaction that does not wait until it is durable. If the server crashes within about half a second, the whole
/// transaction may be lost, but never without everything that was committed after it, because the server writes its log in order. So
/// it may contain only work that is done again if it is not stored, such as deliveries.
pub(super) const BEGIN_ASYNCHRONOUS_COMMIT: &str = "BEGIN; SET LOCAL synchronous_commit = off";

/// An element of a FROM clause with which a single statement does not wait until it is durable, as in a transaction that begins with
/// [`BEGIN_ASYNCHRONOUS_COMMIT`].
pub(super) const ASYNCHRONOUS_COMMIT: &str = "(SELECT set_config('synchronous_commit', 'off', true)) AS setting";

/// Time to wait for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(20);

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

pub(super) fn pool(address: &PostgresAddress, tls: Tls, options: &PostgresOptions) -> Result<Pool, StoreError> {
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), tls, manager_config);
    let durability = options.durability;
    let set_up = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        Box::pin(async move {
            client.batch_execute(SETTINGS).await.map_err(HookError::Backend)?;
            if durability == Durability::Synchronous {
                client.execute(DURABLE, &[]).await.map_err(HookError::Backend)?;
            }
            Ok(())
        })
    });
    let wait = Some(CONNECTION_WAIT);
    Pool::builder(manager)
        .max_size(options.connections.max(1) as usize)
        .runtime(Runtime::Tokio1)
        .wait_timeout(wait)
        .create_timeout(wait)
        .recycle_timeout(wait)
        .post_create(set_up)
        .build()
        .map_err(|error| StoreError::Failed { path: address.path(), problem: error.to_string() })
}

impl PostgresStore {
    /// Runs an operation, and runs it again if it stored nothing because of a temporary problem.
    pub(super) async fn run<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.run_until(Instant::now() + self.max_wait, attempt).await.map_err(|failure| failure.into_error(&self.path))
    }

    pub(super) async fn run_until<T, F>(&self, until: Instant, mut attempt: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut pause = Duration::from_millis(5);
        loop {
            match attempt().await {
                Err(failure) if failure.remedy() == Remedy::Retry && Instant::now() + pause < until => {
                    tracing::debug!(?failure, "an operation of the database runs again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Like [`PostgresStore::run`], for an operation that may run twice. Such an operation also runs again if the
    /// connection broke while it was being committed.
    pub(super) async fn run_repeatable<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.run(|| {
            let attempt = attempt();
            async {
                attempt.await.map_err(|failure| match failure {
                    Failure::OutcomeUnknown(_) => Failure::RunAgain,
                    other => other,
                })
            }
        })
        .await
    }

    /// Returns a connection for single statements.
    pub(super) async fn connection(&self) -> Result<Connection, Failure> {
        Connection::of(&self.pool).await
    }

    /// Begins a transaction for writing.
    pub(super) async fn transaction(&self) -> Result<Transaction, Failure> {
        self.begin("BEGIN").await
    }

    /// Begins a transaction whose queries all read the same committed data.
    pub(super) async fn snapshot_of_all(&self) -> Result<Transaction, Failure> {
        self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    async fn begin(&self, begin: &str) -> Result<Transaction, Failure> {
        let transaction = self.unopened_transaction().await?;
        transaction.open(begin).await?;
        Ok(transaction)
    }

    /// Returns a transaction that must be opened before it is used, so that its first statement can be sent together with the
    /// statement that opens it.
    pub(super) async fn unopened_transaction(&self) -> Result<Transaction, Failure> {
        Ok(Transaction { connection: Some(Connection(self.pool.get().await?)) })
    }
}

/// A connection of the pool.
pub(super) struct Connection(Object);

impl Connection {
    pub(super) async fn of(pool: &Pool) -> Result<Self, Failure> {
        Ok(Self(pool.get().await?))
    }

    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Failure> {
        let statement = self.0.prepare_cached(sql).await?;
        Ok(self.0.query(&statement, parameters).await?)
    }

    pub(super) async fn query_opt(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, Failure> {
        let statement = self.0.prepare_cached(sql).await?;
        Ok(self.0.query_opt(&statement, parameters).await?)
    }

    pub(super) async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row, Failure> {
        let statement = self.0.prepare_cached(sql).await?;
        Ok(self.0.query_one(&statement, parameters).await?)
    }

    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Failure> {
        let statement = self.0.prepare_cached(sql).await?;
        Ok(self.0.execute(&statement, parameters).await?)
    }

    /// Prepares statements, so that later calls send them at once. Futures of later calls that are polled in an order then
    /// send their statements in this order, which is also the order in which the server runs them.
    pub(super) async fn prepare(&self, statements: &[&str]) -> Result<(), Failure> {
        for sql in statements {
            self.0.prepare_cached(sql).await?;
        }
        Ok(())
    }

    /// Returns the client of the library.
    pub(super) fn client(&self) -> &tokio_postgres::Client {
        &self.0
    }

    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.0.batch_execute(sql).await?)
    }
}

/// An open transaction. Dropping it without [`Transaction::commit`] closes its connection, so that the server rolls the
/// transaction back.
pub(super) struct Transaction {
    /// `None` after the end of the transaction.
    connection: Option<Connection>,
}

impl std::ops::Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("only commit and roll_back take the connection, and they consume the transaction"),
        }
    }
}

impl Transaction {
    /// Sends the statement that opens the transaction.
    pub(super) async fn open(&self, begin: &str) -> Result<(), Failure> {
        Ok(self.connection()?.0.batch_execute(begin).await?)
    }

    fn connection(&self) -> Result<&Connection, Failure> {
        self.connection.as_ref().ok_or(Failure::Store(StoreError::Closed))
    }

    /// Waits until everything in the transaction is durable. If the connection breaks meanwhile, the failure is
    /// [`Failure::OutcomeUnknown`].
    pub(super) async fn commit(mut self) -> Result<(), Failure> {
        let result = self.connection()?.0.batch_execute("COMMIT").await;
        match result {
            Ok(()) => {
                // The connection returns to the pool.
                self.connection = None;
                Ok(())
            }
            // An error of the server before the end of the transaction rolls it back. A server that ends the connection
            // may have committed before.
            Err(error) if error.code().is_some_and(|code| !code.code().starts_with("57P")) => Err(error.into()),
            Err(error) => Err(Failure::OutcomeUnknown(described(&error))),
        }
    }

    /// Commits the transaction, or ends it if its work has failed. The connection stays in the pool after a refusal.
    pub(super) async fn end<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        match result {
            Ok(value) => self.commit().await.map(|()| value),
            Err(failure @ Failure::Store(_)) => {
                self.roll_back().await?;
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Ends the transaction without storing anything.
    pub(super) async fn roll_back(mut self) -> Result<(), Failure> {
        self.connection()?.0.batch_execute("ROLLBACK").await?;
        self.connection = None;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(Connection(object)) = self.connection.take() {
            drop(Object::take(object));
        }
    }
}
