//! Formats budgets and what was used of them (O4).

use super::text::grouped;
use agent_core::budget::{BudgetLimits, BudgetScope, Spending};
use agent_core::cost::Cost;

/// Formats whose budget it is.
pub(crate) fn owner(scope: BudgetScope) -> &'static str {
    match scope {
        BudgetScope::Turn => "turn",
        BudgetScope::Session => "session",
        BudgetScope::AgentDay => "agent per day",
        BudgetScope::UserDay => "user per day",
    }
}

/// Formats the limits of a budget.
pub(crate) fn limits(limits: &BudgetLimits) -> String {
    let tokens = limits.tokens.map(|tokens| format!("{} tokens", grouped(tokens)));
    let cost = limits.nanodollars.map(cost);
    let time = limits.milliseconds.map(|time| format!("{} of work", seconds(time)));
    tokens.into_iter().chain(cost).chain(time).collect::<Vec<_>>().join(", ")
}

/// Formats what was used of each limit of a budget.
pub(crate) fn used(limits: &BudgetLimits, used: &Spending) -> String {
    let tokens = limits.tokens.map(|limit| format!("{} of {} tokens", grouped(used.tokens), grouped(limit)));
    let money = limits.nanodollars.map(|limit| format!("{} of {}", cost(used.nanodollars), cost(limit)));
    let time = limits.milliseconds.map(|limit| format!("{} of {} of work", seconds(used.milliseconds), seconds(limit)));
    tokens.into_iter().chain(money).chain(time).collect::<Vec<_>>().join(", ")
}

fn cost(nanodollars: u64) -> String {
    Cost { nanodollars, partial: false }.to_string()
}

fn seconds(milliseconds: u64) -> String {
    format!("{} s", grouped(milliseconds / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o4_formats_the_limits_that_are_set() {
        let all = BudgetLimits { tokens: Some(200_000), nanodollars: Some(500_000_000), milliseconds: Some(3_600_000) };
        assert_eq!(limits(&all), "200,000 tokens, $0.50, 3,600 s of work");
        let spent = Spending { tokens: 1_234, nanodollars: 10_000_000, milliseconds: 2_900 };
        assert_eq!(used(&all, &spent), "1,234 of 200,000 tokens, $0.0100 of $0.50, 2 s of 3,600 s of work");
        let money = BudgetLimits { nanodollars: Some(1_000_000_000), ..BudgetLimits::default() };
        assert_eq!(used(&money, &spent), "$0.0100 of $1.00");
    }
}
