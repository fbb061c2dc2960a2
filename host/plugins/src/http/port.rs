//! Requests that are answered by the embedder instead of the network: in tests, and where a session is run again. They are
//! counted and authorised like all others, and no connection is made.

use super::body::Question;
use super::exchange::headers_of_answer;
use super::outgoing::{Authorised, Sent, header_bytes, readable};
use crate::limits::Limit;
use crate::record::CallRecord;
use agent_core::message::Digest;
use agent_core::redaction::Edges;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wasmtime_wasi_http::Error;

/// Answers the requests of guests.
#[async_trait::async_trait]
pub trait HttpPort: Send + Sync {
    /// The whole answer. Dropping the future cancels the request.
    async fn answer(&self, question: HttpQuestion) -> Result<HttpAnswer, HttpRefusal>;
}

/// A request as it would be sent, its secrets included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuestion {
    /// The plugin's name.
    pub plugin: String,
    /// Its call's id.
    pub call: String,
    /// In capitals.
    pub method: String,
    /// Whole.
    pub url: String,
    /// Names in lower case. Values that are no text are left out.
    pub headers: Vec<(String, String)>,
    /// Of the headers that the guest has written itself, without its trace.
    pub own_headers: Digest,
    /// Whole.
    pub body: Vec<u8>,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// From 100 to 599.
    pub status: u16,
    /// In order.
    pub headers: Vec<(String, String)>,
    /// As far as it comes.
    pub body: Vec<u8>,
    /// What comes behind the body.
    pub ending: HttpEnding,
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpEnding {
    /// It was all.
    #[default]
    Whole,
    /// The connection broke.
    Broken,
}

/// Why there is no answer, as the guest learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpRefusal {
    /// As where nothing is granted.
    Denied,
    /// As where the address is one of the inside.
    AddressDenied,
    /// The name has no address.
    NoSuchName,
    /// Nobody listens there.
    ConnectionRefused,
    /// The connection broke.
    ConnectionBroken,
    /// The answer did not come in time.
    Timeout,
}

impl From<HttpRefusal> for Error {
    fn from(refusal: HttpRefusal) -> Self {
        match refusal {
            HttpRefusal::Denied => Error::HttpRequestDenied,
            HttpRefusal::AddressDenied => Error::DestinationIpProhibited,
            HttpRefusal::NoSuchName => Error::DestinationNotFound,
            HttpRefusal::ConnectionRefused => Error::ConnectionRefused,
            HttpRefusal::ConnectionBroken => Error::ConnectionTerminated,
            HttpRefusal::Timeout => Error::ConnectionReadTimeout,
        }
    }
}

/// What is nearest to this failure.
pub(super) fn refusal_of(error: &Error) -> HttpRefusal {
    match error {
        Error::HttpRequestDenied => HttpRefusal::Denied,
        Error::DestinationIpProhibited => HttpRefusal::AddressDenied,
        Error::DestinationNotFound | Error::DnsError { .. } => HttpRefusal::NoSuchName,
        Error::ConnectionRefused => HttpRefusal::ConnectionRefused,
        Error::ConnectionTimeout
        | Error::ConnectionReadTimeout
        | Error::ConnectionWriteTimeout
        | Error::DnsTimeout
        | Error::HttpResponseTimeout => HttpRefusal::Timeout,
        _ => HttpRefusal::ConnectionBroken,
    }
}

/// Has the port answer, in the request's time and within its bounds.
pub(super) async fn by_port(authorised: Authorised, record: Arc<CallRecord>, port: &dyn HttpPort) -> Sent {
    let Authorised { request, url, own_headers, end, number, .. } = authorised;
    let question = question(request, &record, (url.to_string(), own_headers)).await?;
    let answer = match tokio::time::timeout(end.left(), port.answer(question)).await {
        Ok(answer) => answer?,
        Err(_) => {
            end.note(&record);
            return Err(Error::ConnectionReadTimeout);
        }
    };
    let HttpAnswer { status, headers, mut body, ending } = answer;
    let mut headers = headers_in(headers)?;
    let limits = record.limits;
    if header_bytes(&headers) > limits.headers {
        return Err(headers_of_answer(&record));
    }
    if body.len() > limits.response_body {
        record.cut_request(Limit::ResponseBody(limits.response_body));
        return Err(Error::HttpResponseBodySize(Some(limits.response_body as u64)));
    }
    headers = readable(headers, &url, &record)?;
    body = record.secrets.redaction().bytes(&body, Edges::Cut).unwrap_or(body);
    record.give(body.len());
    record.answers.came(number, status, &headers);
    record.answers.given(number, &body);
    if ending == HttpEnding::Whole {
        record.answers.ended(number);
    }
    let end = (ending == HttpEnding::Broken).then_some(Err(Error::ConnectionTerminated));
    let frames = std::iter::once(Ok(Frame::data(Bytes::from(body)))).chain(end);
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Error::HttpProtocolError)?;
    *response.headers_mut() = headers;
    Ok((response, Box::new(std::future::ready(Ok(())))))
}

async fn question(
    request: hyper::Request<Question>,
    record: &CallRecord,
    (url, own_headers): (String, Digest),
) -> Result<HttpQuestion, Error> {
    let (parts, body) = request.into_parts();
    let text =
        |(name, value): (&HeaderName, &HeaderValue)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()));
    Ok(HttpQuestion {
        plugin: record.plugin.name.clone(),
        call: record.call.clone(),
        method: parts.method.as_str().to_owned(),
        url,
        headers: parts.headers.iter().filter_map(text).collect(),
        own_headers,
        body: body.collect().await?.to_bytes().to_vec(),
    })
}

fn headers_in(headers: Vec<(String, String)>) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Error::HttpProtocolError)?;
        map.append(name, HeaderValue::from_str(&value).map_err(|_| Error::HttpProtocolError)?);
    }
    Ok(map)
}
