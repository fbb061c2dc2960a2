//! Compares projections with the tables from which they are derived, and rebuilds them. Both work on some sessions at a
//! time, while other processes continue to write.

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, message, number, optional_number, small, value};
use super::search::{INSERT_WORDS, WordCounts};
use super::text::{Text, list, text};
use super::usage::{self, TurnKey};
use crate::encoding::search::searchable_text;
use crate::encoding::values::signed;
use crate::{Projection, ProjectionComparison, Projections, RebuiltProjection, StatusReader, StoreError};
use async_trait::async_trait;
use std::fmt;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Number of sessions, messages or memories that are processed in one step.
const STEP: i64 = 200;

/// Maximum number of differences that the result of a comparison describes.
const MAX_DESCRIBED_DIFFERENCES: usize = 5;

#[async_trait]
impl Projections for PostgresStore {
    async fn check_projections(&self, read: StatusReader) -> Result<Vec<ProjectionComparison>, StoreError> {
        self.run(|| async {
            let transaction = self.snapshot_of_all().await?;
            let mut messages = Differences::of(Projection::MessageWords);
            compare_messages(&transaction, &mut messages).await?;
            let mut memories = Differences::of(Projection::MemoryWords);
            compare_memories(&transaction, &mut memories).await?;
            let mut sessions = Differences::of(Projection::Sessions);
            let mut usage = Differences::of(Projection::Usage);
            let mut after = String::new();
            loop {
                let rows = session_rows(&transaction, &after, read).await?;
                let Some(last) = rows.last() else { break };
                after = last.session.clone();
                for row in &rows {
                    sessions.compare(row.stored == row.expected, || {
                        format!("session {}: stored {}, but the log has {}", row.session, row.stored, row.expected)
                    });
                }
                let names: Vec<String> = rows.into_iter().map(|row| row.session).collect();
                compare_usage(&transaction, &names, read, &mut usage).await?;
            }
            transaction.roll_back().await?;
            Ok([messages, memories, sessions, usage].map(Differences::into_comparison).into())
        })
        .await
    }

    async fn rebuild_projections(&self, read: StatusReader) -> Result<Vec<RebuiltProjection>, StoreError> {
        let messages = self.rebuild_messages().await?;
        let memories = self.rebuild_memories().await?;
        let (mut sessions, mut usage, mut after) = (0, 0, String::new());
        // The usage of a session is rebuilt first, because it depends on the number of turns in the session list.
        while let Some(step) = self.run(|| self.rebuild_sessions(&after, read)).await? {
            sessions += step.sessions;
            usage += step.turns;
            after = step.last;
        }
        let rebuilt = [
            (Projection::MessageWords, messages),
            (Projection::MemoryWords, memories),
            (Projection::Sessions, sessions),
            (Projection::Usage, usage),
        ];
        Ok(rebuilt.map(|(projection, made_from)| RebuiltProjection { projection, made_from }).into())
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

    fn compare(&mut self, is_equal: bool, describe: impl FnOnce() -> String) {
        self.compared += 1;
        if !is_equal {
            self.add(describe);
        }
    }

    fn add(&mut self, describe: impl FnOnce() -> String) {
        self.different += 1;
        if self.examples.len() < MAX_DESCRIBED_DIFFERENCES {
            self.examples.push(describe());
        }
    }

    fn into_comparison(self) -> ProjectionComparison {
        let Self { projection, compared, pending, different, examples } = self;
        ProjectionComparison { projection, compared, pending, different, examples }
    }
}

/// The key of a message, and the words that the projection should contain.
struct ExpectedWords {
    session: String,
    id: u64,
    words: WordCounts,
}

/// Which messages are compared or indexed.
#[derive(Clone, Copy)]
enum Messages {
    OfAllSessions,
    OfOneSession,
}

/// Reads the messages after a position, together with their expected words.
async fn expected_words(
    connection: &Connection,
    (session, id): (&str, u64),
    messages: Messages,
) -> Result<Vec<(ExpectedWords, Option<WordCounts>)>, Failure> {
    let condition = match messages {
        Messages::OfAllSessions => "(m.session, m.id) > ($1, $2)",
        Messages::OfOneSession => "m.session = $1 AND m.id > $2",
    };
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, m.session, w.words, w.counts, w.length FROM messages m {CALL_OF_MESSAGE}
         LEFT JOIN message_words w ON w.session = m.session AND w.id = m.id
         WHERE {condition} ORDER BY m.session, m.id LIMIT $3"
    );
    let rows = connection.query(&sql, &[&Text(session), &signed(id), &STEP]).await?;
    let read = |row: &Row| {
        let message = message(row, 0)?;
        let words = WordCounts::of(&searchable_text(&message));
        Ok((ExpectedWords { session: text(row, 8)?, id: message.id, words }, stored_words(row, 9)?))
    };
    rows.iter().map(read).collect()
}

