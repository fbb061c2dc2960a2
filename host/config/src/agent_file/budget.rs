//! Reads `[budget]`: how many tokens, how much money and how much time may be used (O4).

use super::document::Table;
use agent_core::budget::{BudgetLimits, Budgets};
use agent_core::cost::Cost;

/// Reads the budgets of the file.
pub(super) fn read(root: &Table<'_>) -> Budgets {
    let Some(table) = root.table("budget") else { return Budgets::default() };
    let limits = |name| table.table(name).map(|table| limits(&table)).unwrap_or_default();
    Budgets {
        turn: limits("turn"),
        session: limits("session"),
        agent_day: limits("agent_day"),
        user_day: limits("user_day"),
        time_zone: table.get("time_zone").and_then(|value| value.text()),
        delegators: Vec::new(),
    }
}

fn limits(table: &Table<'_>) -> BudgetLimits {
    let number = |key| table.get(key).and_then(|value| value.number_u64());
    let cost = table.get("cost").and_then(|value| value.number_f64()).map(Cost::from_dollars);
    BudgetLimits {
        tokens: number("tokens"),
        nanodollars: cost.map(|cost| cost.nanodollars),
        milliseconds: number("seconds").map(|seconds| seconds.saturating_mul(1_000)),
    }
}
