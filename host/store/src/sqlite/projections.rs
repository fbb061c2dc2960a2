//! Projections beside the tables that they are made from. The indexes of words hold no text: a checksum of the words and
//! places of each row stands for it, so that neither is ever held whole.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, message, signed, unsigned};
use super::search::{self, Progress, text_of};
use super::writer::Effort;
use crate::{Comparison, Projection, Projections, ReadStatus, Rebuilt, Status, StoreError};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rows whose words are compared at once.
const STRIDE: usize = 256;

/// Differences that are told.
const EXAMPLES: usize = 5;

/// Both indexes, as the first migration made them.
const WORDS: &str = "text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'";

#[async_trait]
impl Projections for SqliteStore {
    async fn check_projections(&self, read: ReadStatus) -> Result<Vec<Comparison>, StoreError> {
        self.read(move |connection| {
            // Temporary tables only: the database itself is not written to.
            connection.pragma_update(None, "query_only", "OFF")?;
            let compared =
                [compare_messages(connection)?, compare_memories(connection)?, compare_sessions(connection, read)?];
            if connection.path().is_some_and(|path| !path.is_empty()) {
                connection.pragma_update(None, "query_only", "ON")?;
            }
            Ok(compared.into())
        })
        .await
    }

    async fn rebuild_projections(&self, read: ReadStatus) -> Result<Vec<Rebuilt>, StoreError> {
        self.write(Effort::Long, move |connection| {
            let (messages, memories) = (rebuild_messages(connection)?, rebuild_memories(connection)?);
            let sessions = rebuild_sessions(connection, read)?;
            let rebuilt = [
                (Projection::MessageWords, messages),
                (Projection::MemoryWords, memories),
                (Projection::Sessions, sessions),
            ];
            Ok(rebuilt.map(|(projection, made_from)| Rebuilt { projection, made_from }).into())
        })
        .await
    }
}

/// What differs so far.
struct Differences {
    projection: Projection,
    compared: u64,
    pending: u64,
    different: u64,
    examples: Vec<String>,
}

impl Differences {
    fn of(projection: Projection) -> Self {
        Self { projection, compared: 0, pending: 0, different: 0, examples: Vec::new() }
    }

    fn add(&mut self, what: impl FnOnce() -> Result<String, Failure>) -> Result<(), Failure> {
        self.different += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(what()?);
        }
        Ok(())
    }

    fn done(self) -> Comparison {
        let Self { projection, compared, pending, different, examples } = self;
        Comparison { projection, compared, pending, different, examples }
    }
}

/// Checksums by row, of the words and their places.
type Sums = BTreeMap<i64, u64>;

/// The words of an index as they are; what is wrong where it cannot be read.
fn words_in(connection: &Connection, index: &str) -> Result<Result<Sums, String>, Failure> {
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.words_of_{index};
         CREATE VIRTUAL TABLE temp.words_of_{index} USING fts5vocab(main, {index}, instance);"
    ))?;
    let sums = sums(connection, &format!("temp.words_of_{index}"));
    connection.execute_batch(&format!("DROP TABLE temp.words_of_{index}"))?;
    Ok(sums.map_err(|error| error.to_string()))
}

/// The order in which words come does not count.
fn sums(connection: &Connection, vocabulary: &str) -> rusqlite::Result<Sums> {
    let mut sums = Sums::new();
    let mut statement = connection.prepare(&format!("SELECT doc, term, offset FROM {vocabulary}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let mut hasher = DefaultHasher::new();
        (row.get_ref(1)?.as_str()?, row.get::<_, i64>(2)?).hash(&mut hasher);
        let sum: &mut u64 = sums.entry(row.get(0)?).or_default();
        *sum = sum.wrapping_add(hasher.finish());
    }
    Ok(sums)
}

/// An index of its own, which says what words some texts have.
struct Tokenizer(Connection);

impl Tokenizer {
    fn new() -> Result<Self, Failure> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(&format!(
            "CREATE VIRTUAL TABLE words USING fts5 ({WORDS});
             CREATE VIRTUAL TABLE words_of USING fts5vocab(words, instance);"
        ))?;
        Ok(Self(connection))
    }

    fn sums(&self, texts: &[(i64, String)]) -> Result<Sums, Failure> {
        let mut insert = self.0.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?;
        for (number, text) in texts {
            insert.execute(params![number, text])?;
        }
        let sums = sums(&self.0, "words_of")?;
        self.0.execute("INSERT INTO words (words) VALUES ('delete-all')", [])?;
        Ok(sums)
    }
}

