//! Why a model gave no reply, and what to do about it (M5).

use std::path::PathBuf;
use std::time::Duration;

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
    /// The provider answered with an error.
    #[error("{}", refusal(model, *status, message, request_id.as_deref()))]
    Refused {
        /// `provider/model`.
        model: String,
        /// HTTP status.
        status: u16,
        /// The provider's own.
        message: String,
        /// The provider's, to be quoted to its support.
        request_id: Option<String>,
        /// What the provider asked to wait.
        retry_after: Option<Duration>,
    },
    /// The connection failed, or the reply broke off. Nothing of it counts.
    #[error(
        "the reply of {model} broke off: {message}. Try again; if it stays so, look at the network and the base URL"
    )]
    Broken {
        /// `provider/model`.
        model: String,
        /// What happened.
        message: String,
    },
}

impl ModelError {
    /// Whether the same request may succeed later (M3).
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Broken { .. } => true,
            _ => false,
        }
    }

    /// What the provider asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn number_of(replies: usize) -> String {
    if replies == 1 { "1 reply".to_owned() } else { format!("{replies} replies") }
}

fn refusal(model: &str, status: u16, message: &str, request_id: Option<&str>) -> String {
    let request = request_id.map(|id| format!(" (request {id})")).unwrap_or_default();
    let message = message.trim_end_matches('.');
    format!("{model} answered with status {status}{request}: {message}. {}", advice(status))
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => "Check the key and what it is allowed to do",
        402 => "Check the account's credit",
        404 => "Check the model's name and the base URL",
        413 => "Send less: a shorter history, fewer or smaller media",
        408 | 429 | 500..=599 => "Ask again later, or name another model",
        _ => "The provider does not take this request: change what its message names",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, request_id: Option<&str>) -> ModelError {
        ModelError::Refused {
            model: "openai/gpt".into(),
            status,
            message: "slow down.".into(),
            request_id: request_id.map(str::to_owned),
            retry_after: None,
        }
    }

    /// M5: status, provider's message, request id and what to do.
    #[test]
    fn a_refusal_says_all_that_is_known() {
        insta::assert_snapshot!(
            refused(429, Some("req_1")),
            @"openai/gpt answered with status 429 (request req_1): slow down. Ask again later, or name another model"
        );
        insta::assert_snapshot!(
            refused(401, None),
            @"openai/gpt answered with status 401: slow down. Check the key and what it is allowed to do"
        );
    }

    /// M3
    #[test]
    fn what_may_be_tried_again() {
        let cases = [(400, false), (401, false), (404, false), (408, true), (429, true), (500, true), (529, true)];
        for (status, expected) in cases {
            assert_eq!(refused(status, None).retryable(), expected, "{status}");
        }
        assert!(ModelError::Broken { model: "a/b".into(), message: "reset".into() }.retryable());
        assert!(!ModelError::UnknownProvider { given: "a".into(), allowed: "b".into() }.retryable());
    }
}
