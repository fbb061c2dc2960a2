//! Describes connection errors for users, without type names of libraries and without the bodies of responses.

use crate::bounded_lines::MAX_DEPTH;
use crate::error::printable;
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpError};
use std::error::Error;
use std::io;

/// Maximum number of characters that a message quotes from an error of a server or a library.
pub(crate) const MAX_QUOTED_CHARACTERS: usize = 500;
/// Description of a server that refuses requests without a valid key.
pub(crate) const AUTHORIZATION_REQUIRED: &str = "it requires authorization: set a key in `headers` or `header_env`";

/// Returns a description of why a handshake failed.
pub(crate) fn handshake_error(error: &ClientInitializeError) -> String {
    match error {
        _ if error.is_authorization_required() => AUTHORIZATION_REQUIRED.to_owned(),
        ClientInitializeError::ConnectionClosed(_) => "it exited or closed its output before it responded".to_owned(),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "its first response does not follow the protocol: is it an MCP server?".to_owned()
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it supports none of the protocol versions that this host supports".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the connection: {}", printable(&error.message, MAX_QUOTED_CHARACTERS))
        }
        ClientInitializeError::TransportError { error, .. } => transport_error(error),
        error => root_cause(error),
    }
}

/// Returns a description of why a message could not be sent to a server.
pub(crate) fn transport_error(error: &DynamicTransportError) -> String {
    if let Some(error) = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        return http_error(error);
    }
    match error.error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => "it exited or closed its input".to_owned(),
        _ => root_cause(error.error.as_ref()),
    }
}

/// Returns the HTTP status with which the server refused a request. Returns `None` if the library has a specific error
/// variant for the status and does not report it as text.
pub(crate) fn refused_status(error: &DynamicTransportError) -> Option<u16> {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>()? {
        StreamableHttpError::UnexpectedServerResponse(message) => status_in(message),
        _ => None,
    }
}

fn http_error(error: &StreamableHttpError<reqwest::Error>) -> String {
    match error {
        StreamableHttpError::Client(error) => client_error(error),
        StreamableHttpError::HttpStatus(error) => status_error(error.status),
        // The JSON parser produces this error text for a response that is plain JSON and nested too deeply.
        StreamableHttpError::UnexpectedServerResponse(message) if message.contains("recursion limit exceeded") => {
            too_deep_error()
        }
        StreamableHttpError::UnexpectedServerResponse(message) => status_in(message)
            .map_or_else(|| "its response is not a protocol message: is it an MCP server?".to_owned(), status_error),
        StreamableHttpError::ResponseBodyTooLarge { max_size } => {
            format!("it sent a response of more than {max_size} bytes, which the host does not read")
        }
        StreamableHttpError::UnexpectedContentType(kind) => {
            let content_type = kind
                .as_deref()
                .map_or("an unknown content type".to_owned(), |kind| format!("`{}`", printable(kind, 60)));
            format!(
                "it responds with {content_type} instead of JSON or an event stream: does its `url` point to an MCP \
                 server?"
            )
        }
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            AUTHORIZATION_REQUIRED.to_owned()
        }
        StreamableHttpError::SessionExpired => "its session has expired (HTTP 404)".to_owned(),
        StreamableHttpError::UnexpectedEndOfStream | StreamableHttpError::Sse(_) => {
            "its response ended early".to_owned()
        }
        StreamableHttpError::TransportChannelClosed => "the connection was closed".to_owned(),
        error => root_cause(error),
    }
}

/// Returns the description of a response that is nested too deeply.
pub(crate) fn too_deep_error() -> String {
    format!("it sent a response nested more than {MAX_DEPTH} levels deep, which the host does not read")
}

/// Returns a description of why an event stream cannot be read, or `None` if the only reason is that the stream ended.
pub(crate) fn unreadable_event(error: &SseError) -> Option<String> {
    match error {
        SseError::Body(error) if error.to_string().contains("exceeded the maximum size") => {
            Some("it sent an event that is larger than the message limit".to_owned())
        }
        SseError::Body(_) => None,
        SseError::Utf8Parse(_) => Some("it sent an event that is not valid UTF-8".to_owned()),
        error => Some(format!("it sent events that cannot be read: {}", root_cause(error))),
    }
}

fn client_error(error: &reqwest::Error) -> String {
    let cause = root_cause(error);
    if error.is_timeout() {
        "it did not respond in time: is it running?".to_owned()
    } else if error.is_connect() {
        format!("no server can be reached at this address ({cause}): is it running, and is its `url` correct?")
    } else if error.is_body() || error.is_decode() {
        format!("its response ended early ({cause})")
    } else {
        format!("the request could not be sent ({cause})")
    }
}

fn status_error(status: u16) -> String {
    match status {
        300..=399 => {
            format!("it responds with HTTP {status}, a redirect that the host does not follow: set `url` to its target")
        }
        401 | 403 => format!("{AUTHORIZATION_REQUIRED} (HTTP {status})"),
        404 | 405 => format!("it responds with HTTP {status}: is the path of its `url` correct?"),
        429 => "it receives too many requests (HTTP 429): try again later".to_owned(),
        500..=599 => format!("it responds with HTTP {status}, an internal error: check the server's log"),
        _ => format!("it responds with HTTP {status}: does its `url` point to an MCP server?"),
    }
}

/// Parses the HTTP status from an error text of the library, such as `HTTP 404 Not Found: …`.
fn status_in(message: &str) -> Option<u16> {
    message.strip_prefix("HTTP ")?.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the message of the innermost error in the chain of sources, which is the most specific message.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    printable(&error.to_string(), MAX_QUOTED_CHARACTERS)
}
