//! Charges the usage of commits to turns, sessions, agents and users, and adds up what was charged (O4).

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{number, value};
use super::text::{Text, list, optional, text};
use super::usage;
use crate::encoding::usage::spending;
use crate::encoding::values::signed;
use crate::{BudgetLedger, Charge, ChargeFilter, ChargedTo, IntervalCharge, StoreError};
use agent_core::budget::Spending;
use agent_core::cost::TurnCost;
use async_trait::async_trait;
use futures::future::try_join_all;
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Length of a period, in microseconds.
const PERIOD: i64 = 15 * 60 * 1_000_000;

/// Number of rows of an agent and user for each period.
const SLOTS: u64 = 16;

#[async_trait]
impl BudgetLedger for PostgresStore {
    async fn charged(&self, to: Vec<ChargedTo>) -> Result<Vec<Spending>, StoreError> {
        self.run(|| async {
            let transaction = self.snapshot_of_all().await?;
            let mut charged = Vec::with_capacity(to.len());
            for to in &to {
                charged.push(charged_to(&transaction, to).await?);
            }
            transaction.roll_back().await?;
            Ok(charged)
        })
        .await
    }

    async fn charged_in_intervals(
        &self,
        bounds: Vec<i64>,
        filter: ChargeFilter,
    ) -> Result<Vec<IntervalCharge>, StoreError> {
        let bounds: Vec<i64> = bounds.iter().map(|bound| bound.div_euclid(PERIOD)).collect();
        let Some(first) = bounds.first() else { return Ok(Vec::new()) };
        self.run(|| async {
            let sql = format!(
                "SELECT {SUMS}, width_bucket(period, $2::bigint[]) - 1, agent, user_name FROM period_charges
                 WHERE period >= $1 AND ($3::text[] IS NULL OR agent = ANY($3)) AND ($4::text IS NULL OR user_name = $4)
                 GROUP BY 4, 5, 6 ORDER BY 4, 5, 6"
            );
            let (agents, user) = (filter.agents.as_ref().map(list), optional(filter.user.as_deref()));
            let parameters: [&(dyn ToSql + Sync); 4] = [first, &bounds, &agents, &user];
            self.connection().await?.query(&sql, &parameters).await?.iter().map(interval_charge).collect()
        })
        .await
    }
}

/// Returns what a commit charges for each of its turns: the difference between the usage in the commit and the stored usage,
/// and the time of work. Must be called before the usage is stored.
pub(super) async fn charges(
    transaction: &Transaction,
    session: &str,
    (costs, charge): (&[TurnCost], &Charge),
) -> Result<Vec<(u32, Spending)>, Failure> {
    let mut milliseconds = charge.milliseconds;
    let mut charges = Vec::new();
    for (index, cost) in costs.iter().enumerate() {
        // If several elements concern one turn, the last one contains its whole usage.
        if costs[index + 1..].iter().any(|later| later.turn == cost.turn) {
            continue;
        }
        let stored = usage::of_turn(transaction, session, cost.turn).await?;
        let (new, stored) = (spending(cost), stored.as_ref().map(spending).unwrap_or_default());
        let amounts = Spending {
            tokens: new.tokens.saturating_sub(stored.tokens),
            nanodollars: new.nanodollars.saturating_sub(stored.nanodollars),
            milliseconds: std::mem::take(&mut milliseconds),
        };
        if amounts != Spending::default() {
            charges.push((cost.turn, amounts));
        }
    }
    Ok(charges)
}

/// Charges amounts to turns of a session, to the turns that have delegated its work, and to its agent and user. The statements
/// are sent when the future is first polled, if they are prepared.
pub(super) async fn charge(
    transaction: &Transaction,
    session: &str,
    (charges, charge): (&[(u32, Spending)], Option<&Charge>),
    time: i64,
) -> Result<(), Failure> {
    let Some(charge) = charge else { return Ok(()) };
    let charged =
        charges.iter().map(|(turn, amounts)| charge_amounts(transaction, (session, *turn), (*amounts, charge), time));
    try_join_all(charged).await.map(drop)
}

/// Adds amounts to the rows of a session and of the turns that have delegated its work.
pub(super) const CHARGE_SESSION: &str = "
    INSERT INTO session_charges AS c (session, turn, tokens, nanodollars, milliseconds)
    SELECT session, $2::bigint, $3::bigint, $4::bigint, $5::bigint FROM sessions WHERE session = $1
    ON CONFLICT (session, turn) DO UPDATE SET
        tokens = c.tokens + least(excluded.tokens, 9223372036854775807 - c.tokens),
        nanodollars = c.nanodollars + least(excluded.nanodollars, 9223372036854775807 - c.nanodollars),
        milliseconds = c.milliseconds + least(excluded.milliseconds, 9223372036854775807 - c.milliseconds)";

