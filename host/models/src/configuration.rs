//! Configuration of providers, and a list of the providers whose addresses are built in (M2).

use crate::effort::Effort;
use crate::protocol::Protocol;
use agent_core::cost::Cost;
use agent_core::model::Usage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A secret value, such as a key or the value of a header that may contain a key. The `Debug` output never contains
/// the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret value that was read from the environment or the configuration.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the secret value. Callers must use the value only to build a request.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// Configuration of one provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfig {
    /// Name of the provider: the part of a model's name before the `/`. Media policies refer to the provider by
    /// this name.
    pub name: String,
    /// Base URL, for example `https://api.openai.com/v1`, without the path of an API such as `/chat/completions`.
    pub base_url: String,
    /// Key that is sent in the header that the wire format prescribes, such as `Authorization`. If `None`, no key
    /// is sent.
    pub key: Option<Secret>,
    /// Advice that error messages give if the key is missing or refused, such as ``set `OPENAI_API_KEY` ``.
    pub key_advice: String,
    /// Names and values of headers that are sent with every request. These headers replace headers of the same name
    /// that the host sets.
    pub headers: Vec<(String, Secret)>,
    /// Wire format of requests and replies. Default: [`Protocol::ChatCompletions`].
    pub protocol: Protocol,
    /// Timeouts that apply to each request.
    pub timeouts: Timeouts,
    /// Configured windows and prices of models, keyed by the model's name without the provider's name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// Timeouts of requests to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time to establish a connection, including TLS. The default is 10 s.
    pub connect: Duration,
    /// Maximum time to wait for the start of the response, and then for each further chunk. The default is 120 s.
    pub stall: Duration,
    /// Maximum time from the request to the last byte of the response. The default is 10 min.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), stall: Duration::from_secs(120), total: Duration::from_secs(600) }
    }
}

/// Properties of one model that a configuration can set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelConfig {
    /// Context window in tokens. If `None`, the host uses the window from its table of known models, or 32,768 tokens
    /// if the table does not contain the model.
    pub window: Option<u32>,
    /// Price of the model's tokens. If `None`, the host uses the price from its table of known models. If this table
    /// contains no price either, the price is unknown.
    pub price: Option<Price>,
    /// How much the model thinks. If `None`, the provider decides.
    pub effort: Option<Effort>,
}

/// Prices in US dollars, each for one million tokens.
///
/// # Examples
///
/// ```
/// use agent_core::model::Usage;
/// use agent_models::Price;
///
/// let price = Price::new(2.5, 10.0);
/// assert_eq!(price.cost(Usage::new(12_000, 500)).dollars(), 0.035);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Price of prompt tokens.
    pub prompt: f64,
    /// Price of the tokens of replies, including thinking.
    pub completion: f64,
    /// Price of prompt tokens that are read from the provider's prompt cache. If `None`, cached tokens cost as much as
    /// other prompt tokens.
    pub cache_read: Option<f64>,
    /// Price of prompt tokens that are written to the provider's prompt cache. If `None`, these tokens cost as much as
    /// other prompt tokens.
    pub cache_write: Option<f64>,
    /// Number of prompt tokens above which all prompt tokens cost twice and the reply costs one and a half times as
    /// much. `None` if the prices do not depend on the length of the prompt.
    pub long_prompt: Option<u64>,
}

impl Price {
    /// Creates prices without discounts for cached tokens.
    pub fn new(prompt: f64, completion: f64) -> Self {
        Self { prompt, completion, cache_read: None, cache_write: None, long_prompt: None }
    }

    /// Returns the most that a model call with at most these tokens can cost, however many of them the provider reads from
    /// or writes to its prompt cache.
    pub fn highest_cost(&self, prompt_tokens: u64, reply_tokens: u64) -> Cost {
        let cached = [self.cache_read, self.cache_write].into_iter().flatten();
        let prompt = cached.fold(self.prompt, f64::max);
        Self { prompt, cache_read: None, cache_write: None, ..*self }.cost(Usage::new(prompt_tokens, reply_tokens))
    }

    /// Returns the cost of one model call.
    pub fn cost(&self, usage: Usage) -> Cost {
        let tokens = usage.details();
        let cost = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        let prompt = cost(tokens.uncached_prompt, self.prompt)
            + cost(tokens.cache_read, self.cache_read.unwrap_or(self.prompt))
            + cost(tokens.cache_write, self.cache_write.unwrap_or(self.prompt));
        let completion = cost(tokens.completion, self.completion);
        let prompt_tokens = tokens.uncached_prompt.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        Cost::from_dollars(match self.long_prompt {
            Some(limit) if prompt_tokens > limit => 2.0 * prompt + 1.5 * completion,
            _ => prompt + completion,
        })
    }
}

/// A provider whose address is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProvider {
    /// Name of the provider: the part of a model's name before the `/`.
    pub name: &'static str,
    /// Base URL of the provider's API, without the path of an API such as `/chat/completions`.
    pub base_url: &'static str,
    /// Environment variable that contains the key, or `None` for servers on this machine.
    pub key_variable: Option<&'static str>,
    /// Wire format of the provider's own API.
    pub protocol: Protocol,
}

/// All providers with a built-in address. The addresses come from the providers' documentation.
pub const KNOWN_PROVIDERS: &[KnownProvider] = &[
    remote("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    KnownProvider {
        protocol: Protocol::Anthropic,
        ..remote("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY")
    },
    KnownProvider {
        protocol: Protocol::Gemini,
        ..remote("gemini", "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY")
    },
    remote("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    remote("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    remote("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    remote("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    local("ollama", "http://127.0.0.1:11434/v1"),
    local("lmstudio", "http://127.0.0.1:1234/v1"),
    local("llama-cpp", "http://127.0.0.1:8080/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
];

const fn remote(name: &'static str, base_url: &'static str, key_variable: &'static str) -> KnownProvider {
    KnownProvider { name, base_url, key_variable: Some(key_variable), protocol: Protocol::ChatCompletions }
}

const fn local(name: &'static str, base_url: &'static str) -> KnownProvider {
    KnownProvider { name, base_url, key_variable: None, protocol: Protocol::ChatCompletions }
}

/// Returns the built-in provider with the given name, if there is one.
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    KNOWN_PROVIDERS.iter().find(|provider| provider.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::model::TokenDetails;

    /// O4: no call with these tokens costs more, whichever part of its prompt is cached.
    #[test]
    fn o4_the_highest_cost_covers_all_uses_of_the_cache() {
        let price = Price { cache_read: Some(0.5), cache_write: Some(5.0), ..Price::new(4.0, 20.0) };
        let highest = price.highest_cost(1_000_000, 10_000);
        assert_eq!(highest.dollars(), 5.2);
        for (uncached_prompt, cache_read, cache_write) in [(1_000_000, 0, 0), (0, 1_000_000, 0), (0, 0, 1_000_000)] {
            let details = TokenDetails { uncached_prompt, cache_read, cache_write, completion: 10_000, thinking: 0 };
            let cost = price.cost(Usage { details: Some(details), ..Usage::default() });
            assert!(cost.nanodollars <= highest.nanodollars, "{cost}");
        }
        let long = Price { long_prompt: Some(200_000), ..price };
        assert_eq!(long.highest_cost(1_000_000, 10_000).dollars(), 2.0 * 5.0 + 1.5 * 0.2);
    }
}
