//! Formats the usage of model calls: tokens, and dollars if the prices are known.

use super::text::{count, grouped};
use agent_core::cost::TurnCost;
use agent_core::model::Usage;

/// Formats the number of model calls, their tokens and, if a price is known, their cost.
pub(crate) fn spending(calls: u64, usage: Usage) -> String {
    let calls = count(usize::try_from(calls).unwrap_or(usize::MAX), "model call");
    let (prompt, completion) = (grouped(usage.prompt_tokens), grouped(usage.completion_tokens));
    let line = format!("{calls}, {prompt} + {completion} tokens");
    match usage.cost {
        Some(cost) => format!("{line}, {cost}"),
        None => line,
    }
}

/// Like [`spending`], for a turn. Also formats the tokens that media policies saved, if they saved any.
pub(crate) fn turn_spending(cost: &TurnCost) -> String {
    let spent = spending(cost.interactions.into(), cost.usage);
    match cost.saved_tokens {
        0 => spent,
        saved => format!("{spent}, about {} tokens saved by masking media", grouped(saved)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::cost::Cost;

    #[test]
    fn shows_the_cost_if_a_price_is_known() {
        let mut usage = Usage { cost: Some(Cost::from_dollars(0.035)), ..Usage::new(12_000, 500) };
        assert_eq!(spending(1, usage), "1 model call, 12,000 + 500 tokens, $0.0350");
        usage += Usage::new(1, 1);
        assert_eq!(spending(2, usage), "2 model calls, 12,001 + 501 tokens, at least $0.0350");
        assert_eq!(spending(0, Usage::default()), "0 model calls, 0 + 0 tokens");
        let cost = TurnCost { interactions: 3, saved_tokens: 1_950, ..TurnCost::default() };
        let expected = "3 model calls, 0 + 0 tokens, about 1,950 tokens saved by masking media";
        assert_eq!(turn_spending(&cost), expected);
    }
}
