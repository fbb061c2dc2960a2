//! Compares projections with the tables from which the projections are derived. A full-text index does not contain the
//! indexed texts, so the comparison uses a checksum over the words of each row and the positions of these words.
//! Because of the checksums, the comparison needs little memory.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, message, signed, unsigned};
use super::search::{self, Progress};
use super::usage::{self, TurnKey};
use super::writer::Effort;
use crate::encoding::search::searchable_text;
use crate::{Projection, ProjectionComparison, Projections, RebuiltProjection, StatusReader, StoreError};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of rows whose words are compared in one step.
const ROWS_PER_STEP: usize = 256;

/// Maximum number of differences that the result of a comparison describes.
const MAX_DESCRIBED_DIFFERENCES: usize = 5;

/// Definition of the full-text index of messages and of the full-text index of memories. The first migration contains
/// the same definition.
const INDEX_DEFINITION: &str = "text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'";

#[async_trait]
impl Projections for SqliteStore {
    async fn check_projections(&self, read: StatusReader) -> Result<Vec<ProjectionComparison>, StoreError> {
        self.read(move |connection| {
            // Allow writes on the connection, because the comparison creates temporary tables. The database itself is
            // not changed.
            connection.pragma_update(None, "query_only", "OFF")?;
            let compared = [
                compare_messages(connection)?,
                compare_memories(connection)?,
                compare_sessions(connection, read)?,
                compare_usage(connection, read)?,
            ];
            if connection.path().is_some_and(|path| !path.is_empty()) {
                connection.pragma_update(None, "query_only", "ON")?;
            }
            Ok(compared.into())
        })
        .await
    }

    async fn rebuild_projections(&self, read: StatusReader) -> Result<Vec<RebuiltProjection>, StoreError> {
        self.write(Effort::Long, move |connection| {
            let (messages, memories) = (rebuild_messages(connection)?, rebuild_memories(connection)?);
            // The usage is rebuilt first, because it depends on the numbers of turns in the session list.
            let usage = rebuild_usage(connection, read)?;
            let sessions = rebuild_sessions(connection, read)?;
            let rebuilt = [
                (Projection::MessageWords, messages),
                (Projection::MemoryWords, memories),
                (Projection::Sessions, sessions),
                (Projection::Usage, usage),
            ];
            Ok(rebuilt.map(|(projection, made_from)| RebuiltProjection { projection, made_from }).into())
        })
        .await
    }
}

/// The differences that a running comparison has found so far.
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
        if self.examples.len() < MAX_DESCRIBED_DIFFERENCES {
            self.examples.push(what()?);
        }
        Ok(())
    }

    fn into_comparison(self) -> ProjectionComparison {
        let Self { projection, compared, pending, different, examples } = self;
        ProjectionComparison { projection, compared, pending, different, examples }
    }
}

/// For each row number, the checksum of the row's words and their positions.
type Checksums = BTreeMap<i64, u64>;

/// Returns the checksums of an index. If the index cannot be read, the inner result is an error that describes
/// the problem.
fn index_checksums(connection: &Connection, index: &str) -> Result<Result<Checksums, String>, Failure> {
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.words_of_{index};
         CREATE VIRTUAL TABLE temp.words_of_{index} USING fts5vocab(main, {index}, instance);"
    ))?;
    let sums = word_checksums(connection, &format!("temp.words_of_{index}"));
    connection.execute_batch(&format!("DROP TABLE temp.words_of_{index}"))?;
    Ok(sums.map_err(|error| error.to_string()))
}

/// Computes the checksums of all rows in a full-text index. The order of the words does not matter, because the hashes
/// of the words are added up.
fn word_checksums(connection: &Connection, vocabulary: &str) -> rusqlite::Result<Checksums> {
    let mut sums = Checksums::new();
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

/// Splits texts into words in the same way as the stored full-text indexes, by adding the texts to an index in memory.
struct Tokenizer(Connection);

impl Tokenizer {
    fn new() -> Result<Self, Failure> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(&format!(
            "CREATE VIRTUAL TABLE words USING fts5 ({INDEX_DEFINITION});
             CREATE VIRTUAL TABLE words_of USING fts5vocab(words, instance);"
        ))?;
        Ok(Self(connection))
    }

    fn checksums(&self, texts: &[(i64, String)]) -> Result<Checksums, Failure> {
        let mut insert = self.0.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?;
        for (number, text) in texts {
            insert.execute(params![number, text])?;
        }
        let sums = word_checksums(&self.0, "words_of")?;
        self.0.execute("INSERT INTO words (words) VALUES ('delete-all')", [])?;
        Ok(sums)
    }
}

