//! Databases of a test server, and connections to them.

use super::server::Server;
use agent_store::{PostgresAddress, PostgresOptions, PostgresStore, StoreError};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::NoTls;

/// Returns a number for the name of a database that no other test uses.
fn next_database() -> u32 {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    DATABASES.fetch_add(1, Ordering::Relaxed)
}

impl Server {
    /// Creates an empty database and returns its address.
    pub(crate) async fn new_database(&self) -> String {
        let name = format!("test_{}", next_database());
        self.execute("postgres", &format!("CREATE DATABASE {name}")).await;
        self.address(&name)
    }

    /// Creates a copy of a database to which nobody is connected, and returns its address.
    pub(crate) async fn copy_of(&self, template: &str) -> String {
        let name = format!("test_{}", next_database());
        self.execute("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        self.address(&name)
    }

    /// Runs statements in a database as another program would.
    pub(crate) async fn execute(&self, database: &str, sql: &str) {
        self.client(database).await.batch_execute(sql).await.expect("the statements succeed");
    }

    pub(crate) async fn client(&self, database: &str) -> tokio_postgres::Client {
        connect(&self.address(database)).await
    }
}

/// Connects to a database as another program would.
pub(crate) async fn connect(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Returns the name of the database in an address.
pub(crate) fn database_of(address: &str) -> &str {
    address.rsplit('/').next().and_then(|database| database.split('?').next()).expect("a database")
}

/// Opens a store with few connections.
pub(crate) async fn open_store(address: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(parsed(address), PostgresOptions { connections: 4, ..PostgresOptions::default() }).await
}

/// Parses the address of a database of this machine.
pub(crate) fn parsed(address: &str) -> PostgresAddress {
    PostgresAddress::parse(address).expect("the address is valid")
}
