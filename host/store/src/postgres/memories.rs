//! Long-term memories: a table with one row for each memory of a user, and the words of its text.

use super::PostgresStore;
use super::connections::{BEGIN_ASYNCHRONOUS_COMMIT, Connection};
use super::failure::Failure;
use super::queries::{NOW, small, value};
use super::search::{COUNTS_OF_QUERY, Candidate, WordCounts, best, query_words};
use super::text::{Text, list, optional, optional_text, text};
use crate::encoding::outbox::{MemoryDelivery, check_memory_size};
use crate::encoding::values::{invalid, rfc3339, signed, sql_limit};
use crate::{
    MAX_PAGE, Memories, Memory, MemoryFilter, MemoryKind, MemoryScope, StoreError, StoredMemory, StoredOutboxItem,
};
use agent_core::plugin::Recollection;
use async_trait::async_trait;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

#[async_trait]
impl Memories for PostgresStore {
    async fn add(&self, id: &str, memory: Memory) -> Result<(), StoreError> {
        let row = MemoryRow::new(id.to_owned(), memory)?;
        self.run_repeatable(|| async {
            let parameters = row.parameters();
            self.connection().await?.execute(&insert_memory("SELECT 1"), &by_reference(&parameters)).await?;
            Ok(())
        })
        .await
    }

    async fn remember(&self, item: &StoredOutboxItem) -> Result<(), StoreError> {
        let MemoryDelivery { id, memory, delivered_body, forget } = MemoryDelivery::of(item)?;
        let row = MemoryRow::new(id, memory)?;
        let deliver = deliver_memory();
        let session = Text(&item.session);
        let about_item: [Parameter<'_>; 5] = [
            Box::new(session),
            Box::new(signed(item.number)),
            Box::new(&delivered_body),
            Box::new(&forget.kind),
            Box::new(&forget.body),
        ];
        let parameters: Vec<_> = row.parameters().into_iter().chain(about_item).collect();
        self.run_repeatable(|| async {
            let transaction = self.unopened_transaction().await?;
            let written = async {
                transaction.prepare(&[BEGIN_DELIVERY, &deliver]).await?;
                let (key, parameters): ([&(dyn ToSql + Sync); 1], _) = ([&session], by_reference(&parameters));
                let locked = transaction.execute(BEGIN_DELIVERY, &key);
                let delivered = transaction.execute(&deliver, &parameters);
                tokio::try_join!(biased; transaction.open(BEGIN_ASYNCHRONOUS_COMMIT), locked, delivered)?;
                Ok(())
            };
            let result = written.await;
            transaction.end(result).await
        })
        .await
    }

    async fn search(&self, filter: &MemoryFilter, query: &str, limit: usize) -> Result<Vec<Recollection>, StoreError> {
        let words = query_words(query);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        self.run(|| async {
            let connection = self.connection().await?;
            let candidates = candidates(&connection, filter, &words).await?;
            recollections(&connection, best(candidates, limit.min(MAX_PAGE))).await
        })
        .await
    }

    async fn list(&self, user: &str, after: &str, limit: usize) -> Result<Vec<StoredMemory>, StoreError> {
        self.run(|| async {
            let sql = "SELECT id, user_name, kind, session, text, written, agent, turn, project FROM memories
                       WHERE user_name = $1 AND ($2 = '' OR
                           (written, number) < (SELECT written, number FROM memories WHERE id = $2))
                       ORDER BY written DESC, number DESC LIMIT $3";
            let rows = self.connection().await?.query(sql, &[&Text(user), &Text(after), &sql_limit(limit)]).await?;
            rows.iter().map(stored_memory).collect()
        })
        .await
    }

    async fn forget(&self, user: &str, id: &str) -> Result<bool, StoreError> {
        self.run(|| async {
            let sql = "DELETE FROM memories WHERE id = $1 AND user_name = $2";
            Ok(self.connection().await?.execute(sql, &[&Text(id), &Text(user)]).await? > 0)
        })
        .await
    }

    async fn forget_turn(&self, session: &str, turn: u32) -> Result<u64, StoreError> {
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            let deleted = async {
                transaction.execute(WAIT_FOR_DELIVERIES, &[&Text(session)]).await?;
                let sql = "DELETE FROM memories WHERE session = $1 AND turn = $2";
                transaction.execute(sql, &[&Text(session), &i64::from(turn)]).await
            };
            let result = deleted.await;
            transaction.end(result).await
        })
        .await
    }
}

