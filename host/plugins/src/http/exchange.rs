//! One request over the wire: over a connection that is kept, else over a new one.

use super::body::{End, Question};
use super::connect::{Network, NoConnection};
use super::pattern::HttpPattern;
use super::pool::{Lease, Owner, Repeatable};
use crate::grants::Grants;
use crate::limits::Limit;
use crate::record::CallRecord;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use url::Url;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions};

/// Least that the HTTP client can work with.
const LEAST_BUFFER: usize = 8 * 1024;

/// Where a request goes, for which call, and in which time.
pub(crate) struct Way<'a> {
    pub(crate) url: &'a Url,
    /// Those that allow it.
    pub(crate) patterns: &'a [HttpPattern],
    pub(crate) owner: Owner,
    pub(crate) grants: Arc<Grants>,
    pub(crate) options: RequestOptions,
    pub(crate) end: End,
    pub(crate) record: &'a CallRecord,
}

pub(crate) type Answered = (Response<Incoming>, Lease);

/// A request without an answer.
struct Lost {
    error: NoAnswer,
    /// The request, where nothing of it has been sent.
    unsent: Option<Box<Request<Question>>>,
}

enum NoAnswer {
    InTime,
    Broken(hyper::Error),
}

/// Sends the request.
pub(crate) async fn exchange(
    mut request: Request<Question>,
    way: &Way<'_>,
    network: &Network,
) -> Result<Answered, NoConnection> {
    let repeatable = repeatable(&request);
    while let Some(lease) = network.pool.take(&way.owner, way.patterns, repeatable).await {
        let again = (repeatable == Repeatable::Yes).then(|| copy(&request));
        let may_go_again = |error: &NoAnswer, again: &Request<Question>| is_closed(error) && again.body().is_whole();
        match attempt(request, lease, way).await {
            Ok(answered) => return Ok(answered),
            // The server closed it just then: what it has not got, or may get twice, goes over another one.
            Err(Lost { error, unsent }) => {
                let again = again.filter(|again| may_go_again(&error, again));
                match unsent.map(|unsent| *unsent).or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(NoConnection::Failed(cause(error, way.record))),
                }
            }
        }
    }
    let lease = connect(way, network).await?;
    attempt(request, lease, way).await.map_err(|lost| NoConnection::Failed(cause(lost.error, way.record)))
}

async fn connect(way: &Way<'_>, network: &Network) -> Result<Lease, NoConnection> {
    let limits = way.record.limits;
    let time = way.options.connect_timeout.unwrap_or(limits.request_time).min(way.end.left());
    let (wire, address) = network.connect(way.url, way.patterns, time).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(limits.headers.max(LEAST_BUFFER));
    let made = builder.handshake(TokioIo::new(wire)).await;
    let (sender, connection) = made.map_err(|error| NoConnection::Failed(error.into()))?;
    let connection = spawn(async move {
        // Why it broke is told by the request or by its answer.
        let _ = connection.await;
    });
    Ok(Lease::new((sender, connection), (way.owner.clone(), address), &way.grants, &network.pool))
}

async fn attempt(request: Request<Question>, mut lease: Lease, way: &Way<'_>) -> Result<Answered, Lost> {
    let time = way.options.first_byte_timeout.unwrap_or(way.record.limits.request_time).min(way.end.left());
    match tokio::time::timeout(time, lease.sender.try_send_request(request)).await {
        Ok(Ok(response)) => Ok((response, lease)),
        Ok(Err(mut error)) => {
            let unsent = error.take_message().map(Box::new);
            Err(Lost { error: NoAnswer::Broken(error.into_error()), unsent })
        }
        Err(_) => Err(Lost { error: NoAnswer::InTime, unsent: None }),
    }
}

/// Whether the server may get it twice. Of what only asks, nothing is sent as a rule but the head; guests say seldom that
/// this is all.
fn repeatable(request: &Request<Question>) -> Repeatable {
    let method = request.method();
    let is_repeatable = method.is_safe() || method.is_idempotent() && request.body().is_end_stream();
    if is_repeatable { Repeatable::Yes } else { Repeatable::No }
}

/// The same request, which counts as long as nothing of its body has been taken.
fn copy(request: &Request<Question>) -> Request<Question> {
    let mut copy = Request::new(request.body().again());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Whether the server closed the connection before it answered.
fn is_closed(error: &NoAnswer) -> bool {
    let NoAnswer::Broken(error) = error else { return false };
    let inner = std::error::Error::source(error).and_then(|inner| inner.downcast_ref::<io::Error>());
    let is_broken = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || inner.is_some_and(is_broken)
}

/// Why an exchange failed. Of a body that was cut at its bound, hyper says only that there is something wrong with it.
fn cause(error: NoAnswer, record: &CallRecord) -> Error {
    let NoAnswer::Broken(error) = error else { return Error::ConnectionReadTimeout };
    if error.is_parse_too_large() {
        return headers_of_answer(record);
    }
    match std::error::Error::source(&error).and_then(|inner| inner.downcast_ref()) {
        Some(Error::HttpRequestBodySize(limit)) => Error::HttpRequestBodySize(*limit),
        _ => error.into(),
    }
}

/// The answer's headers go beyond their bound.
pub(crate) fn headers_of_answer(record: &CallRecord) -> Error {
    record.cut_request(Limit::Headers(record.limits.headers));
    Error::HttpResponseHeaderSectionSize(u32::try_from(record.limits.headers).ok())
}
