//! The store as an owner of leases. The lease of a process that no longer runs must end, so every open store renews a row
//! in the table `owners`. All times are those of the database's clock.

use super::address::PostgresAddress;
use super::clock::DatabaseClock;
use super::connections::Connection;
use super::failure::{Failure, described};
use super::queries::NOW;
use super::text::{Text, text};
use super::tls::Tls;
use crate::{SessionHolder, StoreError};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use uuid::Uuid;

/// Time in which a store that is closed removes its row. Another store waits until the row expires if this fails.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// An open store. If the store opens a session, the session's row contains the store's id until the session is closed.
pub(super) struct Owner {
    id: String,
    machine: Machine,
    lease: Duration,
    /// Ends the thread that renews the row.
    closing: Option<Closing>,
}

struct Closing {
    stop: oneshot::Sender<()>,
    closed: Mutex<mpsc::Receiver<()>>,
}

/// The place in which process ids are unique.
#[derive(Clone)]
struct Machine {
    /// Id of the place. Two containers on one machine have different ids.
    id: String,
    /// Name of the machine, for messages.
    name: String,
}

impl Machine {
    fn this() -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self { id: format!("{name} {} {}", boot.trim(), namespace.display()), name }
    }
}

impl Owner {
    pub(super) fn new(lease: Duration) -> Self {
        Self { id: Uuid::new_v4().to_string(), machine: Machine::this(), lease, closing: None }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// SQL condition for the sessions whose owner in the column `column` is alive. The parameter `$me` is the id of this
    /// store, which always counts as alive.
    pub(super) fn is_alive(column: &str, me: &str) -> String {
        format!(
            "({column} IS NOT NULL AND ({column} = {me} OR EXISTS \
             (SELECT 1 FROM owners WHERE owners.id = {column} AND owners.expires > {NOW})))"
        )
    }

    /// Writes the row of this store for the first time.
    pub(super) async fn register(&self, connection: &Connection) -> Result<(), Failure> {
        connection.execute(&format!("DELETE FROM owners WHERE expires < {NOW} - 86400000000"), &[]).await?;
        let (lease, process) = (microseconds(self.lease), i64::from(std::process::id()));
        let Machine { id: machine, name } = &self.machine;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&Text(&self.id), &process, &Text(machine), &Text(name), &lease];
        connection.execute(&renewal(), &parameters).await?;
        Ok(())
    }

    /// Starts the thread that renews the row. It has a connection and a runtime of its own, so that neither busy
    /// connections nor long computations of the process let the leases expire.
    pub(super) fn start_renewal(
        &mut self,
        address: PostgresAddress,
        tls: Tls,
        clock: DatabaseClock,
    ) -> Result<(), StoreError> {
        let (stop, stopped) = oneshot::channel();
        let (closing, closed) = mpsc::channel();
        let path = address.path();
        let (id, machine, lease) = (self.id.clone(), self.machine.clone(), self.lease);
        let renewal = Renewal { id, machine, lease, address, tls, clock };
        thread::Builder::new()
            .name("store leases".to_owned())
            .spawn(move || {
                renewal.run(stopped);
                let _ = closing.send(());
            })
            .map_err(|error| StoreError::Failed { path, problem: error.to_string() })?;
        self.closing = Some(Closing { stop, closed: Mutex::new(closed) });
        Ok(())
    }

    /// Describes an owner from the columns `id`, `process`, `machine` and `host`, starting at `first`.
    pub(super) fn holder(&self, row: &Row, first: usize) -> Result<SessionHolder, Failure> {
        // Only this store counts as alive without a row.
        let process = row.try_get::<_, Option<i64>>(first + 1)?;
        let process = process.map_or(std::process::id(), |process| u32::try_from(process).unwrap_or(0));
        let is_here = super::text::optional_text(row, first + 2)?.is_none_or(|machine| machine == self.machine.id);
        if is_here {
            return Ok(SessionHolder::process(process));
        }
        Ok(SessionHolder::elsewhere(process, text(row, first + 3)?))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(Closing { stop, closed }) = self.closing.take() {
            let _ = stop.send(());
            let closed = closed.into_inner().unwrap_or_else(PoisonError::into_inner);
            let _ = closed.recv_timeout(CLOSING_TIME);
        }
    }
}

struct Renewal {
    id: String,
    machine: Machine,
    lease: Duration,
    address: PostgresAddress,
    tls: Tls,
    clock: DatabaseClock,
}

impl Renewal {
    fn run(self, stopped: oneshot::Receiver<()>) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.renew_until(stopped)),
            Err(error) => {
                tracing::error!(%error, "the leases of this process cannot be renewed, so other processes may take over its sessions")
            }
        }
    }

    async fn renew_until(&self, mut stopped: oneshot::Receiver<()>) {
        let mut client = None;
        loop {
            let pause = if client.is_some() { self.lease / 3 } else { self.lease / 10 };
            tokio::select! {
                _ = &mut stopped => break,
                () = tokio::time::sleep(pause) => {}
            }
            client = match self.renew(client).await {
                Ok(client) => Some(client),
                Err(error) => {
                    let database = &self.address.shown;
                    tracing::warn!(
                        problem = described(&error),
                        database,
                        "the leases of this process were not renewed"
                    );
                    None
                }
            };
        }
        let removed = tokio::time::timeout(CLOSING_TIME, async {
            let client = match client {
                Some(client) => client,
                None => self.connect().await?,
            };
            client.execute("DELETE FROM owners WHERE id = $1", &[&self.id]).await
        });
        if !matches!(removed.await, Ok(Ok(_))) {
            tracing::debug!("the row of this store was not removed, so its leases end when they expire");
        }
    }

    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = self.address.config.connect(self.tls.clone()).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(problem = described(&error), "the connection that renews leases has ended");
            }
        });
        client.batch_execute("SET statement_timeout = '10s'").await?;
        Ok(client)
    }

    async fn renew(
        &self,
        client: Option<tokio_postgres::Client>,
    ) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let client = match client {
            Some(client) => client,
            None => self.connect().await?,
        };
        let (lease, process) = (microseconds(self.lease), i64::from(std::process::id()));
        let Machine { id: machine, name } = &self.machine;
        client.execute(&renewal(), &[&self.id, &process, &Text(machine), &Text(name), &lease]).await?;
        self.clock.measure(&client).await?;
        Ok(client)
    }
}

fn renewal() -> String {
    format!(
        "INSERT INTO owners (id, process, machine, host, expires) VALUES ($1, $2, $3, $4, {NOW} + $5::bigint)
         ON CONFLICT (id) DO UPDATE SET expires = {NOW} + $5::bigint"
    )
}

pub(super) fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
