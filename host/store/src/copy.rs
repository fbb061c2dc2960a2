//! Copies all data of one store into another, for example from SQLite to PostgreSQL (F1). The copy keeps all times, epochs
//! and revisions, so that an export of a copied session equals an export of the original.
//!
//! A copy can be repeated: sessions and rows that are already in the target are compared and not written again. A session
//! that was copied only in part is `incomplete` in the target, and is copied again.

pub(crate) mod tables;

use crate::encoding::blobs::StoredBytes;
use crate::{PostgresStore, SqliteStore, StoreError};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tables::{COMMON_TABLES, SESSION_TABLES, Table};

/// Number of rows that are read and written together.
const PAGE: i64 = 200;

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of the columns of its [`Table`].
pub(crate) type CopiedRow = Vec<Cell>;

/// A session that can be copied.
#[derive(Clone, Debug)]
pub(crate) struct CopiedSession {
    pub(crate) subject: String,
    /// Whether a process has the session open.
    pub(crate) is_open: bool,
    /// Whether the session was copied, forked or imported only in part.
    pub(crate) is_incomplete: bool,
}

/// Reads and writes rows as they are stored.
#[async_trait]
pub(crate) trait CopyStore: Send + Sync {
    /// Returns all sessions in the order in which session lists show them, the last one first.
    async fn copied_sessions(&self) -> Result<Vec<CopiedSession>, StoreError>;

    /// Returns up to `limit` rows of a table of sessions, or of another table if `session` is empty.
    async fn copied_rows(
        &self,
        table: &'static Table,
        session: &str,
        (offset, limit): (i64, i64),
    ) -> Result<Vec<CopiedRow>, StoreError>;

    /// Creates an incomplete session from its row, with its blobs.
    async fn begin_copy(&self, row: CopiedRow) -> Result<(), StoreError>;

