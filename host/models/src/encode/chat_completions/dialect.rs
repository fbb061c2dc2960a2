//! The ways in which individual servers differ from the Chat Completions API that OpenAI documents.

use crate::configuration::known_provider;
use agent_core::message::CallId;
use agent_core::model::ModelRequest;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// The dialect of one server. The host name of the base URL determines the dialect. If the host name does
/// not identify a dialect, a server program that users run themselves, such as Ollama, is recognised by the configured
/// name of the provider or by its loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// OpenAI, including OpenAI on Azure. The field that limits the tokens of the reply is `max_completion_tokens`,
    /// which reasoning models require.
    OpenAi,
    /// OpenRouter, which accepts the same media as OpenAI. The field that limits the tokens of the reply
    /// is `max_tokens`.
    OpenRouter,
    /// Groq, which does not accept an output schema together with tools.
    Groq,
    /// DeepSeek, which supports only the response format `json_object`.
    DeepSeek,
    /// Mistral, which rejects unknown fields, such as `stream_options`. In requests to Mistral, call ids must have nine
    /// letters or digits, and a user message must not follow a tool message directly.
    Mistral,
    /// Ollama, LM Studio, llama.cpp, vLLM and any other server on this machine. Servers on this machine enforce
    /// an output schema with a grammar that does not allow tool calls.
    SelfHosted,
    /// Any server that no other variant describes. The requests use only features that most servers support.
    Common,
}

/// The place in a request that contains the output schema (L12). The host checks the output against the schema even if
/// the server does so as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaField {
    /// The schema is in a `response_format` of type `json_schema`.
    JsonSchema,
    /// The schema is in the system message, and the request has a `response_format` of type `json_object`.
    JsonObject,
    /// The schema is in the system message, and the request has no `response_format`.
    SystemMessage,
}

/// Media that a server accepts in addition to images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherMedia {
    /// The server accepts audio in a part of type `input_audio`, and PDF files in a part of type `file`.
    AudioAndPdf,
    /// The server accepts audio in a part of type `input_audio`, but no PDF files.
    Audio,
    /// The server accepts only images.
    ImagesOnly,
}

/// Characters of the call ids that the host generates: the only characters that Mistral accepts in call ids.
const ID_CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Length of the call ids that the host generates: the only length that Mistral accepts.
const SHORT_ID_LENGTH: usize = 9;

/// Maximum length of a call id that OpenAI accepts.
const MAX_ID_LENGTH: usize = 40;

