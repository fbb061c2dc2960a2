//! A guest's requests: each is counted, authorised, given its secrets and sent; its answer comes back bounded.

use super::body::{Answer, Question, Times};
use super::connect::{Network, NoConnection};
use super::pattern::HttpPattern;
use super::secret::{Mask, Secret};
use crate::grants::{Grants, http_denied};
use crate::limits::{HEADER_BYTES, REQUEST_BODY_BYTES, REQUEST_TIME, REQUESTS, RESPONSE_BODY_BYTES};
use crate::record::CallRecord;
use crate::text::clean;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use hyper::{HeaderMap, Request, Response, Uri};
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
        dress(&mut parts.headers, &url, &secrets)?;
        // The path and the query as they were judged: no dots to climb with.
        let target = &url[url::Position::BeforePath..];
        parts.uri = target.parse::<Uri>().map_err(|_| Error::HttpRequestUriInvalid)?;
        let mask = Mask::new(secrets.into_iter());
        let request = Request::from_parts(parts, Question::new(body, REQUEST_BODY_BYTES, Arc::clone(&self.record)));
        let end = Instant::now() + REQUEST_TIME.min(self.record.time_left());
        Ok(Authorised { request, url, patterns, mask, end, options })
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

async fn send(authorised: Authorised, record: Arc<CallRecord>, network: &Network) -> Sent {
    let Authorised { request, url, patterns, mask, end, options } = authorised;
    let method = request.method().as_str().to_owned();
    let connect_time = options.connect_timeout.unwrap_or(REQUEST_TIME).min(left(end));
    let wire = network.connect(&url, &patterns, connect_time).await.map_err(|problem| match problem {
        NoConnection::Failed(error) => error,
        NoConnection::Refused(address, what) => {
            let thing = format!("{}: {address} is {what}", shown(&method, &url));
            let (thing, advice) = http_denied(&record.plugin.name, &thing, &inner_line(&method, &url, address));
            record.deny(thing, advice);
            Error::DestinationIpProhibited
        }
    })?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEADER_BYTES);
    let answer_time = options.first_byte_timeout.unwrap_or(REQUEST_TIME).min(left(end));
    let exchange = async {
        let (mut sender, connection) = builder.handshake(TokioIo::new(wire)).await?;
        let connection = spawn(async move {
            // Why it broke is told by the request or by its answer.
            let _ = connection.await;
        });
        Ok::<_, hyper::Error>((sender.send_request(request).await?, connection))
    };
    let (response, connection) =
        tokio::time::timeout(answer_time, exchange).await.map_err(|_| Error::ConnectionReadTimeout)?.map_err(cause)?;
    tracing::debug!(target: "plugin", plugin = %record.plugin, call = %record.call, status = response.status().as_u16(), "{}", shown(&method, &url));
    let (mut parts, body) = response.into_parts();
    mask_headers(&mut parts.headers, &mask)?;
    let between = options.between_bytes_timeout.unwrap_or(REQUEST_TIME).max(Duration::from_millis(1));
    let body = Answer::new(body, RESPONSE_BODY_BYTES, Times { end, between }, (mask, record)).boxed_unsync();
    let driver = async move {
        connection.await;
        Ok(())
    };
    Ok((Response::from_parts(parts, body), Box::new(driver)))
}

/// Why an exchange failed. Of a body that was cut at its bound, hyper says only that there is something wrong with it.
fn cause(error: hyper::Error) -> Error {
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
