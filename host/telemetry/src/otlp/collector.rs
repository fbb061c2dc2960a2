//! Sends spans to a collector with OTLP over HTTP, and decides what its answer means.

use super::encoding::request_of;
use crate::span::Span;
use agent_core::redaction::Redaction;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, SystemTime};
use url::{Host, Url};

/// The paths of traces and of metrics below the address of a collector.
const TRACES_PATH: &str = "v1/traces";
const METRICS_PATH: &str = "v1/metrics";
const PROTOBUF: &str = "application/x-protobuf";
/// Maximum number of bytes of a response that are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Maximum number of characters of a collector's message that are shown.
const MAX_SHOWN_CHARACTERS: usize = 300;
/// Maximum time that a collector can ask the host to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Where spans are sent.
#[derive(Clone)]
pub struct CollectorConfig {
    /// The address of the collector, such as `http://localhost:4318`. `/v1/traces` is added unless the path ends with it.
    pub url: Url,
    /// Further headers of each request, by name.
    pub headers: BTreeMap<String, String>,
    /// Further headers of each request whose values are secrets, by name.
    pub secret_headers: BTreeMap<String, String>,
    /// The name under which viewers group traces.
    pub project: String,
    /// Maximum time of a request, from the connection to the end of the response.
    pub timeout: Duration,
}

/// A collector to which spans and metrics can be sent.
pub struct Collector {
    url: Url,
    metrics_url: Url,
    project: String,
    headers: HeaderMap,
    redaction: Redaction,
    client: Client,
}

/// Why a collector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCollector {
    /// The address is not an address of an HTTP server.
    #[error("`{0}` is not an address of an HTTP server, such as `http://localhost:4318`")]
    Url(Url),
    /// The name or the value of a header is invalid.
    #[error("the header `{0}` is invalid")]
    Header(String),
    /// The TLS library cannot be initialised.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
}

/// Why spans were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The collector cannot be reached, is busy, or is not configured for the request. Later, it may accept the spans.
    #[error("{message}")]
    Retryable {
        /// What happened.
        message: String,
        /// The time that the collector asks the host to wait.
        retry_after: Option<Duration>,
    },
    /// The request is too large. The collector may accept fewer spans at once.
    #[error("{message}")]
    TooLarge {
        /// What happened.
        message: String,
    },
    /// The collector will never accept the spans.
    #[error("{message}")]
    Rejected {
        /// What happened.
        message: String,
    },
}

impl Collector {
    /// Creates a collector, without contacting it.
    pub fn new(config: CollectorConfig) -> Result<Self, InvalidCollector> {
        // If the process already has a default cryptography provider, this call returns an error, which can be ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, metrics_url) = signal_urls(config.url)?;
        let mut builder = Client::builder().redirect(redirect::Policy::none()).timeout(config.timeout);
        if is_loopback(&url) {
            // A proxy cannot reach this machine under the same address.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| InvalidCollector::Tls(innermost_reason(&error)))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        for (name, value) in config.headers.iter().chain(&config.secret_headers) {
            let invalid = || InvalidCollector::Header(name.clone());
            let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
        }
        let redaction = Redaction::new(config.secret_headers.values().map(String::as_str));
        Ok(Self { url, metrics_url, project: config.project, headers, redaction, client })
    }

    /// The address to which spans are sent.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The secrets in the headers.
    pub fn secrets(&self) -> &Redaction {
        &self.redaction
    }

    /// Sends spans once. Returns the number of spans that the collector has refused although it accepted the request, with
    /// its reason.
    pub async fn send(&self, spans: &[&Span]) -> Result<Option<(i64, String)>, SendError> {
        let body = request_of(&self.project, spans.iter().copied()).encode_to_vec();
        let response = self.post(&self.url, body).await?;
        self.partial_success(response).await
    }

    /// Sends a request without spans, to find out whether the collector accepts requests with these headers.
    pub async fn check(&self) -> Result<(), SendError> {
        let body = request_of(&self.project, []).encode_to_vec();
        let response = self.post(&self.url, body).await?;
        let _ = read_bounded(response).await;
        Ok(())
    }

    /// Sends an encoded request with metrics once.
    pub(crate) async fn send_metrics(&self, body: Vec<u8>) -> Result<(), SendError> {
        let response = self.post(&self.metrics_url, body).await?;
        // The answer is read, so that the connection can be used again. Metrics are cumulative, and the collector reports
        // those that it refuses in its own log.
        let _ = read_bounded(response).await;
        Ok(())
    }

