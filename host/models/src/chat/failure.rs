//! What went wrong below HTTP.

use crate::error::{Endpoint, ModelError, Unreachable};
use std::error::Error;
use std::io;

/// A request that got no answer.
pub(super) fn of_request(endpoint: &Endpoint, error: &reqwest::Error) -> ModelError {
    let endpoint = endpoint.clone();
    match why_unreachable(error) {
        Some(why) => ModelError::Unreachable { endpoint, why, problem: innermost(error) },
        None => of_reply(endpoint, error),
    }
}

/// A reply that broke off.
pub(super) fn of_reply(endpoint: Endpoint, error: &reqwest::Error) -> ModelError {
    ModelError::Broken { endpoint, message: innermost(error) }
}

/// The words of the error behind all others: they say what happened, and name no URL.
pub(super) fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn why_unreachable(error: &reqwest::Error) -> Option<Unreachable> {
    // A reset in the middle of TLS is the network's fault, a refused certificate is not.
    if find::<rustls::Error>(error).is_some() {
        return Some(Unreachable::Tls);
    }
    if !error.is_connect() {
        return None;
    }
    let refused = find::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    Some(match () {
        () if refused => Unreachable::NoServer,
        () if error.is_dns() => Unreachable::UnknownHost,
        () if error.is_timeout() => Unreachable::Timeout,
        () => Unreachable::Other,
    })
}

/// The innermost error of that type; I/O errors hide theirs inside.
fn find<'e, Wanted: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e Wanted> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(error) = next {
        found = error.downcast_ref::<Wanted>().or(found);
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    found
}
