//! Errors that a provider reports. Each error has the provider's message, a cause, and advice for the user.

use super::Endpoint;
use std::fmt;
use std::time::Duration;

/// An error that a provider reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    /// The model to which the request was sent, and its address.
    pub endpoint: Endpoint,
    /// Whether the provider reported the error as the HTTP status of the response or inside a reply.
    pub origin: ErrorOrigin,
    /// Error code of the provider, such as `model_not_found`.
    pub code: Option<String>,
    /// Error message of the provider.
    pub message: String,
    /// Id that the provider gave to the request. The provider's support can find the request by this id.
    pub request_id: Option<String>,
    /// Time that the host should wait before a retry, if the provider asked for a wait.
    pub retry_after: Option<Duration>,
    /// Kind of problem that the error reports.
    pub cause: Cause,
    /// Advice that is specific to this error. If `None`, the message contains the general advice for the cause.
    pub advice: Option<String>,
}

/// The part of a response in which a provider reported an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The HTTP status of the response reports the error. The number in this variant is the HTTP status.
    Status(u16),
    /// The error is inside a reply whose response has a successful HTTP status. The number is the status code that the
    /// reply contains next to the error, or `None` if the reply contains no such code.
    InReply(Option<u16>),
}

/// Kind of problem that an error of a provider reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The provider is overloaded or failed temporarily. A later attempt may succeed.
    Busy,
    /// The account has no credit left.
    Credit,
    /// The key is wrong or missing, or lacks permission.
    Key,
    /// The provider does not have this model.
    Model,
    /// The prompt is longer than the model's context window.
    ContextLength,
    /// The provider's content filter rejected the prompt.
    ContentFilter,
    /// The request has more bytes than the provider accepts.
    Size,
    /// The server does not know the path of the URL.
    Address,
    /// The provider rejected the request for a reason that no other variant describes.
    Request,
}

