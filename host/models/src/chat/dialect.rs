//! What single servers take otherwise than the Chat Completions API as OpenAI describes it.

use crate::configuration::known_provider;
use agent_core::message::CallId;
use agent_core::model::ModelRequest;
use url::{Host, Url};

/// How one server wants to be asked. Chosen by the base URL's host; a server that stands elsewhere than usual, by its
/// provider's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI itself, also on Azure: the reply's bound is `max_completion_tokens`, which reasoning models insist on.
    OpenAi,
    /// OpenRouter: OpenAI's media, the older name of the bound.
    OpenRouter,
    /// Groq: no output schema beside tools.
    Groq,
    /// DeepSeek: `json_object` is its only response format.
    DeepSeek,
    /// Mistral: refuses fields that it does not know, `stream_options` among them; a call's id is nine letters or digits;
    /// no user speaks right after a tool.
    Mistral,
    /// Ollama, LM Studio, llama.cpp, vLLM, and whatever else listens on this machine: they hold a model to an output schema
    /// by a grammar in which it can write no tool call.
    SelfHosted,
    /// Everybody else: what most servers take.
    Common,
}

/// How the output schema is asked for (L12). The host checks the output in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaField {
    /// `response_format` of type `json_schema`.
    Schema,
    /// `response_format` of type `json_object`, the schema in the system message.
    Object,
    /// Only in the system message.
    Nowhere,
}

/// Media beside images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherMedia {
    /// `input_audio`, and PDF as `file`.
    AudioAndPdf,
    /// `input_audio`.
    Audio,
    /// None.
    Nothing,
}

/// Letters and digits of a call's id for Mistral.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Length of a call's id for Mistral.
const SHORT_ID: usize = 9;

/// Longest id of a call that OpenAI takes.
const ID_LIMIT: usize = 40;

impl Dialect {
    /// Of the server at that base URL, which the configuration calls `provider`.
    pub(crate) fn of(provider: &str, base_url: &Url) -> Self {
        let host = base_url.host_str().unwrap_or_default();
        let here = is_loopback(base_url) || known_provider(provider).is_some_and(|known| known.key_variable.is_none());
        let is = |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
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
        } else if here {
            Self::SelfHosted
        } else {
            Self::Common
        }
    }

    /// The field with the most tokens of the reply.
    pub(crate) fn bound(self) -> &'static str {
        if self == Self::OpenAi { "max_completion_tokens" } else { "max_tokens" }
    }

    /// Whether usage in a stream has to be asked for; Mistral sends it anyway, and refuses the question.
    pub(crate) fn asks_for_usage(self) -> bool {
        self != Self::Mistral
    }

    /// Whether an assistant's message must stand between a tool's and a user's.
    pub(crate) fn separates_tool_from_user(self) -> bool {
        self == Self::Mistral
    }

    /// How this request's output schema is asked for.
    pub(crate) fn schema_field(self, request: &ModelRequest) -> SchemaField {
        match self {
            Self::DeepSeek => SchemaField::Object,
            Self::Groq | Self::SelfHosted if !request.tools.is_empty() => SchemaField::Nowhere,
            _ => SchemaField::Schema,
        }
    }

    /// What it takes beside images.
    pub(crate) fn other_media(self) -> OtherMedia {
        match self {
            Self::OpenAi | Self::OpenRouter | Self::Common => OtherMedia::AudioAndPdf,
            Self::SelfHosted => OtherMedia::Audio,
            Self::Groq | Self::DeepSeek | Self::Mistral => OtherMedia::Nothing,
        }
    }

    /// The id of a call as it is sent: the host's own where the server takes it. The same id always becomes the same.
    pub(crate) fn call_id(self, id: &CallId) -> String {
        let CallId(id) = id;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || (self != Self::Mistral && matches!(byte, b'_' | b'-'));
        let fits = if self == Self::Mistral { id.len() == SHORT_ID } else { (1..=ID_LIMIT).contains(&id.len()) };
        if fits && id.bytes().all(plain) { id.clone() } else { short_id(id) }
    }
}

/// Whether the URL's host is this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Nine letters or digits from FNV-1a, 64 bits.
fn short_id(id: &str) -> String {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut rest = id.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let digit = |_| {
        let digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
        char::from(digit)
    };
    (0..SHORT_ID).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn chosen_by_host_then_by_name() {
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
            assert_eq!(Dialect::of(name, &Url::parse(base_url).unwrap()), expected, "{base_url}");
        }
    }

    #[test]
    fn ids_are_in_the_servers_alphabet_and_differ() {
        let mut seen = HashSet::new();
        for (turn, step, call) in (1..20).flat_map(|t| (1..20).flat_map(move |s| (1..20).map(move |c| (t, s, c)))) {
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
