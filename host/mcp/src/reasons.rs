//! What went wrong with a connection, in words for people: no type of a library, no body of an answer.

use crate::error::shown;
use crate::lines::MAX_DEPTH;
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpError};
use std::error::Error;
use std::io;

/// Characters of an error that a server or a library tells.
pub(crate) const SHOWN_CHARACTERS: usize = 500;
/// Of a server that refuses who has no key, or the wrong one.
pub(crate) const AUTHORIZATION: &str = "it wants an authorization: give it one in `headers` or `header_env`";

/// Why a handshake failed.
pub(crate) fn of_handshake(error: &ClientInitializeError) -> String {
    match error {
        _ if error.is_authorization_required() => AUTHORIZATION.to_owned(),
        ClientInitializeError::ConnectionClosed(_) => "it ended, or closed its output, before it answered".to_owned(),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "its first answer is not what the protocol says: is it an MCP server?".to_owned()
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no version of the protocol that this host does".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refuses to begin: {}", shown(&error.message, SHOWN_CHARACTERS))
        }
        ClientInitializeError::TransportError { error, .. } => of_transport(error),
        error => innermost(error),
    }
}

/// Why nothing could be sent to a server.
pub(crate) fn of_transport(error: &DynamicTransportError) -> String {
    if let Some(error) = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        return of_http(error);
    }
    match error.error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => "it ended, or closed its input".to_owned(),
        _ => innermost(error.error.as_ref()),
    }
}

/// The answer's status, where a server over HTTP refused with one that no library's error has a word for.
pub(crate) fn refused_status(error: &DynamicTransportError) -> Option<u16> {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>()? {
        StreamableHttpError::UnexpectedServerResponse(said) => status_in(said),
        _ => None,
    }
}

fn of_http(error: &StreamableHttpError<reqwest::Error>) -> String {
    match error {
        StreamableHttpError::Client(error) => of_client(error),
        StreamableHttpError::HttpStatus(error) => of_status(error.status),
        // As the reader of JSON puts it, of a body that is read at once.
        StreamableHttpError::UnexpectedServerResponse(said) if said.contains("recursion limit exceeded") => too_deep(),
        StreamableHttpError::UnexpectedServerResponse(said) => status_in(said)
            .map_or_else(|| "its answer is no message of the protocol: is it an MCP server?".to_owned(), of_status),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            format!("it sent an answer of more than {max_size} bytes, and was cut off")
        }
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind =
                kind.as_deref().map_or("nothing of a known kind".to_owned(), |kind| format!("`{}`", shown(kind, 60)));
            format!("it answers with {kind}, not with JSON or events: is its `url` that of an MCP server?")
        }
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => AUTHORIZATION.to_owned(),
        StreamableHttpError::SessionExpired => "it has forgotten this connection (HTTP 404)".to_owned(),
        StreamableHttpError::UnexpectedEndOfStream | StreamableHttpError::Sse(_) => "its answer broke off".to_owned(),
        StreamableHttpError::TransportChannelClosed => "the connection ended".to_owned(),
        error => innermost(error),
    }
}

/// Of an answer that is not read.
pub(crate) fn too_deep() -> String {
    format!("it sent an answer of more than {MAX_DEPTH} levels, which is not read")
}

/// Why a stream of events cannot be read; None: it only ended.
pub(crate) fn unreadable(error: &SseError) -> Option<String> {
    match error {
        SseError::Body(error) if error.to_string().contains("exceeded the maximum size") => {
            Some("it sent an event that is larger than a message may be, and was cut off".to_owned())
        }
        SseError::Body(_) => None,
        SseError::Utf8Parse(_) => Some("it sent an event that is not UTF-8, which is not read".to_owned()),
        error => Some(format!("it sent events that cannot be read: {}", innermost(error))),
    }
}

fn of_client(error: &reqwest::Error) -> String {
    let cause = innermost(error);
    if error.is_timeout() {
        "it did not answer in time: is it running?".to_owned()
    } else if error.is_connect() {
        format!("nobody can be reached there ({cause}): is it running, and is its `url` right?")
    } else if error.is_body() || error.is_decode() {
        format!("its answer broke off ({cause})")
    } else {
        format!("it could not be asked ({cause})")
    }
}

fn of_status(status: u16) -> String {
    match status {
        300..=399 => format!("it answers HTTP {status}, a redirect that is not followed: set `url` to where it leads"),
        401 | 403 => format!("{AUTHORIZATION} (HTTP {status})"),
        404 | 405 => format!("it answers HTTP {status}: is the path of its `url` right?"),
        429 => "it is asked too often (HTTP 429): try again later".to_owned(),
        500..=599 => format!("it answers HTTP {status}, a failure of its own: see its log"),
        _ => format!("it answers HTTP {status}: is its `url` that of an MCP server?"),
    }
}

/// `HTTP 404 Not Found: …`, as the library writes it.
fn status_in(said: &str) -> Option<u16> {
    said.strip_prefix("HTTP ")?.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// The first cause, which says the most.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    shown(&error.to_string(), SHOWN_CHARACTERS)
}
