//! Sends HTTP requests through `wasi:http`. A plugin that uses this module needs the grant `http`. A plugin that does
//! not use this module does not import `wasi:http`. This module does not follow redirects. To follow a redirect, send a
//! request to the address in the header `location`.

use crate::tool::ToolError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::{Display, Write};
use std::time::Duration;

/// Maximum number of characters of a response's body in an error message.
const SHOWN_BODY: usize = 500;

/// The reason why a request has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address does not start with `http://` or `https://`, or is invalid.
    #[error("`{0}` is not an http or https address")]
    Url(String),
    /// The agent's configuration does not grant this request, or does not grant access to the IP address of the
    /// request's host.
    #[error("the request {0} is not granted")]
    Denied(String),
    /// The server did not respond within the time limit, or the connection failed.
    #[error("there is no response: {0}")]
    Unavailable(String),
    /// The body of the response is larger than the limit that [`Request::at_most`] sets. The error contains this limit
    /// in bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    /// The status of the response is not a success. Only [`Response::expect_ok`] returns this error.
    #[error("{request} was answered with the status {status}{}{body}", if body.is_empty() { "" } else { ": " })]
    Status {
        /// The method and the address of the request, without the query.
        request: String,
        /// The HTTP status code.
        status: u16,
        /// The beginning of the response's body, which often contains the reason.
        body: String,
        /// The time after which the server accepts the request, if the server named this time in seconds.
        retry_after: Option<Duration>,
    },
    /// The body of the response is not the expected JSON. The error contains the request and the reason.
    #[error("the response to {0} is not the expected JSON: {1}")]
    NotJson(String, String),
}

impl From<HttpError> for ToolError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Url(_) => ToolError::invalid("/url", error.to_string()),
            HttpError::Denied(_) => ToolError::denied(error.to_string()),
            HttpError::Unavailable(_) => ToolError::unavailable(error.to_string()),
            HttpError::TooLarge(_) | HttpError::NotJson(..) => ToolError::failed(error.to_string()),
            HttpError::Status { status, retry_after, .. } => match (status, retry_after) {
                (404 | 410, _) => ToolError::not_found(error.to_string()),
                (401 | 403, _) => ToolError::denied(error.to_string()),
                (429 | 500.., Some(time)) => ToolError::unavailable_for(error.to_string(), time),
                (429 | 500.., None) => ToolError::unavailable(error.to_string()),
                _ => ToolError::failed(error.to_string()),
            },
        }
    }
}

/// An HTTP request that a plugin can send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method in capital letters, such as `GET`.
    pub method: String,
    /// The address with scheme and host.
    pub url: String,
    /// Names and values of the headers. The host adds the headers that the protocol needs, and the secrets that the
    /// agent grants for this destination.
    pub headers: Vec<(String, String)>,
    /// The body of the request. The maximum size is 1 MiB.
    pub body: Vec<u8>,
    /// Maximum size of the response body in bytes. If the body is larger, the request fails. The default is 1 MiB, and
    /// the host accepts values up to 10 MiB.
    pub at_most: usize,
}

/// An HTTP response. A response with an error status, such as 404, is not an [`HttpError`]; use
/// [`expect_ok`](Self::expect_ok) to make it one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The method and the address of the request, without the query, for messages.
    pub request: String,
    /// The HTTP status code, such as 200.
    pub status: u16,
    /// The names and values of the headers. The names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes of the response body, unchanged.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a request with this method in capital letters, without headers and without a body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { method: method.into(), url: url.into(), headers: Vec::new(), body: Vec::new(), at_most: 1024 * 1024 }
    }

    /// Creates a GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Creates a POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Creates a PUT request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// Creates a DELETE request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// Adds a name and a value to the query of the address. The address must not have a fragment (`#…`).
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        self.url.push(if self.url.contains('?') { '&' } else { '?' });
        encode(name, &mut self.url);
        self.url.push('=');
        encode(&value.to_string(), &mut self.url);
        self
    }

    /// Sets the body of the request. The maximum size is 1 MiB.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON value as the body of the request, and the header `content-type`.
    pub fn json(self, value: &Value) -> Self {
        self.header("content-type", "application/json").body(value.to_string())
    }

    /// Adds a header to the request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the maximum size of the response body in bytes.
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.at_most = bytes;
        self
    }

    /// Sends the request and waits for the complete response.
    pub fn send(self) -> Result<Response, HttpError> {
        backend::send(self)
    }
}