/// A function that returns the texts of up to [`ROWS_PER_STEP`] rows, starting after the row with the given number.
type Texts<'t> = &'t dyn Fn(i64) -> Result<Vec<(i64, String)>, Failure>;

/// Compares a full-text index with the texts from which the index was built.
fn compare_words(
    connection: &Connection,
    (projection, index): (Projection, &str),
    texts: Texts<'_>,
    name: &dyn Fn(i64) -> Result<String, Failure>,
) -> Result<ProjectionComparison, Failure> {
    let mut differences = Differences::of(projection);
    let (mut found, unreadable) = match index_checksums(connection, index)? {
        Ok(found) => (found, None),
        Err(problem) => (Checksums::new(), Some(problem)),
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
        let expected = tokenizer.checksums(&texts)?;
        for (number, _) in texts.iter().filter(|_| unreadable.is_none()) {
            if found.remove(number) != expected.get(number).copied() {
                differences.add(|| name(*number))?;
            }
        }
    }
    for number in found.keys() {
        differences.add(|| Ok(format!("the index contains unexpected words for row {number}")))?;
    }
    Ok(differences.into_comparison())
}

fn compare_messages(connection: &Connection) -> Result<ProjectionComparison, Failure> {
    let progress = connection.query_row("SELECT number FROM message_words_progress", [], |row| row.get(0));
    let last_indexed: i64 = progress.optional()?.unwrap_or(0);
    let sql = format!(
        "SELECT m.number, {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
         WHERE m.number > ?1 AND m.number <= ?2 ORDER BY m.number LIMIT ?3"
    );
    let texts = |last: i64| {
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![last, last_indexed, ROWS_PER_STEP as i64])?;
        let mut texts = Vec::new();
        while let Some(row) = rows.next()? {
            texts.push((row.get(0)?, searchable_text(&message(row, 1)?)));
        }
        Ok(texts)
    };
    let name = |number: i64| {
        let sql = "SELECT s.subject, m.id FROM messages m JOIN sessions s ON s.id = m.session WHERE m.number = ?1";
        let location =
            connection.query_row(sql, [number], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
        Ok(format!("message {} of session {}", location.1, location.0))
    };
    let compared = compare_words(connection, (Projection::MessageWords, "message_words"), &texts, &name)?;
    let sql = "SELECT count(*) FROM messages WHERE number > ?1";
    let pending = connection.query_row(sql, [last_indexed], |row| row.get(0)).map(unsigned)?;
    Ok(ProjectionComparison { pending, ..compared })
}

fn compare_memories(connection: &Connection) -> Result<ProjectionComparison, Failure> {
    let texts = |last: i64| {
        let sql = "SELECT number, text FROM memories WHERE number > ?1 ORDER BY number LIMIT ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![last, ROWS_PER_STEP as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let name = |number: i64| {
        let sql = "SELECT id FROM memories WHERE number = ?1";
        Ok(format!("memory {}", connection.query_row(sql, [number], |row| row.get::<_, String>(0))?))
    };
    compare_words(connection, (Projection::MemoryWords, "memory_words"), &texts, &name)
}

/// A session with the values that are shown in session lists. `stored` contains the stored values, and `expected`
/// contains the values that were derived from the log.
struct SessionRow {
    number: i64,
    subject: String,
    stored: ListColumns,
    expected: ListColumns,
}

#[derive(Debug, PartialEq)]
struct ListColumns {
    state: String,
    turns: u32,
    continues_at: Option<u64>,
    last_message: u64,
    last_event: u64,
}

fn session_rows(connection: &Connection, read: StatusReader) -> Result<Vec<SessionRow>, Failure> {
    let sql = "SELECT s.id, s.subject, s.state, s.turns, s.last_message, s.last_event, p.run,
               (SELECT coalesce(max(m.id), 0) FROM messages m WHERE m.session = s.id),
               (SELECT coalesce(max(e.sequence), 0) FROM events e WHERE e.session = s.id), s.continues_at
               FROM sessions s LEFT JOIN snapshots p ON p.session = s.id ORDER BY s.id";
    super::queries::collect(connection, sql, [], |row| {
        let number = |column| row.get::<_, i64>(column).map(unsigned);
        let (state, turns): (String, u32) = (row.get(2)?, row.get(3)?);
        let run: Option<Vec<u8>> = row.get(6)?;
        let status = run.and_then(|run| read(&run));
        // The states are compared as text, because a damaged list may contain any text.
        let continues_at = row.get::<_, Option<i64>>(9)?.map(unsigned);
        let (state_in_log, turn, continues_at_in_log) = match status {
            Some(status) => (status.state.as_str().to_owned(), status.turn, status.continues_at),
            None => (state.clone(), turns, continues_at),
        };
        Ok(SessionRow {
            number: row.get(0)?,
            subject: row.get(1)?,
            stored: ListColumns { state, turns, continues_at, last_message: number(4)?, last_event: number(5)? },
            expected: ListColumns {
                state: state_in_log,
                turns: turn,
                continues_at: continues_at_in_log,
                last_message: number(7)?,
                last_event: number(8)?,
            },
        })
    })
}

