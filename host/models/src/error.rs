//! Why a model gave no reply, and what to do about it (M5).

mod refusal;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use refusal::{Cause, Refusal, Said};

/// Which model was asked, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `provider/model`.
    pub model: String,
    /// Without credentials and query. None where no network is between.
    pub url: Option<String>,
}

impl Endpoint {
    /// A model in this process.
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

/// Why no connection came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody listens at that address.
    NoServer,
    /// The host's name has no address.
    UnknownHost,
    /// No secure connection could be agreed on: certificate, protocol.
    Tls,
    /// It took longer than the configured time.
    Timeout,
    /// Whatever else the system said.
    Other,
}

impl Unreachable {
    fn advice(self) -> &'static str {
        match self {
            Self::NoServer => "Start the server, or check the port in the base URL",
            Self::UnknownHost => "Check the base URL for a typing error, and the network",
            Self::Tls => {
                "Check that the base URL begins with the right `http://` or `https://`, that this machine's clock and \
                 certificates are right, and whether a proxy stands between"
            }
            Self::Timeout => "Check the base URL, the network and the proxy, or set a longer `connect_timeout_ms`",
            Self::Other => "Check the base URL, the network and the proxy",
        }
    }
}

/// What was waited for when nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The reply's beginning.
    Beginning,
    /// Its next piece.
    NextPiece,
}

/// Why there is no reply. Every message says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configured name names no provider of this host.
    #[error("`{given}` is no model that this version knows: write {allowed}")]
    UnknownProvider {
        /// As it was configured.
        given: String,
        /// What may be written.
        allowed: String,
    },
    /// The file of a scripted model cannot be read.
    #[error("the script {path} cannot be read: {source}. Give the path of a file of replies: `scripted:FILE`", path = path.display())]
    UnreadableScript {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file of a scripted model holds something else than replies.
    #[error("the script {path}, {place}: {problem}", path = path.display())]
    InvalidScript {
        /// Which file.
        path: PathBuf,
        /// Line, column and key.
        place: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A script has no reply left.
    #[error(
        "the script {path} has {}, and session `{session}` asks for reply {wanted}: \
         add replies to the script, or begin a new session", number_of(*replies), path = path.display()
    )]
    Exhausted {
        /// Which file.
        path: PathBuf,
        /// How many it has.
        replies: usize,
        /// Who asked.
        session: String,
        /// Place of the reply, from 1.
        wanted: u64,
    },
    /// A request was not as the script expects it.
    #[error("the script {path}, reply {reply}: the request is not as expected: {}", problems.join("; "), path = path.display())]
    Unexpected {
        /// Which file.
        path: PathBuf,
        /// Place of the reply, from 1.
        reply: u64,
        /// What was expected and what was found, one for each expectation that failed; at least one.
        problems: Vec<String>,
    },
    /// A request breaks what holds for every request: a fault of the host or of a context builder.
    #[error("the request to {model} is not well formed: {}. This is a fault of the host or of a context builder", problems.join("; "))]
    BrokenRequest {
        /// Who should have got it.
        model: String,
        /// What is broken; at least one.
        problems: Vec<String>,
    },
    /// The configuration of a provider cannot be used.
    #[error("the provider `{provider}` cannot be asked: {problem}")]
    Misconfigured {
        /// Its name.
        provider: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The request is larger than any provider takes.
    #[error(
        "the request to {model} would have more than {limit} bytes; the largest in it: {}. Mask or scale down media, or \
         begin a new session", largest.join(", ")
    )]
    TooLarge {
        /// `provider/model`.
        model: String,
        /// Most bytes of a request.
        limit: usize,
        /// What is large in it, with its bytes.
        largest: Vec<String>,
    },
    /// A medium that is to be sent cannot be read.
    #[error(
        "{medium}, which {model} is to be sent, cannot be read: {problem}. Mask it with a media policy, or begin a new session"
    )]
    UnreadableMedium {
        /// `provider/model`.
        model: String,
        /// Which.
        medium: String,
        /// Why.
        problem: String,
    },
    /// No connection came about.
    #[error("{endpoint} cannot be reached: {problem}. {}", why.advice())]
    Unreachable {
        /// Who and where.
        endpoint: Endpoint,
        /// The kind of failure.
        why: Unreachable,
        /// In the system's words.
        problem: String,
    },
    /// The server was silent for too long.
    #[error(
        "{endpoint} {}. The server may be overloaded, or still load the model: try again, or set a longer \
         `stall_timeout_ms` for this provider", silence(*awaited, *limit)
    )]
    Stalled {
        /// Who and where.
        endpoint: Endpoint,
        /// What did not come.
        awaited: Awaited,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The whole reply took too long.
    #[error(
        "the reply of {endpoint} was not complete after {}. Ask for less, or set a longer `total_timeout_ms` for this provider",
        seconds(*limit)
    )]
    Overdue {
        /// Who and where.
        endpoint: Endpoint,
        /// How long it might take.
        limit: Duration,
    },
    /// The provider answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The answer sends the host elsewhere. Nobody follows: a key must not leave for another server.
    #[error(
        "{endpoint} answered with status {status} and redirects to {to}. Redirects are not followed, so that no key goes \
         to another server: where that is the right address, make it the base URL"
    )]
    Redirected {
        /// Who and where.
        endpoint: Endpoint,
        /// HTTP status.
        status: u16,
        /// Without credentials and query.
        to: String,
    },
    /// Something answered that does not speak Chat Completions.
    #[error(
        "{endpoint} is no model's address: status {status} and {content} came back, which begins `{excerpt}`. Check the \
         base URL (most end in `/v1`), and whether a proxy or a login page answers in the server's place"
    )]
    NotAModel {
        /// Who and where.
        endpoint: Endpoint,
        /// HTTP status.
        status: u16,
        /// Its content type, as people say it.
        content: String,
        /// How it begins.
        excerpt: String,
    },
    /// The reply is none that can be read, or too large.
    #[error("the reply of {endpoint} cannot be read: {problem}. Try another model, or look at the server's own log")]
    InvalidReply {
        /// Who and where.
        endpoint: Endpoint,
        /// What is wrong with it.
        problem: String,
    },
    /// The connection failed, or the reply broke off. Nothing of it counts.
    #[error(
        "the reply of {endpoint} broke off: {message}. Try again; if it stays so, look at the network and the base URL"
    )]
    Broken {
        /// Who and where.
        endpoint: Endpoint,
        /// What happened.
        message: String,
    },
}

