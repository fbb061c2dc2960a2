//! Long-term memories: a table with one row for each memory of a user, and a full-text index of the words in memories.

use super::SqliteStore;
use super::failure::{Failure, invalid};
use super::queries::{collect, now, rfc3339, signed, sql_limit};
use super::search::{RequiredWords, match_expression};
use super::writer::Effort;
use crate::encoding::outbox::{MemoryDelivery, check_memory_size};
use crate::encoding::search::{score, words};
use crate::{Memories, Memory, MemoryFilter, MemoryKind, MemoryScope, StoreError, StoredMemory, StoredOutboxItem};
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl Memories for SqliteStore {
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError> {
        check_memory_size(&memory)?;
        let written = written_time(&memory)?;
        let id = id.to_owned();
        self.write(Effort::Long, move |connection| insert(connection, &id, &memory, written)).await
    }

    async fn remember(&self, item: &StoredOutboxItem) -> Result<(), StoreError> {
        let MemoryDelivery { id, memory, delivered_body, forget } = MemoryDelivery::of(item)?;
        let written = written_time(&memory)?;
        let number = signed(item.number);
        self.write(Effort::Long, move |connection| {
            let sql = "UPDATE outbox SET delivered = ?2, body = ?3
                       WHERE number = ?1 AND delivered IS NULL AND kind = 'remember'";
            if connection.prepare_cached(sql)?.execute(params![number, now(), delivered_body])? == 0 {
                return Ok(());
            }
            let sql = "SELECT 1 FROM outbox item JOIN outbox later ON later.session = item.session
                       WHERE item.number = ?1 AND later.number > ?1 AND later.kind = ?2 AND later.body = ?3";
            let is_undone = connection.prepare_cached(sql)?.exists(params![number, forget.kind, forget.body])?;
            if is_undone { Ok(()) } else { insert(connection, &id, &memory, written) }
        })
        .await
    }

    async fn search(&self, filter: &MemoryFilter, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError> {
        let words = words(query);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let (filter, expression) = (filter.clone(), match_expression(&words, RequiredWords::Any));
        self.read(move |connection| {
            let (condition, agent) = match &filter.scope {
                MemoryScope::AllAgents => ("?4 IS NULL", None),
                MemoryScope::OwnAndOtherResults(agent) => ("(m.kind <> 'tool' OR m.agent = ?4)", Some(agent)),
                MemoryScope::OwnOnly(agent) => ("m.agent = ?4", Some(agent)),
            };
            let sql = format!(
                "SELECT m.id, m.text, m.written, w.rank FROM memory_words w
                 JOIN memories m ON m.number = w.rowid
                 WHERE memory_words MATCH ?1 AND m.user = ?2 AND {condition} AND (?5 IS NULL OR m.session <> ?5)
                     AND (?6 IS NULL OR m.project IS NULL OR m.project = ?6)
                 ORDER BY w.rank, m.number DESC LIMIT ?3"
            );
            let MemoryFilter { user, project, excluded_session, .. } = &filter;
            let parameters = params![expression, user, sql_limit(limit), agent, excluded_session, project];
            collect(connection, &sql, parameters, |row| {
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

    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<StoredMemory>, StoreError> {
        let (user, after) = (user.to_owned(), after.to_owned());
        self.read(move |connection| {
            let sql = "SELECT id, user, kind, session, text, written, agent, turn, project FROM memories
                       WHERE user = ?1 AND (?2 = '' OR
                           (written, number) < (SELECT written, number FROM memories WHERE id = ?2))
                       ORDER BY written DESC, number DESC LIMIT ?3";
            collect(connection, sql, params![user, after, sql_limit(limit)], stored_memory)
        })
        .await
    }

    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError> {
        let (user, id) = (user.to_owned(), id.to_owned());
        let forgotten = self.write(Effort::Long, move |connection| {
            let number: Option<i64> = connection
                .prepare_cached("DELETE FROM memories WHERE id = ?1 AND user = ?2 RETURNING number")?
                .query_row([&id, &user], |row| row.get(0))
                .optional()?;
            remove_words(connection, number.as_slice())?;
            Ok(number.is_some())
        });
        let forgotten = forgotten.await?;
        self.empty_log().await;
        Ok(forgotten)
    }

    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError> {
        let session = session.to_owned();
        self.write(Effort::Long, move |connection| {
            let sql = "DELETE FROM memories WHERE session = ?1 AND turn = ?2 RETURNING number";
            let numbers = collect(connection, sql, params![session, turn], |row| Ok(row.get(0)?))?;
            remove_words(connection, &numbers)
        })
        .await
    }
}

/// Removes the memories of a session and returns the number of removed memories.
pub(super) fn forget_session(connection: &Connection, session: &str) -> Result<u64, Failure> {
    let sql = "DELETE FROM memories WHERE session = ?1 RETURNING number";
    let numbers = collect(connection, sql, [session], |row| Ok(row.get(0)?))?;
    remove_words(connection, &numbers)
}

/// Removes memories from the full-text index and returns their number. Merging the index afterwards removes the data of
/// entries that SQLite has only marked as deleted.
fn remove_words(connection: &Connection, numbers: &[i64]) -> Result<u64, Failure> {
    for number in numbers {
        connection.prepare_cached("DELETE FROM memory_words WHERE rowid = ?1")?.execute([number])?;
    }
    if !numbers.is_empty() {
        connection.execute("INSERT INTO memory_words (memory_words) VALUES ('optimize')", [])?;
    }
    Ok(numbers.len() as u64)
}

fn insert(connection: &Connection, id: &str, memory: &Memory, written: i64) -> Result<(), Failure> {
    let sql = "INSERT INTO memories (id, user, kind, session, text, written, agent, turn, project)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING";
    let Memory { user, kind, session, text, agent, turn, project, .. } = memory;
    let parameters = params![id, user, kind.as_str(), session, text, written, agent, turn, project];
    if connection.prepare_cached(sql)?.execute(parameters)? == 1 {
        let number = connection.last_insert_rowid();
        connection
            .prepare_cached("INSERT INTO memory_words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![number, text])?;
    }
    Ok(())
}

fn written_time(memory: &Memory) -> Result<i64, StoreError> {
    match &memory.written {
        None => Ok(now()),
        Some(text) => text
            .parse::<Timestamp>()
            .map(Timestamp::as_microsecond)
            .map_err(|error| invalid("a memory", format!("its time `{text}` is invalid: {error}"))),
    }
}

fn stored_memory(row: &Row<'_>) -> Result<StoredMemory, Failure> {
    let kind: String = row.get(2)?;
    let kind = [MemoryKind::Tool, MemoryKind::Final, MemoryKind::Limit]
        .into_iter()
        .find(|candidate| candidate.as_str() == kind);
    let memory = Memory {
        user: row.get(1)?,
        kind: kind.ok_or_else(|| Failure::Unreadable("a memory has an unknown kind".to_owned()))?,
        session: row.get(3)?,
        agent: row.get(6)?,
        turn: row.get(7)?,
        project: row.get(8)?,
        text: row.get(4)?,
        written: Some(rfc3339(row.get(5)?)?),
    };
    Ok(StoredMemory { id: row.get(0)?, memory })
}
