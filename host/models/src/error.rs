//! Errors of models, each with advice on what to do (M5).

mod provider_error;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use provider_error::{Cause, ErrorOrigin, ProviderError};

/// The model to which a request was sent, and the address of this model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the model as `provider/model`.
    pub model: String,
    /// URL of the model's API, without credentials and query. `None` if the model runs in this process.
    pub url: Option<String>,
}

impl Endpoint {
    /// Creates the endpoint of a model that runs in this process.
    pub fn local(model: impl Into<String>) -> Self {
        Self { model: model.into(), url: None }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            Some(url) => write!(formatter, "{} at {url}", self.model),
            None => formatter.write_str(&self.model),
        }
    }
}

/// Reason why a connection could not be established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No server listens at the address.
    NoServer,
    /// The host name does not resolve to an address.
    UnknownHost,
    /// TLS failed, for example because of a certificate or a protocol version.
    Tls,
    /// Connecting took longer than `connect_timeout_ms`.
    Timeout,
    /// An error of the network or the operating system that none of the other variants describes.
    Other,
}

impl Unreachable {
    fn advice(self) -> &'static str {
        match self {
            Self::NoServer => "Start the server, or check the port in the base URL",
            Self::UnknownHost => "Check the network connection, and check the base URL for typos",
            Self::Tls => {
                "Check whether the base URL must begin with `http://` or `https://`, and check this machine's clock \
                 and certificates, and any proxy between this machine and the server"
            }
            Self::Timeout => "Check the base URL, the network and the proxy, or set a longer `connect_timeout_ms`",
            Self::Other => "Check the base URL, the network and the proxy",
        }
    }
}

/// The part of a response for which the host was waiting when the server stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// The start of the response.
    ResponseStart,
    /// The next part of a response that has started.
    NextChunk,
}