/// Appends a text in the form that a part of an address needs, for example `a%20b`.
fn encode(text: &str, url: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => url.push(char::from(byte)),
            // Writing to a string cannot fail.
            other => drop(write!(url, "%{other:02X}")),
        }
    }
}

/// Returns the method and the address of a request without its query.
fn described(request: &Request) -> String {
    format!("{} {}", request.method, request.url.split(['?', '#']).next().unwrap_or_default())
}

impl Response {
    /// Creates a response without headers, for tests.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    /// Whether the status is 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the body as a text. Invalid bytes are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body, parsed as JSON. Fields that `T` does not have are ignored.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| HttpError::NotJson(self.request.clone(), error.to_string()))
    }

    /// Returns this response if its status is a success, and otherwise an error. The error becomes the tool error *not
    /// found*, *denied*, *unavailable*, after which the host may repeat the call, or *failed*.
    pub fn expect_ok(self) -> Result<Self, HttpError> {
        if self.is_success() {
            return Ok(self);
        }
        let body = self.text().trim().chars().take(SHOWN_BODY).collect();
        let retry_after = self.header("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Err(HttpError::Status { status: self.status, request: self.request, body, retry_after })
    }

    /// Returns the value of the first header with this name, or `None` if the header does not exist. `name` must be in
    /// lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(target_arch = "wasm32")]
mod backend {
    use super::{HttpError, Request, Response, described};
    use wasip2::http::outgoing_handler::handle;
    use wasip2::http::types::{
        ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
    };
    use wasip2::io::streams::StreamError;

    pub(super) fn send(request: Request) -> Result<Response, HttpError> {
        let description = described(&request);
        let convert_error = |error: ErrorCode| match error {
            ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => HttpError::Denied(description.clone()),
            ErrorCode::InternalError(Some(text)) => HttpError::Unavailable(text),
            ErrorCode::HttpResponseBodySize(Some(limit)) => HttpError::TooLarge(limit as usize),
            ErrorCode::TlsCertificateError => {
                HttpError::Unavailable("the host does not trust the server's certificate".to_owned())
            }
            other => HttpError::Unavailable(other.to_string()),
        };
        let outgoing = outgoing_request(&request)?;
        let body = outgoing.body().map_err(|()| HttpError::Unavailable("the request cannot have a body".to_owned()))?;
        let pending_response = handle(outgoing, None).map_err(convert_error)?;
        write(&body, &request.body)?;
        OutgoingBody::finish(body, None).map_err(convert_error)?;
        pending_response.subscribe().block();
        let response = pending_response
            .get()
            .and_then(Result::ok)
            .ok_or_else(|| HttpError::Unavailable("the response is missing".to_owned()))?;
        let response = read(response.map_err(convert_error)?, request.at_most)?;
        Ok(Response { request: description, ..response })
    }

    fn outgoing_request(request: &Request) -> Result<OutgoingRequest, HttpError> {
        let invalid_url = || HttpError::Url(request.url.clone());
        let (scheme, after_scheme) = request.url.split_once("://").ok_or_else(invalid_url)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(invalid_url()),
        };
        let after_scheme = after_scheme.split('#').next().unwrap_or_default();
        let path_start = after_scheme.find(['/', '?']).unwrap_or(after_scheme.len());
        let (authority, path) = after_scheme.split_at(path_start);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let fields = Fields::new();
        for (name, value) in &request.headers {
            let result = fields.append(name, value.as_bytes());
            result.map_err(|error| HttpError::Unavailable(format!("the header `{name}`: {error}")))?;
        }
        let outgoing = OutgoingRequest::new(fields);
        let method = match request.method.as_str() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            other => Method::Other(other.to_owned()),
        };
        outgoing.set_method(&method).map_err(|()| invalid_url())?;
        outgoing.set_scheme(Some(&scheme)).map_err(|()| invalid_url())?;
        outgoing.set_authority(Some(authority)).map_err(|()| invalid_url())?;
        outgoing.set_path_with_query(Some(&path)).map_err(|()| invalid_url())?;
        Ok(outgoing)
    }

    fn write(body: &OutgoingBody, bytes: &[u8]) -> Result<(), HttpError> {
        let failed = |reason: String| HttpError::Unavailable(format!("the request cannot be sent: {reason}"));
        let stream = body.write().map_err(|()| failed("the request has no body".to_owned()))?;
        for chunk in bytes.chunks(4096) {
            stream.blocking_write_and_flush(chunk).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    fn read(response: IncomingResponse, at_most: usize) -> Result<Response, HttpError> {
        let interrupted = |reason: String| HttpError::Unavailable(format!("the response was interrupted: {reason}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let headers =
            response.headers().entries().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value)));
        let (status, headers) = (response.status(), headers.collect());
        let body: IncomingBody = response.consume().map_err(|()| interrupted("the response has no body".to_owned()))?;
        let stream = body.stream().map_err(|()| interrupted("the response has no body".to_owned()))?;
        let mut bytes = Vec::new();
        loop {
            match stream.blocking_read(64 * 1024) {
                Ok(chunk) if bytes.len() + chunk.len() > at_most => return Err(HttpError::TooLarge(at_most)),
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(StreamError::Closed) => {
                    return Ok(Response { status, headers, body: bytes, ..Response::default() });
                }
                Err(StreamError::LastOperationFailed(error)) => return Err(interrupted(error.to_debug_string())),
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod backend {
    use super::{HttpError, Request, Response, described};
    use crate::testing::with_state;

    pub(super) fn send(request: Request) -> Result<Response, HttpError> {
        let found = with_state(|state| {
            state.requests.push(request.clone());
            state.responses.get(&request.url).cloned()
        });
        let response = found.ok_or_else(|| HttpError::Denied(described(&request)))?;
        let response = Response { request: described(&request), ..response };
        if response.body.len() > request.at_most { Err(HttpError::TooLarge(request.at_most)) } else { Ok(response) }
    }
}

#[cfg(test)]
mod tests {
    use super::{HttpError, Request, Response};
    use crate::testing::Host;
    use crate::tool::ToolError;
    use serde_json::{Value, json};
    use std::time::Duration;

    #[test]
    fn builds_requests_with_query_and_json() {
        let request = Request::post("https://a.example/x").query("q", "a b&ö").query("n", 2).json(&json!({ "a": 1 }));
        assert_eq!(request.url, "https://a.example/x?q=a%20b%26%C3%B6&n=2");
        assert_eq!(request.body, br#"{"a":1}"#);
        assert_eq!(request.headers, [("content-type".to_owned(), "application/json".to_owned())]);
    }

    #[test]
    fn error_statuses_become_errors_of_tools() {
        let url = "https://a.example/x?token=1";
        let answer = |response: Response| {
            let mut host = Host::new().response(url, response);
            host.run(|| Ok::<_, ToolError>(Request::get(url).send()?.expect_ok()?.json::<Value>()?))
        };
        let message = "GET https://a.example/x was answered with the status 404: no such x";
        assert_eq!(answer(Response::new(404, " no such x\n")), Err(ToolError::not_found(message)));
        assert!(matches!(answer(Response::new(403, "")), Err(ToolError::Denied(_))));
        assert!(matches!(answer(Response::new(400, "")), Err(ToolError::Failed(_))));
        let busy = Response { headers: vec![("retry-after".to_owned(), "2".to_owned())], ..Response::new(429, "") };
        let message = "GET https://a.example/x was answered with the status 429";
        assert_eq!(answer(busy), Err(ToolError::unavailable_for(message, Duration::from_secs(2))));
        assert_eq!(answer(Response::new(200, "[1]")), Ok(json!([1])));
        assert!(matches!(answer(Response::new(200, "no")), Err(ToolError::Failed(text)) if text.contains("JSON")));
        let denied = Host::new().run(|| Request::get(url).send());
        assert_eq!(denied, Err(HttpError::Denied("GET https://a.example/x".to_owned())));
    }
}