fn compare_sessions(connection: &Connection, read: StatusReader) -> Result<ProjectionComparison, Failure> {
    let mut differences = Differences::of(Projection::Sessions);
    for SessionRow { subject, stored, expected, .. } in session_rows(connection, read)? {
        differences.compared += 1;
        if stored != expected {
            differences.add(|| Ok(format!("session {subject}: stored {stored}, but the log has {expected}")))?;
        }
    }
    Ok(differences.into_comparison())
}

fn compare_usage(connection: &Connection, read: StatusReader) -> Result<ProjectionComparison, Failure> {
    let mut stored = usage::stored(connection)?;
    let in_log = usage::in_log(connection, read, &stored)?;
    let mut differences = Differences::of(Projection::Usage);
    for _ in 0..stored.damaged {
        differences.add(|| Ok("the usage of a turn cannot be read".to_owned()))?;
    }
    let name = |(session, turn): &TurnKey| -> Result<String, Failure> {
        let sql = "SELECT subject FROM sessions WHERE id = ?1";
        let subject: Option<String> = connection.query_row(sql, [session], |row| row.get(0)).optional()?;
        Ok(format!("turn {turn} of session {}", subject.unwrap_or_else(|| session.to_string())))
    };
    for (key, cost) in &in_log.turns {
        match stored.turns.remove(key) {
            // A turn that was open when the file was migrated gets its usage with the next commit of its session.
            None if in_log.open.contains(key) => differences.pending += 1,
            found => {
                differences.compared += 1;
                if found.as_ref() != Some(cost) {
                    differences.add(|| name(key))?;
                }
            }
        }
    }
    for key in stored.turns.keys() {
        differences.add(|| Ok(format!("{}: the log contains no usage of this turn", name(key)?)))?;
    }
    Ok(differences.into_comparison())
}

fn rebuild_usage(connection: &Connection, read: StatusReader) -> Result<u64, Failure> {
    let in_log = usage::in_log(connection, read, &usage::stored(connection)?)?;
    connection.execute("DELETE FROM turn_usage", [])?;
    for ((session, _), cost) in &in_log.turns {
        usage::write(connection, *session, cost)?;
    }
    Ok(in_log.turns.len() as u64)
}

impl std::fmt::Display for ListColumns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { state, turns, continues_at, last_message, last_event } = self;
        write!(formatter, "{state}, {turns} turns, {last_message} messages, {last_event} events")?;
        match continues_at {
            Some(time) => write!(formatter, ", continues at {time}"),
            None => Ok(()),
        }
    }
}

fn rebuild_messages(connection: &Connection) -> Result<u64, Failure> {
    recreate_index(connection, "message_words")?;
    connection.execute("INSERT OR REPLACE INTO message_words_progress VALUES (1, 0)", [])?;
    while search::index_next_batch(connection)? == Progress::Indexed {}
    count_rows(connection, "messages")
}

fn rebuild_memories(connection: &Connection) -> Result<u64, Failure> {
    recreate_index(connection, "memory_words")?;
    connection.execute("INSERT INTO memory_words (rowid, text) SELECT number, text FROM memories", [])?;
    count_rows(connection, "memories")
}

/// Drops the index and creates it again, because a damaged index cannot be emptied.
fn recreate_index(connection: &Connection, index: &str) -> Result<(), Failure> {
    Ok(connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS {index}; CREATE VIRTUAL TABLE {index} USING fts5 ({INDEX_DEFINITION});"
    ))?)
}

fn rebuild_sessions(connection: &Connection, read: StatusReader) -> Result<u64, Failure> {
    let rows = session_rows(connection, read)?;
    for SessionRow { number, expected, .. } in rows.iter().filter(|row| row.stored != row.expected) {
        let sql = "UPDATE sessions SET state = ?2, turns = ?3, last_message = ?4, last_event = ?5, continues_at = ?6
                   WHERE id = ?1";
        let ListColumns { state, turns, continues_at, last_message, last_event } = expected;
        let (last_message, last_event) = (signed(*last_message), signed(*last_event));
        connection.execute(sql, params![number, state, turns, last_message, last_event, continues_at.map(signed)])?;
    }
    Ok(rows.len() as u64)
}

fn count_rows(connection: &Connection, table: &str) -> Result<u64, Failure> {
    Ok(connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).map(unsigned)?)
}