impl Dialect {
    /// Returns the dialect of the server at `base_url`. `provider` is the configured name of the provider.
    pub(crate) fn for_server(provider: &str, base_url: &Url) -> Self {
        let host = base_url.host_str().unwrap_or_default();
        let is_local =
            is_loopback(base_url) || known_provider(provider).is_some_and(|known| known.key_variable.is_none());
        let is = |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|prefix| prefix.ends_with('.'));
        if is("api.openai.com") || is("openai.azure.com") {
            Self::OpenAi
        } else if is("openrouter.ai") {
            Self::OpenRouter
        } else if is("groq.com") {
            Self::Groq
        } else if is("deepseek.com") {
            Self::DeepSeek
        } else if is("mistral.ai") {
            Self::Mistral
        } else if is_local {
            Self::SelfHosted
        } else {
            Self::Common
        }
    }

    /// Returns the name of the field that limits the number of tokens of the reply.
    pub(crate) fn max_tokens_field(self) -> &'static str {
        if self == Self::OpenAi { "max_completion_tokens" } else { "max_tokens" }
    }

    /// Returns whether a request must ask for token usage with the field `stream_options`. Requests to Mistral must
    /// not contain this field, because Mistral always sends token usage and rejects the field.
    pub(crate) fn asks_for_usage(self) -> bool {
        self != Self::Mistral
    }

    /// Returns whether the server requires an assistant message between a tool message and a user message that
    /// follows it.
    pub(crate) fn separates_tool_from_user(self) -> bool {
        self == Self::Mistral
    }

    /// Returns the place at which this request contains the output schema.
    pub(crate) fn schema_field(self, request: &ModelRequest) -> SchemaField {
        match self {
            Self::DeepSeek => SchemaField::JsonObject,
            Self::Groq | Self::SelfHosted if !request.tools.is_empty() => SchemaField::SystemMessage,
            _ => SchemaField::JsonSchema,
        }
    }

    /// Returns the media that the server accepts in addition to images.
    pub(crate) fn other_media(self) -> OtherMedia {
        match self {
            Self::OpenAi | Self::OpenRouter | Self::Common => OtherMedia::AudioAndPdf,
            Self::SelfHosted => OtherMedia::Audio,
            Self::Groq | Self::DeepSeek | Self::Mistral => OtherMedia::ImagesOnly,
        }
    }

    /// Returns the id by which a request refers to the call `id`. If the server accepts `id`, returns `id` unchanged.
    /// If the server does not accept `id`, returns a short id that is derived from `id`. The result depends only on the
    /// dialect and on `id`.
    pub(crate) fn call_id(self, id: &CallId) -> String {
        let CallId(id) = id;
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || (self != Self::Mistral && matches!(byte, b'_' | b'-'));
        let fits =
            if self == Self::Mistral { id.len() == SHORT_ID_LENGTH } else { (1..=MAX_ID_LENGTH).contains(&id.len()) };
        if fits && id.bytes().all(is_allowed) { id.clone() } else { short_id(id) }
    }
}

/// Returns whether the host in the URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Derives nine letters or digits from the 64-bit FNV-1a hash of `id`.
fn short_id(id: &str) -> String {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut remaining_hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let digit = |_| {
        let digit = ID_CHARACTERS[(remaining_hash % 62) as usize];
        remaining_hash /= 62;
        char::from(digit)
    };
    (0..SHORT_ID_LENGTH).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_dialect_depends_on_the_address_and_then_on_the_provider_name() {
        let cases = [
            ("openai", "https://api.openai.com/v1", Dialect::OpenAi),
            ("mine", "https://x.openai.azure.com/openai/v1", Dialect::OpenAi),
            ("openai", "http://127.0.0.1:8080/v1", Dialect::SelfHosted),
            ("mine", "http://localhost/v1", Dialect::SelfHosted),
            ("mine", "http://10.0.0.1:8080/v1", Dialect::Common),
            ("openai", "https://notapi.openai.com.example/v1", Dialect::Common),
            ("m", "https://api.mistral.ai/v1", Dialect::Mistral),
            ("m", "https://evilmistral.ai/v1", Dialect::Common),
            ("ollama", "http://10.0.0.1:9999/v1", Dialect::SelfHosted),
            ("groq", "https://api.groq.com/openai/v1", Dialect::Groq),
        ];
        for (name, base_url, expected) in cases {
            assert_eq!(Dialect::for_server(name, &Url::parse(base_url).unwrap()), expected, "{base_url}");
        }
    }

    #[test]
    fn call_ids_use_allowed_characters_and_are_distinct() {
        let mut seen = HashSet::new();
        for (turn, step, call) in
            (1..20).flat_map(|turn| (1..20).flat_map(move |step| (1..20).map(move |call| (turn, step, call))))
        {
            let id = CallId(format!("call_{turn}_{step}_{call}"));
            assert_eq!(Dialect::Common.call_id(&id), id.0);
            let short = Dialect::Mistral.call_id(&id);
            assert!(short.len() == 9 && short.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{short}");
            assert!(seen.insert(short));
        }
        assert_eq!(Dialect::Mistral.call_id(&CallId("abcDEF123".into())), "abcDEF123");
        assert_eq!(Dialect::OpenAi.call_id(&CallId("é".into())).len(), 9);
        assert_eq!(Dialect::OpenAi.call_id(&CallId("x".repeat(41))).len(), 9);
    }
}
