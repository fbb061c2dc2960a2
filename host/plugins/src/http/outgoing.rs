//! A guest's requests: each is counted, authorised, given its secrets and sent; its answer comes back bounded.

use super::body::{Answer, End, Question, Times};
use super::connect::{Network, NoConnection};
use super::exchange::{Way, exchange, headers_of_answer};
use super::pattern::HttpPattern;
use super::pool::Owner;
use super::port::{HttpPort, HttpRefusal, by_port, refusal_of};
use super::rate::TooMany;
use super::secret::{Mask, Secret};
use crate::answers::{RequestNumber, digest_of_headers};
use crate::grants::{Grants, http_denied};
use crate::in_force::GrantsInForce;
use crate::limits::Limit;
use crate::record::CallRecord;
use crate::text::clean;
use agent_core::message::Digest;
use agent_core::plugin::TraceContext;
use http_body_util::BodyExt;
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use hyper::{HeaderMap, Request, Response, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// The requests of one call.
pub(crate) struct Outgoing {
    record: Arc<CallRecord>,
    in_force: Arc<GrantsInForce>,
    agent: String,
    trace: Option<TraceContext>,
    network: Arc<Network>,
    /// Who answers in the network's place.
    port: Option<Arc<dyn HttpPort>>,
    sent: usize,
}

/// A request that may be sent.
pub(super) struct Authorised {
    pub(super) request: Request<Question>,
    pub(super) url: Url,
    /// Of what the guest has written itself.
    pub(super) own_headers: Digest,
    /// Those that allow it.
    patterns: Vec<HttpPattern>,
    pub(super) mask: Mask,
    pub(super) end: End,
    pub(super) number: RequestNumber,
    options: RequestOptions,
    owner: Owner,
    grants: Arc<Grants>,
}

type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;
pub(super) type Sent = Result<(Response<WasiBody>, Driver), Error>;

impl Outgoing {
    pub(crate) fn new(
        record: Arc<CallRecord>,
        in_force: Arc<GrantsInForce>,
        (agent, trace): (String, Option<TraceContext>),
        (network, port): (Arc<Network>, Option<Arc<dyn HttpPort>>),
    ) -> Self {
        Self { record, in_force, agent, trace, network, port, sent: 0 }
    }

    fn authorise(&mut self, request: Request<WasiBody>, options: RequestOptions) -> Result<Authorised, Error> {
        let (mut parts, body) = request.into_parts();
        let method = parts.method.as_str().to_owned();
        let url = Url::parse(&parts.uri.to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(Error::HttpRequestUriInvalid);
        }
        let own_headers = digest_of_headers(&parts.headers);
        let grants = self.in_force.now();
        let patterns: Vec<_> = grants.http.iter().filter(|one| one.allows(&method, &url)).cloned().collect();
        if patterns.is_empty() {
            let (thing, advice) = http_denied(&self.record.plugin.name, &shown(&method, &url), &line(&method, &url));
            self.record.deny(thing, advice);
            let number = self.record.answers.request(&method, &url, &own_headers);
            self.record.answers.refused(number, HttpRefusal::Denied);
            return Err(Error::HttpRequestDenied);
        }
        self.count()?;
        self.record.request();
        let secrets: Vec<_> = grants.secrets.iter().filter(|secret| secret.is_for(&method, &url)).collect();
        self.check_headers(&parts.headers)?;
        dress(&mut parts.headers, &url, &secrets)?;
        self.trace.iter().for_each(|trace| carry(trace, &mut parts.headers));
        // The path and the query as they were judged: no dots to climb with.
        let target = &url[url::Position::BeforePath..];
        parts.uri = target.parse::<Uri>().map_err(|_| Error::HttpRequestUriInvalid)?;
        let mask = Mask::new(secrets.into_iter());
        let number = self.record.answers.request(&method, &url, &own_headers);
        let request = Request::from_parts(parts, Question::new(body, (number, Arc::clone(&self.record))));
        let end = End::of(&self.record);
        let owner = Owner::new(&self.agent, &self.record.plugin.name, &url);
        Ok(Authorised { request, url, own_headers, patterns, mask, end, number, options, owner, grants })
    }

    fn count(&mut self) -> Result<(), Error> {
        let too_many = |limit: Limit| {
            self.record.cut_request(limit);
            Err(Error::InternalError(Some(format!("the plugin was stopped at its limit: {limit}"))))
        };
        let limits = self.record.limits;
        if self.sent == limits.requests {
            return too_many(Limit::Requests(limits.requests));
        }
        if self.port.is_some() {
            // What has no way out burdens nobody there.
            self.sent += 1;
            return Ok(());
        }
        let (whose, now) = ((self.agent.as_str(), self.record.plugin.name.as_str()), std::time::Instant::now());
        match self.network.rates.take(whose, limits.requests_per_minute, now) {
            Ok(()) => self.sent += 1,
            Err(TooMany { again_in }) => {
                return too_many(Limit::RequestsPerMinute(limits.requests_per_minute, again_in));
            }
        }
        Ok(())
    }

    fn check_headers(&self, headers: &HeaderMap) -> Result<(), Error> {
        let most = self.record.limits.headers;
        if header_bytes(headers) > most {
            self.record.cut_request(Limit::Headers(most));
            return Err(Error::HttpRequestHeaderSectionSize(u32::try_from(most).ok()));
        }
        Ok(())
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
        let (record, network, port) = (Arc::clone(&self.record), Arc::clone(&self.network), self.port.clone());
        Box::new(async move {
            let (authorised, log) = (authorised?, Arc::clone(&record));
            let number = authorised.number;
            let sent = match port {
                Some(port) => by_port(authorised, record, &*port).await,
                None => send(authorised, record, &network).await,
            };
            sent.inspect_err(|error| log.answers.refused(number, refusal_of(error)))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 * 1024
    }

    /// The plugin is told; the engine's own way would warn in the log of the host, of nobody knows which plugin.
    fn p2_error_from_hyper(&mut self, error: &hyper::Error) -> ErrorCode {
        tracing::debug!(target: "plugin", plugin = %self.record.plugin, call = %self.record.call, %error, "a request failed");
        ErrorCode::HttpProtocolError
    }
}

/// Bytes of names and values.
pub(super) fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// The headers as they go out. A secret goes before whatever the guest wrote in its header: libraries put something there
/// that was never meant to be sent.
fn dress(headers: &mut HeaderMap, url: &Url, secrets: &[&Secret]) -> Result<(), Error> {
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
    let Authorised { request, url, patterns, mask, end, number, options, owner, grants, .. } = authorised;
    let limits = record.limits;
    let way = Way { url: &url, patterns: &patterns, owner, grants, options, end, record: &record };
    let (response, lease) = exchange(request, &way, network).await.map_err(|problem| match problem {
        NoConnection::Failed(error) => {
            end.note(&record);
            error
        }
        NoConnection::Refused(address, what) => {
            let thing = format!("{}: {address} is {what}", shown(&method, &url));
            let (thing, advice) = http_denied(&record.plugin.name, &thing, &inner_line(&method, &url, address));
            record.deny(thing, advice);
            Error::DestinationIpProhibited
        }
    })?;
    tracing::debug!(target: "plugin", plugin = %record.plugin, call = %record.call, status = response.status().as_u16(), "{}", shown(&method, &url));
    let (mut parts, body) = response.into_parts();
    if header_bytes(&parts.headers) > limits.headers {
        return Err(headers_of_answer(&record));
    }
    mask_headers(&mut parts.headers, &mask)?;
    record.answers.came(number, parts.status.as_u16(), &parts.headers);
    let between = options.between_bytes_timeout.unwrap_or(limits.request_time).max(Duration::from_millis(1));
    let answer = Answer::new(body, Times { end, between }, (mask, number, record)).over(lease);
    // The connection drives itself, also after this answer.
    let driver = std::future::ready(Ok(()));
    Ok((Response::from_parts(parts, answer.boxed_unsync()), Box::new(driver)))
}

/// Overwrites secrets that a server repeats in its headers.
pub(super) fn mask_headers(headers: &mut HeaderMap, mask: &Mask) -> Result<(), Error> {
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if mask.whole(&mut bytes) {
            *value = HeaderValue::from_bytes(&bytes).map_err(|_| Error::HttpProtocolError)?;
        }
    }
    Ok(())
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
