//! Converts errors of the HTTP client, including network and TLS errors, to model errors.

use crate::error::{Endpoint, ModelError, Unreachable};
use std::error::Error;
use std::io;

/// Converts the HTTP client's error to a model error, for a request that received no response.
pub(super) fn request_error(endpoint: &Endpoint, error: &reqwest::Error) -> ModelError {
    let endpoint = endpoint.clone();
    match unreachable_cause(error) {
        Some(cause) => ModelError::Unreachable { endpoint, cause, problem: root_cause(error) },
        None => reply_error(endpoint, error),
    }
}

/// Converts the HTTP client's error to a model error, for a response that ended early.
pub(super) fn reply_error(endpoint: Endpoint, error: &reqwest::Error) -> ModelError {
    ModelError::ConnectionLost { endpoint, message: root_cause(error) }
}

/// Returns the message of the innermost error in the chain of sources. This message describes the cause and contains
/// no URL.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn unreachable_cause(error: &reqwest::Error) -> Option<Unreachable> {
    // A rejected certificate produces a `rustls::Error`. A connection that is reset during the TLS handshake is a
    // network error and contains no `rustls::Error`.
    if find::<rustls::Error>(error).is_some() {
        return Some(Unreachable::Tls);
    }
    if !error.is_connect() {
        return None;
    }
    let connection_refused =
        find::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    Some(match () {
        () if connection_refused => Unreachable::NoServer,
        () if error.is_dns() => Unreachable::UnknownHost,
        () if error.is_timeout() => Unreachable::Timeout,
        () => Unreachable::Other,
    })
}

/// Finds the innermost error of the given type in a chain of errors. For I/O errors, the function uses `get_ref`,
/// because their `source` skips the inner error.
fn find<'e, Wanted: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e Wanted> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(error) = next {
        found = error.downcast_ref::<Wanted>().or(found);
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    found
}