    /// Sends a request, and returns the response if the collector has accepted it.
    async fn post(&self, url: &Url, body: Vec<u8>) -> Result<Response, SendError> {
        let request = self.client.post(url.clone()).headers(self.headers.clone()).body(body);
        let response = request.send().await.map_err(|error| unreachable(url, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers(), SystemTime::now());
        let text = self.shown(&read_bounded(response).await.unwrap_or_default());
        let message = format!("{url} answered {status}{text}");
        Err(match status {
            StatusCode::PAYLOAD_TOO_LARGE => SendError::TooLarge { message },
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => {
                SendError::Rejected { message }
            }
            // The protocol allows retries only for 429, 502, 503 and 504. The other errors are usually errors of the
            // configuration or of the collector that somebody corrects, and the spans must not be lost until then.
            _ => SendError::Retryable { message, retry_after },
        })
    }

    async fn partial_success(&self, response: Response) -> Result<Option<(i64, String)>, SendError> {
        // The collector has accepted the spans, even if the rest of its answer cannot be read.
        let body = read_bounded(response).await.unwrap_or_default();
        let answer = ExportTraceServiceResponse::decode(body.as_slice()).unwrap_or_default();
        let partial = answer.partial_success.filter(|partial| partial.rejected_spans > 0);
        Ok(partial.map(|partial| (partial.rejected_spans, self.shown(partial.error_message.as_bytes()))))
    }

    /// Returns a text of the collector for messages to users.
    fn shown(&self, text: &[u8]) -> String {
        let text: String = String::from_utf8_lossy(text).chars().filter(|letter| !letter.is_control()).collect();
        let text = self.redaction.text(text);
        match text.trim() {
            "" => String::new(),
            text => format!(": {}", text.chars().take(MAX_SHOWN_CHARACTERS).collect::<String>()),
        }
    }
}

/// Returns the addresses of traces and of metrics. `url` may already be the address of one of them.
fn signal_urls(url: Url) -> Result<(Url, Url), InvalidCollector> {
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(InvalidCollector::Url(url));
    }
    let path = url.path().trim_end_matches('/');
    let base = [TRACES_PATH, METRICS_PATH].into_iter().find_map(|signal| path.strip_suffix(signal));
    let base = base.unwrap_or(path).trim_end_matches('/');
    let at = |signal: &str| {
        let mut signal_url = url.clone();
        signal_url.set_path(&format!("{base}/{signal}"));
        signal_url
    };
    Ok((at(TRACES_PATH), at(METRICS_PATH)))
}

fn unreachable(url: &Url, error: &reqwest::Error) -> SendError {
    let message = format!("cannot send to {url}: {}", innermost_reason(error));
    SendError::Retryable { message, retry_after: None }
}

/// Reads the body of a response up to the maximum size. Returns `None` if the connection breaks.
async fn read_bounded(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece[..piece.len().min(MAX_RESPONSE_BYTES - body.len())]);
        if body.len() == MAX_RESPONSE_BYTES {
            break;
        }
    }
    Some(body)
}

/// Returns the time that the header `retry-after` asks for, as a number of seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn innermost_reason(error: &dyn Error) -> String {
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_the_address_is_completed() {
        let urls = |text: &str| {
            signal_urls(text.parse().expect("a URL")).map(|(traces, metrics)| [traces, metrics].map(String::from))
        };
        for (text, base) in [
            ("http://localhost:4318", "http://localhost:4318"),
            ("https://c.example/api/public/otel/", "https://c.example/api/public/otel"),
            ("http://localhost:6006/v1/traces", "http://localhost:6006"),
            ("http://localhost:6006/x/v1/metrics/", "http://localhost:6006/x"),
        ] {
            assert_eq!(urls(text), Ok([format!("{base}/v1/traces"), format!("{base}/v1/metrics")]));
        }
        assert!(urls("file:///tmp/x").is_err());
    }

    #[test]
    fn o1_retry_after_is_a_time_or_a_date_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let wait = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).expect("a header"))]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("7"), Some(7));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
        assert_eq!((wait("9999999999"), wait("soon")), (Some(600), None));
    }
}
