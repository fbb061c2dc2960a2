//! Reads and writes rows as they are stored, for copies of stores.

use super::SqliteStore;
use super::owners::Liveness;
use super::queries::collect;
use super::writer::Effort;
use crate::copy::tables::{BLOB_REFERENCES, SESSIONS, TRACE_EXPORTS, Table};
use crate::copy::{Cell, CopiedRow, CopiedSession, CopyStore};
use crate::encoding::blobs::StoredBytes;
use crate::encoding::values::signed;
use crate::{SessionLog, SessionState, StoreError};
use async_trait::async_trait;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{OptionalExtension, ToSql, params, params_from_iter};

const SESSION_ID: &str = "(SELECT id FROM sessions WHERE subject = ?1)";

#[async_trait]
impl CopyStore for SqliteStore {
    async fn copied_sessions(&self) -> Result<Vec<CopiedSession>, StoreError> {
        let owner = self.owner.clone();
        self.read(move |connection| {
            collect(connection, "SELECT subject, owner, state FROM sessions ORDER BY place, id", [], |row| {
                let holder: Option<String> = row.get(1)?;
                let is_open = holder.is_some_and(|holder| owner.liveness(&holder) != Liveness::Dead);
                let is_incomplete = row.get::<_, String>(2)? == SessionState::Incomplete.as_str();
                Ok(CopiedSession { subject: row.get(0)?, is_open, is_incomplete })
            })
        })
        .await
    }

    async fn copied_rows(
        &self,
        table: &'static Table,
        session: &str,
        (offset, limit): (i64, i64),
    ) -> Result<Vec<CopiedRow>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.sqlite).collect();
            let condition = match (session.as_str(), table.name) {
                ("", _) => "?1 = ''".to_owned(),
                (_, name) if name == SESSIONS.name => "subject = ?1".to_owned(),
                _ => format!("session = {SESSION_ID}"),
            };
            let (columns, name, order) = (columns.join(", "), table.name, table.order);
            let sql = format!("SELECT {columns} FROM {name} WHERE {condition} ORDER BY {order} LIMIT ?2 OFFSET ?3");
            collect(connection, &sql, params![session, limit, offset], |row| {
                (0..table.columns.len()).map(|column| Ok(cell(row.get_ref(column)?))).collect()
            })
        })
        .await
    }

    async fn begin_copy(&self, row: CopiedRow) -> Result<(), StoreError> {
        self.write(Effort::Long, move |connection| {
            let columns: Vec<&str> = SESSIONS.columns.iter().map(|column| column.sqlite).collect();
            let places: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
            let sql = format!(
                "INSERT INTO sessions ({}, place) VALUES ({}, (SELECT coalesce(max(place), 0) + 1 FROM sessions))",
                columns.join(", "),
                places.join(", ")
            );
            connection.execute(&sql, params_from_iter(&row))?;
            Ok(())
        })
        .await
    }

    async fn write_copied(&self, table: &'static Table, session: &str, rows: Vec<CopiedRow>) -> Result<(), StoreError> {
        let session = session.to_owned();
        self.write(Effort::Long, move |connection| {
            let mut statement = connection.prepare_cached(&insertion(table, &session))?;
            for row in &rows {
                let first = (!session.is_empty()).then(|| Cell::Text(session.clone()));
                let inserted = statement.execute(params_from_iter(first.iter().chain(row)))?;
                if inserted > 0 && table.name == "memories" {
                    let sql = "INSERT INTO memory_words (rowid, text) VALUES (?1, ?2)";
                    let text = &row[table.position_of("text")];
                    connection.prepare_cached(sql)?.execute(params![connection.last_insert_rowid(), text])?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn finish_copy(&self, session: &str, state: &str) -> Result<(), StoreError> {
        let (session, state) = (session.to_owned(), state.to_owned());
        self.write(Effort::Short, move |connection| {
            connection.execute("UPDATE sessions SET state = ?2 WHERE subject = ?1", [&session, &state])?;
            Ok(())
        })
        .await
    }

    async fn has_bytes(&self, key: &[u8]) -> Result<bool, StoreError> {
        let key = key.to_vec();
        self.read(move |connection| {
            Ok(connection.prepare_cached("SELECT 1 FROM blobs WHERE digest = ?1")?.exists([key])?)
        })
        .await
    }

    async fn copied_bytes(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key.to_vec();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT bytes FROM blobs WHERE digest = ?1")?;
            Ok(statement.query_row([key], |row| row.get(0)).optional()?)
        })
        .await
    }

    async fn write_bytes(&self, stored: StoredBytes) -> Result<(), StoreError> {
        self.write(Effort::Long, move |connection| {
            let sql = "INSERT INTO blobs (digest, size, bytes) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            connection.execute(sql, params![stored.key, signed(stored.len() as u64), &stored.bytes[..]])?;
            Ok(())
        })
        .await
    }

    async fn delete_copied(&self, session: &str) -> Result<(), StoreError> {
        self.delete(session).await.map(drop)
    }

    async fn finish_common_tables(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Returns the statement that inserts a row. Rows of sessions have the subject of the session as their first parameter.
fn insertion(table: &Table, session: &str) -> String {
    let first = if session.is_empty() { 1 } else { 2 };
    let places: Vec<String> = (first..first + table.columns.len()).map(|number| format!("?{number}")).collect();
    let name = table.name;
    match name {
        BLOB_REFERENCES => format!(
            "INSERT INTO blob_references (session, blob, mime_type, width, height, name)
             VALUES ({SESSION_ID}, (SELECT id FROM blobs WHERE digest = ?2), ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING"
        ),
        TRACE_EXPORTS => format!(
            "INSERT INTO trace_exports (session, event, record, turn_start)
             VALUES ({SESSION_ID}, ?2, coalesce((SELECT number FROM records WHERE session = {SESSION_ID}
                 ORDER BY number LIMIT 1 OFFSET max(?3 - 1, 0)), 0) * (?3 > 0), ?4) ON CONFLICT DO NOTHING"
        ),
        _ => {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.sqlite).collect();
            let (columns, places) = (columns.join(", "), places.join(", "));
            match session {
                "" => format!("INSERT INTO {name} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"),
                _ => format!("INSERT INTO {name} (session, {columns}) VALUES ({SESSION_ID}, {places})"),
            }
        }
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Text(number.to_string()),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Integer(number) => ToSqlOutput::from(*number),
            Cell::Text(text) => ToSqlOutput::from(text.as_str()),
            Cell::Bytes(bytes) => ToSqlOutput::from(bytes.as_slice()),
        })
    }
}
