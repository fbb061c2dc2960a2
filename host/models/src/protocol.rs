//! The wire formats in which the host talks to models over HTTP (M1).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A wire format of requests and replies. The configuration key `protocol` of a provider selects it.
///
/// # Examples
///
/// ```
/// use agent_models::Protocol;
///
/// assert_eq!("anthropic".parse(), Ok(Protocol::Anthropic));
/// assert_eq!(Protocol::default().to_string(), "chat-completions");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// OpenAI Chat Completions, which most servers implement: `POST {base}/chat/completions`.
    #[default]
    ChatCompletions,
    /// OpenAI Responses: `POST {base}/responses`.
    Responses,
    /// Anthropic Messages: `POST {base}/messages`.
    Anthropic,
    /// Google Gemini: `POST {base}/models/{model}:streamGenerateContent`.
    Gemini,
}

/// The name is not the name of a wire format. The message lists the accepted names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a known protocol: use `chat-completions`, `responses`, `anthropic` or `gemini`")]
pub struct UnknownProtocol(pub String);

impl Protocol {
    /// All wire formats.
    pub const ALL: [Self; 4] = [Self::ChatCompletions, Self::Responses, Self::Anthropic, Self::Gemini];

    /// The names of all wire formats in the configuration.
    pub const NAMES: [&'static str; 4] =
        [Self::ChatCompletions.name(), Self::Responses.name(), Self::Anthropic.name(), Self::Gemini.name()];

    /// Returns the name of the format in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat-completions",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}
