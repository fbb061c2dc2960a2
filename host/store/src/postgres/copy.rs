//! Reads and writes rows as they are stored, for copies of stores.

use super::PostgresStore;
use super::blobs::insert_blobs;
use super::connections::Transaction;
use super::failure::Failure;
use super::key_value::rebuild_totals;
use super::objects::{Place, Uploads};
use super::owner::Owner;
use super::queries::value;
use super::search::WordCounts;
use super::text::{Text, text};
use crate::copy::tables::{PERIOD_CHARGES, SESSIONS, TRACE_EXPORTS, Table};
use crate::copy::{Cell, CopiedRow, CopiedSession, CopyStore};
use crate::encoding::blobs::StoredBytes;
use crate::{SessionLog, SessionState, StoreError};
use async_trait::async_trait;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

#[async_trait]
impl CopyStore for PostgresStore {
    async fn copied_sessions(&self) -> Result<Vec<CopiedSession>, StoreError> {
        self.run(|| async {
            let alive = Owner::is_alive("s.owner", "$1");
            let sql = format!("SELECT s.session, {alive}, s.state FROM sessions s ORDER BY s.place");
            let rows = self.connection().await?.query(&sql, &[&self.owner.id()]).await?;
            let read = |row: &Row| {
                let is_incomplete = value::<&str>(row, 2)? == SessionState::Incomplete.as_str();
                Ok(CopiedSession { subject: text(row, 0)?, is_open: value(row, 1)?, is_incomplete })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn copied_rows(
        &self,
        table: &'static Table,
        session: &str,
        (offset, limit): (i64, i64),
    ) -> Result<Vec<CopiedRow>, StoreError> {
        self.run(|| async {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.postgres).collect();
            let condition = if session.is_empty() { "$1 = ''" } else { "session = $1" };
            let group = if table.name == PERIOD_CHARGES { "GROUP BY 1, 2, 3" } else { "" };
            let (columns, name, order) = (columns.join(", "), table.name, table.order);
            let sql =
                format!("SELECT {columns} FROM {name} WHERE {condition} {group} ORDER BY {order} LIMIT $2 OFFSET $3");
            let rows = self.connection().await?.query(&sql, &[&Text(session), &limit, &offset]).await?;
            rows.iter().map(cells).collect()
        })
        .await
    }

    async fn begin_copy(&self, row: CopiedRow) -> Result<(), StoreError> {
        self.run(|| async {
            let columns: Vec<&str> = SESSIONS.columns.iter().map(|column| column.postgres).collect();
            let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
            let (columns, places) = (columns.join(", "), places.join(", "));
            let sql = format!("INSERT INTO sessions ({columns}, place) VALUES ({places}, nextval('session_places'))");
            self.connection().await?.execute(&sql, &parameters(&row)).await?;
            Ok(())
        })
        .await
    }

    async fn write_copied(&self, table: &'static Table, session: &str, rows: Vec<CopiedRow>) -> Result<(), StoreError> {
        self.run(|| async {
            let transaction = self.transaction().await?;
            for row in &rows {
                write_row(&transaction, (table, session), row).await?;
            }
            transaction.commit().await
        })
        .await
    }

    async fn finish_copy(&self, session: &str, state: &str) -> Result<(), StoreError> {
        self.index_session(session).await?;
        self.run_repeatable(|| async {
            let sql = "UPDATE sessions SET state = $2 WHERE session = $1";
            self.connection().await?.execute(sql, &[&Text(session), &state]).await?;
            Ok(())
        })
        .await
    }

    async fn has_bytes(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.run(|| async {
            let sql = "SELECT 1 FROM blobs WHERE digest = $1";
            Ok(self.connection().await?.query_opt(sql, &[&key]).await?.is_some())
        })
        .await
    }

    async fn copied_bytes(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(|| async {
            let connection = self.connection().await?;
            let row = connection.query_opt("SELECT size, object FROM blobs WHERE digest = $1", &[&key]).await?;
            let (Some(row), Ok(digest)) = (row, <&[u8; 32]>::try_from(key)) else { return Ok(None) };
            let place = Place::of(&row)?;
            self.read_bytes(connection, (digest, &place), (0, place.size)).await.map(Some)
        })
        .await
    }

    async fn write_bytes(&self, stored: StoredBytes) -> Result<(), StoreError> {
        let uploads = Uploads::of(self);
        self.run_repeatable(|| async {
            self.upload(std::slice::from_ref(&stored), &uploads).await?;
            let transaction = self.transaction().await?;
            insert_blobs(&transaction, std::slice::from_ref(&&stored), &uploads).await?;
            transaction.commit().await
        })
        .await
    }

    async fn delete_copied(&self, session: &str) -> Result<(), StoreError> {
        self.delete(session).await.map(drop)
    }

    /// Sets the last entry of the audit log, the next number of a plugin version, and the totals of plugins.
    async fn finish_common_tables(&self) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            let sql = "UPDATE audit_head h SET number = a.number, hash = a.hash
                       FROM (SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1) a WHERE h.number < a.number";
            transaction.execute(sql, &[]).await?;
            let sql = "SELECT setval(pg_get_serial_sequence('plugin_versions', 'number'),
                       (SELECT coalesce(max(number), 0) + 1 FROM plugin_versions), false)";
            transaction.query(sql, &[]).await?;
            rebuild_totals(&transaction).await?;
            transaction.commit().await
        })
        .await
    }
}