type Parameter<'p> = Box<dyn ToSql + Send + Sync + 'p>;

fn by_reference<'p>(parameters: &'p [Parameter<'_>]) -> Vec<&'p (dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect()
}

/// A memory as it is stored, with its words.
struct MemoryRow {
    id: String,
    memory: Memory,
    turn: i64,
    /// Time in microseconds since 1970. `None` means the current time of the database.
    written: Option<i64>,
    words: WordCounts,
}

impl MemoryRow {
    fn new(id: String, memory: Memory) -> Result<Self, StoreError> {
        check_memory_size(&memory)?;
        let (written, words) = (written_time(&memory)?, WordCounts::of(&memory.text));
        Ok(Self { id, turn: i64::from(memory.turn), memory, written, words })
    }

    /// Returns the parameters of [`insert_memory`].
    fn parameters(&self) -> [Parameter<'_>; 12] {
        let Memory { user, kind, session, text, agent, project, .. } = &self.memory;
        let WordCounts { words, counts, length } = &self.words;
        [
            Box::new(Text(&self.id)),
            Box::new(Text(user)),
            Box::new(kind.as_str()),
            Box::new(Text(session)),
            Box::new(Text(text)),
            Box::new(self.written),
            Box::new(Text(agent)),
            Box::new(self.turn),
            Box::new(optional(project.as_deref())),
            Box::new(length),
            Box::new(words),
            Box::new(counts),
        ]
    }
}

/// Inserts a memory for the row of a query, and nothing if the query finds no row. 12 parameters.
fn insert_memory(for_row: &str) -> String {
    format!(
        "INSERT INTO memories (id, user_name, kind, session, text, written, agent, turn, project, length, words, counts)
         SELECT $1::text, $2::text, $3::text, $4::text, $5::text, coalesce($6::bigint, {NOW}), $7::text, $8::bigint, $9::text,
             $10::bigint, $11::text[], $12::int[] FROM ({for_row}) AS item
         ON CONFLICT (id) DO NOTHING"
    )
}

/// Locks the session against [`WAIT_FOR_DELIVERIES`] until the memory is added. Commits of the session do not wait for this lock,
/// because they would otherwise wait until the memory is durable.
const BEGIN_DELIVERY: &str = "SELECT 1 FROM sessions WHERE session = $1 FOR KEY SHARE";

/// Waits until the deliveries that have begun have added their memories. A delivery that begins later sees the item that forgets
/// the turn, because this item was committed before it is carried out.
const WAIT_FOR_DELIVERIES: &str = "SELECT 1 FROM sessions WHERE session = $1 FOR UPDATE";

/// Records the delivery of an outbox item, and inserts its memory unless a later item forgets the turn.
fn deliver_memory() -> String {
    let delivered = format!(
        "WITH delivered AS (UPDATE outbox SET delivered = {NOW}, body = $15
             WHERE session = $13 AND number = $14 AND delivered IS NULL AND kind = 'remember' RETURNING 1) "
    );
    let is_kept = "SELECT 1 FROM delivered WHERE NOT EXISTS (SELECT 1 FROM outbox later
                       WHERE later.session = $13 AND later.number > $14 AND later.kind = $16 AND later.body = $17)";
    delivered + &insert_memory(is_kept)
}

/// Maximum number of memories that one query ranks. The time of a search must not grow with the number of a user's memories.
const CANDIDATES: usize = 200;
/// Maximum number of queries of one search.
const MAX_QUERIES: usize = 3;
/// A word is common if more than one in this number of memories contains it.
const COMMON: usize = 4;

/// Returns the memories to rank: the newest memories that contain any of the words, and, if there are too many, also the newest
/// memories that contain any of the rarer words. So an old memory with a rare word is found, however many new memories
/// contain a common word.
async fn candidates(
    connection: &Connection,
    filter: &MemoryFilter,
    words: &[String],
) -> Result<Vec<Candidate<String>>, Failure> {
    let mut required: Vec<&String> = words.iter().collect();
    let mut found: Vec<Candidate<String>> = Vec::new();
    for _ in 0..MAX_QUERIES {
        let newest = newest(connection, filter, (words, &required)).await?;
        let is_complete = newest.len() < CANDIDATES;
        let is_rare = |word: &&String| {
            let position = words.iter().position(|known| known == *word);
            let contains = |memory: &&Candidate<String>| position.and_then(|word| memory.counts.get(word)) > Some(&0);
            newest.iter().filter(contains).count() * COMMON <= newest.len()
        };
        let rare: Vec<&String> = required.iter().copied().filter(is_rare).collect();
        let known: HashSet<String> = found.iter().map(|memory| memory.key.clone()).collect();
        found.extend(newest.into_iter().filter(|memory| !known.contains(&memory.key)));
        if is_complete || rare.is_empty() || rare.len() == required.len() {
            break;
        }
        required = rare;
    }
    Ok(found)
}

