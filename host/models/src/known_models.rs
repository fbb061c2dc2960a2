//! The table of known models: context windows, prices and abilities (M2). The host uses the table for everything that
//! the configuration of a model does not set.
//!
//! The file `known_models.json` contains the table and its sources. A figure is left out if the sources disagree. A
//! provider may change its prices at any time, so the configuration takes precedence. Each entry has these fields:
//!
//! - `provider` and `model`: the names of the provider and of the model. A dated version of the model is known as well.
//! - `window`: the context window in tokens, which covers the prompt and the reply together.
//! - `prompt` and `completion`: prices in US dollars for one million uncached prompt tokens and for one million tokens
//!   of the reply.
//! - `cache_read` and `cache_write`: prices in US dollars for one million prompt tokens that are read from or written
//!   to the provider's prompt cache.
//! - `long_prompt`: number of prompt tokens above which all prompt tokens cost twice and the reply costs one and a half
//!   times as much.
//! - `thinking`: how the model's thinking is set, either by a number of `tokens` or by an `effort`. Models without this
//!   field do not think.
//! - `images`: whether the model accepts images. Default: `true`.

use crate::configuration::Price;
use crate::effort::Thinking;
use serde::Deserialize;
use std::sync::LazyLock;

/// Context window of an unknown model, in tokens.
pub const DEFAULT_WINDOW: u32 = 32_768;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("known_models.json")).expect("a test checks that the table is valid")
});

#[derive(Deserialize)]
struct Table {
    models: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    provider: String,
    model: String,
    window: u32,
    prompt: Option<f64>,
    completion: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    long_prompt: Option<u64>,
    thinking: Option<ThinkingSetting>,
    images: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThinkingSetting {
    Tokens,
    Effort,
}

/// What the table contains about a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownModel {
    /// Context window in tokens.
    pub window: Option<u32>,
    /// Prices of the model's tokens.
    pub price: Option<Price>,
    /// How the model's thinking is set. `None` if the model is unknown.
    pub(crate) thinking: Option<Thinking>,
    /// Whether the model accepts images. `None` if the model is unknown.
    pub images: Option<bool>,
}

/// Returns the names of the models in the table, as `PROVIDER/MODEL`.
pub fn known_model_names() -> impl Iterator<Item = String> {
    TABLE.models.iter().map(|entry| format!("{}/{}", entry.provider, entry.model))
}

/// Returns what the table contains about a model. `model` may also name a dated or `-latest` version of a known model.
/// Nothing is known about a model that is not in the table.
///
/// OpenRouter's model names begin with the owner of the model, such as `openai/gpt-4o`. OpenRouter sets its own prices,
/// so no price is known for its models. The window of a model on a local server depends on how the server was started,
/// so this window is unknown too.
pub fn find(provider: &str, model: &str) -> Option<KnownModel> {
    if provider == "openrouter" {
        let (owner, model) = model.split_once('/')?;
        let owner = if owner == "google" { "gemini" } else { owner };
        let found = find(owner, model).filter(|_| owner != "openrouter")?;
        return Some(KnownModel { price: None, ..found });
    }
    let matches = |entry: &&Entry| {
        let suffix = model.strip_prefix(&*entry.model);
        entry.provider == provider && suffix.is_some_and(|suffix| suffix.is_empty() || is_version(suffix))
    };
    let entry = TABLE.models.iter().find(matches)?;
    let price = entry.prompt.zip(entry.completion).map(|(prompt, completion)| Price {
        cache_read: entry.cache_read,
        cache_write: entry.cache_write,
        long_prompt: entry.long_prompt,
        ..Price::new(prompt, completion)
    });
    let thinking = match entry.thinking {
        None => Thinking::Never,
        Some(ThinkingSetting::Tokens) => Thinking::Tokens,
        Some(ThinkingSetting::Effort) => Thinking::Effort,
    };
    let images = Some(entry.images.unwrap_or(true));
    Some(KnownModel { window: Some(entry.window), price, thinking: Some(thinking), images })
}

/// Returns whether `suffix` marks a version of a model. Such a suffix is `-latest`, or a date such as `-2024-08-06`,
/// `-2411` or `-0613`.
fn is_version(suffix: &str) -> bool {
    suffix == "-latest"
        || suffix.strip_prefix('-').is_some_and(|date| {
            let digits = date.bytes().filter(u8::is_ascii_digit).count();
            (3..=8).contains(&digits) && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
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
        for model in ["gpt-4-32k", "gpt-5-image", "gpt-4o-audio-preview", "o3-pro", "gpt", ""] {
            assert_eq!(find("openai", model), None, "{model}");
        }
        assert_eq!(window("anthropic", "claude-haiku-4-5-20251001"), Some(200_000));
        assert_eq!(window("openrouter", "google/gemini-2.5-pro"), Some(1_048_576));
        assert_eq!(find("ollama", "gpt-4o"), None);
        assert_eq!(find("openrouter", "openrouter/openrouter/x"), None);
    }

    /// M2: the table is valid, contains each model only once, and contains only positive prices.
    #[test]
    fn m2_the_table_of_known_models_is_valid() {
        let mut names = std::collections::HashSet::new();
        for entry in &TABLE.models {
            assert!(names.insert((&entry.provider, &entry.model)), "{} is there twice", entry.model);
            let prices = [entry.prompt, entry.completion, entry.cache_read, entry.cache_write];
            assert!(prices.into_iter().flatten().all(|price| price > 0.0), "{}", entry.model);
            assert_eq!(entry.prompt.is_some(), entry.completion.is_some(), "{}", entry.model);
            assert!(entry.window >= 8192, "{}", entry.model);
        }
    }
}
