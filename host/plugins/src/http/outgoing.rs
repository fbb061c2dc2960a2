//! A guest's requests: each is counted, authorised, given its secrets and sent; its answer comes back bounded.

use super::body::{Answer, Question, Times};
use super::connect::{Network, NoConnection};
use super::pattern::HttpPattern;
use super::pool::{Lease, Owner, Repeatable};
use super::secret::{Mask, Secret};
use crate::grants::{Grants, http_denied};
use crate::limits::{HEADER_BYTES, REQUEST_BODY_BYTES, REQUEST_TIME, REQUESTS, RESPONSE_BODY_BYTES};
use crate::record::CallRecord;
use crate::text::clean;
use agent_core::plugin::TraceContext;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use hyper::{HeaderMap, Request, Response, Uri};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// The requests of one call.
pub(crate) struct Outgoing {
    record: Arc<CallRecord>,
    grants: Arc<Grants>,
    agent: String,
    trace: Option<TraceContext>,
    network: Arc<Network>,
    sent: usize,
}

/// A request that may be sent.
struct Authorised {
    request: Request<Question>,
    url: Url,
    /// Those that allow it.
    patterns: Vec<HttpPattern>,
    mask: Mask,
    end: Instant,
    options: RequestOptions,
    owner: Owner,
    grants: Arc<Grants>,
}

type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(Response<WasiBody>, Driver), Error>;

impl Outgoing {
    pub(crate) fn new(
        record: Arc<CallRecord>,
        grants: Arc<Grants>,
        (agent, trace): (String, Option<TraceContext>),
        network: Arc<Network>,
    ) -> Self {
        Self { record, grants, agent, trace, network, sent: 0 }
    }

    fn authorise(&mut self, request: Request<WasiBody>, options: RequestOptions) -> Result<Authorised, Error> {
        let (mut parts, body) = request.into_parts();
        let method = parts.method.as_str().to_owned();
        let url = Url::parse(&parts.uri.to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(Error::HttpRequestUriInvalid);
        }
        let patterns: Vec<_> = self.grants.http.iter().filter(|one| one.allows(&method, &url)).cloned().collect();
        if patterns.is_empty() {
            let (thing, advice) = http_denied(&self.record.plugin.name, &shown(&method, &url), &line(&method, &url));
            self.record.deny(thing, advice);
            return Err(Error::HttpRequestDenied);
        }
        self.count()?;
        self.record.request();
        let secrets: Vec<_> = self.grants.secrets.iter().filter(|secret| secret.is_for(&method, &url)).collect();
        dress(&mut parts.headers, &url, &secrets)?;
        self.trace.iter().for_each(|trace| carry(trace, &mut parts.headers));
        // The path and the query as they were judged: no dots to climb with.
        let target = &url[url::Position::BeforePath..];
        parts.uri = target.parse::<Uri>().map_err(|_| Error::HttpRequestUriInvalid)?;
        let mask = Mask::new(secrets.into_iter());
        let request = Request::from_parts(parts, Question::new(body, REQUEST_BODY_BYTES, Arc::clone(&self.record)));
        let end = Instant::now() + REQUEST_TIME.min(self.record.time_left());
        let owner = Owner::new(&self.agent, &self.record.plugin.name, &url);
        Ok(Authorised { request, url, patterns, mask, end, options, owner, grants: Arc::clone(&self.grants) })
    }

    fn count(&mut self) -> Result<(), Error> {
        let too_many = |text: String| {
            tracing::warn!(target: "plugin", plugin = %self.record.plugin, call = %self.record.call, "{text}");
            Err(Error::InternalError(Some(text)))
        };
        if self.sent == REQUESTS {
            return too_many(format!("the plugin was stopped at its limit: {REQUESTS} requests in a call"));
        }
        self.sent += 1;
        match self.network.rates.take(&self.agent, &self.record.plugin.name, std::time::Instant::now()) {
            Ok(()) => Ok(()),
            Err(super::rate::TooMany { again_in }) => too_many(format!(
                "the plugin was stopped at its limit: {} requests per minute; there is room again in {} s",
                crate::limits::REQUESTS_PER_MINUTE,
                again_in.as_secs() + 1
            )),
        }
    }
}

