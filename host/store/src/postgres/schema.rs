//! The tables and their migrations. A released migration never changes; every later change is a new migration.
//!
//! Migrations run while other processes work. The table `store_version` contains the number of applied migrations, and the
//! oldest version of the host that may still write. A migration that only adds tables, or columns that older hosts need not
//! know, keeps `oldest_writer`. Otherwise it raises it, and the commits of older hosts fail from then on (row 50). Every
//! commit reads `store_version`, and a migration locks this table, so that no commit of an older host is stored after the
//! migration.

use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::{Durability, PostgresStore};
use crate::StoreError;
use std::path::Path;

/// A change of the schema.
struct Migration {
    sql: &'static str,
    /// The oldest version of the schema whose hosts may write after this migration.
    oldest_writer: i32,
}

/// All migrations, oldest first. The version of a schema is the number of migrations that were applied to it.
const MIGRATIONS: &[Migration] = &[
    Migration { sql: include_str!("schema/initial.sql"), oldest_writer: 1 },
    // A process of version 1 does not handle requests of other processes, so their senders are told that it is busy.
    Migration { sql: include_str!("schema/requests.sql"), oldest_writer: 1 },
    // A process of version 2 cannot read objects, which migration 5 excludes.
    Migration { sql: include_str!("schema/objects.sql"), oldest_writer: 1 },
    // A process of version 3 does not record where its plugins come from, so others cannot fetch the versions that only it used.
    Migration { sql: include_str!("schema/plugin_sources.sql"), oldest_writer: 1 },
    // A process of version 4 counts outbox items in a table that no longer exists, and expects to see them in the order of their
    // numbers.
    Migration { sql: include_str!("schema/outbox_item_numbers.sql"), oldest_writer: 5 },
];

/// The newest version that this host supports.
pub(super) const SUPPORTED: i32 = MIGRATIONS.len() as i32;

/// The first version that has the tables for objects in an object store.
const FIRST_WITH_OBJECTS: i32 = 3;

/// Key of the advisory lock that lets one process migrate a database at a time: `agho` in ASCII.
const MIGRATION_LOCK: i64 = 0x6167_686f;

/// Settings without which a confirmed commit can be lost, with the values that allow this.
const DURABLE_SETTINGS: [&str; 2] = ["synchronous_commit", "fsync"];

pub(super) async fn check_settings(
    connection: &Connection,
    durability: Durability,
    path: &Path,
) -> Result<(), Failure> {
    let encoding: String = connection.query_one("SELECT current_setting('server_encoding')", &[]).await?.try_get(0)?;
    if encoding != "UTF8" {
        let problem = format!("its encoding is {encoding}: create a database with the encoding UTF8");
        return Err(StoreError::Failed { path: path.to_owned(), problem }.into());
    }
    if durability == Durability::MayLoseCommits {
        return Ok(());
    }
    for setting in DURABLE_SETTINGS {
        // The connection has already replaced `synchronous_commit = off` for itself, so the reset value counts.
        let sql = "SELECT reset_val FROM pg_settings WHERE name = $1";
        let value: Option<String> = match connection.query_opt(sql, &[&setting]).await? {
            Some(row) => row.try_get(0)?,
            None => None,
        };
        if value.as_deref() == Some("off") {
            return Err(StoreError::NotDurable { path: path.to_owned(), setting: setting.to_owned() }.into());
        }
    }
    Ok(())
}

/// Migrates the database to this host's version, or creates the tables in an empty database.
pub(super) async fn migrate(store: &PostgresStore) -> Result<(), Failure> {
    let transaction = store.transaction().await?;
    if let Some(version) = version(&transaction).await? {
        version.check(&store.path)?;
        if version.is_current() {
            return transaction.roll_back().await;
        }
    }
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    // Another process may have migrated the database in the meantime.
    let applied = match version(&transaction).await? {
        Some(version) => {
            version.check(&store.path)?;
            version.applied
        }
        None => {
            refuse_foreign_tables(&transaction, &store.path).await?;
            transaction.batch_execute(CREATE_VERSION).await?;
            0
        }
    };
    let applied = usize::try_from(applied).unwrap_or_default().min(MIGRATIONS.len());
    if applied < MIGRATIONS.len() {
        // Waits for running commits, and lets new commits wait until the end of the migration.
        transaction.batch_execute("LOCK TABLE store_version IN ACCESS EXCLUSIVE MODE").await?;
        for migration in &MIGRATIONS[applied..] {
            transaction.batch_execute(migration.sql).await?;
        }
        let oldest_writer = MIGRATIONS[applied..].iter().map(|migration| migration.oldest_writer).max().unwrap_or(1);
        let sql = "UPDATE store_version SET version = $1, oldest_writer = greatest(oldest_writer, $2)";
        transaction.execute(sql, &[&SUPPORTED, &oldest_writer]).await?;
    }
    transaction.commit().await.map_err(|failure| match failure {
        // A migration that was already applied is not applied again.
        Failure::OutcomeUnknown(_) => Failure::RunAgain,
        other => other,
    })
}

const CREATE_VERSION: &str = "
CREATE TABLE store_version (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    version integer NOT NULL,
    oldest_writer integer NOT NULL
);
INSERT INTO store_version (version, oldest_writer) VALUES (0, 0);
";

/// The stored version of a database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    applied: i32,
    oldest_writer: i32,
}

impl Version {
    /// Whether all migrations of this host were applied.
    pub(super) fn is_current(self) -> bool {
        self.applied >= SUPPORTED
    }

    /// Whether the database has the tables for objects in an object store.
    pub(super) fn has_objects(self) -> bool {
        self.applied >= FIRST_WITH_OBJECTS
    }

    /// Refuses a database to which this host must not write, because a newer host has migrated it.
    pub(super) fn check(self, path: &Path) -> Result<(), StoreError> {
        if self.oldest_writer <= SUPPORTED {
            return Ok(());
        }
        let (found, supported) = (i64::from(self.applied), i64::from(SUPPORTED));
        Err(StoreError::Newer { path: path.to_owned(), found, supported })
    }
}

/// Returns the version of the database. `None` if it has no tables of this host.
pub(super) async fn version(connection: &Connection) -> Result<Option<Version>, Failure> {
    // `to_regclass` may answer from before another transaction has created the table. A query of the catalogue does not.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relname = 'store_version' AND relkind IN ('r', 'p')
                              AND pg_table_is_visible(oid))";
    let exists: bool = connection.query_one(sql, &[]).await?.try_get(0)?;
    if !exists {
        return Ok(None);
    }
    let row = connection.query_one("SELECT version, oldest_writer FROM store_version", &[]).await?;
    Ok(Some(Version { applied: row.try_get(0)?, oldest_writer: row.try_get(1)? }))
}

/// Refuses a schema that contains tables of another program.
async fn refuse_foreign_tables(transaction: &Transaction, path: &Path) -> Result<(), Failure> {
    let sql =
        "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')";
    let tables: i64 = transaction.query_one(sql, &[]).await?.try_get(0)?;
    if tables == 0 {
        return Ok(());
    }
    let problem =
        "it contains the tables of another program, and it was left unchanged: create a database for agent-host";
    Err(StoreError::Failed { path: path.to_owned(), problem: problem.to_owned() }.into())
}
