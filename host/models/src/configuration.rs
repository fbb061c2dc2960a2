//! Configuration of providers, and a list of the providers whose addresses are built in (M2).

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

/// Configuration of one provider that implements the Chat Completions API.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfig {
    /// Name of the provider: the part of a model's name before the `/`. Media policies refer to the provider by
    /// this name.
    pub name: String,
    /// Base URL without `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Key that is sent as a bearer token. If `None`, no `Authorization` header is sent.
    pub key: Option<Secret>,
    /// Advice that error messages give if the key is missing or refused, such as ``set `OPENAI_API_KEY` ``.
    pub key_advice: String,
    /// Names and values of headers that are sent with every request. These headers replace headers of the same name
    /// that the host sets.
    pub headers: Vec<(String, Secret)>,
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
}

/// Prices in US dollars, each for one million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Price of one million prompt tokens, in US dollars.
    pub prompt: f64,
    /// Price of one million completion tokens, in US dollars.
    pub completion: f64,
}

/// A provider whose address is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProvider {
    /// Name of the provider: the part of a model's name before the `/`.
    pub name: &'static str,
    /// Base URL of the provider's API, without `/chat/completions`.
    pub base_url: &'static str,
    /// Environment variable that contains the key, or `None` for servers on this machine.
    pub key_variable: Option<&'static str>,
}

/// All providers with a built-in address. The addresses come from the providers' documentation.
pub const KNOWN_PROVIDERS: &[KnownProvider] = &[
    KnownProvider { name: "openai", base_url: "https://api.openai.com/v1", key_variable: Some("OPENAI_API_KEY") },
    KnownProvider { name: "groq", base_url: "https://api.groq.com/openai/v1", key_variable: Some("GROQ_API_KEY") },
    KnownProvider { name: "deepseek", base_url: "https://api.deepseek.com", key_variable: Some("DEEPSEEK_API_KEY") },
    KnownProvider { name: "mistral", base_url: "https://api.mistral.ai/v1", key_variable: Some("MISTRAL_API_KEY") },
    KnownProvider {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        key_variable: Some("OPENROUTER_API_KEY"),
    },
    KnownProvider { name: "ollama", base_url: "http://127.0.0.1:11434/v1", key_variable: None },
    KnownProvider { name: "lmstudio", base_url: "http://127.0.0.1:1234/v1", key_variable: None },
    KnownProvider { name: "llama-cpp", base_url: "http://127.0.0.1:8080/v1", key_variable: None },
    KnownProvider { name: "vllm", base_url: "http://127.0.0.1:8000/v1", key_variable: None },
];

/// Returns the built-in provider with the given name, if there is one.
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    KNOWN_PROVIDERS.iter().find(|provider| provider.name == name)
}