impl WasiHttpHooks for Outgoing {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let authorised = self.authorise(request, options.unwrap_or_default());
        let (record, network) = (Arc::clone(&self.record), Arc::clone(&self.network));
        Box::new(async move { send(authorised?, record, &network).await })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 * 1024
    }
}

/// The headers as they go out. A secret goes before whatever the guest wrote in its header: libraries put something there
/// that was never meant to be sent.
fn dress(headers: &mut HeaderMap, url: &Url, secrets: &[&Secret]) -> Result<(), Error> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEADER_BYTES {
        return Err(Error::HttpRequestHeaderSectionSize(u32::try_from(HEADER_BYTES).ok()));
    }
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| Error::HttpRequestUriInvalid)?);
    for secret in secrets {
        let (name, value) = secret.filled();
        headers.insert(name, value);
    }
    if !secrets.is_empty() {
        // A secret that is sent back compressed could not be found.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    Ok(())
}

/// The call's trace context (P5), where the guest has put in none of its own.
fn carry(trace: &TraceContext, headers: &mut HeaderMap) {
    if headers.contains_key("traceparent") || trace.traceparent.is_empty() {
        return;
    }
    // What is no header's value is nobody's trace.
    let Ok(parent) = HeaderValue::from_str(&trace.traceparent) else { return };
    headers.insert("traceparent", parent);
    headers.remove("tracestate");
    if let Some(state) = trace.tracestate.as_deref().and_then(|state| HeaderValue::from_str(state).ok()) {
        headers.insert("tracestate", state);
    }
}

async fn send(authorised: Authorised, record: Arc<CallRecord>, network: &Network) -> Sent {
    let method = authorised.request.method().as_str().to_owned();
    let Authorised { request, url, patterns, mask, end, options, owner, grants } = authorised;
    let way = Way { url: &url, patterns: &patterns, owner, grants, options, end };
    let (response, lease) = exchange(request, &way, network).await.map_err(|problem| match problem {
        NoConnection::Failed(error) => error,
        NoConnection::Refused(address, what) => {
            let thing = format!("{}: {address} is {what}", shown(&method, &url));
            let (thing, advice) = http_denied(&record.plugin.name, &thing, &inner_line(&method, &url, address));
            record.deny(thing, advice);
            Error::DestinationIpProhibited
        }
    })?;
    tracing::debug!(target: "plugin", plugin = %record.plugin, call = %record.call, status = response.status().as_u16(), "{}", shown(&method, &url));
    let (mut parts, body) = response.into_parts();
    mask_headers(&mut parts.headers, &mask)?;
    let between = options.between_bytes_timeout.unwrap_or(REQUEST_TIME).max(Duration::from_millis(1));
    let answer = Answer::new(body, RESPONSE_BODY_BYTES, Times { end, between }, (mask, record)).over(lease);
    // The connection drives itself, also after this answer.
    let driver = std::future::ready(Ok(()));
    Ok((Response::from_parts(parts, answer.boxed_unsync()), Box::new(driver)))
}

/// Where a request goes, and in which time.
struct Way<'a> {
    url: &'a Url,
    patterns: &'a [HttpPattern],
    owner: Owner,
    grants: Arc<Grants>,
    options: RequestOptions,
    end: Instant,
}

type Answered = (Response<Incoming>, Lease);

/// Sends the request over a connection that is kept, else over a new one.
async fn exchange(mut request: Request<Question>, way: &Way<'_>, network: &Network) -> Result<Answered, NoConnection> {
    let repeatable = repeatable(&request);
    while let Some(lease) = network.pool.take(&way.owner, way.patterns, repeatable).await {
        let again = if repeatable == Repeatable::Yes { copy(&request) } else { None };
        match attempt(request, lease, way).await {
            Ok(answered) => return Ok(answered),
            // The server closed it just then: what it has not got, or may get twice, goes over another one.
            Err(Lost { error, unsent }) => match unsent.map(|unsent| *unsent).or(again.filter(|_| is_closed(&error))) {
                Some(unsent) => request = unsent,
                None => return Err(NoConnection::Failed(cause(error))),
            },
        }
    }
    let lease = connect(way, network).await?;
    attempt(request, lease, way).await.map_err(|lost| NoConnection::Failed(cause(lost.error)))
}