/// Texts behind a row, by row, at most [`STRIDE`] of them.
type Texts<'t> = &'t dyn Fn(i64) -> Result<Vec<(i64, String)>, Failure>;

/// Compares an index with the texts that it is made from.
fn compare_words(
    connection: &Connection,
    (projection, index): (Projection, &str),
    texts: Texts<'_>,
    name: &dyn Fn(i64) -> Result<String, Failure>,
) -> Result<Comparison, Failure> {
    let mut differences = Differences::of(projection);
    let (mut found, unreadable) = match words_in(connection, index)? {
        Ok(found) => (found, None),
        Err(problem) => (Sums::new(), Some(problem)),
    };
    if let Some(problem) = &unreadable {
        differences.add(|| Ok(format!("the index cannot be read: {problem}")))?;
    }
    let (tokenizer, mut last) = (Tokenizer::new()?, 0);
    loop {
        let texts = texts(last)?;
        let Some((end, _)) = texts.last() else { break };
        last = *end;
        differences.compared += texts.len() as u64;
        let expected = tokenizer.sums(&texts)?;
        for (number, _) in texts.iter().filter(|_| unreadable.is_none()) {
            if found.remove(number) != expected.get(number).copied() {
                differences.add(|| name(*number))?;
            }
        }
    }
    for number in found.keys() {
        differences.add(|| Ok(format!("words of row {number}, which it should not have")))?;
    }
    Ok(differences.done())
}

fn compare_messages(connection: &Connection) -> Result<Comparison, Failure> {
    let progress = connection.query_row("SELECT number FROM message_words_progress", [], |row| row.get(0));
    let known: i64 = progress.optional()?.unwrap_or(0);
    let sql = format!(
        "SELECT m.number, {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
         WHERE m.number > ?1 AND m.number <= ?2 ORDER BY m.number LIMIT ?3"
    );
    let texts = |last: i64| {
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![last, known, STRIDE as i64])?;
        let mut texts = Vec::new();
        while let Some(row) = rows.next()? {
            texts.push((row.get(0)?, text_of(&message(row, 1)?)));
        }
        Ok(texts)
    };
    let name = |number: i64| {
        let sql = "SELECT s.subject, m.id FROM messages m JOIN sessions s ON s.id = m.session WHERE m.number = ?1";
        let place = connection.query_row(sql, [number], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
        Ok(format!("message {} of session {}", place.1, place.0))
    };
    let compared = compare_words(connection, (Projection::MessageWords, "message_words"), &texts, &name)?;
    let sql = "SELECT count(*) FROM messages WHERE number > ?1";
    let pending = connection.query_row(sql, [known], |row| row.get(0)).map(unsigned)?;
    Ok(Comparison { pending, ..compared })
}

fn compare_memories(connection: &Connection) -> Result<Comparison, Failure> {
    let texts = |last: i64| {
        let sql = "SELECT number, text FROM memories WHERE number > ?1 ORDER BY number LIMIT ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![last, STRIDE as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let name = |number: i64| {
        let sql = "SELECT id FROM memories WHERE number = ?1";
        Ok(format!("memory {}", connection.query_row(sql, [number], |row| row.get::<_, String>(0))?))
    };
    compare_words(connection, (Projection::MemoryWords, "memory_words"), &texts, &name)
}