/// Reads the columns `words`, `counts` and `length`, starting at column `first`.
fn stored_words(row: &Row, first: usize) -> Result<Option<WordCounts>, Failure> {
    let Some(words) = value::<Option<Vec<String>>>(row, first)? else { return Ok(None) };
    Ok(Some(WordCounts { words, counts: value(row, first + 1)?, length: value(row, first + 2)? }))
}

async fn compare_messages(connection: &Connection, differences: &mut Differences) -> Result<(), Failure> {
    let (mut session, mut id) = (String::new(), 0);
    loop {
        let found = expected_words(connection, (&session, id), Messages::OfAllSessions).await?;
        let Some((last, _)) = found.last() else { break };
        (session, id) = (last.session.clone(), last.id);
        for (expected, stored) in &found {
            differences.compare(stored.as_ref() == Some(&expected.words), || {
                format!("message {} of session {}", expected.id, expected.session)
            });
        }
    }
    let sql = "SELECT w.session, w.id FROM message_words w
               WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = w.session AND m.id = w.id)";
    for row in connection.query(sql, &[]).await? {
        let (session, id) = (text(&row, 0)?, number(&row, 1)?);
        differences
            .add(|| format!("the index contains words of message {id} of session {session}, which does not exist"));
    }
    Ok(())
}

async fn compare_memories(connection: &Connection, differences: &mut Differences) -> Result<(), Failure> {
    let mut after = 0_i64;
    loop {
        let sql =
            "SELECT id, text, number, words, counts, length FROM memories WHERE number > $1 ORDER BY number LIMIT $2";
        let rows = connection.query(sql, &[&after, &STEP]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = value(last, 2)?;
        for row in &rows {
            let (id, expected) = (text(row, 0)?, WordCounts::of(&text(row, 1)?));
            differences.compare(stored_words(row, 3)?.as_ref() == Some(&expected), || format!("memory {id}"));
        }
    }
}

/// A session with the values that are shown in session lists.
struct SessionRow {
    session: String,
    stored: ListColumns,
    /// The values that were derived from the log.
    expected: ListColumns,
}

#[derive(Clone, Debug, PartialEq)]
struct ListColumns {
    state: String,
    turns: u32,
    continues_at: Option<u64>,
    last_message: u64,
    last_event: u64,
}

async fn session_rows(connection: &Connection, after: &str, read: StatusReader) -> Result<Vec<SessionRow>, Failure> {
    let sql = "SELECT s.session, s.state, s.turns, s.continues_at, s.last_message, s.last_event, p.run,
               (SELECT coalesce(max(m.id), 0) FROM messages m WHERE m.session = s.session),
               (SELECT coalesce(max(e.sequence), 0) FROM events e WHERE e.session = s.session)
               FROM sessions s LEFT JOIN snapshots p ON p.session = s.session
               WHERE s.session > $1 ORDER BY s.session LIMIT $2";
    let rows = connection.query(sql, &[&Text(after), &STEP]).await?;
    let session_row = |row: &Row| {
        let stored = ListColumns {
            state: text(row, 1)?,
            turns: small(row, 2)?,
            continues_at: optional_number(row, 3)?,
            last_message: number(row, 4)?,
            last_event: number(row, 5)?,
        };
        let (last_message, last_event) = (number(row, 7)?, number(row, 8)?);
        let expected = match value::<Option<&[u8]>>(row, 6)?.and_then(read) {
            Some(status) => ListColumns {
                state: status.state.as_str().to_owned(),
                turns: status.turn,
                continues_at: status.continues_at,
                last_message,
                last_event,
            },
            None => ListColumns { last_message, last_event, ..stored.clone() },
        };
        Ok(SessionRow { session: text(row, 0)?, stored, expected })
    };
    rows.iter().map(session_row).collect()
}

async fn compare_usage(
    connection: &Connection,
    sessions: &[String],
    read: StatusReader,
    differences: &mut Differences,
) -> Result<(), Failure> {
    let mut stored = usage::stored(connection, sessions).await?;
    let in_log = usage::in_log(connection, sessions, read, &stored).await?;
    for _ in 0..stored.damaged {
        differences.add(|| "the usage of a turn cannot be read".to_owned());
    }
    let name = |(session, turn): &TurnKey| format!("turn {turn} of session {session}");
    for (key, cost) in &in_log.turns {
        match stored.turns.remove(key) {
            None if in_log.open.contains(key) => differences.pending += 1,
            found => differences.compare(found.as_ref() == Some(cost), || name(key)),
        }
    }
    for key in stored.turns.keys() {
        differences.add(|| format!("{}: the log contains no usage of this turn", name(key)));
    }
    Ok(())
}

impl fmt::Display for ListColumns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, turns, continues_at, last_message, last_event } = self;
        write!(formatter, "{state}, {turns} turns, {last_message} messages, {last_event} events")?;
        match continues_at {
            Some(time) => write!(formatter, ", continues at {time}"),
            None => Ok(()),
        }
    }
}

/// What one step of a rebuild has processed.
struct RebuiltSessions {
    last: String,
    sessions: u64,
    turns: u64,
}

