//! The HTTP requests of a guest. The host counts and authorises each request, adds the granted secrets, sends the
//! request and limits the response.

use super::body::{BodyPolicy, Deadline, MethodGuard, RequestBody, ResponseBody, ResponseTimes, size_of};
use super::connect::{ConnectError, Network};
use super::exchange::{RequestRoute, exchange, response_headers_too_large};
use super::pool::Owner;
use super::port::{refusal_for, respond_from_port};
use super::rate::RateExceeded;
use crate::grants::http_pattern::{AskedRequests, HttpPattern};
use crate::grants::live_grants::LiveGrants;
use crate::grants::request_rules::{
    BodySize, ambiguous_path, has_body, method_override, reason_to_refuse, second_path,
};
use crate::grants::secret::Secret;
use crate::grants::{GrantAdvice, Grants, http_denied};
use crate::limits::Limit;
use crate::ports::http::{HttpPort, HttpRefusal};
use crate::recording::CallRecord;
use crate::recording::host_calls::{RequestNumber, digest_of_headers};
use crate::text::clean;
use agent_core::message::Digest;
use agent_core::plugin::TraceContext;
use agent_core::redaction::{Edges, Redaction};
use http_body_util::BodyExt;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, HOST, HeaderName, HeaderValue, IF_RANGE, RANGE, TRANSFER_ENCODING,
};
use hyper::{HeaderMap, Request, Response, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// The HTTP requests of one call.
pub(crate) struct Outgoing {
    record: Arc<CallRecord>,
    live_grants: Arc<LiveGrants>,
    /// The requests that the plugin's manifest asks for. `None` if the component has no manifest.
    asked: AskedRequests,
    agent: String,
    trace: Option<TraceContext>,
    network: Arc<Network>,
    /// The port that responds to requests instead of the network. `None` means that requests are sent to the network.
    port: Option<Arc<dyn HttpPort>>,
    sent: usize,
}

/// A request that was authorised and prepared for sending.
pub(super) struct Authorised {
    pub(super) request: Request<RequestBody>,
    pub(super) url: Url,
    /// Digest of the headers that the guest set. The digest does not cover the headers that the host adds.
    pub(super) own_headers: Digest,
    /// Granted patterns that allow the request.
    patterns: Vec<HttpPattern>,
    pub(super) end: Deadline,
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
        (live_grants, asked): (Arc<LiveGrants>, AskedRequests),
        (agent, trace): (String, Option<TraceContext>),
        (network, port): (Arc<Network>, Option<Arc<dyn HttpPort>>),
    ) -> Self {
        Self { record, live_grants, asked, agent, trace, network, port, sent: 0 }
    }

    /// Checks a request and prepares it for sending. Refused requests also count towards the limit on requests, so that
    /// a guest that repeats a refused request is stopped.
    fn authorise(&mut self, request: Request<WasiBody>, options: RequestOptions) -> Result<Authorised, Error> {
        self.count_request()?;
        let (mut parts, body) = request.into_parts();
        let method = parts.method.as_str().to_owned();
        let url = Url::parse(&parts.uri.to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(Error::HttpRequestUriInvalid);
        }
        let own_headers = digest_of_headers(&parts.headers);
        let grants = self.live_grants.now();
        let number = self.record.answers.request(&method, &url, &own_headers);
        let patterns = match self.allowing_patterns(&grants, (&method, &url), &parts.headers, size_of(&body)) {
            Ok(patterns) => patterns,
            Err((thing, advice)) => {
                self.record.deny(thing, advice);
                self.record.answers.request_refused(number, HttpRefusal::Denied);
                return Err(Error::HttpRequestDenied);
            }
        };
        self.record.count_request();
        self.check_headers(&parts.headers)?;
        self.set_host_headers(&mut parts.headers, (&method, &url), &grants)?;
        self.trace.iter().for_each(|trace| add_trace_headers(trace, &mut parts.headers));
        // The parsed path and query are sent instead of the guest's text, because only the parsed path and query were
        // checked. A parsed path has no `.` or `..` segments.
        let target = &url[url::Position::BeforePath..];
        parts.uri = target.parse::<Uri>().map_err(|_| Error::HttpRequestUriInvalid)?;
        let body_policy = if has_body(&method) { BodyPolicy::Allowed } else { BodyPolicy::Forbidden };
        let methods = self.method_guard(&patterns, (&method, &url));
        let body = RequestBody::new(body, (body_policy, methods), (number, Arc::clone(&self.record)));
        let request = Request::from_parts(parts, body);
        let end = Deadline::of(&self.record);
        let owner = Owner::new(&self.agent, &self.record.plugin.name, &url);
        Ok(Authorised { request, url, own_headers, patterns, end, number, options, owner, grants })
    }

    /// Returns the granted patterns that allow the request, or, if no granted pattern allows the request, the denial
    /// to record.
    fn allowing_patterns(
        &self,
        grants: &Grants,
        (method, url): (&str, &Url),
        headers: &HeaderMap,
        body: BodySize,
    ) -> Result<Vec<HttpPattern>, (String, GrantAdvice)> {
        let plugin = &self.record.plugin.name;
        let request = description(method, url);
        let never = |reason: String| (http_denied(plugin, &format!("{request}: {reason}"), "").0, GrantAdvice::none());
        if let Some(reason) = reason_to_refuse(method, headers, body) {
            return Err(never(reason));
        }
        let allowed = |pattern: &&HttpPattern| pattern.allows(method, url);
        let mut patterns: Vec<_> = grants.http.iter().filter(allowed).cloned().collect();
        if patterns.is_empty() {
            let would_be_allowed = grants.http.iter().any(|pattern| pattern.would_allow_literal_path(method, url));
            let reason = ambiguous_path(url.path()).filter(|_| would_be_allowed);
            let thing = reason.map_or(request.clone(), |reason| format!("{request}: {reason}"));
            return Err(self.not_granted(&thing, (method, url)));
        }
        if let Some(reason) = method_override(url, headers) {
            patterns.retain(HttpPattern::matches_every_method);
            if patterns.is_empty() {
                let origin = clean(&url[..url::Position::BeforePath], 256);
                return Err(http_denied(plugin, &format!("{request}: {reason}"), &origin));
            }
        }
        if let Some(reason) = second_path(method, headers) {
            patterns.retain(HttpPattern::matches_every_path);
            if patterns.is_empty() {
                let origin = clean(&url[..url::Position::BeforePath], 256);
                return Err(http_denied(plugin, &format!("{request}: {reason}"), &origin));
            }
        }
        let parts = [RANGE, IF_RANGE].into_iter().find(|name| headers.contains_key(name));
        match parts.filter(|_| self.record.secrets.are_known_to(url)) {
            Some(name) => Err(never(format!(
                "the header `{name}` requests a part of a response, and this server knows a secret that it could send in parts"
            ))),
            None => Ok(patterns),
        }
    }

    /// Returns the denial of a request that no granted pattern allows. The advice is the grant that the manifest asks for. A request
    /// that the manifest does not ask for cannot be granted.
    fn not_granted(&self, request: &str, (method, url): (&str, &Url)) -> (String, GrantAdvice) {
        let plugin = &self.record.plugin.name;
        match &self.asked {
            None => http_denied(plugin, request, &pattern_for(method, url)),
            Some(asked) => match asked.iter().find(|pattern| pattern.allows(method, url)) {
                Some(pattern) => {
                    // A pattern for many servers is wider than what the call needs.
                    let asked = Some(pattern.to_string()).filter(|text| !text.contains('*'));
                    http_denied(plugin, request, &asked.unwrap_or_else(|| pattern_for(method, url)))
                }
                None => {
                    let advice = format!(
                        "add \"{}\" to `http` of `[asks]` in the plugin's `plugin.toml` and build the plugin again, because no \
                         grant can allow what the manifest does not ask for",
                        pattern_for(method, url)
                    );
                    (http_denied(plugin, request, "").0, GrantAdvice::without_grant(advice))
                }
            },
        }
    }

    /// Writes to the log that a request is sent without a secret that is meant for another port or scheme of its server.
    fn warn_of_withheld_secrets(&self, (method, url): (&str, &Url), grants: &Grants) {
        let is_withheld =
            |secret: &&Secret| !secret.is_for(method, url) && secret.hosts().iter().any(|host| host.matches_host(url));
        for secret in grants.secrets.iter().filter(is_withheld) {
            let hosts: Vec<String> = secret.hosts().iter().map(|host| format!("`{host}`")).collect();
            self.record.warn(format_args!(
                "the request {} is sent without the secret {}, whose `hosts` are {}; `hosts` without a scheme mean https",
                description(method, url),
                secret.name(),
                hosts.join(", ")
            ));
        }
    }

    /// The guard that searches the body of a POST request for a method field. None if the method is not POST or if all
    /// methods are granted.
    fn method_guard(&self, patterns: &[HttpPattern], (method, url): (&str, &Url)) -> Option<MethodGuard> {
        if method != "POST" || patterns.iter().any(HttpPattern::matches_every_method) {
            return None;
        }
        let request =
            format!("{}: the field `_method` of its body could override the method", description(method, url));
        let origin = clean(&url[..url::Position::BeforePath], 256);
        Some(MethodGuard::new(http_denied(&self.record.plugin.name, &request, &origin)))
    }

    /// Counts a request towards the limits on requests. Returns an error if a limit is reached.
    fn count_request(&mut self) -> Result<(), Error> {
        let stopped_at = |limit: Limit| {
            self.record.record_request_limit(limit);
            Err(Error::InternalError(Some(format!("the plugin was stopped at its limit: {limit}"))))
        };
        let limits = self.record.limits;
        if self.sent == limits.requests {
            return stopped_at(Limit::Requests(limits.requests));
        }
        if self.port.is_some() {
            // The rate limit does not apply to requests that a port answers, because these requests do not reach
            // the network.
            self.sent += 1;
            return Ok(());
        }
        let (whose, now) = ((self.agent.as_str(), self.record.plugin.name.as_str()), std::time::Instant::now());
        match self.network.rates.take(whose, limits.requests_per_minute, now) {
            Ok(()) => self.sent += 1,
            Err(RateExceeded { retry_after }) => {
                return stopped_at(Limit::RequestsPerMinute(limits.requests_per_minute, retry_after));
            }
        }
        Ok(())
    }

    /// Sets the headers that the host controls. If the guest has set the header of a secret, the host replaces its
    /// value with the secret, because libraries often set a placeholder value.
    fn set_host_headers(
        &self,
        headers: &mut HeaderMap,
        (method, url): (&str, &Url),
        grants: &Grants,
    ) -> Result<(), Error> {
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| Error::HttpRequestUriInvalid)?);
        self.warn_of_withheld_secrets((method, url), grants);
        for secret in grants.secrets.iter().filter(|secret| secret.is_for(method, url)) {
            let (name, value) = secret.name_and_value();
            headers.insert(name, value);
        }
        if self.record.secrets.are_known_to(url) {
            // The host asks for an uncompressed response, because it cannot find secrets in a compressed response.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Ok(())
    }

    fn check_headers(&self, headers: &HeaderMap) -> Result<(), Error> {
        let limit = self.record.limits.headers;
        if header_bytes(headers) > limit {
            self.record.record_request_limit(Limit::Headers(limit));
            return Err(Error::HttpRequestHeaderSectionSize(u32::try_from(limit).ok()));
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
                Some(port) => respond_from_port(authorised, record, &*port).await,
                None => send(authorised, record, &network).await,
            };
            sent.inspect_err(|error| log.answers.request_refused(number, refusal_for(error)))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 * 1024
    }

    /// Reports the error to the plugin. The default implementation of this hook would, in addition, log a warning that
    /// does not name the plugin.
    fn p2_error_from_hyper(&mut self, error: &hyper::Error) -> ErrorCode {
        tracing::debug!(target: "plugin", plugin = %self.record.plugin, call = %self.record.call, %error, "a request failed");
        ErrorCode::HttpProtocolError
    }
}

