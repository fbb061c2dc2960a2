//! Usage and costs of model calls and of turns.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of nanodollars in a US dollar.
const NANODOLLARS_PER_DOLLAR: f64 = 1e9;

/// Token counts of model calls, as the providers reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt. Anthropic's count does not include the tokens that were read from or written to its
    /// prompt cache.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of the reply. Gemini's count does not include the tokens of the model's thinking.
    #[serde(default)]
    pub completion_tokens: u64,
    /// The same tokens, divided into groups that have different prices. `None` if the provider reported only the two
    /// counts above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<TokenDetails>,
    /// The cost of the tokens. `None` if no price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// All tokens of model calls, divided into groups that have different prices. Each token belongs
/// to at most one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenDetails {
    /// Prompt tokens that were neither read from the provider's prompt cache nor written to it.
    pub uncached_prompt: u64,
    /// Prompt tokens that were read from the provider's prompt cache.
    pub cache_read: u64,
    /// Prompt tokens that were written to the provider's prompt cache.
    pub cache_write: u64,
    /// All tokens that the model wrote, including its thinking.
    pub completion: u64,
    /// The part of `completion` that is thinking. This count is information only and has no price of its own.
    pub thinking: u64,
}

impl TokenDetails {
    /// All tokens together.
    pub fn total(self) -> u64 {
        let Self { uncached_prompt, cache_read, cache_write, completion, thinking: _ } = self;
        [uncached_prompt, cache_read, cache_write, completion].into_iter().fold(0, u64::saturating_add)
    }
}

impl Usage {
    /// Creates usage without details.
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { prompt_tokens, completion_tokens, details: None, cost: None }
    }

    /// Prompt and completion tokens together, which are the default execution units (L5).
    pub fn total(self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// Returns the details. If the provider reported no details, no token counts as cached.
    pub fn details(self) -> TokenDetails {
        let Self { prompt_tokens, completion_tokens, details, .. } = self;
        let without_cache =
            TokenDetails { uncached_prompt: prompt_tokens, completion: completion_tokens, ..Default::default() };
        details.unwrap_or(without_cache)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.cost = sum(self, &other);
        if self.details.is_some() || other.details.is_some() {
            let mut sum = self.details();
            sum += other.details();
            self.details = Some(sum);
        }
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
    }
}

impl std::ops::AddAssign for TokenDetails {
    fn add_assign(&mut self, other: Self) {
        let Self { uncached_prompt, cache_read, cache_write, completion, thinking } = self;
        let sums = [
            (uncached_prompt, other.uncached_prompt),
            (cache_read, other.cache_read),
            (cache_write, other.cache_write),
            (completion, other.completion),
            (thinking, other.thinking),
        ];
        for (sum, addend) in sums {
            *sum = sum.saturating_add(addend);
        }
    }
}

/// What model calls cost, in US dollars. The amount is an integer, so that sums are exact and do not depend on the
/// order of the calls.
///
/// # Examples
///
/// ```
/// use agent_core::cost::Cost;
///
/// let cost = Cost::from_dollars(0.035);
/// assert_eq!((cost.nanodollars, cost.to_string()), (35_000_000, "$0.0350".to_owned()));
/// assert_eq!(Cost::from_dollars(1.299).to_string(), "$1.30");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The amount in nanodollars. One nanodollar is 10⁻⁹ US dollars.
    pub nanodollars: u64,
    /// Whether the amount is incomplete, because the prices of some tokens are unknown.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

impl Cost {
    /// Converts an amount in US dollars, and rounds it to nanodollars. A negative amount becomes 0.
    pub fn from_dollars(dollars: f64) -> Self {
        Self { nanodollars: (dollars * NANODOLLARS_PER_DOLLAR).round() as u64, partial: false }
    }

    /// Returns the amount in US dollars.
    pub fn dollars(self) -> f64 {
        self.nanodollars as f64 / NANODOLLARS_PER_DOLLAR
    }
}

/// Adds the costs of two groups of model calls. The result is partial if one of the groups used tokens whose cost is
/// unknown. The result is `None` if no cost is known.
fn sum(left: &Usage, right: &Usage) -> Option<Cost> {
    if left.cost.is_none() && right.cost.is_none() {
        return None;
    }
    let is_partial = |usage: &Usage| usage.cost.map_or(usage.total() > 0, |cost| cost.partial);
    let nanodollars = |usage: &Usage| usage.cost.map_or(0, |cost| cost.nanodollars);
    Some(Cost {
        nanodollars: nanodollars(left).saturating_add(nanodollars(right)),
        partial: is_partial(left) || is_partial(right),
    })
}

/// What a turn has used so far (L5). The turn may be open, suspended or ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCost {
    /// Number of the turn in its session, starting at 1.
    pub turn: u32,
    /// Execution units of the whole turn.
    pub execution_units: u64,
    /// Token usage of the whole turn.
    pub usage: Usage,
    /// Number of model calls.
    pub interactions: u32,
    /// Estimated number of tokens by which media policies shortened the prompts (P4). Like the context budget, the
    /// estimate counts 1,000 tokens for each media item.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved_tokens: u64,
}

impl fmt::Display for Cost {
    /// Formats the amount with four decimal places if it is less than ten cents, and otherwise with two. A partial
    /// amount has the prefix `at least`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.partial {
            formatter.write_str("at least ")?;
        }
        match self.dollars() {
            dollars if self.nanodollars > 0 && dollars < 0.00005 => formatter.write_str("less than $0.0001"),
            dollars if dollars < 0.1 => write!(formatter, "${dollars:.4}"),
            dollars => write!(formatter, "${dollars:.2}"),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(tokens: u64, cost: Option<Cost>) -> Usage {
        Usage { cost, ..Usage::new(tokens, 0) }
    }

    /// D1: A sum of costs is partial if and only if the cost of some tokens is unknown.
    #[test]
    fn d1_unknown_prices_make_a_sum_partial() {
        let (cent, unknown) = (usage(10, Some(Cost::from_dollars(0.01))), usage(10, None));
        let added = |usages: &[Usage]| {
            let mut sum = Usage::default();
            usages.iter().for_each(|usage| sum += *usage);
            sum.cost
        };
        let cost = |nanodollars, partial| Some(Cost { nanodollars, partial });
        assert_eq!(added(&[]), None);
        assert_eq!(added(&[unknown, unknown]), None);
        assert_eq!(added(&[cent, cent]), cost(20_000_000, false));
        assert_eq!(added(&[cent, Usage::default()]), cost(10_000_000, false));
        for order in [[cent, cent, unknown], [cent, unknown, cent], [unknown, cent, cent]] {
            assert_eq!(added(&order), cost(20_000_000, true));
        }
    }

    #[test]
    fn amounts_are_formatted_for_users() {
        let text = |nanodollars, partial| Cost { nanodollars, partial }.to_string();
        assert_eq!(text(0, false), "$0.0000");
        assert_eq!(text(1_000, false), "less than $0.0001");
        assert_eq!(text(42_000_000, true), "at least $0.0420");
        assert_eq!(text(u64::MAX, false), "$18446744073.71");
        assert_eq!(Cost::from_dollars(-1.0), Cost::default());
        assert_eq!(serde_json::to_string(&Cost::from_dollars(1.0)).unwrap(), r#"{"nanodollars":1000000000}"#);
    }
}
