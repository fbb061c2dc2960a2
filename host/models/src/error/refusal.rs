//! A provider's own error: what it said, what it means, and what to do.

use super::Endpoint;
use std::fmt;
use std::time::Duration;

/// An error that a provider answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who and where.
    pub endpoint: Endpoint,
    /// How it was said.
    pub said: Said,
    /// The provider's short name of the error, such as `model_not_found`.
    pub code: Option<String>,
    /// The provider's own.
    pub message: String,
    /// The provider's, to be quoted to its support.
    pub request_id: Option<String>,
    /// What the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What it means.
    pub cause: Cause,
    /// What to do, where more is known than the cause.
    pub advice: Option<String>,
}

/// How a provider said its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// As the answer's HTTP status.
    Status(u16),
    /// In a reply that began well, with a status where it gave one.
    InReply(Option<u16>),
}

/// What a provider's error means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too much is asked of it now, or it failed: later it may answer.
    Busy,
    /// Nothing is left to pay with.
    Credit,
    /// The key is wrong, missing, or may not do this.
    Key,
    /// It has no such model.
    Model,
    /// The prompt is longer than the model's window.
    ContextLength,
    /// Its filter forbids the prompt.
    ContentFilter,
    /// The request has too many bytes.
    Size,
    /// Nothing is at that address.
    Address,
    /// It does not take this request.
    Request,
}