/// An error of a request to a model, or of the configuration of a model. Each message says what happened, where it
/// happened and what the user can do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configured model name denotes neither a built-in model nor a model of a configured provider.
    #[error("`{name}` is not a known model: use {allowed}")]
    UnknownProvider {
        /// Name of the model as the user configured it.
        name: String,
        /// Description of the allowed model names, for use in the message.
        allowed: String,
    },
    /// The file of a scripted model cannot be read.
    #[error("the script {path} cannot be read: {source}. Give the path of a file of replies: `scripted:FILE`", path = path.display())]
    UnreadableScript {
        /// Path of the file with the scripted replies.
        path: PathBuf,
        /// Error of the operating system that occurred when the file was read.
        source: std::io::Error,
    },
    /// The file of a scripted model is invalid.
    #[error("the script {path}, {position}: {problem}", path = path.display())]
    InvalidScript {
        /// Path of the file with the scripted replies.
        path: PathBuf,
        /// Position of the error in the script: line, column and key.
        position: String,
        /// Description of the error and of the allowed values.
        problem: String,
    },
    /// The file of a cassette cannot be read or written.
    #[error("the cassette {path} cannot be used: {source}", path = path.display())]
    CassetteFile {
        /// Path of the cassette.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The cassette is invalid, or it contains no response to a request.
    #[error("the cassette {path}: {problem}", path = path.display())]
    InvalidCassette {
        /// Path of the cassette.
        path: PathBuf,
        /// Description of the problem, with advice.
        problem: String,
    },
    /// The session has already used all replies of the script.
    #[error(
        "the script {path} has {}, but session `{session}` requests reply {wanted}: \
         add replies to the script, or start a new session", reply_count(*replies), path = path.display()
    )]
    ScriptExhausted {
        /// Path of the file with the scripted replies.
        path: PathBuf,
        /// Number of replies in the script.
        replies: usize,
        /// Id of the session that sent the request.
        session: String,
        /// Number of the reply that the session requested. The first reply of the script has number 1.
        wanted: u64,
    },
    /// The request does not meet the script's expectations.
    #[error("the script {path}, reply {reply}: the request does not meet the expectations: {}", problems.join("; "), path = path.display())]
    UnexpectedRequest {
        /// Path of the file with the scripted replies.
        path: PathBuf,
        /// Number of the reply in the script. The first reply has number 1.
        reply: u64,
        /// Failed expectations, each with the expected and the actual value. The list is never empty.
        problems: Vec<String>,
    },
    /// The host or a context builder has a bug, so the request violates a rule that applies to every request.
    #[error("the request to {model} is not well-formed: {}. This is a bug in the host or in a context builder", problems.join("; "))]
    InvalidRequest {
        /// Name of the model as `provider/model`.
        model: String,
        /// Descriptions of the violated rules. The list is never empty.
        problems: Vec<String>,
    },
    /// The configuration of a provider is invalid.
    #[error("the configuration of provider `{provider}` is invalid: {problem}")]
    InvalidConfig {
        /// Name of the provider.
        provider: String,
        /// Description of the error and of how to fix it.
        problem: String,
    },
    /// The request would exceed the maximum size of a request.
    #[error(
        "the request to {model} would exceed {limit} bytes; its largest parts: {}. Mask or scale down media, or \
         start a new session", largest.join(", ")
    )]
    TooLarge {
        /// Name of the model as `provider/model`.
        model: String,
        /// Maximum size of a request in bytes.
        limit: usize,
        /// Descriptions of the largest parts of the request, with their sizes.
        largest: Vec<String>,
    },
    /// A media item to which the request refers cannot be read.
    #[error(
        "{item}, which is part of the request to {model}, cannot be read: {problem}. Mask it with a media policy, or start a new session"
    )]
    UnreadableMedia {
        /// Name of the model as `provider/model`.
        model: String,
        /// Description of the media item.
        item: String,
        /// Reason why the media item cannot be read.
        problem: String,
    },
    /// No connection to the server could be established.
    #[error("{endpoint} cannot be reached: {problem}. {}", cause.advice())]
    Unreachable {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Reason why the connection could not be established.
        cause: Unreachable,
        /// Error message of the operating system or of a library.
        problem: String,
    },
    /// The server sent nothing for as long as the stall timeout.
    #[error(
        "{endpoint} {}. The server may be overloaded or still loading the model: try again, or set a longer \
         `stall_timeout_ms` for this provider", stall_message(*waiting_for, *limit)
    )]
    Stalled {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Part of the response for which the host was waiting.
        waiting_for: WaitingFor,
        /// Value of `stall_timeout_ms`.
        limit: Duration,
    },
    /// The reply was not complete within the total timeout.
    #[error(
        "the reply of {endpoint} was not complete after {}. Request a shorter reply, or set a longer `total_timeout_ms` for this provider",
        seconds(*limit)
    )]
    TimedOut {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Value of `total_timeout_ms`.
        limit: Duration,
    },
    /// The provider responded with an error.
    #[error("{0}")]
    Provider(Box<ProviderError>),
    /// The response is a redirect. The host does not follow redirects, so that no key is sent to another server.
    #[error(
        "{endpoint} answered with status {status} and redirects to {to}. Redirects are not followed, so that no key is sent \
         to another server: if that address is right, use it as the base URL"
    )]
    Redirected {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// HTTP status of the response.
        status: u16,
        /// Target of the redirect, without credentials and query.
        to: String,
    },
    /// The response does not come from a server that implements the Chat Completions API.
    #[error(
        "{endpoint} is not a model endpoint: it responded with status {status} and {content} that begins with `{excerpt}`. Check the \
         base URL (most end in `/v1`), and whether a proxy or a login page responds instead of the server"
    )]
    UnexpectedResponse {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// HTTP status of the response.
        status: u16,
        /// Content type of the response, or the phrase `no content type`.
        content: String,
        /// Beginning of the response, which the message quotes.
        excerpt: String,
    },
    /// The response is malformed, possibly because the server or a proxy has corrupted it.
    #[error(
        "the reply of {endpoint} is malformed: {problem}. Try again; if it happens again, check the server's log and \
         any proxy between this machine and the server"
    )]
    MalformedReply {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Description of the error, with the beginning of the response.
        problem: String,
    },
    /// The reply is well-formed but cannot be used, or it is too large.
    #[error("the reply of {endpoint} cannot be used: {problem}. Try another model, or check the server's log")]
    InvalidReply {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Description of what is wrong with the reply.
        problem: String,
    },
    /// The connection failed or the reply ended early. The incomplete reply is discarded.
    #[error(
        "the reply of {endpoint} ended early: {message}. Try again; if it happens again, check the network and the base URL"
    )]
    ConnectionLost {
        /// The model to which the request was sent, and its address.
        endpoint: Endpoint,
        /// Description of what happened to the connection.
        message: String,
    },
}

impl ModelError {
    /// Returns whether the same request may succeed later (M3).
    pub fn retryable(&self) -> bool {
        match self {
            Self::Provider(error) => error.cause == Cause::Busy,
            Self::Unreachable { cause, .. } => *cause != Unreachable::Tls,
            Self::ConnectionLost { .. } | Self::MalformedReply { .. } | Self::Stalled { .. } => true,
            _ => false,
        }
    }

