//! What a turn has cost: tokens and, where the prices are known, money.

use super::text::{count, grouped};
use agent_core::model::Usage;
use agent_models::Price;
use std::collections::BTreeMap;

/// What the prices of a turn's models are, and what its replies came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    prices: BTreeMap<String, Price>,
    dollars: f64,
    priced: Priced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Priced {
    #[default]
    Nothing,
    All,
    NotAll,
}

impl Spent {
    /// Nothing yet, with what the tokens of these models cost.
    pub(crate) fn new(prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self { prices: prices.into_iter().collect(), ..Self::default() }
    }

    /// A reply of this model.
    pub(crate) fn add(&mut self, model: &str, usage: Usage) {
        let million = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        match self.prices.get(model) {
            Some(price) => {
                self.dollars +=
                    million(usage.prompt_tokens, price.prompt) + million(usage.completion_tokens, price.completion);
                self.priced = if self.priced == Priced::NotAll { Priced::NotAll } else { Priced::All };
            }
            // What the host said itself costs nothing.
            None if usage.total() == 0 => {}
            None => self.priced = Priced::NotAll,
        }
    }

    /// The turn's line: calls, tokens, and the cost where all of it is known.
    pub(crate) fn line(&self, calls: u32, usage: Usage) -> String {
        let calls = count(calls as usize, "model call");
        let (prompt, completion) = (grouped(usage.prompt_tokens), grouped(usage.completion_tokens));
        let line = format!("{calls}, {prompt} + {completion} tokens");
        if self.priced == Priced::All { format!("{line}, {}", dollars(self.dollars)) } else { line }
    }
}

/// `$0.0042`, `$1.30`
fn dollars(amount: f64) -> String {
    if amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_costs_what_its_replies_cost_where_that_is_known() {
        let usage = Usage { prompt_tokens: 12_000, completion_tokens: 500 };
        let mut spent = Spent::new([("a/b".to_owned(), Price { prompt: 2.5, completion: 10.0 })]);
        spent.add("a/b", usage);
        spent.add("fallback_text", Usage::default());
        assert_eq!(spent.line(1, usage), "1 model call, 12,000 + 500 tokens, $0.0350");
        spent.add("c/d", usage);
        assert_eq!(spent.line(2, usage), "2 model calls, 12,000 + 500 tokens");
        assert_eq!(dollars(1.299), "$1.30");
    }
}
