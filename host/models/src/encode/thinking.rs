//! The settings in each wire format that control how much a model thinks.

use crate::effort::{Effort, Thinking};
use serde_json::{Value, json};

/// Smallest number of thinking tokens that Anthropic accepts, from its documentation of extended thinking.
const MIN_THINKING_TOKENS: u32 = 1024;

/// Smallest number of thinking tokens of Gemini 2.5 Pro, from its documentation of thinking.
const MIN_GEMINI_TOKENS: u32 = 128;

/// Largest number of thinking tokens that every model of Gemini 2.5 accepts, from its documentation of thinking.
const MAX_GEMINI_TOKENS: u32 = 24_576;

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
    let tokens = tokens(effort, max_tokens / 2);
    if tokens < MIN_THINKING_TOKENS {
        return vec![];
    }
    vec![("thinking", json!({ "type": "enabled", "budget_tokens": tokens }))]
}

/// Returns the field `thinkingConfig` of Gemini. Models up to Gemini 2.5 need a number of thinking tokens. Later models
/// accept a level.
///
/// The settings are described at <https://ai.google.dev/gemini-api/docs/thinking>.
pub(super) fn gemini(model: &str, thinking: Option<Thinking>, effort: Effort, max_tokens: u32) -> Value {
    if thinking == Some(Thinking::Tokens) {
        // The thinking counts as part of the reply, so half of the reply remains for the answer.
        let tokens = tokens(effort, (max_tokens / 2).min(MAX_GEMINI_TOKENS));
        // Only the smaller models can answer without thinking.
        let tokens = if model.contains("flash") { tokens } else { tokens.max(MIN_GEMINI_TOKENS) };
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

/// Returns the number of thinking tokens for models that need a number, at most `limit`.
fn tokens(effort: Effort, limit: u32) -> u32 {
    let wanted = match effort {
        Effort::None => 0,
        Effort::Minimal => MIN_THINKING_TOKENS,
        Effort::Low => 2 * MIN_THINKING_TOKENS,
        Effort::Medium => 8 * MIN_THINKING_TOKENS,
        Effort::High => 16 * MIN_THINKING_TOKENS,
        Effort::Xhigh => 24 * MIN_THINKING_TOKENS,
        Effort::Max => limit,
    };
    wanted.min(limit)
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
        assert_eq!(gemini("gemini-3-pro", Some(Thinking::Effort), Effort::Max, 100)["thinkingLevel"], "high");
        assert_eq!(gemini("gemini-2.5-flash", by_tokens, Effort::Medium, 100_000)["thinkingBudget"], 8192);
        let budget = |model, effort| gemini(model, by_tokens, effort, 8192)["thinkingBudget"].clone();
        assert_eq!(budget("gemini-2.5-flash", Effort::Max), 4096, "half of the reply remains for the answer");
        assert_eq!(
            (budget("gemini-2.5-flash", Effort::None), budget("gemini-2.5-pro", Effort::None)),
            (json!(0), json!(128))
        );
    }
}
