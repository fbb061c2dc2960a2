//! Formats the cost of a turn: tokens, and dollars if the prices are known.

use super::text::{count, grouped};
use agent_core::model::Usage;
use agent_models::Price;
use std::collections::BTreeMap;

/// Prices of a turn's models, and the cost of the turn's replies so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnSpending {
    prices: BTreeMap<String, Price>,
    dollars: f64,
    priced: PriceCoverage,
}

/// Whether the prices of the replies are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PriceCoverage {
    /// Prices have not been needed so far, because the replies cost nothing.
    #[default]
    Nothing,
    /// The prices of all replies are known.
    All,
    /// The price of at least one reply is unknown.
    NotAll,
}

impl TurnSpending {
    /// Creates a record with a cost of zero, for a turn whose models have these prices.
    pub(crate) fn new(prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self { prices: prices.into_iter().collect(), ..Self::default() }
    }

    /// Adds the cost of a reply from the model `model`.
    pub(crate) fn add(&mut self, model: &str, usage: Usage) {
        match self.prices.get(model) {
            Some(price) => {
                self.dollars += price.cost(usage);
                self.priced =
                    if self.priced == PriceCoverage::NotAll { PriceCoverage::NotAll } else { PriceCoverage::All };
            }
            // Replies that the host itself writes cost nothing.
            None if usage.total() == 0 => {}
            None => self.priced = PriceCoverage::NotAll,
        }
    }

    /// Formats the summary of the turn: model calls, tokens, and the cost if all prices are known.
    pub(crate) fn line(&self, calls: u32, usage: Usage) -> String {
        let calls = count(calls as usize, "model call");
        let (prompt, completion) = (grouped(usage.prompt_tokens), grouped(usage.completion_tokens));
        let line = format!("{calls}, {prompt} + {completion} tokens");
        if self.priced == PriceCoverage::All { format!("{line}, {}", dollars(self.dollars)) } else { line }
    }
}

/// Formats an amount in dollars, with four decimal places for amounts below ten cents and two decimal places for larger
/// amounts, such as `$0.0042` and `$1.30`.
fn dollars(amount: f64) -> String {
    if amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_cost_only_if_all_prices_are_known() {
        let usage = Usage::new(12_000, 500);
        let mut spent = TurnSpending::new([("a/b".to_owned(), Price::new(2.5, 10.0))]);
        spent.add("a/b", usage);
        spent.add("fallback_text", Usage::default());
        assert_eq!(spent.line(1, usage), "1 model call, 12,000 + 500 tokens, $0.0350");
        spent.add("c/d", usage);
        assert_eq!(spent.line(2, usage), "2 model calls, 12,000 + 500 tokens");
        assert_eq!(dollars(1.299), "$1.30");
    }
}
