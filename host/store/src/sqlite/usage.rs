//! The usage of each turn (D1, D6): model calls, tokens and costs. The values come from the event that ends a turn and,
//! while a turn is open, from the session's snapshot.

use super::failure::Failure;
use super::queries::{collect, signed, sql_limit, unsigned};
use crate::encoding::usage::{as_stored, ended_turn};
use crate::{MAX_PAGE, SessionUsage, Status, StatusReader, UsageTotal};
use agent_core::cost::{Cost, TurnCost};
use agent_core::model::{TokenDetails, Usage};
use rusqlite::Error::IntegralValueOutOfRange;
use rusqlite::{Connection, Row, params};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: &str = "execution_units, model_calls, prompt_tokens, completion_tokens, uncached_prompt, cache_read, \
                       cache_write, completion, thinking, nanodollars, is_partial, saved_tokens";

/// Adds up the usage of turns. The function `total` adds floating-point numbers, because `sum` fails if the numbers of a
/// damaged or imported session are too large.
const SUMS: &str = "
    CAST(total(model_calls) AS INTEGER), CAST(total(prompt_tokens) AS INTEGER),
    CAST(total(completion_tokens) AS INTEGER), CAST(total(coalesce(uncached_prompt, prompt_tokens)) AS INTEGER),
    CAST(total(cache_read) AS INTEGER), CAST(total(cache_write) AS INTEGER),
    CAST(total(coalesce(completion, completion_tokens)) AS INTEGER), CAST(total(thinking) AS INTEGER),
    CAST(total(nanodollars) AS INTEGER), count(uncached_prompt), count(nanodollars),
    coalesce(max(CASE WHEN nanodollars IS NULL THEN prompt_tokens + completion_tokens > 0 ELSE is_partial END), 0)";

/// Stores the usage of a turn. The usage replaces the stored usage of the same turn.
pub(super) fn write(connection: &Connection, session: i64, cost: &TurnCost) -> Result<(), Failure> {
    let sql = format!(
        "INSERT OR REPLACE INTO turn_usage (session, turn, {COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    );
    let Usage { prompt_tokens, completion_tokens, details, cost: money } = cost.usage;
    let detail = |count: fn(&TokenDetails) -> u64| details.as_ref().map(count).map(signed);
    connection.prepare_cached(&sql)?.execute(params![
        session,
        cost.turn,
        signed(cost.execution_units),
        cost.interactions,
        signed(prompt_tokens),
        signed(completion_tokens),
        detail(|details| details.uncached_prompt),
        detail(|details| details.cache_read),
        detail(|details| details.cache_write),
        detail(|details| details.completion),
        detail(|details| details.thinking),
        money.map(|money| signed(money.nanodollars)),
        money.is_some_and(|money| money.partial),
        signed(cost.saved_tokens),
    ])?;
    Ok(())
}

/// Returns the stored usage of a turn. `None` if nothing is stored or the row is damaged.
pub(super) fn of_turn(connection: &Connection, session: i64, turn: u32) -> Result<Option<TurnCost>, Failure> {
    let sql = format!("SELECT session, turn, {COLUMNS} FROM turn_usage WHERE session = ?1 AND turn = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![session, turn])?;
    Ok(rows.next()?.and_then(|row| stored_turn(row).ok()).map(|(_, cost)| cost))
}

/// Returns the usage of all turns of a session.
pub(super) fn of_session(connection: &Connection, session: i64) -> Result<SessionUsage, Failure> {
    let mut statement = connection.prepare_cached(&format!("SELECT {SUMS} FROM turn_usage WHERE session = ?1"))?;
    Ok(statement.query_row([session], summed_usage)?)
}

/// Returns the usage of all sessions of these agents, for each agent and user.
pub(super) fn totals(
    connection: &Connection,
    agents: &[String],
    user: Option<&str>,
) -> Result<Vec<UsageTotal>, Failure> {
    let sql = format!(
        "SELECT {SUMS}, s.agent, s.user, count(DISTINCT s.id)
         FROM turn_usage JOIN sessions s ON s.id = turn_usage.session
         WHERE s.agent IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR s.user = ?2)
         GROUP BY s.agent, s.user ORDER BY s.agent, s.user LIMIT ?3"
    );
    collect(connection, &sql, params![json!(agents).to_string(), user, sql_limit(MAX_PAGE)], |row| {
        Ok(UsageTotal {
            usage: summed_usage(row)?,
            agent: row.get(12)?,
            user: row.get(13)?,
            sessions: unsigned(row.get(14)?),
        })
    })
}

/// Reads a row whose first columns are [`SUMS`].
fn summed_usage(row: &Row<'_>) -> rusqlite::Result<SessionUsage> {
    let number = |column| row.get::<_, i64>(column).map(unsigned);
    let details = TokenDetails {
        uncached_prompt: number(3)?,
        cache_read: number(4)?,
        cache_write: number(5)?,
        completion: number(6)?,
        thinking: number(7)?,
    };
    let cost = Cost { nanodollars: number(8)?, partial: row.get(11)? };
    Ok(SessionUsage {
        model_calls: number(0)?,
        usage: Usage {
            prompt_tokens: number(1)?,
            completion_tokens: number(2)?,
            details: (number(9)? > 0).then_some(details),
            cost: (number(10)? > 0).then_some(cost),
        },
    })
}

/// The key of a turn: the number of its session in the database, and the number of the turn.
pub(super) type TurnKey = (i64, u32);

/// The stored usage of all turns.
#[derive(Default)]
pub(super) struct StoredUsage {
    pub(super) turns: BTreeMap<TurnKey, TurnCost>,
    /// Number of damaged rows, whose values cannot be read.
    pub(super) damaged: u64,
}

/// Returns the stored usage of every turn.
pub(super) fn stored(connection: &Connection) -> Result<StoredUsage, Failure> {
    let mut found = StoredUsage::default();
    let sql = format!("SELECT session, turn, {COLUMNS} FROM turn_usage");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match stored_turn(row) {
            Ok((key, cost)) => drop(found.turns.insert(key, cost)),
            Err(_) => found.damaged += 1,
        }
    }
    Ok(found)
}