async fn connect(way: &Way<'_>, network: &Network) -> Result<Lease, NoConnection> {
    let time = way.options.connect_timeout.unwrap_or(REQUEST_TIME).min(left(way.end));
    let (wire, address) = network.connect(way.url, way.patterns, time).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEADER_BYTES);
    let made = builder.handshake(TokioIo::new(wire)).await;
    let (sender, connection) = made.map_err(|error| NoConnection::Failed(error.into()))?;
    let connection = spawn(async move {
        // Why it broke is told by the request or by its answer.
        let _ = connection.await;
    });
    Ok(Lease::new((sender, connection), (way.owner.clone(), address), &way.grants, &network.pool))
}

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

async fn attempt(request: Request<Question>, mut lease: Lease, way: &Way<'_>) -> Result<Answered, Lost> {
    let time = way.options.first_byte_timeout.unwrap_or(REQUEST_TIME).min(left(way.end));
    match tokio::time::timeout(time, lease.sender.try_send_request(request)).await {
        Ok(Ok(response)) => Ok((response, lease)),
        Ok(Err(mut error)) => {
            let unsent = error.take_message().map(Box::new);
            Err(Lost { error: NoAnswer::Broken(error.into_error()), unsent })
        }
        Err(_) => Err(Lost { error: NoAnswer::InTime, unsent: None }),
    }
}

fn repeatable(request: &Request<Question>) -> Repeatable {
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    if is_repeatable { Repeatable::Yes } else { Repeatable::No }
}

/// The same request, where it has no body.
fn copy(request: &Request<Question>) -> Option<Request<Question>> {
    let mut copy = Request::new(request.body().again()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Whether the server closed the connection before it answered.
fn is_closed(error: &NoAnswer) -> bool {
    let NoAnswer::Broken(error) = error else { return false };
    let inner = std::error::Error::source(error).and_then(|inner| inner.downcast_ref::<io::Error>());
    let is_broken = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || inner.is_some_and(is_broken)
}

/// Why an exchange failed. Of a body that was cut at its bound, hyper says only that there is something wrong with it.
fn cause(error: NoAnswer) -> Error {
    let NoAnswer::Broken(error) = error else { return Error::ConnectionReadTimeout };
    match std::error::Error::source(&error).and_then(|inner| inner.downcast_ref()) {
        Some(Error::HttpRequestBodySize(limit)) => Error::HttpRequestBodySize(*limit),
        _ => error.into(),
    }
}

/// Overwrites secrets that a server repeats in its headers.
fn mask_headers(headers: &mut HeaderMap, mask: &Mask) -> Result<(), Error> {
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if mask.whole(&mut bytes) {
            *value = HeaderValue::from_bytes(&bytes).map_err(|_| Error::HttpProtocolError)?;
        }
    }
    Ok(())
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// A request for people: without its query, in which credentials are often put.
fn shown(method: &str, url: &Url) -> String {
    clean(&format!("{method} {}", &url[..url::Position::AfterPath]), 256)
}

/// The pattern that would allow it.
fn line(method: &str, url: &Url) -> String {
    clean(&format!("{method} {}", &url[..url::Position::BeforePath]), 256)
}

/// The pattern that would allow an address of the inside: for those that `private` does not cover, by the address itself.
fn inner_line(method: &str, url: &Url, address: IpAddr) -> String {
    let by_word = format!("private {}", line(method, url));
    if by_word.parse().is_ok_and(|pattern: HttpPattern| pattern.admits(address).is_ok()) {
        return by_word;
    }
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    match address {
        IpAddr::V4(address) => format!("{method} {}://{address}{port}", url.scheme()),
        IpAddr::V6(address) => format!("{method} {}://[{address}]{port}", url.scheme()),
    }
}