    /// Writes rows. Rows with keys that the table already contains are left out.
    async fn write_copied(&self, table: &'static Table, session: &str, rows: Vec<CopiedRow>) -> Result<(), StoreError>;

    /// Completes a session: sets the state that it has in the source.
    async fn finish_copy(&self, session: &str, state: &str) -> Result<(), StoreError>;

    /// Returns whether the bytes with this digest are stored. They are not read.
    async fn has_bytes(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Returns the bytes with this digest.
    async fn copied_bytes(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Stores bytes to which rows will refer.
    async fn write_bytes(&self, stored: StoredBytes) -> Result<(), StoreError>;

    /// Deletes a session that was copied only in part.
    async fn delete_copied(&self, session: &str) -> Result<(), StoreError>;

    /// Updates what the store derives from the rows of the tables that do not belong to sessions.
    async fn finish_common_tables(&self) -> Result<(), StoreError>;
}

/// A store of which all data is copied, or into which it is copied.
#[derive(Clone, Copy)]
pub enum CopyEnd<'s> {
    /// A store in a SQLite file.
    Sqlite(&'s SqliteStore),
    /// A store in a PostgreSQL database.
    Postgres(&'s PostgresStore),
}

impl<'s> CopyEnd<'s> {
    fn store(self) -> &'s dyn CopyStore {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress<'p> {
    /// Subject of the session that is copied or compared next.
    pub session: &'p str,
    /// Number of this session, starting at 1.
    pub number: usize,
    /// Number of sessions in the source.
    pub total: usize,
}

/// What a copy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Number of sessions that were copied.
    pub sessions: u64,
    /// Number of sessions that were already in the target, with exactly the same data.
    pub unchanged: u64,
    /// Number of rows that were read from the source and compared with the target.
    pub rows: u64,
}

/// Why a store was not copied. Everything that was copied before stays in the target, and the copy can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A process has a session of the source open.
    #[error("session `{session}` is open in a process: stop all processes that use the store, then copy it again")]
    InUse {
        /// Subject that identifies the session.
        session: String,
    },
    /// The target contains other data than the source.
    #[error("{what} in the target has other data than in the source, and was left unchanged: use an empty target")]
    Differs {
        /// Description of the data.
        what: String,
    },
    /// Bytes to which a session refers are missing in the source.
    #[error(
        "the source does not contain the bytes sha256:{digest}, to which session `{session}` refers: restore it from a backup"
    )]
    MissingBytes {
        /// Digest in hexadecimal digits.
        digest: String,
        /// Subject that identifies the session.
        session: String,
    },
    /// A store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies all data of `from` into `to`, and compares everything afterwards. No process may use the stores meanwhile.
/// `progress` is called before each session.
pub async fn copy_store(
    from: CopyEnd<'_>,
    to: CopyEnd<'_>,
    mut progress: impl FnMut(CopyProgress<'_>) + Send,
) -> Result<CopyReport, CopyError> {
    let copy = Copy { from: from.store(), to: to.store() };
    let mut report = CopyReport::default();
    let sessions = copy.from.copied_sessions().await?;
    if let Some(open) = sessions.iter().find(|session| session.is_open) {
        return Err(CopyError::InUse { session: open.subject.clone() });
    }
    let existing = copy.to.copied_sessions().await?;
    for (position, CopiedSession { subject, is_incomplete, .. }) in sessions.iter().enumerate() {
        // An import or fork that was interrupted is not copied.
        if *is_incomplete {
            continue;
        }
        progress(CopyProgress { session: subject, number: position + 1, total: sessions.len() });
        match existing.iter().find(|existing| existing.subject == *subject) {
            Some(found) if !found.is_incomplete => report.unchanged += 1,
            found => {
                if found.is_some() {
                    copy.to.delete_copied(subject).await?;
                }
                copy.session(subject).await?;
                report.sessions += 1;
            }
        }
        report.rows += copy.compare_session(subject).await?;
    }
    for table in COMMON_TABLES {
        copy.table(table, "").await?;
    }
    copy.to.finish_common_tables().await?;
    for table in COMMON_TABLES {
        report.rows += copy.compare_table(table, "").await?;
    }
    Ok(report)
}

struct Copy<'s> {
    from: &'s dyn CopyStore,
    to: &'s dyn CopyStore,
}

impl Copy<'_> {
    async fn session(&self, subject: &str) -> Result<(), CopyError> {
        let missing = || StoreError::NoSession { session: subject.to_owned() };
        let mut row = self.from.copied_rows(&tables::SESSIONS, subject, (0, 1)).await?.pop().ok_or_else(missing)?;
        let position = tables::SESSIONS.position_of("state");
        let incomplete = Cell::Text(crate::SessionState::Incomplete.as_str().to_owned());
        let Cell::Text(state) = std::mem::replace(&mut row[position], incomplete) else { return Err(missing().into()) };
        self.to.begin_copy(row).await?;
        for table in SESSION_TABLES {
            self.table(table, subject).await?;
        }
        self.to.finish_copy(subject, &state).await?;
        Ok(())
    }

    /// Copies the rows of a table.
    async fn table(&self, table: &'static Table, session: &str) -> Result<(), CopyError> {
        let mut offset = 0;
        loop {
            let rows = self.from.copied_rows(table, session, (offset, PAGE)).await?;
            if rows.is_empty() {
                return Ok(());
            }
            offset += rows.len() as i64;
            if table.name == tables::BLOB_REFERENCES {
                self.bytes(session, &rows).await?;
            }
            self.to.write_copied(table, session, rows).await?;
        }
    }

    /// Copies the bytes to which references refer, unless the target has them.
    async fn bytes(&self, session: &str, references: &[CopiedRow]) -> Result<(), CopyError> {
        for reference in references {
            let Some(Cell::Bytes(key)) = reference.first() else { continue };
            if self.to.has_bytes(key).await? {
                continue;
            }
            let missing = || CopyError::MissingBytes { digest: hex::encode(key), session: session.to_owned() };
            let bytes = self.from.copied_bytes(key).await?.ok_or_else(missing)?;
            let stored = StoredBytes::new("a blob", bytes)?;
            if stored.key.as_slice() != key.as_slice() {
                return Err(missing());
            }
            self.to.write_bytes(stored).await?;
        }
        Ok(())
    }

    async fn compare_session(&self, subject: &str) -> Result<u64, CopyError> {
        let mut rows = self.compare_table(&tables::SESSIONS, subject).await?;
        for table in SESSION_TABLES {
            rows += self.compare_table(table, subject).await?;
        }
        Ok(rows)
    }

    /// Compares all rows of a table, and returns their number.
    async fn compare_table(&self, table: &'static Table, session: &str) -> Result<u64, CopyError> {
        let (source, target) = (digest(self.from, table, session).await?, digest(self.to, table, session).await?);
        if source == target {
            return Ok(source.rows);
        }
        let what = match session {
            "" => format!("the table `{}`", table.name),
            session => format!("the table `{}` of session `{session}`", table.name),
        };
        Err(CopyError::Differs { what })
    }
}

/// The digest of all rows of a table.
#[derive(PartialEq, Eq)]
struct TableDigest {
    rows: u64,
    sha256: [u8; 32],
}

async fn digest(store: &dyn CopyStore, table: &'static Table, session: &str) -> Result<TableDigest, StoreError> {
    let (mut hasher, mut rows) = (Sha256::new(), 0);
    loop {
        let page = store.copied_rows(table, session, (rows, PAGE)).await?;
        if page.is_empty() {
            return Ok(TableDigest { rows: rows.unsigned_abs(), sha256: hasher.finalize().into() });
        }
        rows += page.len() as i64;
        for cell in page.iter().flatten() {
            let (kind, bytes) = match cell {
                Cell::Null => (0_u8, Vec::new()),
                Cell::Integer(number) => (1, number.to_be_bytes().to_vec()),
                Cell::Text(text) => (2, text.as_bytes().to_vec()),
                Cell::Bytes(bytes) => (3, bytes.clone()),
            };
            hasher.update([kind]);
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(&bytes);
        }
    }
}