fn stored_turn(row: &Row<'_>) -> rusqlite::Result<(TurnKey, TurnCost)> {
    let optional = |column| {
        let number: Option<i64> = row.get(column)?;
        let checked = number.map(|number| u64::try_from(number).map_err(|_| IntegralValueOutOfRange(column, number)));
        checked.transpose()
    };
    let number = |column| optional(column)?.ok_or(IntegralValueOutOfRange(column, 0));
    let details = match optional(6)? {
        Some(uncached_prompt) => Some(TokenDetails {
            uncached_prompt,
            cache_read: number(7)?,
            cache_write: number(8)?,
            completion: number(9)?,
            thinking: number(10)?,
        }),
        None => None,
    };
    let partial = row.get(12)?;
    let cost = optional(11)?.map(|nanodollars| Cost { nanodollars, partial });
    let usage = Usage { prompt_tokens: number(4)?, completion_tokens: number(5)?, details, cost };
    let turn = row.get(1)?;
    let (execution_units, interactions, saved_tokens) = (number(2)?, row.get(3)?, number(13)?);
    Ok(((row.get(0)?, turn), TurnCost { turn, execution_units, usage, interactions, saved_tokens }))
}

/// The usage of all turns according to the log.
#[derive(Default)]
pub(super) struct LoggedUsage {
    pub(super) turns: BTreeMap<TurnKey, TurnCost>,
    /// The open turns.
    pub(super) open: BTreeSet<TurnKey>,
}

/// Returns the usage of every turn according to the log. If this host cannot read the snapshot of a session, the stored
/// usage of the session's last turn is considered correct.
pub(super) fn in_log(
    connection: &Connection,
    read: StatusReader,
    stored: &StoredUsage,
) -> Result<LoggedUsage, Failure> {
    // The tag `type` is always the first field of a stored event.
    let sql = r#"SELECT session, turn, kind FROM events WHERE kind LIKE '{"type":"loop_end"%'"#;
    let ended = collect(connection, sql, [], |row| {
        let (session, turn, kind): (i64, u32, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let cost = serde_json::from_str(&kind).ok().and_then(|kind| ended_turn(turn, &kind));
        Ok(cost.map(|cost| ((session, turn), as_stored(cost))))
    })?;
    let mut found = LoggedUsage { turns: ended.into_iter().flatten().collect(), open: BTreeSet::new() };
    let sql = "SELECT p.session, s.turns, p.run FROM snapshots p JOIN sessions s ON s.id = p.session";
    let snapshots = collect(connection, sql, [], |row| {
        let (session, turns, run): (i64, u32, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((session, turns, read(&run)))
    })?;
    for (session, turns, status) in snapshots {
        match status {
            // As in a commit, the open turn of the snapshot comes after the events.
            Some(Status { open_turn: Some(cost), .. }) => {
                found.turns.insert((session, cost.turn), as_stored(cost));
                found.open.insert((session, cost.turn));
            }
            Some(_) => {}
            None => {
                let key = (session, turns);
                if let Some(cost) = stored.turns.get(&key).copied() {
                    found.turns.entry(key).or_insert(cost);
                }
            }
        }
    }
    Ok(found)
}