impl ProviderError {
    /// Creates an error from the provider's code and message, without a request id, a wait or specific advice.
    pub fn new(endpoint: Endpoint, origin: ErrorOrigin, code: Option<String>, message: String) -> Self {
        let cause = Cause::of(origin, code.as_deref(), &message);
        Self { endpoint, origin, code, message, request_id: None, retry_after: None, cause, advice: None }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            ErrorOrigin::Status(status) => write!(formatter, "{} answered with status {status}", self.endpoint)?,
            ErrorOrigin::InReply(Some(status)) => {
                write!(formatter, "{} sent an error with status {status} in its reply", self.endpoint)?;
            }
            ErrorOrigin::InReply(None) => write!(formatter, "{} sent an error in its reply", self.endpoint)?,
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

/// If an error code contains one of these texts, the problem is temporary.
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

/// If an error inside a reply has no status, and if the error's code contains one of these texts, the problem
/// is permanent.
const PERMANENT_CODES: &[&str] =
    &["invalid", "not_found", "unsupported", "bad_request", "tool_use_failed", "not_supported"];

/// Phrases that identify an error message about a prompt that is too long, because some providers do not send an error
/// code for this problem.
const TOO_LONG_PHRASES: &[&str] = &[
    "context length",
    "context window",
    "context size",
    "context_length",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "maximum number of tokens",
];

/// Phrases that identify an error message about an unknown model, if the message also contains the word "model".
const UNKNOWN_MODEL_PHRASES: &[&str] =
    &["not found", "not exist", "not a valid model", "unknown model", "invalid model", "no such model"];

impl Cause {
    /// Determines the cause of an error from its status, code and message.
    pub fn of(origin: ErrorOrigin, code: Option<&str>, message: &str) -> Self {
        let code = code.unwrap_or_default().to_ascii_lowercase();
        let (status, words) = (status(origin, &code), message.to_lowercase());
        let mentions = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
        let has_code = |codes: &[&str]| codes.iter().any(|part| code.contains(part));
        if status == Some(402) || has_code(&["insufficient_quota", "insufficient_balance", "billing", "credit"]) {
            return Self::Credit;
        }
        if has_code(&["context_length", "context_window"])
            || (message_is_informative(status) && mentions(TOO_LONG_PHRASES))
        {
            return Self::ContextLength;
        }
        if has_code(&["content_filter", "content_policy", "moderation"]) {
            return Self::ContentFilter;
        }
        if has_code(&["model_not_found"])
            || (matches!(status, Some(400 | 404 | 422)) && words.contains("model") && mentions(UNKNOWN_MODEL_PHRASES))
        {
            return Self::Model;
        }
        let key_codes = ["api_key", "authentication", "unauthorized", "permission"];
        if matches!(status, Some(401 | 403)) || has_code(&key_codes) || (status == Some(400) && mentions(&["api key"]))
        {
            return Self::Key;
        }
        match status {
            Some(404) => Self::Address,
            Some(413) => Self::Size,
            Some(408 | 429 | 500..=599) => Self::Busy,
            _ if has_code(BUSY_CODES) => Self::Busy,
            // An error in a reply that started successfully is temporary unless its code indicates a permanent problem.
            None if !has_code(PERMANENT_CODES) => Self::Busy,
            _ => Self::Request,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Busy => "Try again later, or use another model",
            Self::Credit => "Check the account's credit",
            Self::Key => "Check the key and its permissions",
            Self::Model => "Check the model's name",
            Self::ContextLength => {
                "Start a new session, or set the model's real `window` in the configuration so that the host respects \
                 it"
            }
            Self::ContentFilter => "Rephrase the prompt, or use another model",
            Self::Size => "Shorten the history, or send fewer or smaller media",
            Self::Address => "Check the model's name and the base URL",
            Self::Request => "The provider does not accept this request: fix the problem that its message describes",
        }
    }
}

/// Returns the HTTP status of the error, if known. For an error inside a reply, some providers send the status as the
/// error code.
fn status(origin: ErrorOrigin, code: &str) -> Option<u16> {
    match origin {
        ErrorOrigin::Status(status) => Some(status),
        ErrorOrigin::InReply(status) => {
            status.or_else(|| code.parse().ok().filter(|status| (400..600).contains(status)))
        }
    }
}

/// Returns whether the provider's message must be searched to find the cause of an error with this status, because the
/// status alone is not specific enough.
fn message_is_informative(status: Option<u16>) -> bool {
    matches!(status, None | Some(400 | 413 | 422 | 500))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider_error(origin: ErrorOrigin, request_id: Option<&str>) -> ProviderError {
        let provider_error = ProviderError::new(Endpoint::local("openai/gpt"), origin, None, "slow down.".into());
        ProviderError { request_id: request_id.map(str::to_owned), ..provider_error }
    }

    /// M5: the message of an error contains the status, the provider's message, the request id and advice.
    #[test]
    fn m5_the_message_contains_all_details() {
        insta::assert_snapshot!(
            provider_error(ErrorOrigin::Status(429), Some("req_1")),
            @"openai/gpt answered with status 429 (request req_1): slow down. Try again later, or use another model"
        );
        insta::assert_snapshot!(
            provider_error(ErrorOrigin::Status(401), None),
            @"openai/gpt answered with status 401: slow down. Check the key and its permissions"
        );
        insta::assert_snapshot!(
            ProviderError { code: Some("overloaded_error".into()), ..provider_error(ErrorOrigin::InReply(None), Some("req_1")) },
            @"openai/gpt sent an error in its reply (`overloaded_error`, request req_1): slow down. Try again later, or use another model"
        );
    }

    /// M3: the HTTP status determines whether an error is temporary.
    #[test]
    fn m3_temporary_errors_are_recognised_by_status() {
        for (status, expected) in
            [(400, false), (401, false), (404, false), (408, true), (429, true), (500, true), (529, true)]
        {
            assert_eq!(provider_error(ErrorOrigin::Status(status), None).cause == Cause::Busy, expected, "{status}");
        }
    }

    /// M3, M5: the cause of an error is recognised from the codes and messages that real providers send.
    #[test]
    fn m5_causes_of_real_errors_are_recognised() {
        let cases = [
            (ErrorOrigin::Status(429), "insufficient_quota", "You exceeded your current quota", Cause::Credit),
            (ErrorOrigin::Status(429), "rate_limit_exceeded", "Rate limit reached for model `gpt`", Cause::Busy),
            (ErrorOrigin::Status(400), "context_length_exceeded", "…", Cause::ContextLength),
            (ErrorOrigin::Status(400), "", "This model's maximum context length is 4096 tokens", Cause::ContextLength),
            (ErrorOrigin::Status(500), "", "the request exceeds the available context size", Cause::ContextLength),
            (ErrorOrigin::Status(400), "content_filter", "The response was filtered", Cause::ContentFilter),
            (ErrorOrigin::Status(404), "", "model \"x\" not found, try pulling it first", Cause::Model),
            (ErrorOrigin::Status(400), "", "gpt-9 is not a valid model ID", Cause::Model),
            (ErrorOrigin::Status(400), "", "Model Not Exist", Cause::Model),
            (ErrorOrigin::Status(404), "", "404 page not found", Cause::Address),
            (ErrorOrigin::Status(400), "", "API key not valid. Please pass a valid API key.", Cause::Key),
            (ErrorOrigin::Status(402), "", "Insufficient Balance", Cause::Credit),
            (ErrorOrigin::Status(413), "", "Request Entity Too Large", Cause::Size),
            (ErrorOrigin::Status(400), "invalid_request_error", "tools[0] is wrong", Cause::Request),
            (ErrorOrigin::InReply(None), "server_error", "…", Cause::Busy),
            (ErrorOrigin::InReply(None), "503", "…", Cause::Busy),
            (ErrorOrigin::InReply(None), "401", "…", Cause::Key),
            (ErrorOrigin::InReply(None), "", "something", Cause::Busy),
            (ErrorOrigin::InReply(None), "invalid_request_error", "something", Cause::Request),
            (ErrorOrigin::InReply(Some(400)), "tool_use_failed", "…", Cause::Request),
            (ErrorOrigin::InReply(Some(429)), "", "…", Cause::Busy),
        ];
        for (origin, code, message, expected) in cases {
            assert_eq!(Cause::of(origin, Some(code), message), expected, "{origin:?} {code} {message}");
        }
    }
}
