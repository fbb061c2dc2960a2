//! How much a model thinks before it answers, and the settings of each wire format for this.

use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// Smallest number of thinking tokens that Anthropic accepts, from its documentation of extended thinking.
const MIN_THINKING_TOKENS: u32 = 1024;

/// Largest number of thinking tokens that every model of Gemini 2.5 accepts, from its documentation of thinking.
const MAX_GEMINI_TOKENS: u32 = 24_576;

/// How much a model thinks before it answers. The configuration key `effort` of a model selects it. Not every model
/// accepts every value.
///
/// # Examples
///
/// ```
/// use agent_models::Effort;
///
/// assert_eq!("high".parse(), Ok(Effort::High));
/// assert!("much".parse::<Effort>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// The model does not think.
    None,
    /// The model thinks as little as possible.
    Minimal,
    /// The model thinks little.
    Low,
    /// The model thinks a medium amount.
    Medium,
    /// The model thinks a lot.
    High,
    /// The model thinks more than with [`Effort::High`].
    Xhigh,
    /// The model thinks as much as it can.
    Max,
}

/// The name is not the name of an effort. The message lists the accepted names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a known effort: use `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`")]
pub struct UnknownEffort(pub String);

impl Effort {
    /// All efforts, from the smallest to the largest.
    pub const ALL: [Self; 7] = [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The names of all efforts in the configuration.
    pub const NAMES: [&'static str; 7] = [
        Self::None.name(),
        Self::Minimal.name(),
        Self::Low.name(),
        Self::Medium.name(),
        Self::High.name(),
        Self::Xhigh.name(),
        Self::Max.name(),
    ];

    /// Returns the name in the configuration, which OpenAI and Anthropic use as well.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Returns the number of thinking tokens for models that need a number, at most `limit`.
    fn tokens(self, limit: u32) -> u32 {
        let wanted = match self {
            Self::None => 0,
            Self::Minimal => MIN_THINKING_TOKENS,
            Self::Low => 2 * MIN_THINKING_TOKENS,
            Self::Medium => 8 * MIN_THINKING_TOKENS,
            Self::High => 16 * MIN_THINKING_TOKENS,
            Self::Xhigh => 24 * MIN_THINKING_TOKENS,
            Self::Max => limit,
        };
        wanted.min(limit)
    }
}

/// How the thinking of a model is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thinking {
    /// The model does not think.
    Never,
    /// By a number of tokens.
    Tokens,
    /// By an effort.
    Effort,
}

/// Returns the fields `thinking` and `output_config` of Anthropic Messages. Models up to Claude 4.5 need a number of
/// thinking tokens. Later models decide the number themselves.
///
/// The settings are described at <https://docs.anthropic.com/en/docs/build-with-claude/adaptive-thinking>.
pub(super) fn anthropic(thinking: Option<Thinking>, effort: Effort, max_tokens: u32) -> Vec<(&'static str, Value)> {
    if effort == Effort::None {
        return vec![("thinking", json!({ "type": "disabled" }))];
    }
    if thinking != Some(Thinking::Tokens) {
        // Anthropic has no effort below `low`.
        let effort = effort.max(Effort::Low);
        return vec![
            ("thinking", json!({ "type": "adaptive" })),
            ("output_config", json!({ "effort": effort.name() })),
        ];
    }
    // The thinking counts as part of the reply, so half of the reply remains for the answer.
    let tokens = effort.tokens(max_tokens / 2);
    if tokens < MIN_THINKING_TOKENS {
        return vec![];
    }
    vec![("thinking", json!({ "type": "enabled", "budget_tokens": tokens }))]
}

/// Returns the field `thinkingConfig` of Gemini. Models up to Gemini 2.5 need a number of thinking tokens. Later models
/// accept a level.
///
/// The settings are described at <https://ai.google.dev/gemini-api/docs/thinking>.
pub(super) fn gemini(thinking: Option<Thinking>, effort: Effort, max_tokens: u32) -> Value {
    if thinking == Some(Thinking::Tokens) {
        let tokens = effort.tokens(max_tokens.min(MAX_GEMINI_TOKENS));
        return json!({ "thinkingBudget": tokens, "includeThoughts": tokens > 0 });
    }
    let level = match effort {
        Effort::None | Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Xhigh | Effort::Max => "high",
    };
    json!({ "thinkingLevel": level, "includeThoughts": true })
}

impl fmt::Display for Effort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Effort {
    type Err = UnknownEffort;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|effort| effort.name() == name).ok_or_else(|| UnknownEffort(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_the_effort_becomes_the_setting_that_the_model_accepts() {
        let fields = |thinking, effort, tokens| {
            let fields = anthropic(thinking, effort, tokens).into_iter();
            fields.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let adaptive = [r#"thinking={"type":"adaptive"}"#, r#"output_config={"effort":"low"}"#];
        assert_eq!(fields(None, Effort::Minimal, 8000), adaptive);
        let number = |tokens: u32| vec![format!(r#"thinking={{"type":"enabled","budget_tokens":{tokens}}}"#)];
        let by_tokens = Some(Thinking::Tokens);
        assert_eq!(fields(by_tokens, Effort::Low, 32_000), number(2048));
        assert_eq!(fields(by_tokens, Effort::Max, 8000), number(4000));
        assert_eq!(fields(by_tokens, Effort::Max, 2000), Vec::<String>::new(), "too few tokens to think");
        assert_eq!(fields(by_tokens, Effort::None, 2000), [r#"thinking={"type":"disabled"}"#]);
        assert_eq!(gemini(Some(Thinking::Effort), Effort::Max, 100)["thinkingLevel"], "high");
        assert_eq!(gemini(by_tokens, Effort::Medium, 100_000)["thinkingBudget"], 8192);
    }
}
