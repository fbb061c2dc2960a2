//! Charges the usage of commits to turns, sessions, agents and users, and adds up what was charged (O4).

use super::SqliteStore;
use super::failure::{Failure, invalid};
use super::queries::{signed, unsigned};
use super::usage;
use crate::encoding::usage::spending;
use crate::{BudgetLedger, Charge, ChargeFilter, ChargedTo, IntervalCharge, StoreError};
use agent_core::budget::Spending;
use agent_core::cost::TurnCost;
use async_trait::async_trait;
use rusqlite::{Connection, Params, Row, params};
use std::collections::BTreeMap;

/// Length of a period, in microseconds.
const PERIOD: i64 = 15 * 60 * 1_000_000;

#[async_trait]
impl BudgetLedger for SqliteStore {
    async fn charged(&self, to: Vec<ChargedTo>) -> Result<Vec<Spending>, StoreError> {
        self.read(move |connection| to.iter().map(|to| charged_to(connection, to)).collect()).await
    }

    async fn charged_in_intervals(
        &self,
        bounds: Vec<i64>,
        filter: ChargeFilter,
    ) -> Result<Vec<IntervalCharge>, StoreError> {
        self.read(move |connection| charged_in_intervals(connection, &bounds, &filter)).await
    }
}

/// Charges the difference between the usage of the turns in a commit and their stored usage, and the time of work. Must be
/// called before the usage is stored.
pub(super) fn charge(
    connection: &Connection,
    session: i64,
    (costs, charge): (&[TurnCost], &Charge),
    time: i64,
) -> Result<(), Failure> {
    let mut milliseconds = charge.milliseconds;
    for (index, cost) in costs.iter().enumerate() {
        // If several elements concern one turn, the last one contains its whole usage.
        if costs[index + 1..].iter().any(|later| later.turn == cost.turn) {
            continue;
        }
        let stored = usage::of_turn(connection, session, cost.turn)?;
        let (new, stored) = (spending(cost), stored.as_ref().map(spending).unwrap_or_default());
        let amounts = Spending {
            tokens: new.tokens.saturating_sub(stored.tokens),
            nanodollars: new.nanodollars.saturating_sub(stored.nanodollars),
            milliseconds: std::mem::take(&mut milliseconds),
        };
        if amounts != Spending::default() {
            charge_amounts(connection, (session, cost.turn), (amounts, charge), time)?;
        }
    }
    Ok(())
}

fn charge_amounts(
    connection: &Connection,
    (session, turn): (i64, u32),
    (Spending { tokens, nanodollars, milliseconds }, charge): (Spending, &Charge),
    time: i64,
) -> Result<(), Failure> {
    let (tokens, nanodollars, milliseconds) = (signed(tokens), signed(nanodollars), signed(milliseconds));
    let own = "INSERT INTO session_charges VALUES (?1, ?2, ?3, ?4, ?5)";
    for turn in [0, turn] {
        add(connection, own, params![session, turn, tokens, nanodollars, milliseconds])?;
    }
    // If the delegating session was deleted, its budget no longer exists.
    let delegator = "INSERT INTO session_charges SELECT id, ?2, ?3, ?4, ?5 FROM sessions WHERE subject = ?1";
    for (subject, number) in &charge.delegators {
        for turn in [0, *number] {
            add(connection, delegator, params![subject, turn, tokens, nanodollars, milliseconds])?;
        }
    }
    let user = charge.user.as_deref().unwrap_or_default();
    let period = "INSERT INTO period_charges VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    add(connection, period, params![charge.agent, user, time.div_euclid(PERIOD), tokens, nanodollars, milliseconds])
}

/// Runs an insertion that adds its amounts to an existing row. Sums stop at the largest number.
fn add(connection: &Connection, insert: &str, parameters: impl Params) -> Result<(), Failure> {
    let sum = |column| format!("{column} = {column} + min(excluded.{column}, {} - {column})", i64::MAX);
    let sums = ["tokens", "nanodollars", "milliseconds"].map(sum).join(", ");
    connection.prepare_cached(&format!("{insert} ON CONFLICT DO UPDATE SET {sums}"))?.execute(parameters)?;
    Ok(())
}

/// Adds up amounts. The function `total` adds floating-point numbers, because `sum` fails if the sum is too large.
const SUMS: &str =
    "CAST(total(tokens) AS INTEGER), CAST(total(nanodollars) AS INTEGER), CAST(total(milliseconds) AS INTEGER)";

fn charged_to(connection: &Connection, to: &ChargedTo) -> Result<Spending, Failure> {
    let of_session = "session_charges WHERE session = (SELECT id FROM sessions WHERE subject = ?1) AND turn = ?2";
    let (table, name, place) = match to {
        ChargedTo::Turn { session, turn } => (of_session, session.as_str(), i64::from(*turn)),
        ChargedTo::Session { session } => (of_session, session.as_str(), 0),
        ChargedTo::Agent { agent, since } => {
            ("period_charges WHERE agent = ?1 AND period >= ?2", agent.as_str(), since.div_euclid(PERIOD))
        }
        ChargedTo::User { user, since } => {
            let user = user.as_deref().unwrap_or_default();
            ("period_charges WHERE user = ?1 AND period >= ?2", user, since.div_euclid(PERIOD))
        }
    };
    let mut statement = connection.prepare_cached(&format!("SELECT {SUMS} FROM {table}"))?;
    Ok(statement.query_row(params![name, place], amounts)?)
}

fn charged_in_intervals(
    connection: &Connection,
    bounds: &[i64],
    filter: &ChargeFilter,
) -> Result<Vec<IntervalCharge>, Failure> {
    let bounds: Vec<i64> = bounds.iter().map(|bound| bound.div_euclid(PERIOD)).collect();
    let Some(first) = bounds.first() else { return Ok(Vec::new()) };
    let agents = filter.agents.as_ref().map(serde_json::to_string).transpose();
    let agents = agents.map_err(|error| invalid("a list of agents", error.to_string()))?;
    let sql = "SELECT tokens, nanodollars, milliseconds, period, agent, user FROM period_charges
               WHERE period >= ?1 AND (?2 IS NULL OR agent IN (SELECT value FROM json_each(?2)))
               AND (?3 IS NULL OR user = ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![first, agents, filter.user])?;
    let mut sums: BTreeMap<(usize, String, String), Spending> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let period: i64 = row.get(3)?;
        let interval = bounds.partition_point(|bound| *bound <= period) - 1;
        *sums.entry((interval, row.get(4)?, row.get(5)?)).or_default() += amounts(row)?;
    }
    let charges = sums.into_iter().map(|((interval, agent, user), spending)| {
        let user = (!user.is_empty()).then_some(user);
        IntervalCharge { interval, agent, user, spending }
    });
    Ok(charges.collect())
}

fn amounts(row: &Row<'_>) -> rusqlite::Result<Spending> {
    let number = |column| row.get::<_, i64>(column).map(unsigned);
    Ok(Spending { tokens: number(0)?, nanodollars: number(1)?, milliseconds: number(2)? })
}