pub(super) const CHARGE_PERIOD: &str = "
    INSERT INTO period_charges AS c (agent, user_name, period, slot, tokens, nanodollars, milliseconds)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (agent, user_name, period, slot) DO UPDATE SET
        tokens = c.tokens + least(excluded.tokens, 9223372036854775807 - c.tokens),
        nanodollars = c.nanodollars + least(excluded.nanodollars, 9223372036854775807 - c.nanodollars),
        milliseconds = c.milliseconds + least(excluded.milliseconds, 9223372036854775807 - c.milliseconds)";

async fn charge_amounts(
    transaction: &Transaction,
    (session, turn): (&str, u32),
    (Spending { tokens, nanodollars, milliseconds }, charge): (Spending, &Charge),
    time: i64,
) -> Result<(), Failure> {
    let (tokens, nanodollars, milliseconds) = (signed(tokens), signed(nanodollars), signed(milliseconds));
    let delegators = charge.delegators.iter().map(|(session, turn)| (session.as_str(), *turn));
    // All transactions change the rows in the same order, so that they do not wait for each other in a circle. If a
    // delegating session was deleted, its budget no longer exists.
    let mut rows: Vec<(&str, u32)> = std::iter::once((session, turn))
        .chain(delegators)
        .flat_map(|(session, turn)| [(session, 0), (session, turn)])
        .collect();
    rows.sort_unstable();
    let of_sessions = try_join_all(rows.into_iter().map(async |(session, turn)| {
        let turn = i64::from(turn);
        let parameters: [&(dyn ToSql + Sync); 5] = [&Text(session), &turn, &tokens, &nanodollars, &milliseconds];
        transaction.execute(CHARGE_SESSION, &parameters).await
    }));
    let (user, period, slot) = (charge.user.as_deref().unwrap_or_default(), time.div_euclid(PERIOD), slot_of(session));
    let parameters: [&(dyn ToSql + Sync); 7] =
        [&Text(&charge.agent), &Text(user), &period, &slot, &tokens, &nanodollars, &milliseconds];
    tokio::try_join!(biased; of_sessions, transaction.execute(CHARGE_PERIOD, &parameters))?;
    Ok(())
}

/// Returns the row of an agent and user to which a session is charged. Different hosts may choose different rows for a
/// session, because only the sum of the rows counts.
fn slot_of(session: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    session.hash(&mut hasher);
    signed(hasher.finish() % SLOTS)
}

/// Adds up amounts. Sums stop at the largest number.
const SUMS: &str = "least(coalesce(sum(tokens), 0), 9223372036854775807)::bigint,
                    least(coalesce(sum(nanodollars), 0), 9223372036854775807)::bigint,
                    least(coalesce(sum(milliseconds), 0), 9223372036854775807)::bigint";

async fn charged_to(connection: &Connection, to: &ChargedTo) -> Result<Spending, Failure> {
    let of_session = "session_charges WHERE session = $1 AND turn = $2";
    let (table, name, place) = match to {
        ChargedTo::Turn { session, turn } => (of_session, session.as_str(), i64::from(*turn)),
        ChargedTo::Session { session } => (of_session, session.as_str(), 0),
        ChargedTo::Agent { agent, since } => {
            ("period_charges WHERE agent = $1 AND period >= $2", agent.as_str(), since.div_euclid(PERIOD))
        }
        ChargedTo::User { user, since } => {
            let user = user.as_deref().unwrap_or_default();
            ("period_charges WHERE user_name = $1 AND period >= $2", user, since.div_euclid(PERIOD))
        }
    };
    let row = connection.query_one(&format!("SELECT {SUMS} FROM {table}"), &[&Text(name), &place]).await?;
    amounts(&row)
}

fn interval_charge(row: &Row) -> Result<IntervalCharge, Failure> {
    let (agent, user) = (text(row, 4)?, text(row, 5)?);
    let interval = usize::try_from(value::<i32>(row, 3)?).unwrap_or_default();
    Ok(IntervalCharge { interval, agent, user: (!user.is_empty()).then_some(user), spending: amounts(row)? })
}

fn amounts(row: &Row) -> Result<Spending, Failure> {
    Ok(Spending { tokens: number(row, 0)?, nanodollars: number(row, 1)?, milliseconds: number(row, 2)? })
}