async fn write_row(
    transaction: &Transaction,
    (table, session): (&Table, &str),
    row: &CopiedRow,
) -> Result<(), Failure> {
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::new();
    let (session_text, mut extra) = (Text(session), Vec::<(&str, Box<dyn ToSql + Sync + Send>)>::new());
    if !session.is_empty() {
        values.push(&session_text);
    }
    values.extend(row.iter().map(|cell| cell as &(dyn ToSql + Sync)));
    match table.name {
        "outbox" => {
            let sql = "SELECT nextval('outbox_item_numbers')";
            let last: i64 = transaction.query_one(sql, &[]).await?.try_get(0)?;
            extra.push(("number", Box::new(last)));
        }
        "memories" => {
            let Cell::Text(text) = &row[table.position_of("text")] else { return Ok(()) };
            let WordCounts { words, counts, length } = WordCounts::of(text);
            extra.extend([
                ("words", Box::new(words) as Box<dyn ToSql + Sync + Send>),
                ("counts", Box::new(counts)),
                ("length", Box::new(length)),
            ]);
        }
        "key_values" => {
            let name = |position: usize| match &row[position] {
                Cell::Text(text) => text.as_str(),
                _ => "",
            };
            let hash = super::key_value::hash_of(&[name(0), name(1), name(2)]);
            extra.push(("bucket_hash", Box::new(hash)));
        }
        PERIOD_CHARGES => extra.push(("slot", Box::new(0_i64))),
        _ => {}
    }
    values.extend(extra.iter().map(|(_, value)| &**value as &(dyn ToSql + Sync)));
    let extra: Vec<&str> = extra.iter().map(|(name, _)| *name).collect();
    transaction.execute(&insertion(table, session, &extra), &values).await?;
    Ok(())
}

/// Returns the statement that inserts a row. Rows of sessions have the subject of the session as their first parameter.
fn insertion(table: &Table, session: &str, extra: &[&str]) -> String {
    if table.name == TRACE_EXPORTS {
        return "INSERT INTO trace_exports (session, event, record, turn_start)
                VALUES ($1, $2, CASE WHEN $3::bigint > 0 THEN coalesce((SELECT number FROM records WHERE session = $1
                    ORDER BY number LIMIT 1 OFFSET greatest($3::bigint - 1, 0)), 0) ELSE 0 END, $4)
                ON CONFLICT DO NOTHING"
            .to_owned();
    }
    let first = (!session.is_empty()).then_some("session");
    // The sums of amounts are expressions.
    let name_of = |name: &'static str| {
        name.strip_prefix("least(sum(").map_or(name, |rest| rest.split(')').next().unwrap_or(rest))
    };
    let columns = table.columns.iter().map(|column| name_of(column.postgres));
    let columns: Vec<&str> = first.into_iter().chain(columns).chain(extra.iter().copied()).collect();
    let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let (name, columns, places) = (table.name, columns.join(", "), places.join(", "));
    let overriding = if name == "plugin_versions" { "OVERRIDING SYSTEM VALUE" } else { "" };
    format!("INSERT INTO {name} ({columns}) {overriding} VALUES ({places}) ON CONFLICT DO NOTHING")
}

fn parameters(row: &CopiedRow) -> Vec<&(dyn ToSql + Sync)> {
    row.iter().map(|cell| cell as &(dyn ToSql + Sync)).collect()
}

/// Reads all columns of a row.
fn cells(row: &Row) -> Result<CopiedRow, Failure> {
    let cell = |(position, column): (usize, &tokio_postgres::Column)| {
        let found = match *column.type_() {
            Type::INT8 => value::<Option<i64>>(row, position)?.map(Cell::Integer),
            Type::INT4 => value::<Option<i32>>(row, position)?.map(|number| Cell::Integer(number.into())),
            Type::BOOL => value::<Option<bool>>(row, position)?.map(|truth| Cell::Integer(truth.into())),
            Type::BYTEA => value::<Option<Vec<u8>>>(row, position)?.map(Cell::Bytes),
            _ => super::text::optional_text(row, position)?.map(Cell::Text),
        };
        Ok(found.unwrap_or(Cell::Null))
    };
    row.columns().iter().enumerate().map(cell).collect()
}

impl ToSql for Cell {
    fn to_sql(&self, kind: &Type, buffer: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Integer(number) if *kind == Type::BOOL => (*number != 0).to_sql(kind, buffer),
            Cell::Integer(number) => number.to_sql(kind, buffer),
            Cell::Text(text) => Text(text).to_sql(kind, buffer),
            Cell::Bytes(bytes) => bytes.to_sql(kind, buffer),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::BOOL, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}
