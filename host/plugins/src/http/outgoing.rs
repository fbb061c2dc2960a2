//! A guest's requests: each is counted, authorised, given its secrets and sent; its answer comes back bounded.

use super::body::{Answer, End, Question, Times};
use super::connect::{Network, NoConnection};
use super::pattern::HttpPattern;
use super::rate::TooMany;
use super::secret::{Mask, Secret};
use crate::grants::{Grants, http_denied};
use crate::limits::Limit;
use crate::record::CallRecord;
use crate::text::clean;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use hyper::{HeaderMap, Request, Response, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// Least that the HTTP client can work with.
const LEAST_BUFFER: usize = 8 * 1024;

/// The requests of one call.
pub(crate) struct Outgoing {
    record: Arc<CallRecord>,
    grants: Arc<Grants>,
    agent: String,
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
    end: End,
    options: RequestOptions,
}

type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(Response<WasiBody>, Driver), Error>;

impl Outgoing {
    pub(crate) fn new(record: Arc<CallRecord>, grants: Arc<Grants>, agent: String, network: Arc<Network>) -> Self {
        Self { record, grants, agent, network, sent: 0 }
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
        self.check_headers(&parts.headers)?;
        dress(&mut parts.headers, &url, &secrets)?;
        // The path and the query as they were judged: no dots to climb with.
        let target = &url[url::Position::BeforePath..];
        parts.uri = target.parse::<Uri>().map_err(|_| Error::HttpRequestUriInvalid)?;
        let mask = Mask::new(secrets.into_iter());
        let request = Request::from_parts(parts, Question::new(body, Arc::clone(&self.record)));
        let end = End::of(&self.record);
        Ok(Authorised { request, url, patterns, mask, end, options })
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
        let (record, network) = (Arc::clone(&self.record), Arc::clone(&self.network));
        Box::new(async move { send(authorised?, record, &network).await })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 * 1024
    }
}

/// Bytes of names and values.
fn header_bytes(headers: &HeaderMap) -> usize {
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

async fn send(authorised: Authorised, record: Arc<CallRecord>, network: &Network) -> Sent {
    let Authorised { request, url, patterns, mask, end, options } = authorised;
    let method = request.method().as_str().to_owned();
    let limits = record.limits;
    let connect_time = options.connect_timeout.unwrap_or(limits.request_time).min(end.left());
    let wire = network.connect(&url, &patterns, connect_time).await.map_err(|problem| match problem {
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
    let mut builder = http1::Builder::new();
    builder.max_buf_size(limits.headers.max(LEAST_BUFFER));
    let answer_time = options.first_byte_timeout.unwrap_or(limits.request_time).min(end.left());
    let exchange = async {
        let (mut sender, connection) = builder.handshake(TokioIo::new(wire)).await?;
        let connection = spawn(async move {
            // Why it broke is told by the request or by its answer.
            let _ = connection.await;
        });
        Ok::<_, hyper::Error>((sender.send_request(request).await?, connection))
    };
    let exchanged = tokio::time::timeout(answer_time, exchange).await.map_err(|_| {
        end.note(&record);
        Error::ConnectionReadTimeout
    })?;
    let (response, connection) = exchanged.map_err(|error| cause(error, &record))?;
    tracing::debug!(target: "plugin", plugin = %record.plugin, call = %record.call, status = response.status().as_u16(), "{}", shown(&method, &url));
    let (mut parts, body) = response.into_parts();
    if header_bytes(&parts.headers) > limits.headers {
        return Err(headers_of_answer(&record));
    }
    mask_headers(&mut parts.headers, &mask)?;
    let between = options.between_bytes_timeout.unwrap_or(limits.request_time).max(Duration::from_millis(1));
    let body = Answer::new(body, Times { end, between }, (mask, record)).boxed_unsync();
    let driver = async move {
        connection.await;
        Ok(())
    };
    Ok((Response::from_parts(parts, body), Box::new(driver)))
}

/// Why an exchange failed. Of a body that was cut at its bound, hyper says only that there is something wrong with it.
fn cause(error: hyper::Error, record: &CallRecord) -> Error {
    if error.is_parse_too_large() {
        return headers_of_answer(record);
    }
    match std::error::Error::source(&error).and_then(|inner| inner.downcast_ref()) {
        Some(Error::HttpRequestBodySize(limit)) => Error::HttpRequestBodySize(*limit),
        _ => error.into(),
    }
}

fn headers_of_answer(record: &CallRecord) -> Error {
    record.cut_request(Limit::Headers(record.limits.headers));
    Error::HttpResponseHeaderSectionSize(u32::try_from(record.limits.headers).ok())
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