impl PostgresStore {
    async fn rebuild_messages(&self) -> Result<u64, StoreError> {
        self.run_repeatable(|| async {
            let sql = "DELETE FROM message_words w
                       WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = w.session AND m.id = w.id)";
            self.connection().await?.execute(sql, &[]).await
        })
        .await?;
        let (mut session, mut id, mut count) = (String::new(), 0, 0);
        loop {
            let step = self.run_repeatable(|| self.rebuild_words(&session, id, Messages::OfAllSessions)).await?;
            let Some((last_session, last_id, messages)) = step else { return Ok(count) };
            (session, id, count) = (last_session, last_id, count + messages);
        }
    }

    /// Adds the words of all messages of a session.
    pub(super) async fn index_session(&self, session: &str) -> Result<(), StoreError> {
        let mut id = 0;
        while let Some((_, last, _)) =
            self.run_repeatable(|| self.rebuild_words(session, id, Messages::OfOneSession)).await?
        {
            id = last;
        }
        Ok(())
    }

    /// Replaces the words of the messages after a position. Returns the last message, and the number of messages.
    async fn rebuild_words(
        &self,
        session: &str,
        id: u64,
        messages: Messages,
    ) -> Result<Option<(String, u64, u64)>, Failure> {
        let transaction = self.transaction().await?;
        let found = expected_words(&transaction, (session, id), messages).await?;
        for (ExpectedWords { session, id, words }, stored) in &found {
            if stored.as_ref() != Some(words) {
                super::queries::keep_session(&transaction, session).await?;
                let WordCounts { words, counts, length } = words;
                let parameters: [&(dyn ToSql + Sync); 5] = [&Text(session), &signed(*id), length, words, counts];
                transaction.execute(INSERT_WORDS, &parameters).await?;
            }
        }
        transaction.commit().await?;
        let count = found.len() as u64;
        Ok(found.into_iter().next_back().map(|(last, _)| (last.session, last.id, count)))
    }

    async fn rebuild_memories(&self) -> Result<u64, StoreError> {
        let (mut after, mut count) = (0_i64, 0);
        loop {
            let step = self.run_repeatable(|| async {
                let sql = "SELECT id, text, number FROM memories WHERE number > $1 ORDER BY number LIMIT $2";
                let connection = self.connection().await?;
                let rows = connection.query(sql, &[&after, &STEP]).await?;
                for row in &rows {
                    let WordCounts { words, counts, length } = WordCounts::of(&text(row, 1)?);
                    let sql = "UPDATE memories SET words = $2, counts = $3, length = $4 WHERE id = $1";
                    connection.execute(sql, &[&Text(&text(row, 0)?), &words, &counts, &length]).await?;
                }
                rows.last().map(|last| Ok((value::<i64>(last, 2)?, rows.len() as u64))).transpose()
            });
            let Some((last, memories)) = step.await? else { return Ok(count) };
            (after, count) = (last, count + memories);
        }
    }

    async fn rebuild_sessions(&self, after: &str, read: StatusReader) -> Result<Option<RebuiltSessions>, Failure> {
        let transaction = self.transaction().await?;
        // The rows are locked, so that no commit changes them meanwhile.
        let sql = "SELECT session FROM sessions WHERE session > $1 ORDER BY session LIMIT $2 FOR UPDATE";
        transaction.query(sql, &[&Text(after), &STEP]).await?;
        let rows = session_rows(&transaction, after, read).await?;
        let names: Vec<String> = rows.iter().map(|row| row.session.clone()).collect();
        let Some(last) = names.last().cloned() else {
            transaction.roll_back().await?;
            return Ok(None);
        };
        let turns = rebuild_usage(&transaction, &names, read).await?;
        for row in rows.iter().filter(|row| row.stored != row.expected) {
            let sql =
                "UPDATE sessions SET state = $2, turns = $3, last_message = $4, last_event = $5, continues_at = $6
                       WHERE session = $1";
            let ListColumns { state, turns, continues_at, last_message, last_event } = &row.expected;
            let (turns, continues_at) = (i64::from(*turns), continues_at.map(signed));
            let (last_message, last_event) = (signed(*last_message), signed(*last_event));
            let parameters: [&(dyn ToSql + Sync); 6] =
                [&Text(&row.session), state, &turns, &last_message, &last_event, &continues_at];
            transaction.execute(sql, &parameters).await?;
        }
        transaction.commit().await?;
        Ok(Some(RebuiltSessions { last, sessions: rows.len() as u64, turns }))
    }
}

async fn rebuild_usage(transaction: &Transaction, sessions: &[String], read: StatusReader) -> Result<u64, Failure> {
    let stored = usage::stored(transaction, sessions).await?;
    let in_log = usage::in_log(transaction, sessions, read, &stored).await?;
    transaction.execute("DELETE FROM turn_usage WHERE session = ANY($1)", &[&list(sessions)]).await?;
    for ((session, _), cost) in &in_log.turns {
        usage::write(transaction, session, cost).await?;
    }
    Ok(in_log.turns.len() as u64)
}