/// Total size of the names and values of all headers, in bytes.
pub(super) fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Adds the call's trace context to the headers (P5), unless the guest has set its own trace context.
fn add_trace_headers(trace: &TraceContext, headers: &mut HeaderMap) {
    if headers.contains_key("traceparent") || trace.traceparent.is_empty() {
        return;
    }
    // A trace context that is not a valid header value is not sent.
    let Ok(parent) = HeaderValue::from_str(&trace.traceparent) else { return };
    headers.insert("traceparent", parent);
    headers.remove("tracestate");
    if let Some(state) = trace.tracestate.as_deref().and_then(|state| HeaderValue::from_str(state).ok()) {
        headers.insert("tracestate", state);
    }
}

async fn send(authorised: Authorised, record: Arc<CallRecord>, network: &Network) -> Sent {
    let method = authorised.request.method().as_str().to_owned();
    let Authorised { request, url, patterns, end, number, options, owner, grants, .. } = authorised;
    let limits = record.limits;
    let route = RequestRoute { url: &url, patterns: &patterns, owner, grants, options, end, record: &record };
    let (response, lease) = exchange(request, &route, network).await.map_err(|problem| match problem {
        ConnectError::Failed(error) => {
            end.record_if_passed(&record);
            error
        }
        ConnectError::Untrusted(problem) => {
            record.warn(format_args!("{problem}"));
            Error::TlsCertificateError
        }
        ConnectError::Refused(address, class) => {
            let thing = format!("{}: {address} is {class}", description(&method, &url));
            let (thing, advice) =
                http_denied(&record.plugin.name, &thing, &private_pattern_for(&method, &url, address));
            record.deny(thing, advice);
            Error::DestinationIpProhibited
        }
    })?;
    tracing::debug!(target: "plugin", plugin = %record.plugin, call = %record.call, status = response.status().as_u16(), "{}", description(&method, &url));
    let (mut parts, body) = response.into_parts();
    if header_bytes(&parts.headers) > limits.headers {
        return Err(response_headers_too_large(&record));
    }
    parts.headers = redacted_headers(parts.headers, &url, &record)?;
    record.answers.response_started(number, parts.status.as_u16(), &parts.headers);
    let between = options.between_bytes_timeout.unwrap_or(limits.request_time).max(Duration::from_millis(1));
    let body = ResponseBody::new(body, ResponseTimes { end, between }, (number, record)).with_connection(lease);
    // A separate task drives the connection, so the driver that is returned to wasmtime-wasi-http does nothing.
    let driver = std::future::ready(Ok(()));
    Ok((Response::from_parts(parts, body.boxed_unsync()), Box::new(driver)))
}

