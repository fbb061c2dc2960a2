//! The usage of each turn (D1, D6): model calls, tokens and costs.

use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{number, optional_number, small, value};
use super::text::{Text, list, optional, optional_text, text};
use crate::encoding::usage::{as_stored, ended_turn};
use crate::encoding::values::{signed, sql_limit};
use crate::{MAX_PAGE, SessionUsage, Status, StatusReader, UsageTotal};
use agent_core::cost::{Cost, TurnCost};
use agent_core::event::EventKind;
use agent_core::model::{TokenDetails, Usage};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

const COLUMNS: &str = "execution_units, model_calls, prompt_tokens, completion_tokens, uncached_prompt, cache_read, \
                       cache_write, completion, thinking, nanodollars, is_partial, saved_tokens";

/// Adds up the usage of turns `u`. Sums stop at the largest number. 12 columns.
pub(super) const SUMS: &str = "
    least(coalesce(sum(u.model_calls), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.prompt_tokens), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.completion_tokens), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(coalesce(u.uncached_prompt, u.prompt_tokens)), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.cache_read), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.cache_write), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(coalesce(u.completion, u.completion_tokens)), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.thinking), 0), 9223372036854775807)::bigint,
    least(coalesce(sum(u.nanodollars), 0), 9223372036854775807)::bigint,
    count(u.uncached_prompt), count(u.nanodollars),
    coalesce(bool_or(CASE WHEN u.nanodollars IS NULL THEN u.prompt_tokens > 0 OR u.completion_tokens > 0
                          ELSE u.is_partial END), false)";

/// Number of columns of [`SUMS`].
pub(super) const SUM_COLUMNS: usize = 12;

/// Stores the usage of a turn. The usage replaces the stored usage of the same turn.
pub(super) async fn write(transaction: &Transaction, session: &str, cost: &TurnCost) -> Result<(), Failure> {
    let Usage { prompt_tokens, completion_tokens, details, cost: money } = cost.usage;
    let detail = |count: fn(&TokenDetails) -> u64| details.as_ref().map(count).map(signed);
    let parameters: [&(dyn ToSql + Sync); 14] = [
        &Text(session),
        &i64::from(cost.turn),
        &signed(cost.execution_units),
        &i64::from(cost.interactions),
        &signed(prompt_tokens),
        &signed(completion_tokens),
        &detail(|details| details.uncached_prompt),
        &detail(|details| details.cache_read),
        &detail(|details| details.cache_write),
        &detail(|details| details.completion),
        &detail(|details| details.thinking),
        &money.map(|money| signed(money.nanodollars)),
        &money.is_some_and(|money| money.partial),
        &signed(cost.saved_tokens),
    ];
    transaction.execute(&write_usage(), &parameters).await?;
    Ok(())
}

/// The statement with which [`write`] stores usage.
pub(super) fn write_usage() -> String {
    let assigned = COLUMNS.split(", ").map(|column| format!("{column} = excluded.{column}"));
    let assigned = assigned.collect::<Vec<_>>().join(", ");
    format!(
        "INSERT INTO turn_usage (session, turn, {COLUMNS})
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (session, turn) DO UPDATE SET {assigned}"
    )
}

/// Returns the stored usage of a turn. `None` if nothing is stored or the row is damaged.
pub(super) async fn of_turn(connection: &Connection, session: &str, turn: u32) -> Result<Option<TurnCost>, Failure> {
    let sql = format!("SELECT session, turn, {COLUMNS} FROM turn_usage WHERE session = $1 AND turn = $2");
    let row = connection.query_opt(&sql, &[&Text(session), &i64::from(turn)]).await?;
    Ok(row.and_then(|row| stored_turn(&row).ok()).map(|(_, cost)| cost))
}