/// A session's row, and what it should be.
struct Listed {
    number: i64,
    subject: String,
    is: Row,
    should_be: Row,
}

#[derive(Debug, PartialEq)]
struct Row {
    state: String,
    turns: u32,
    last_message: u64,
    last_event: u64,
}

fn listed(connection: &Connection, read: ReadStatus) -> Result<Vec<Listed>, Failure> {
    let sql = "SELECT s.id, s.subject, s.state, s.turns, s.last_message, s.last_event, p.run,
               (SELECT coalesce(max(m.id), 0) FROM messages m WHERE m.session = s.id),
               (SELECT coalesce(max(e.sequence), 0) FROM events e WHERE e.session = s.id)
               FROM sessions s LEFT JOIN snapshots p ON p.session = s.id ORDER BY s.id";
    super::queries::collect(connection, sql, [], |row| {
        let number = |column| row.get::<_, i64>(column).map(unsigned);
        let (state, turns): (String, u32) = (row.get(2)?, row.get(3)?);
        let run: Option<Vec<u8>> = row.get(6)?;
        let known = run.and_then(|run| read(&run));
        let Status { state: told, turn, .. } =
            known.unwrap_or_else(|| Status { state: state.clone(), turn: turns, title: None });
        Ok(Listed {
            number: row.get(0)?,
            subject: row.get(1)?,
            is: Row { state, turns, last_message: number(4)?, last_event: number(5)? },
            should_be: Row { state: told, turns: turn, last_message: number(7)?, last_event: number(8)? },
        })
    })
}

fn compare_sessions(connection: &Connection, read: ReadStatus) -> Result<Comparison, Failure> {
    let mut differences = Differences::of(Projection::Sessions);
    for Listed { subject, is, should_be, .. } in listed(connection, read)? {
        differences.compared += 1;
        if is != should_be {
            differences.add(|| Ok(format!("session {subject} says {is}, and its log {should_be}")))?;
        }
    }
    Ok(differences.done())
}

impl std::fmt::Display for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { state, turns, last_message, last_event } = self;
        write!(formatter, "{state}, {turns} turns, {last_message} messages, {last_event} events")
    }
}

fn rebuild_messages(connection: &Connection) -> Result<u64, Failure> {
    recreate(connection, "message_words")?;
    connection.execute("INSERT OR REPLACE INTO message_words_progress VALUES (1, 0)", [])?;
    while search::index_some(connection)? == Progress::Indexed {}
    count(connection, "messages")
}

fn rebuild_memories(connection: &Connection) -> Result<u64, Failure> {
    recreate(connection, "memory_words")?;
    connection.execute("INSERT INTO memory_words (rowid, text) SELECT number, text FROM memories", [])?;
    count(connection, "memories")
}

/// An index that is damaged in itself cannot be emptied.
fn recreate(connection: &Connection, index: &str) -> Result<(), Failure> {
    Ok(connection
        .execute_batch(&format!("DROP TABLE IF EXISTS {index}; CREATE VIRTUAL TABLE {index} USING fts5 ({WORDS});"))?)
}

fn rebuild_sessions(connection: &Connection, read: ReadStatus) -> Result<u64, Failure> {
    let listed = listed(connection, read)?;
    for Listed { number, should_be, .. } in listed.iter().filter(|listed| listed.is != listed.should_be) {
        let sql = "UPDATE sessions SET state = ?2, turns = ?3, last_message = ?4, last_event = ?5 WHERE id = ?1";
        let Row { state, turns, last_message, last_event } = should_be;
        connection.execute(sql, params![number, state, turns, signed(*last_message), signed(*last_event)])?;
    }
    Ok(listed.len() as u64)
}

fn count(connection: &Connection, table: &str) -> Result<u64, Failure> {
    Ok(connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).map(unsigned)?)
}
