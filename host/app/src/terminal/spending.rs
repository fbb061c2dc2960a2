//! Formats the cost of a turn: tokens, and dollars if the prices are known.

use super::text::{count, grouped};
use agent_core::model::Usage;
use agent_models::Price;
use std::collections::BTreeMap;

/// Prices of a turn's models, and the sum of its replies so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnSpending {
    prices: BTreeMap<String, Price>,
    dollars: f64,
    priced: PriceCoverage,
}

/// How many of the replies had a known price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PriceCoverage {
    #[default]
    Nothing,
    All,
    NotAll,
}

impl TurnSpending {
    /// Creates an empty sum with the prices of these models.
    pub(crate) fn new(prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self { prices: prices.into_iter().collect(), ..Self::default() }
    }

    /// Adds a reply of this model.
    pub(crate) fn add(&mut self, model: &str, usage: Usage) {
        let million = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        match self.prices.get(model) {
            Some(price) => {
                self.dollars +=
                    million(usage.prompt_tokens, price.prompt) + million(usage.completion_tokens, price.completion);
                self.priced =
                    if self.priced == PriceCoverage::NotAll { PriceCoverage::NotAll } else { PriceCoverage::All };
            }
            // Replies of the host itself cost nothing.
            None if usage.total() == 0 => {}
            None => self.priced = PriceCoverage::NotAll,
        }
    }

    /// The summary of the turn: model calls, tokens, and the cost if all prices are known.
    pub(crate) fn line(&self, calls: u32, usage: Usage) -> String {
        let calls = count(calls as usize, "model call");
        let (prompt, completion) = (grouped(usage.prompt_tokens), grouped(usage.completion_tokens));
        let line = format!("{calls}, {prompt} + {completion} tokens");
        if self.priced == PriceCoverage::All { format!("{line}, {}", dollars(self.dollars)) } else { line }
    }
}

/// Formats an amount with four decimal places below ten cents, and two above: `$0.0042`, `$1.30`.
fn dollars(amount: f64) -> String {
    if amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_cost_only_if_all_prices_are_known() {
        let usage = Usage { prompt_tokens: 12_000, completion_tokens: 500 };
        let mut spent = TurnSpending::new([("a/b".to_owned(), Price { prompt: 2.5, completion: 10.0 })]);
        spent.add("a/b", usage);
        spent.add("fallback_text", Usage::default());
        assert_eq!(spent.line(1, usage), "1 model call, 12,000 + 500 tokens, $0.0350");
        spent.add("c/d", usage);
        assert_eq!(spent.line(2, usage), "2 model calls, 12,000 + 500 tokens");
        assert_eq!(dollars(1.299), "$1.30");
    }
}