/// Returns the usage of all sessions of these agents, for each agent and user.
pub(super) async fn totals(
    connection: &Connection,
    agents: &[String],
    user: Option<&str>,
) -> Result<Vec<UsageTotal>, Failure> {
    let sql = format!(
        "SELECT {SUMS}, s.agent, s.user_name, count(DISTINCT s.session)
         FROM turn_usage u JOIN sessions s ON s.session = u.session
         WHERE s.agent = ANY($1) AND ($2::text IS NULL OR s.user_name = $2)
         GROUP BY s.agent, s.user_name ORDER BY s.agent, s.user_name NULLS FIRST LIMIT $3"
    );
    let rows = connection.query(&sql, &[&list(agents), &optional(user), &sql_limit(MAX_PAGE)]).await?;
    let read = |row: &Row| {
        Ok(UsageTotal {
            usage: summed_usage(row, 0)?,
            agent: text(row, SUM_COLUMNS)?,
            user: optional_text(row, SUM_COLUMNS + 1)?,
            sessions: number(row, SUM_COLUMNS + 2)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Reads [`SUMS`], which start at column `first` of the row.
pub(super) fn summed_usage(row: &Row, first: usize) -> Result<SessionUsage, Failure> {
    let number = |column| number(row, first + column);
    let details = TokenDetails {
        uncached_prompt: number(3)?,
        cache_read: number(4)?,
        cache_write: number(5)?,
        completion: number(6)?,
        thinking: number(7)?,
    };
    let cost = Cost { nanodollars: number(8)?, partial: value(row, first + 11)? };
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

/// The key of a turn: its session, and its number.
pub(super) type TurnKey = (String, u32);

/// The stored usage of all turns.
#[derive(Default)]
pub(super) struct StoredUsage {
    pub(super) turns: BTreeMap<TurnKey, TurnCost>,
    /// Number of damaged rows, whose values cannot be read.
    pub(super) damaged: u64,
}

/// Returns the stored usage of every turn of these sessions.
pub(super) async fn stored(connection: &Connection, sessions: &[String]) -> Result<StoredUsage, Failure> {
    let mut found = StoredUsage::default();
    let sql = format!("SELECT session, turn, {COLUMNS} FROM turn_usage WHERE session = ANY($1)");
    for row in connection.query(&sql, &[&list(sessions)]).await? {
        match stored_turn(&row) {
            Ok((key, cost)) => drop(found.turns.insert(key, cost)),
            Err(_) => found.damaged += 1,
        }
    }
    Ok(found)
}

fn stored_turn(row: &Row) -> Result<(TurnKey, TurnCost), Failure> {
    let optional = |column| {
        let found: Option<i64> = value(row, column)?;
        let unreadable = |_| Failure::Unreadable("the usage of a turn is negative".to_owned());
        found.map(|found| u64::try_from(found).map_err(unreadable)).transpose()
    };
    let required = |column| {
        optional(column)?.ok_or_else(|| Failure::Unreadable("a part of the usage of a turn is missing".to_owned()))
    };
    let details = match optional(6)? {
        Some(uncached_prompt) => Some(TokenDetails {
            uncached_prompt,
            cache_read: required(7)?,
            cache_write: required(8)?,
            completion: required(9)?,
            thinking: required(10)?,
        }),
        None => None,
    };
    let partial = value(row, 12)?;
    let cost = optional_number(row, 11)?.map(|nanodollars| Cost { nanodollars, partial });
    let usage = Usage { prompt_tokens: required(4)?, completion_tokens: required(5)?, details, cost };
    let turn = small(row, 1)?;
    let (execution_units, interactions, saved_tokens) = (required(2)?, small(row, 3)?, required(13)?);
    Ok(((text(row, 0)?, turn), TurnCost { turn, execution_units, usage, interactions, saved_tokens }))
}

/// The usage of all turns according to the log.
#[derive(Default)]
pub(super) struct LoggedUsage {
    pub(super) turns: BTreeMap<TurnKey, TurnCost>,
    /// The open turns.
    pub(super) open: BTreeSet<TurnKey>,
}

/// Returns the usage of every turn of these sessions according to the log. If this host cannot read the snapshot of a
/// session, the stored usage of the session's last turn is considered correct.
pub(super) async fn in_log(
    connection: &Connection,
    sessions: &[String],
    read: StatusReader,
    stored: &StoredUsage,
) -> Result<LoggedUsage, Failure> {
    let mut found = LoggedUsage::default();
    // The tag `type` is always the first field of a stored event.
    let sql = r#"SELECT session, turn, kind FROM events
                 WHERE session = ANY($1) AND kind LIKE '{"type":"loop_end"%' ORDER BY session, sequence"#;
    for row in connection.query(sql, &[&list(sessions)]).await? {
        let (session, turn, kind) = (text(&row, 0)?, small(&row, 1)?, value::<&str>(&row, 2)?);
        let kind = serde_json::from_str::<EventKind>(kind).ok();
        if let Some(cost) = kind.and_then(|kind| ended_turn(turn, &kind)) {
            found.turns.insert((session, turn), as_stored(cost));
        }
    }
    let sql = "SELECT p.session, s.turns, p.run FROM snapshots p JOIN sessions s ON s.session = p.session
               WHERE p.session = ANY($1)";
    for row in connection.query(sql, &[&list(sessions)]).await? {
        let (session, turns) = (text(&row, 0)?, small(&row, 1)?);
        match read(value(&row, 2)?) {
            // As in a commit, the open turn of the snapshot comes after the events.
            Some(Status { open_turn: Some(cost), .. }) => {
                found.turns.insert((session.clone(), cost.turn), as_stored(cost));
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