/// Returns the headers of a response after removing secrets from them. Fails if the response is compressed and the
/// server knows a secret, because the host cannot find secrets in a compressed response and had asked for an
/// uncompressed response.
pub(super) fn redacted_headers(headers: HeaderMap, url: &Url, record: &CallRecord) -> Result<HeaderMap, Error> {
    let is_plain = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value.is_empty() || value.eq_ignore_ascii_case(b"identity") || value.eq_ignore_ascii_case(b"chunked")
    };
    let encodings = headers.get_all(CONTENT_ENCODING).iter().chain(headers.get_all(TRANSFER_ENCODING));
    let encoding = encodings.into_iter().find(|value| !is_plain(value));
    if let Some(encoding) = encoding.filter(|_| record.secrets.are_known_to(url)) {
        let encoding = record.secrets.redaction().text(String::from_utf8_lossy(encoding.as_bytes()).into_owned());
        let encoding = clean(&encoding, 64);
        let problem = format!(
            "the server compressed its response ({encoding}) although the host asked it not to; the host cannot look for secrets in it"
        );
        record.warn(format_args!("{}: {problem}", clean(&url[..url::Position::BeforePath], 256)));
        return Err(Error::InternalError(Some(problem)));
    }
    without_secrets(headers, record.secrets.redaction())
}