impl Refusal {
    /// What is known from the error alone.
    pub fn new(endpoint: Endpoint, said: Said, code: Option<String>, message: String) -> Self {
        let cause = Cause::of(said, code.as_deref(), &message);
        Self { endpoint, said, code, message, request_id: None, retry_after: None, cause, advice: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.said {
            Said::Status(status) => write!(formatter, "{} answered with status {status}", self.endpoint)?,
            Said::InReply(Some(status)) => {
                write!(formatter, "{} sent an error with status {status} in its reply", self.endpoint)?;
            }
            Said::InReply(None) => write!(formatter, "{} sent an error in its reply", self.endpoint)?,
        }
        let code = self.code.as_deref().filter(|code| !self.message.contains(code)).map(|code| format!("`{code}`"));
        let request = self.request_id.as_ref().map(|id| format!("request {id}"));
        let details: Vec<String> = code.into_iter().chain(request).collect();
        if !details.is_empty() {
            write!(formatter, " ({})", details.join(", "))?;
        }
        let advice = self.advice.as_deref().unwrap_or(self.cause.advice());
        write!(formatter, ": {}. {advice}", self.message.trim_end_matches(['.', ' ']))
    }
}

/// Codes of errors that pass.
const BUSY_CODES: &[&str] = &[
    "overloaded",
    "rate_limit",
    "too_many_requests",
    "server_error",
    "internal_error",
    "api_error",
    "unavailable",
    "timeout",
    "capacity",
    "try_again",
];

/// Codes of errors that stay, in a reply that gives no status.
const LASTING_CODES: &[&str] =
    &["invalid", "not_found", "unsupported", "bad_request", "tool_use_failed", "not_supported"];

/// What providers say where a prompt is too long, and give no code of their own.
const TOO_LONG: &[&str] = &[
    "context length",
    "context window",
    "context size",
    "context_length",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "maximum number of tokens",
];

/// What providers say of a model that they don't have, besides the word "model".
const NO_SUCH: &[&str] =
    &["not found", "not exist", "not a valid model", "unknown model", "invalid model", "no such model"];

impl Cause {
    /// From what the provider said. Its code is believed before its status, and that before its words.
    pub fn of(said: Said, code: Option<&str>, message: &str) -> Self {
        let code = code.unwrap_or_default().to_ascii_lowercase();
        let (status, words) = (status(said, &code), message.to_lowercase());
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
        let has_code = |codes: &[&str]| codes.iter().any(|part| code.contains(part));
        if status == Some(402) || has_code(&["insufficient_quota", "insufficient_balance", "billing", "credit"]) {
            return Self::Credit;
        }
        if has_code(&["context_length", "context_window"]) || (has_words(status) && says(TOO_LONG)) {
            return Self::ContextLength;
        }
        if has_code(&["content_filter", "content_policy", "moderation"]) {
            return Self::ContentFilter;
        }
        if has_code(&["model_not_found"])
            || (matches!(status, Some(400 | 404 | 422)) && words.contains("model") && says(NO_SUCH))
        {
            return Self::Model;
        }
        let key_codes = ["api_key", "authentication", "unauthorized", "permission"];
        if matches!(status, Some(401 | 403)) || has_code(&key_codes) || (status == Some(400) && says(&["api key"])) {
            return Self::Key;
        }
        match status {
            Some(404) => Self::Address,
            Some(413) => Self::Size,
            Some(408 | 429 | 500..=599) => Self::Busy,
            _ if has_code(BUSY_CODES) => Self::Busy,
            // What goes wrong in a reply that began well is the server's fault, if it doesn't say otherwise.
            None if !has_code(LASTING_CODES) => Self::Busy,
            _ => Self::Request,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Busy => "Ask again later, or name another model",
            Self::Credit => "Check the account's credit",
            Self::Key => "Check the key and what it is allowed to do",
            Self::Model => "Check the model's name",
            Self::ContextLength => {
                "Begin a new session, or set the model's real `window` in the configuration, so that the host keeps \
                 within it"
            }
            Self::ContentFilter => "Say it in other words, or name another model",
            Self::Size => "Send less: a shorter history, fewer or smaller media",
            Self::Address => "Check the model's name and the base URL",
            Self::Request => "The provider does not take this request: change what its message names",
        }
    }
}

/// In a reply, some providers write the status where others write a code.
fn status(said: Said, code: &str) -> Option<u16> {
    match said {
        Said::Status(status) => Some(status),
        Said::InReply(status) => status.or_else(|| code.parse().ok().filter(|status| (400..600).contains(status))),
    }
}

/// Whether the words of such an error tell more than its status.
fn has_words(status: Option<u16>) -> bool {
    matches!(status, None | Some(400 | 413 | 422 | 500))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(said: Said, request_id: Option<&str>) -> Refusal {
        let refusal = Refusal::new(Endpoint::local("openai/gpt"), said, None, "slow down.".into());
        Refusal { request_id: request_id.map(str::to_owned), ..refusal }
    }

    /// M5: status, provider's message, request id and what to do.
    #[test]
    fn m5_a_refusal_says_all_that_is_known() {
        insta::assert_snapshot!(
            refused(Said::Status(429), Some("req_1")),
            @"openai/gpt answered with status 429 (request req_1): slow down. Ask again later, or name another model"
        );
        insta::assert_snapshot!(
            refused(Said::Status(401), None),
            @"openai/gpt answered with status 401: slow down. Check the key and what it is allowed to do"
        );
        insta::assert_snapshot!(
            Refusal { code: Some("overloaded_error".into()), ..refused(Said::InReply(None), Some("req_1")) },
            @"openai/gpt sent an error in its reply (`overloaded_error`, request req_1): slow down. Ask again later, or name another model"
        );
    }

    /// M3: by status.
    #[test]
    fn m3_what_passes_by_itself() {
        for (status, expected) in
            [(400, false), (401, false), (404, false), (408, true), (429, true), (500, true), (529, true)]
        {
            assert_eq!(refused(Said::Status(status), None).cause == Cause::Busy, expected, "{status}");
        }
    }

    /// M3, M5: as providers really say it.
    #[test]
    fn m5_what_an_error_means() {
        let cases = [
            (Said::Status(429), "insufficient_quota", "You exceeded your current quota", Cause::Credit),
            (Said::Status(429), "rate_limit_exceeded", "Rate limit reached for model `gpt`", Cause::Busy),
            (Said::Status(400), "context_length_exceeded", "…", Cause::ContextLength),
            (Said::Status(400), "", "This model's maximum context length is 4096 tokens", Cause::ContextLength),
            (Said::Status(500), "", "the request exceeds the available context size", Cause::ContextLength),
            (Said::Status(400), "content_filter", "The response was filtered", Cause::ContentFilter),
            (Said::Status(404), "", "model \"x\" not found, try pulling it first", Cause::Model),
            (Said::Status(400), "", "gpt-9 is not a valid model ID", Cause::Model),
            (Said::Status(400), "", "Model Not Exist", Cause::Model),
            (Said::Status(404), "", "404 page not found", Cause::Address),
            (Said::Status(400), "", "API key not valid. Please pass a valid API key.", Cause::Key),
            (Said::Status(402), "", "Insufficient Balance", Cause::Credit),
            (Said::Status(413), "", "Request Entity Too Large", Cause::Size),
            (Said::Status(400), "invalid_request_error", "tools[0] is wrong", Cause::Request),
            (Said::InReply(None), "server_error", "…", Cause::Busy),
            (Said::InReply(None), "503", "…", Cause::Busy),
            (Said::InReply(None), "401", "…", Cause::Key),
            (Said::InReply(None), "", "something", Cause::Busy),
            (Said::InReply(None), "invalid_request_error", "something", Cause::Request),
            (Said::InReply(Some(400)), "tool_use_failed", "…", Cause::Request),
            (Said::InReply(Some(429)), "", "…", Cause::Busy),
        ];
        for (said, code, message, expected) in cases {
            assert_eq!(Cause::of(said, Some(code), message), expected, "{said:?} {code} {message}");
        }
    }
}
