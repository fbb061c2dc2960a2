//! Sends one request over a pooled connection. If no pooled connection can be used, opens a new connection.

use super::body::{Deadline, RequestBody};
use super::connect::{ConnectError, Network};
use super::pool::{Lease, Owner, Repeatable};
use crate::grants::Grants;
use crate::grants::http_pattern::HttpPattern;
use crate::limits::Limit;
use crate::recording::CallRecord;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use url::Url;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions};

/// Smallest buffer size that the HTTP client accepts.
const MIN_BUFFER: usize = 8 * 1024;

/// The destination of a request, the limits on the duration of the request, and the plugin call to which the
/// request belongs.
pub(crate) struct RequestRoute<'a> {
    pub(crate) url: &'a Url,
    /// Granted patterns that allow the request.
    pub(crate) patterns: &'a [HttpPattern],
    pub(crate) owner: Owner,
    pub(crate) grants: Arc<Grants>,
    pub(crate) options: RequestOptions,
    pub(crate) end: Deadline,
    pub(crate) record: &'a CallRecord,
}

pub(crate) type LeasedResponse = (Response<Incoming>, Lease);

/// A failed attempt to send a request: the attempt ended without a response.
struct FailedAttempt {
    error: AttemptError,
    /// The request, which can be sent again. None if a part of the request has already been sent.
    unsent: Option<Box<Request<RequestBody>>>,
}

enum AttemptError {
    Timeout,
    Broken(hyper::Error),
}

/// Sends the request over a pooled or new connection. If the server has closed a pooled connection, tries the
/// next connection.
pub(crate) async fn exchange(
    mut request: Request<RequestBody>,
    route: &RequestRoute<'_>,
    network: &Network,
) -> Result<LeasedResponse, ConnectError> {
    let repeatable = repeatable(&request);
    while let Some(lease) = network.pool.take(&route.owner, route.patterns, repeatable).await {
        let retry = (repeatable == Repeatable::Yes).then(|| copy(&request));
        let may_be_repeated =
            |error: &AttemptError, retry: &Request<RequestBody>| is_closed(error) && retry.body().is_unread();
        match attempt(request, lease, route).await {
            Ok(response) => return Ok(response),
            // If no part of the request was sent, or if the request may be repeated, the request is sent over a
            // different connection.
            Err(FailedAttempt { error, unsent }) => {
                let retry = retry.filter(|retry| may_be_repeated(&error, retry));
                match unsent.map(|unsent| *unsent).or(retry) {
                    Some(unsent) => request = unsent,
                    None => return Err(ConnectError::Failed(cause(error, route.record))),
                }
            }
        }
    }
    let lease = connect(route, network).await?;
    attempt(request, lease, route).await.map_err(|lost| ConnectError::Failed(cause(lost.error, route.record)))
}

async fn connect(route: &RequestRoute<'_>, network: &Network) -> Result<Lease, ConnectError> {
    let limits = route.record.limits;
    let time = route.options.connect_timeout.unwrap_or(limits.request_time).min(route.end.time_left());
    let (wire, address) = network.connect(route.url, route.patterns, time).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(limits.headers.max(MIN_BUFFER));
    let handshake = builder.handshake(TokioIo::new(wire)).await;
    let (sender, connection) = handshake.map_err(|error| ConnectError::Failed(error.into()))?;
    let connection = spawn(async move {
        // The error of the connection is not reported, because the error of the request or of its response body
        // explains why the connection broke.
        let _ = connection.await;
    });
    Ok(Lease::new((sender, connection), (route.owner.clone(), address), &route.grants, &network.pool))
}

async fn attempt(
    request: Request<RequestBody>,
    mut lease: Lease,
    route: &RequestRoute<'_>,
) -> Result<LeasedResponse, FailedAttempt> {
    let time = route.options.first_byte_timeout.unwrap_or(route.record.limits.request_time).min(route.end.time_left());
    match tokio::time::timeout(time, lease.sender.try_send_request(request)).await {
        Ok(Ok(response)) => Ok((response, lease)),
        Ok(Err(mut error)) => {
            let unsent = error.take_message().map(Box::new);
            Err(FailedAttempt { error: AttemptError::Broken(error.into_error()), unsent })
        }
        Err(_) => Err(FailedAttempt { error: AttemptError::Timeout, unsent: None }),
    }
}

/// Whether the server may receive the request twice. For a request with a safe method, the host does not check whether
/// the body is empty: such a body is usually empty, but guests rarely mark it as empty.
fn repeatable(request: &Request<RequestBody>) -> Repeatable {
    let method = request.method();
    let is_repeatable = method.is_safe() || method.is_idempotent() && request.body().is_end_stream();
    if is_repeatable { Repeatable::Yes } else { Repeatable::No }
}

/// Returns a copy of the request for a second attempt. The copy can be used only if no part of the request's body
/// has been read.
fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(request.body().retry());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Whether the server closed the connection before it responded.
fn is_closed(error: &AttemptError) -> bool {
    let AttemptError::Broken(error) = error else { return false };
    let inner = std::error::Error::source(error).and_then(|inner| inner.downcast_ref::<io::Error>());
    let is_broken = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || inner.is_some_and(is_broken)
}

/// The reason why an exchange failed. If a request body exceeds its limit, hyper returns a generic body error whose
/// source is the error about the limit.
fn cause(error: AttemptError, record: &CallRecord) -> Error {
    let AttemptError::Broken(error) = error else { return Error::ConnectionReadTimeout };
    if error.is_parse_too_large() {
        return response_headers_too_large(record);
    }
    match std::error::Error::source(&error).and_then(|inner| inner.downcast_ref()) {
        Some(Error::HttpRequestBodySize(limit)) => Error::HttpRequestBodySize(*limit),
        _ => error.into(),
    }
}

/// Records that the headers of a response exceed their size limit, and returns the error for the guest.
pub(crate) fn response_headers_too_large(record: &CallRecord) -> Error {
    record.record_request_limit(Limit::Headers(record.limits.headers));
    Error::HttpResponseHeaderSectionSize(u32::try_from(record.limits.headers).ok())
}