/// Replaces each byte of a secret in header names and values with a star.
fn without_secrets(headers: HeaderMap, redaction: &Redaction) -> Result<HeaderMap, Error> {
    if redaction.is_empty() {
        return Ok(headers);
    }
    let mut clean = HeaderMap::with_capacity(headers.len());
    let mut last_name = None;
    for (name, value) in headers {
        // The iterator of `HeaderMap` returns a header's name only with the first of the header's values.
        let name = name.or(last_name.take()).ok_or(Error::HttpProtocolError)?;
        last_name = Some(name.clone());
        let name = match redaction.bytes(name.as_str().as_bytes(), Edges::Cut) {
            Some(bytes) => HeaderName::from_bytes(&bytes).map_err(|_| Error::HttpProtocolError)?,
            None => name,
        };
        let value = match redaction.bytes(value.as_bytes(), Edges::Cut) {
            Some(bytes) => HeaderValue::from_bytes(&bytes).map_err(|_| Error::HttpProtocolError)?,
            None => value,
        };
        clean.append(name, value);
    }
    Ok(clean)
}

/// Returns a text that describes an HTTP request in messages to the user. The text omits the query, which often
/// contains credentials.
fn description(method: &str, url: &Url) -> String {
    clean(&format!("{method} {}", &url[..url::Position::AfterPath]), 256)
}

/// Returns the text of a grant pattern that would allow the request.
fn pattern_for(method: &str, url: &Url) -> String {
    clean(&format!("{method} {}", &url[..url::Position::BeforePath]), 256)
}

/// Returns the text of a grant pattern that would allow a request to an address that is not public. The pattern
/// contains the word `private` if that word allows the address, and otherwise the address itself.
fn private_pattern_for(method: &str, url: &Url, address: IpAddr) -> String {
    let private = format!("private {}", pattern_for(method, url));
    if private.parse().is_ok_and(|pattern: HttpPattern| pattern.admits(address).is_ok()) {
        return private;
    }
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    match address {
        IpAddr::V4(address) => format!("{method} {}://{address}{port}", url.scheme()),
        IpAddr::V6(address) => format!("{method} {}://[{address}]{port}", url.scheme()),
    }
}
