//! Context windows and prices of known models. The host uses them for models whose window or price is not
//! configured (M2).
//!
//! The figures come from the providers' public pages of models and prices (platform.openai.com/docs/pricing,
//! api-docs.deepseek.com, docs.mistral.ai, console.groq.com/docs/models), as published between September 2025 and
//! spring 2026. On 2026-11-20, the figures were compared with stored copies of these pages and with listings of other
//! sites. A figure is left out if the sources disagree or if the price has changed since its publication. Prices apply
//! to tokens that the provider has not cached. A provider may change its prices at any time, so the configuration
//! takes precedence.

use crate::configuration::{ModelConfig, Price};

/// Context window of an unknown model, in tokens.
pub const DEFAULT_WINDOW: u32 = 32_768;

/// A known model: its provider, its name, its context window in tokens, and its prices in US dollars for one million
/// prompt tokens and for one million completion tokens.
type KnownModel = (&'static str, &'static str, u32, Option<(f64, f64)>);

/// All known models. A context window covers the prompt and the reply together.
const KNOWN: &[KnownModel] = &[
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

/// Returns the context window and price of a known model. `model` may have a suffix that marks a version of a known
/// model, such as a date or `-latest`.
///
/// OpenRouter's model names begin with the owner of the model, such as `openai/gpt-4o`. OpenRouter sets its own prices,
/// so no price is known for its models. Models on local servers are not known, because the context window of such a
/// model depends on how the server was started.
pub fn find(provider: &str, model: &str) -> Option<ModelConfig> {
    if provider == "openrouter" {
        let (owner, model) = model.split_once('/')?;
        let found = find(owner, model).filter(|_| owner != "openrouter")?;
        return Some(ModelConfig { price: None, ..found });
    }
    let matches = |(owner, name, ..): &&KnownModel| {
        *owner == provider && model.strip_prefix(name).is_some_and(|suffix| suffix.is_empty() || is_version(suffix))
    };
    let (_, _, window, price) = KNOWN.iter().find(matches)?;
    let price = price.map(|(prompt, completion)| Price { prompt, completion });
    Some(ModelConfig { window: Some(*window), price })
}

/// Returns whether `suffix` marks a version of a model. Such a suffix is `-latest`, or a date such as `-2024-08-06`,
/// `-2411` or `-0613`.
fn is_version(suffix: &str) -> bool {
    suffix == "-latest"
        || suffix.strip_prefix('-').is_some_and(|date| {
            let digits = date.bytes().filter(u8::is_ascii_digit).count();
            (4..=8).contains(&digits) && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m2_versions_of_known_models_are_known_but_other_variants_are_not() {
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
