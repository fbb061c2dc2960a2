//! How providers are reached: what the configuration says of them, and what is known without it (M2).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A value that is never shown: a key, or a header that may hold one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// From the environment or the configuration.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// For the request only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// One provider that speaks Chat Completions.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfig {
    /// What stands before the `/` of a model's name; media policies are chosen by it.
    pub name: String,
    /// Without `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as a bearer token. None: no `Authorization` header.
    pub key: Option<Secret>,
    /// What to do about a missing or refused key, such as ``set `OPENAI_API_KEY` ``; for messages.
    pub key_advice: String,
    /// Sent with every request, behind the host's own.
    pub headers: Vec<(String, Secret)>,
    /// Of every request.
    pub timeouts: Timeouts,
    /// What is known of single models, by name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, TLS included. Default 10 s.
    pub connect: Duration,
    /// Without a byte of the reply: before its head (models think), and between its pieces. Default 120 s.
    pub stall: Duration,
    /// From the request to the reply's last byte. Default 10 min.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), stall: Duration::from_secs(120), total: Duration::from_secs(600) }
    }
}

/// What the configuration says of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelConfig {
    /// Context window in tokens. None: the known model's, else 32,768.
    pub window: Option<u32>,
    /// None: the known model's, else none.
    pub price: Option<Price>,
}

/// What tokens cost, in US dollars for a million.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Of the prompt.
    pub prompt: f64,
    /// Of the reply.
    pub completion: f64,
}

/// A provider whose address needs no configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProvider {
    /// What stands before the `/` of a model's name.
    pub name: &'static str,
    /// Without `/chat/completions`.
    pub base_url: &'static str,
    /// The environment variable that holds its key; none for servers on this machine.
    pub key_variable: Option<&'static str>,
}

/// Every provider whose address needs no configuration, as each one's own documentation gives it.
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

/// The known provider of that name.
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    KNOWN_PROVIDERS.iter().find(|provider| provider.name == name)
}