/// Returns the newest memories that contain any of the required words, with the number of occurrences of all words.
async fn newest(
    connection: &Connection,
    filter: &MemoryFilter,
    (words, required): (&[String], &[&String]),
) -> Result<Vec<Candidate<String>>, Failure> {
    let (condition, agent) = match &filter.scope {
        MemoryScope::AllAgents => ("$4::text IS NULL", None),
        MemoryScope::OwnAndOtherResults(agent) => ("(m.kind <> 'tool' OR m.agent = $4)", Some(agent)),
        MemoryScope::OwnOnly(agent) => ("m.agent = $4", Some(agent)),
    };
    let sql = format!(
        "SELECT w.id, w.length, {COUNTS_OF_QUERY} FROM
             (SELECT m.id, m.length, m.words, m.counts FROM memories m
              WHERE m.words && $7 AND m.user_name = $2 AND {condition} AND ($5::text IS NULL OR m.session <> $5)
                  AND ($6::text IS NULL OR m.project IS NULL OR m.project = $6)
              ORDER BY m.written DESC, m.number DESC LIMIT $3) w"
    );
    let MemoryFilter { user, project, excluded_session, .. } = filter;
    let (agent, excluded) = (optional(agent.map(String::as_str)), optional(excluded_session.as_deref()));
    let project = optional(project.as_deref());
    let (words, required) = (list(words), list(required.iter().copied()));
    let limit = sql_limit(CANDIDATES);
    let parameters: [&(dyn ToSql + Sync); 7] = [&words, &Text(user), &limit, &agent, &excluded, &project, &required];
    let rows = connection.query(&sql, &parameters).await?;
    let read = |row: &Row| Ok(Candidate { key: text(row, 0)?, length: value(row, 1)?, counts: value(row, 2)? });
    rows.iter().map(read).collect()
}

async fn recollections(connection: &Connection, found: Vec<(String, f32)>) -> Result<Vec<Recollection>, Failure> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let ids = list(found.iter().map(|(id, _)| id));
    let rows = connection.query("SELECT id, text, written FROM memories WHERE id = ANY($1)", &[&ids]).await?;
    let read = |row: &Row| Ok((text(row, 0)?, (text(row, 1)?, rfc3339(value(row, 2)?)?)));
    let mut memories = rows.iter().map(read).collect::<Result<HashMap<_, _>, Failure>>()?;
    let recollections = found.into_iter().filter_map(|(id, score)| {
        // A memory may have been removed in the meantime.
        let (text, written) = memories.remove(&id)?;
        Some(Recollection { id, text, written, score })
    });
    Ok(recollections.collect())
}

/// Returns the time of a memory. `None` means the current time of the database.
fn written_time(memory: &Memory) -> Result<Option<i64>, StoreError> {
    let parse = |text: &String| {
        let time = text.parse::<Timestamp>().map(Timestamp::as_microsecond);
        time.map_err(|error| invalid("a memory", format!("its time `{text}` is invalid: {error}")))
    };
    memory.written.as_ref().map(parse).transpose()
}

fn stored_memory(row: &Row) -> Result<StoredMemory, Failure> {
    let kind: &str = value(row, 2)?;
    let kind = [MemoryKind::Tool, MemoryKind::Final, MemoryKind::Limit]
        .into_iter()
        .find(|candidate| candidate.as_str() == kind);
    let memory = Memory {
        user: text(row, 1)?,
        kind: kind.ok_or_else(|| Failure::Unreadable("a memory has an unknown kind".to_owned()))?,
        session: text(row, 3)?,
        agent: text(row, 6)?,
        turn: small(row, 7)?,
        project: optional_text(row, 8)?,
        text: text(row, 4)?,
        written: Some(rfc3339(value(row, 5)?)?),
    };
    Ok(StoredMemory { id: text(row, 0)?, memory })
}
