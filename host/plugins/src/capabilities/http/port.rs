//! HTTP requests that the embedder answers instead of the network, in tests and replays. The requests that the embedder
//! answers are counted and authorised like all other requests, but no connection is made.

use super::body::RequestBody;
use super::exchange::response_headers_too_large;
use super::outgoing::{Authorised, Sent, header_bytes, redacted_headers};
use crate::limits::Limit;
use crate::ports::http::{BodyCompleteness, HttpPort, HttpPortRequest, HttpPortResponse, HttpRefusal};
use crate::recording::CallRecord;
use agent_core::message::Digest;
use agent_core::redaction::Edges;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use std::sync::Arc;
use wasmtime_wasi_http::Error;

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

/// The variant of [`HttpRefusal`] that is closest to this error.
pub(super) fn refusal_for(error: &Error) -> HttpRefusal {
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

/// Gets the response from the port, within the request's limits on time and size.
pub(super) async fn respond_from_port(authorised: Authorised, record: Arc<CallRecord>, port: &dyn HttpPort) -> Sent {
    let Authorised { request, url, own_headers, end, number, .. } = authorised;
    let question = question(request, &record, (url.to_string(), own_headers)).await?;
    let answer = match tokio::time::timeout(end.time_left(), port.answer(question)).await {
        Ok(answer) => answer?,
        Err(_) => {
            end.record_if_passed(&record);
            return Err(Error::ConnectionReadTimeout);
        }
    };
    let HttpPortResponse { status, headers, mut body, ending } = answer;
    let mut headers = headers_in(headers)?;
    let limits = record.limits;
    if header_bytes(&headers) > limits.headers {
        return Err(response_headers_too_large(&record));
    }
    if body.len() > limits.response_body {
        record.record_request_limit(Limit::ResponseBody(limits.response_body));
        return Err(Error::HttpResponseBodySize(Some(limits.response_body as u64)));
    }
    headers = redacted_headers(headers, &url, &record)?;
    body = record.secrets.redaction().bytes(&body, Edges::Cut).unwrap_or(body);
    record.count_bytes_to_guest(body.len());
    record.answers.response_started(number, status, &headers);
    record.answers.response_body(number, &body);
    if ending == BodyCompleteness::Whole {
        record.answers.response_ended(number);
    }
    let end = (ending == BodyCompleteness::Broken).then_some(Err(Error::ConnectionTerminated));
    let frames = std::iter::once(Ok(Frame::data(Bytes::from(body)))).chain(end);
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Error::HttpProtocolError)?;
    *response.headers_mut() = headers;
    Ok((response, Box::new(std::future::ready(Ok(())))))
}

async fn question(
    request: hyper::Request<RequestBody>,
    record: &CallRecord,
    (url, own_headers): (String, Digest),
) -> Result<HttpPortRequest, Error> {
    let (parts, body) = request.into_parts();
    let text =
        |(name, value): (&HeaderName, &HeaderValue)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()));
    Ok(HttpPortRequest {
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