impl ModelError {
    /// Whether the same request may succeed later (M3).
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.cause == Cause::Busy,
            Self::Unreachable { why, .. } => *why != Unreachable::Tls,
            Self::Broken { .. } | Self::Stalled { .. } => true,
            _ => false,
        }
    }

    /// What the provider asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }
}

fn number_of(replies: usize) -> String {
    if replies == 1 { "1 reply".to_owned() } else { format!("{replies} replies") }
}

fn silence(awaited: Awaited, limit: Duration) -> String {
    match awaited {
        Awaited::Beginning => format!("did not begin to answer within {}", seconds(limit)),
        Awaited::NextPiece => format!("sent nothing for {} in the middle of its reply", seconds(limit)),
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

    /// M5: what happened, where, and what to do.
    #[test]
    fn m5_every_message_says_where_and_what_to_do() {
        let errors = [
            ModelError::Misconfigured {
                provider: "openai".into(),
                problem: "its key has a line end; set it again".into(),
            },
            ModelError::TooLarge { model: "openai/gpt".into(), limit: 10, largest: vec!["a.png (9 bytes)".into()] },
            ModelError::UnreadableMedium {
                model: "openai/gpt".into(),
                medium: "a.png".into(),
                problem: "it is gone".into(),
            },
            unreachable(Unreachable::NoServer),
            ModelError::Stalled { endpoint: endpoint(), awaited: Awaited::Beginning, limit: Duration::from_secs(120) },
            ModelError::Stalled {
                endpoint: endpoint(),
                awaited: Awaited::NextPiece,
                limit: Duration::from_millis(1500),
            },
            ModelError::Overdue { endpoint: endpoint(), limit: Duration::from_secs(600) },
            ModelError::Redirected { endpoint: endpoint(), status: 307, to: "https://other.example/".into() },
            ModelError::InvalidReply { endpoint: endpoint(), problem: "one event has more than 8 MiB".into() },
            ModelError::Broken { endpoint: endpoint(), message: "the connection closed".into() },
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @"
        the provider `openai` cannot be asked: its key has a line end; set it again
        the request to openai/gpt would have more than 10 bytes; the largest in it: a.png (9 bytes). Mask or scale down media, or begin a new session
        a.png, which openai/gpt is to be sent, cannot be read: it is gone. Mask it with a media policy, or begin a new session
        openai/gpt at http://127.0.0.1:9/v1/chat/completions cannot be reached: connection refused. Start the server, or check the port in the base URL
        openai/gpt at http://127.0.0.1:9/v1/chat/completions did not begin to answer within 120 s. The server may be overloaded, or still load the model: try again, or set a longer `stall_timeout_ms` for this provider
        openai/gpt at http://127.0.0.1:9/v1/chat/completions sent nothing for 1.5 s in the middle of its reply. The server may be overloaded, or still load the model: try again, or set a longer `stall_timeout_ms` for this provider
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions was not complete after 600 s. Ask for less, or set a longer `total_timeout_ms` for this provider
        openai/gpt at http://127.0.0.1:9/v1/chat/completions answered with status 307 and redirects to https://other.example/. Redirects are not followed, so that no key goes to another server: where that is the right address, make it the base URL
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions cannot be read: one event has more than 8 MiB. Try another model, or look at the server's own log
        the reply of openai/gpt at http://127.0.0.1:9/v1/chat/completions broke off: the connection closed. Try again; if it stays so, look at the network and the base URL
        ");
    }

    fn unreachable(why: Unreachable) -> ModelError {
        ModelError::Unreachable { endpoint: endpoint(), why, problem: "connection refused".into() }
    }

    /// M3
    #[test]
    fn m3_what_may_be_tried_again() {
        assert!(ModelError::Broken { endpoint: endpoint(), message: "reset".into() }.retryable());
        assert!(!ModelError::UnknownProvider { given: "a".into(), allowed: "b".into() }.retryable());
        assert!(unreachable(Unreachable::NoServer).retryable());
        assert!(unreachable(Unreachable::Timeout).retryable());
        assert!(!unreachable(Unreachable::Tls).retryable());
        assert!(!ModelError::InvalidReply { endpoint: endpoint(), problem: "x".into() }.retryable());
    }
}
