//! Windows and prices of known models, for those that the configuration says nothing of (M2).
//!
//! The figures are those of the providers' public pages of models and prices (platform.openai.com/docs/pricing,
//! api-docs.deepseek.com, docs.mistral.ai, console.groq.com/docs/models), as published between September 2025 and spring
//! 2026; they were compared with stored copies and secondary listings on 2026-11-20, and left out where those disagreed
//! or a price has changed since. Prices are for tokens that no cache had. A provider changes them when it likes: what the
//! configuration says goes before.

use crate::configuration::{ModelConfig, Price};

/// Context window in tokens of a model that nobody knows.
pub const WINDOW: u32 = 32_768;

/// Provider, model, window, and price of a million prompt and completion tokens in US dollars.
type Known = (&'static str, &'static str, u32, Option<(f64, f64)>);

/// Windows are what a prompt and its reply may have together.
const KNOWN: &[Known] = &[
    ("openai", "gpt-5", 400_000, Some((1.25, 10.0))),
    ("openai", "gpt-5-mini", 400_000, Some((0.25, 2.0))),
    ("openai", "gpt-5-nano", 400_000, Some((0.05, 0.4))),
    ("openai", "gpt-4.1", 1_047_576, Some((2.0, 8.0))),
    ("openai", "gpt-4.1-mini", 1_047_576, Some((0.4, 1.6))),
    ("openai", "gpt-4.1-nano", 1_047_576, Some((0.1, 0.4))),
    ("openai", "gpt-4o", 128_000, Some((2.5, 10.0))),
    ("openai", "gpt-4o-mini", 128_000, Some((0.15, 0.6))),
    ("openai", "o1", 200_000, Some((15.0, 60.0))),
    ("openai", "o3", 200_000, Some((2.0, 8.0))),
    ("openai", "o3-mini", 200_000, Some((1.1, 4.4))),
    ("openai", "o4-mini", 200_000, Some((1.1, 4.4))),
    ("openai", "gpt-4-turbo", 128_000, Some((10.0, 30.0))),
    ("openai", "gpt-4", 8_192, Some((30.0, 60.0))),
    ("openai", "gpt-3.5-turbo", 16_385, Some((0.5, 1.5))),
    ("deepseek", "deepseek-chat", 128_000, None),
    ("deepseek", "deepseek-reasoner", 128_000, None),
    ("mistral", "mistral-large", 128_000, None),
    ("mistral", "mistral-small", 128_000, None),
    ("groq", "llama-3.3-70b-versatile", 131_072, None),
    ("groq", "llama-3.1-8b-instant", 131_072, None),
    ("groq", "openai/gpt-oss-120b", 131_072, None),
    ("groq", "openai/gpt-oss-20b", 131_072, None),
];

/// What is known of a provider's model: one in the table, or a dated or `-latest` form of it. OpenRouter's names carry the
/// owner's; its prices are its own. What a server on this machine can hold is up to how it was started.
pub fn find(provider: &str, model: &str) -> Option<ModelConfig> {
    if provider == "openrouter" {
        let (owner, model) = model.split_once('/')?;
        let found = find(owner, model).filter(|_| owner != "openrouter")?;
        return Some(ModelConfig { price: None, ..found });
    }
    let is_it = |(owner, name, ..): &&Known| {
        *owner == provider && model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || is_edition(rest))
    };
    let (_, _, window, price) = KNOWN.iter().find(is_it)?;
    let price = price.map(|(prompt, completion)| Price { prompt, completion });
    Some(ModelConfig { window: Some(*window), price })
}

/// `-latest`, or a date such as `-2024-08-06`, `-2411`, `-0613`.
fn is_edition(rest: &str) -> bool {
    rest == "-latest"
        || rest.strip_prefix('-').is_some_and(|date| {
            let digits = date.bytes().filter(u8::is_ascii_digit).count();
            (4..=8).contains(&digits) && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M2
    #[test]
    fn m2_editions_of_known_models_are_known_and_relatives_are_not() {
        let window = |provider, model| find(provider, model).and_then(|found| found.window);
        assert_eq!(window("openai", "gpt-4o"), Some(128_000));
        assert_eq!(window("openai", "gpt-4o-2024-08-06"), Some(128_000));
        assert_eq!(window("openai", "gpt-4-0613"), Some(8_192));
        assert_eq!(window("mistral", "mistral-large-latest"), Some(128_000));
        assert_eq!(window("openrouter", "openai/gpt-4.1-mini"), Some(1_047_576));
        assert_eq!(find("openrouter", "openai/gpt-4.1-mini").unwrap().price, None);
        for model in ["gpt-4-32k", "gpt-5-pro", "gpt-4o-audio-preview", "o3-pro", "gpt", ""] {
            assert_eq!(find("openai", model), None, "{model}");
        }
        assert_eq!(find("ollama", "gpt-4o"), None);
        assert_eq!(find("openrouter", "openrouter/openrouter/x"), None);
    }
}