    /// Returns the time that the host should wait before the next attempt, if the provider asked for a wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider(error) => error.retry_after,
            _ => None,
        }
    }
}

fn reply_count(replies: usize) -> String {
    if replies == 1 { "1 reply".to_owned() } else { format!("{replies} replies") }
}

fn stall_message(waiting_for: WaitingFor, limit: Duration) -> String {
    match waiting_for {
        WaitingFor::ResponseStart => format!("did not start to respond within {}", seconds(limit)),
        WaitingFor::NextChunk => format!("sent nothing for {} in the middle of its reply", seconds(limit)),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint { model: "openai/gpt".into(), url: Some("http://127.0.0.1:9/v1/chat/completions".into()) }
    }

    /// M5: every message reports what happened, where it happened and what to do.
    #[test]
    fn m5_every_message_describes_the_problem_and_a_remedy() {
        let errors = [
            ModelError::InvalidConfig {
                provider: "openai".into(),
                problem: "its key has a line end; set it again".into(),
            },
            ModelError::TooLarge { model: "openai/gpt".into(), limit: 10, largest: vec!["a.png (9 bytes)".into()] },
            ModelError::UnreadableMedia {
                model: "openai/gpt".into(),
                item: "a.png".into(),
                problem: "it is missing".into(),
            },
            unreachable(Unreachable::NoServer),
            ModelError::Stalled {
                endpoint: endpoint(),
                waiting_for: WaitingFor::ResponseStart,
                limit: Duration::from_secs(120),
            },
            ModelError::Stalled {
                endpoint: endpoint(),
                waiting_for: WaitingFor::NextChunk,
                limit: Duration::from_millis(1500),
            },
            ModelError::TimedOut { endpoint: endpoint(), limit: Duration::from_secs(600) },
            ModelError::Redirected { endpoint: endpoint(), status: 307, to: "https://other.example/".into() },
            ModelError::InvalidReply { endpoint: endpoint(), problem: "one event has more than 8 MiB".into() },
            ModelError::MalformedReply { endpoint: endpoint(), problem: "it is not JSON: `{]`".into() },
            ModelError::ConnectionLost { endpoint: endpoint(), message: "the connection closed".into() },
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @"
        the configuration of provider `openai` is invalid: its key has a line end; set it again
        the request to openai/gpt would exceed 10 bytes; its largest parts: a.png (9 bytes). Mask or scale down media, or start a new session
        a.png, which is part of the request to openai/gpt, cannot be read: it is missing. Mask it with a media policy, or start a new session
        openai/gpt at http://127.0.0.1:9/v1/chat/completions cannot be reached: connection refused. Start the server, or check the port in the base URL
        openai/gpt at http://127.0.0.1:9/v1/chat/completions did not start to respond within 120 s. The server may be overloaded or still loading the model: try again, or set a longer `stall_timeout_ms` for this provider
        openai/gpt at http://127.0.0.1:9/v1/chat/completions sent nothing for 1.5 s in the middle of its reply. The server may be overloaded or still loading the model: try again, or set a longer `stall_timeout_ms` for this provider
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions was not complete after 600 s. Request a shorter reply, or set a longer `total_timeout_ms` for this provider
        openai/gpt at http://127.0.0.1:9/v1/chat/completions answered with status 307 and redirects to https://other.example/. Redirects are not followed, so that no key is sent to another server: if that address is right, use it as the base URL
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions cannot be used: one event has more than 8 MiB. Try another model, or check the server's log
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions is malformed: it is not JSON: `{]`. Try again; if it happens again, check the server's log and any proxy between this machine and the server
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions ended early: the connection closed. Try again; if it happens again, check the network and the base URL
        ");
    }

    fn unreachable(cause: Unreachable) -> ModelError {
        ModelError::Unreachable { endpoint: endpoint(), cause, problem: "connection refused".into() }
    }

    /// M3: only temporary errors are retryable.
    #[test]
    fn m3_only_temporary_errors_are_retryable() {
        assert!(ModelError::ConnectionLost { endpoint: endpoint(), message: "reset".into() }.retryable());
        assert!(!ModelError::UnknownProvider { name: "a".into(), allowed: "b".into() }.retryable());
        assert!(unreachable(Unreachable::NoServer).retryable());
        assert!(unreachable(Unreachable::Timeout).retryable());
        assert!(!unreachable(Unreachable::Tls).retryable());
        assert!(!ModelError::InvalidReply { endpoint: endpoint(), problem: "x".into() }.retryable());
    }
}
