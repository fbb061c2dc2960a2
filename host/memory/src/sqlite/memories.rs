//! Long-term memory: rows by user, and an index of their words.

use super::SqliteStore;
use super::failure::{Failure, invalid};
use super::queries::{collect, now, page, rfc3339};
use super::search::{Match, expression, score, words};
use super::writer::Effort;
use crate::{MAX_MEMORY_BYTES, Memories, Memory, MemoryKind, RememberedFact, StoreError};
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

#[async_trait]
impl Memories for SqliteStore {
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError> {
        if memory.text.len() > MAX_MEMORY_BYTES {
            let (size, limit) = (memory.text.len() as u64, MAX_MEMORY_BYTES as u64);
            return Err(StoreError::TooLarge { what: "a memory".to_owned(), size, limit });
        }
        let written = written(&memory)?;
        let id = id.to_owned();
        self.write(Effort::Long, move |connection| {
            let sql = "INSERT INTO memories (id, user, kind, session, text, written) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                       ON CONFLICT (id) DO NOTHING";
            let Memory { user, kind, session, text, .. } = &memory;
            let parameters = params![id, user, kind.as_str(), session, text, written];
            if connection.prepare_cached(sql)?.execute(parameters)? == 1 {
                let number = connection.last_insert_rowid();
                connection
                    .prepare_cached("INSERT INTO memory_words (rowid, text) VALUES (?1, ?2)")?
                    .execute(params![number, text])?;
            }
            Ok(())
        })
        .await
    }

    async fn search(&self, user: &str, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError> {
        let words = words(query);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let (user, expression) = (user.to_owned(), expression(&words, Match::Any));
        self.read(move |connection| {
            let sql = "SELECT m.id, m.text, m.written, w.rank FROM memory_words w
                       JOIN memories m ON m.number = w.rowid
                       WHERE memory_words MATCH ?1 AND m.user = ?2 ORDER BY w.rank, m.number DESC LIMIT ?3";
            collect(connection, sql, params![expression, user, page(limit)], |row| {
                Ok(Recollection {
                    id: row.get(0)?,
                    text: row.get(1)?,
                    written: rfc3339(row.get(2)?)?,
                    score: score(row.get(3)?),
                })
            })
        })
        .await
    }

    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<RememberedFact>, StoreError> {
        let (user, after) = (user.to_owned(), after.to_owned());
        self.read(move |connection| {
            let sql = "SELECT id, user, kind, session, text, written FROM memories
                       WHERE user = ?1 AND (?2 = '' OR
                           (written, number) < (SELECT written, number FROM memories WHERE id = ?2))
                       ORDER BY written DESC, number DESC LIMIT ?3";
            collect(connection, sql, params![user, after, page(limit)], fact)
        })
        .await
    }

    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.write(Effort::Long, move |connection| {
            let number: Option<i64> = connection
                .prepare_cached("DELETE FROM memories WHERE id = ?1 AND user = ?2 RETURNING number")?
                .query_row([id, user], |row| row.get(0))
                .optional()?;
            if let Some(number) = number {
                connection.prepare_cached("DELETE FROM memory_words WHERE rowid = ?1")?.execute([number])?;
            }
            Ok(number.is_some())
        })
        .await
    }
}

fn written(memory: &Memory) -> Result<i64, StoreError> {
    match &memory.written {
        None => Ok(now()),
        Some(text) => text
            .parse::<Timestamp>()
            .map(Timestamp::as_microsecond)
            .map_err(|error| invalid("a memory", format!("its time `{text}`: {error}"))),
    }
}

fn fact(row: &Row<'_>) -> Result<RememberedFact, Failure> {
    let kind: String = row.get(2)?;
    let kind =
        [MemoryKind::Tool, MemoryKind::Final, MemoryKind::Limit].into_iter().find(|known| known.as_str() == kind);
    let memory = Memory {
        user: row.get(1)?,
        kind: kind.ok_or_else(|| Failure::Unreadable("a memory of no known kind".to_owned()))?,
        session: row.get(3)?,
        text: row.get(4)?,
        written: Some(rfc3339(row.get(5)?)?),
    };
    Ok(RememberedFact { id: row.get(0)?, memory })
}
